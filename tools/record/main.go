// Command record runs a program and writes what it prints as an animated SVG: each line
// appears when the program printed it. README's recording of the demo is made so:
//
//	cd tools && go run ./record -slow 8 -title "hora demo --kill" -o ../docs/demo.svg -- ../bin/hora demo --kill --plain
//
// What shows no animation shows the last screen.
// It runs in one goroutine.
package main

import (
	"bufio"
	"errors"
	"flag"
	"fmt"
	"html"
	"os"
	"os/exec"
	"strings"
	"time"
)

type line struct {
	at   float64 // seconds since the start
	text string
}

func main() {
	out := flag.String("o", "recording.svg", "file to write")
	title := flag.String("title", "", "the command as shown on the first line")
	slow := flag.Float64("slow", 1, "show it so many times slower than it ran, and say so")
	hold := flag.Float64("hold", 6, "seconds that the last screen stays before the recording begins again")
	flag.Parse()
	if err := record(*out, *title, *slow, *hold, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "record:", err)
		os.Exit(1)
	}
}

func record(out, title string, slow, hold float64, argv []string) error {
	if len(argv) == 0 {
		return errors.New("nothing to run: record [flags] -- COMMAND…")
	}
	cmd := exec.Command(argv[0], argv[1:]...)
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if slow <= 0 {
		return fmt.Errorf("-slow %v: a recording goes forward", slow)
	}
	lines := []line{{0, "$ " + title}}
	if slow != 1 {
		lines[0].text += fmt.Sprintf("    # shown %v times slower than it ran", slow)
	}
	began := time.Now()
	if err := cmd.Start(); err != nil {
		return err
	}
	text := bufio.NewScanner(pipe)
	for text.Scan() {
		lines = append(lines, line{time.Since(began).Seconds()*slow + 0.3, text.Text()})
	}
	if err := errors.Join(text.Err(), cmd.Wait()); err != nil {
		return fmt.Errorf("run %s: %w", argv[0], err)
	}
	return os.WriteFile(out, []byte(draw(lines, hold)), 0o644)
}

const (
	rowHeight   = 17
	columnWidth = 7.3
	margin      = 14
)

func draw(lines []line, hold float64) string {
	columns := 0
	for _, l := range lines {
		columns = max(columns, len([]rune(l.text)))
	}
	total := lines[len(lines)-1].at + hold
	width, height := float64(columns)*columnWidth+2*margin, len(lines)*rowHeight+2*margin
	var s strings.Builder
	fmt.Fprintf(&s, `<svg xmlns="http://www.w3.org/2000/svg" width="%.0f" height="%d" font-family="monospace" font-size="12">`+"\n", width, height)
	s.WriteString("<style>text{fill:#d8dee9;white-space:pre;animation-iteration-count:infinite;animation-timing-function:step-end}")
	s.WriteString("@media (prefers-reduced-motion: reduce){text{animation:none!important}}\n")
	for i, l := range lines {
		fmt.Fprintf(&s, "@keyframes k%d{0%%{opacity:0}%.2f%%{opacity:1}100%%{opacity:1}}#l%d{animation-name:k%d;animation-duration:%.2fs}\n",
			i, max(l.at/total*100, 0.01), i, i, total)
	}
	fmt.Fprintf(&s, "</style><rect width=\"100%%\" height=\"100%%\" rx=\"6\" fill=\"#20242c\"/>\n")
	for i, l := range lines {
		fmt.Fprintf(&s, `<text id="l%d" x="%d" y="%d" xml:space="preserve">%s</text>`+"\n", i, margin, margin+12+i*rowHeight, html.EscapeString(l.text))
	}
	s.WriteString("</svg>\n")
	return s.String()
}
