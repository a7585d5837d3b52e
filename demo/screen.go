package demo

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
)

// Terminal says what the output can show. The zero value is a pipe.
type Terminal struct {
	Live   bool // lines may be rewritten in place
	Width  int  // columns; 0 when unknown
	Colour bool
}

// screen shows progress: lines that follow each other when piped, a block that is
// rewritten in place on a terminal. Any goroutine may use it.
type screen struct {
	out, err io.Writer // the results, and what went wrong; both may be the same terminal
	term     Terminal
	ranks    bool // one line per rank below the epoch's

	mu    sync.Mutex // guards block, and that writes to the terminal do not mix
	block []string   // the lines now on the terminal that the next write replaces
}

// say writes what stays, broken between words where the terminal ends.
func (s *screen) say(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	io.WriteString(s.out, s.erase()+wrap(fmt.Sprintf(format, args...), s.term.Width)+"\n")
}

// complain passes on a line that a worker wrote to standard error.
func (s *screen) complain(line string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.erase(); e != "" {
		io.WriteString(s.out, e)
	}
	io.WriteString(s.err, line+"\n")
}

// erase is what takes the block from the terminal. What a key typed meanwhile left there
// goes with it: the cursor may stand in any column.
func (s *screen) erase() string {
	n := len(s.block)
	if n == 0 {
		return ""
	}
	s.block = nil
	return fmt.Sprintf("\r\x1b[%dA\x1b[J", n)
}

// end is called when a training is over: its block stays as the last state of things, or
// goes if it was aside.
func (s *screen) end(aside bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	block := s.block
	text := s.erase()
	if !aside && len(block) > 0 {
		text += strings.Join(block, "\n") + "\n"
	}
	io.WriteString(s.out, text)
}

// epoch shows a finished epoch. Of a training aside a pipe shows nothing.
func (s *screen) epoch(p *Progress, last Point, aside bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	width := s.term.Width - 1 // no line reaches the edge: terminals differ in what follows
	if s.term.Width <= 0 {
		width = 79
	}
	var rows []string
	if s.term.Live {
		rows = []string{
			s.bar(float64(last.Epoch)/float64(max(p.Epochs, 1)), width), p.Line(last, width),
			p.curves(width),
		}
	} else {
		width, rows = 0, []string{p.Line(last, 0)}
	}
	if s.ranks {
		rows = append(rows, p.RankLines(width)...)
	}
	text := strings.Join(rows, "\n") + "\n"
	switch {
	case s.term.Live:
		text = s.erase() + text
		s.block = rows
	case aside:
		return
	}
	io.WriteString(s.out, text)
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

// curves are loss and accuracy so far, in small.
func (p *Progress) curves(width int) string {
	room := (width - len("loss   test ")) / 2
	if room < 4 {
		return ""
	}
	var loss, test []float64
	for _, pt := range p.Points {
		loss, test = append(loss, pt.Loss), append(test, pt.Accuracy)
	}
	return "loss " + spark(loss, room) + "  test " + spark(test, room)
}

// spark draws values as small columns, at most room of them.
func spark(values []float64, room int) string {
	columns := []rune("▁▂▃▄▅▆▇█")
	low, high := slices.Min(values), slices.Max(values)
	n := min(len(values), room)
	var row strings.Builder
	for i := range n {
		v := values[(i+1)*len(values)/n-1] // the last one is always shown
		at := 0
		if high > low {
			at = int((v - low) / (high - low) * float64(len(columns)-1))
		}
		row.WriteRune(columns[at])
	}
	return row.String()
}

// wrap breaks a line between words so that it fits width columns (0: any). What goes on
// stands below the text of a row with a label, else a little to the right of the line.
func wrap(line string, width int) string {
	if width <= 0 {
		return line
	}
	rest := []rune(line)
	start, hang := columns(rest)
	if hang > width/2 {
		hang = min(start+2, width/2)
	}
	var rows []string
	for len(rest) > width {
		at := width
		for at > start && rest[at] != ' ' {
			at--
		}
		if at == start { // one word, wider than the terminal
			for at = width; at < len(rest) && rest[at] != ' '; {
				at++
			}
		}
		rows = append(rows, strings.TrimRight(string(rest[:at]), " "))
		tail := strings.TrimLeft(string(rest[at:]), " ")
		if tail == "" {
			return strings.Join(rows, "\n")
		}
		start = hang
		rest = []rune(strings.Repeat(" ", hang) + tail)
	}
	return strings.Join(append(rows, string(rest)), "\n")
}

// columns are where a row's first word begins, and its text: after a label and two spaces
// or more, or two columns in if there is no label.
func columns(row []rune) (label, text int) {
	for label < len(row) && row[label] == ' ' {
		label++
	}
	if label == 0 {
		return 0, 2
	}
	for at := label + 1; at+2 < len(row); at++ {
		if row[at] == ' ' && row[at+1] == ' ' && row[at+2] != ' ' {
			return label, at + 2
		}
	}
	return label, label + 2
}
