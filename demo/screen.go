package demo

import (
	"fmt"
	"io"
	"strings"
)

// Terminal says what the output can show. The zero value is a pipe.
type Terminal struct {
	Live   bool // lines may be rewritten in place
	Width  int  // columns; 0 when unknown
	Colour bool
}

// screen shows progress: lines that follow each other when piped, a block that is
// rewritten in place on a terminal. One goroutine uses it.
type screen struct {
	out   io.Writer
	term  Terminal
	ranks bool // one line per rank below the bar
	drawn int  // lines of the block now on the terminal
}

func (s *screen) say(format string, args ...any) {
	s.erase()
	fmt.Fprintf(s.out, format+"\n", args...)
}

func (s *screen) erase() {
	if s.drawn > 0 {
		fmt.Fprintf(s.out, "\x1b[%dA\x1b[J", s.drawn)
		s.drawn = 0
	}
}

// epoch shows the last finished epoch.
func (s *screen) epoch(p *Progress) {
	pt := p.Points[len(p.Points)-1]
	if !s.term.Live {
		fmt.Fprintln(s.out, p.Line(pt, 0))
		if s.ranks {
			for _, line := range p.RankLines(0) {
				fmt.Fprintln(s.out, line)
			}
		}
		return
	}
	width := s.term.Width
	if width == 0 {
		width = 80
	}
	lines := []string{s.bar(float64(pt.Epoch)/float64(max(p.Epochs, 1)), width), p.Line(pt, width-1)}
	if s.ranks {
		lines = append(lines, p.RankLines(width-1)...)
	}
	s.erase()
	fmt.Fprint(s.out, strings.Join(lines, "\n")+"\n")
	s.drawn = len(lines)
}

func (s *screen) bar(done float64, width int) string {
	room := min(width-8, 60)
	if room < 4 {
		return fmt.Sprintf("%3.0f %%", done*100)
	}
	full := int(done * float64(room))
	return fmt.Sprintf("[%s%s] %3.0f %%", s.paint("32", strings.Repeat("=", full)), strings.Repeat(" ", room-full), done*100)
}

func (s *screen) paint(code, text string) string {
	if !s.term.Colour || text == "" {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

// wrap breaks a line between words so that it fits width columns (0: any); what goes on
// is indented as far as the line itself, and a little more.
func wrap(line string, width int) string {
	if width <= 0 || len([]rune(line)) <= width {
		return line
	}
	indent := strings.Repeat(" ", min(len(line)-len(strings.TrimLeft(line, " "))+2, width/2))
	var out, row []string
	used := len(indent) - 2
	for _, word := range strings.Fields(line) {
		n := len([]rune(word))
		if len(row) > 0 && used+1+n > width {
			out, row, used = append(out, strings.Join(row, " ")), nil, len(indent)
		}
		row, used = append(row, word), used+n+min(len(row), 1)
	}
	return indent[2:] + strings.Join(append(out, strings.Join(row, " ")), "\n"+indent)
}
