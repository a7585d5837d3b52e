package launch

import (
	"bytes"
	"cmp"
	"io"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"hora/event"
)

// maxLine is the longest line that is kept whole; a longer one is broken between characters.
const maxLine = 16 << 20

// progressEvery is how often a line that is redrawn with \r is shown.
const progressEvery = time.Second

// lineWriter makes whole lines of one stream of one rank and writes each, with its tag, in a single Write, so that
// ranks never mix within a line. Text redrawn with \r (a progress bar) becomes at most one line a second, and its last
// state always one. Bytes that are no UTF-8 become U+FFFD, unless w takes any.
type lineWriter struct {
	w     io.Writer // shared by all ranks; guarded by mu
	mu    *sync.Mutex
	tag   string
	stamp bool
	bytes bool // w takes any
	now   func() time.Time

	part   []byte // the unfinished line
	redraw bool   // part ended in \r: the next byte decides whether that was a line end
	shown  time.Time
	out    []byte // scratch
}

// AnyBytes is what a writer is, besides, that takes a line's bytes as its rank wrote them, be they UTF-8 or not.
type AnyBytes interface{ AnyBytes() }

// write takes a chunk of output.
func (l *lineWriter) write(p []byte) error {
	l.out = l.out[:0]
	for len(p) > 0 {
		if l.redraw {
			l.redraw = false
			if p[0] == '\n' {
				p = p[1:]
				l.emit()
				continue
			}
			l.drawn()
		}
		i := bytes.IndexAny(p, "\r\n")
		if i < 0 {
			l.keep(p)
			break
		}
		l.keep(p[:i])
		if p[i] == '\n' {
			l.emit()
		} else {
			l.redraw = true
		}
		p = p[i+1:]
	}
	return l.flush()
}

// end writes what is left without a line end.
func (l *lineWriter) end() error {
	l.out = l.out[:0]
	l.redraw = false
	if len(l.part) > 0 {
		l.emit()
	}
	return l.flush()
}

func (l *lineWriter) keep(p []byte) {
	for len(l.part)+len(p) > maxLine {
		n := maxLine - len(l.part)
		l.part = append(l.part, p[:n]...)
		p = p[n:]
		rest := cut(l.part)
		carry := append([]byte(nil), l.part[rest:]...)
		l.part = l.part[:rest]
		l.emit()
		l.part = append(l.part, carry...)
	}
	l.part = append(l.part, p...)
}

// cut finds the last place in b that does not divide a character.
func cut(b []byte) int {
	for i := len(b) - 1; i >= 0 && i >= len(b)-utf8.UTFMax; i-- {
		if utf8.RuneStart(b[i]) {
			if utf8.FullRune(b[i:]) {
				return len(b)
			}
			return i
		}
	}
	return len(b)
}

// drawn shows a redrawn line unless one was shown a moment ago.
func (l *lineWriter) drawn() {
	if len(bytes.TrimSpace(l.part)) == 0 {
		l.part = l.part[:0]
		return
	}
	if now := l.now(); now.Sub(l.shown) >= progressEvery {
		l.shown = now
		l.emit()
		return
	}
	l.part = l.part[:0]
}

func (l *lineWriter) emit() {
	if l.stamp {
		l.out = l.now().AppendFormat(l.out, time.ANSIC)
	}
	l.out = append(l.out, l.tag...)
	if l.bytes || utf8.Valid(l.part) {
		l.out = append(l.out, l.part...)
	} else {
		l.out = append(l.out, bytes.ToValidUTF8(l.part, []byte("\uFFFD"))...)
	}
	l.out = append(l.out, '\n')
	l.part = l.part[:0]
	if cap(l.part) > 1<<20 {
		l.part = nil
	}
}

func (l *lineWriter) flush() error {
	if len(l.out) == 0 {
		return nil
	}
	l.mu.Lock()
	_, err := l.w.Write(l.out)
	l.mu.Unlock()
	if cap(l.out) > 1<<20 {
		l.out = nil
	}
	return err
}

// tailer keeps the end of a stream, for the line that tells why a worker failed.
type tailer struct{ b []byte }

const tailBytes = 16 << 10

func (t *tailer) write(p []byte) {
	if len(p) >= tailBytes {
		t.b = append(t.b[:0], p[len(p)-tailBytes:]...)
		return
	}
	if len(t.b)+len(p) > 2*tailBytes {
		t.b = append(t.b[:0], t.b[len(t.b)-tailBytes:]...)
	}
	t.b = append(t.b, p...)
}

// ofStrangers are the lines in which a worker's own log tells of connections that it refused: no program fails by them.
var ofStrangers = regexp.MustCompile(`^\d{4}/\d\d/\d\d \d\d:\d\d:\d\d WARN refused (a connection|\d+ more connections)`)

// goSignal is how a Go program begins to tell of a signal that ends it; its registers follow.
var goSignal = regexp.MustCompile(`^SIG(SEGV|ABRT|BUS|FPE|ILL|TRAP|SYS|QUIT): [a-z ]+$`)

// panics are how other ends begin that are told of in many lines: Go's, and those of Python's own faults.
var panics = [...]string{"panic: ", "fatal error: ", "Fatal Python error: "}

// graphError is what TensorFlow has in its exception's line instead of what went wrong: that comes below the stacks of
// where the operation was made, before the operation's name.
const graphError = "Graph execution error:"

// rootError is how TensorFlow begins the first of several.
var rootError = regexp.MustCompile(`^ *\(0\) [A-Z_]+: +`)

// lastException finds the line of a program's standard error that says why it failed: the exception of the last Python
// traceback, or the first of the lines in which Go or Python tell of a crash; and the last line, whatever it says.
func lastException(stderr []byte) (why, line string) {
	var last, exception, panicked, graph string
	traced := false
	for line := range bytes.SplitSeq(stderr, []byte("\n")) {
		line = bytes.TrimRight(line, "\r \t")
		if i := bytes.LastIndexByte(line, '\r'); i >= 0 {
			line = line[i+1:]
		}
		if len(line) == 0 {
			continue
		}
		text := string(bytes.ToValidUTF8(line, []byte("\uFFFD")))
		indented := line[0] == ' ' || line[0] == '\t'
		if ofStrangers.Match(line) {
			continue
		}
		switch {
		case strings.HasPrefix(text, "Traceback (most recent call last)"), strings.HasPrefix(text, "Original Traceback (most recent call last)"):
			// The latter is of a DataLoader's worker: what is raised before it says only where that one was caught.
			traced, exception = true, ""
		case traced && !indented:
			exception, traced = text, false
		case strings.HasSuffix(exception, graphError) && strings.Contains(text, "[[{{node "):
			exception = strings.TrimSuffix(exception, graphError) + cmp.Or(graph, graphError)
		case strings.HasSuffix(exception, graphError) && rootError.MatchString(text):
			graph = text[len(rootError.FindString(text)):]
		case strings.HasSuffix(exception, graphError) && !indented:
			graph = text
		case goSignal.MatchString(text), slices.ContainsFunc(panics[:],
			func(p string) bool { return strings.HasPrefix(text, p) }):
			panicked = text
		}
		if !indented {
			last = text
		}
	}
	return shorten(event.OneLine(cmp.Or(exception, panicked))), shorten(event.OneLine(last))
}

func shorten(s string) string {
	const limit = 500
	if len(s) <= limit {
		return s
	}
	return string(bytes.ToValidUTF8([]byte(s[:limit]), nil)) + "…"
}
