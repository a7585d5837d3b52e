package demo

import (
	"bytes"
	"sync"
)

// lines cuts what workers write into lines. launch writes from several goroutines.
type lines struct {
	mu   sync.Mutex // guards rest, and that lines are taken one at a time
	rest []byte     // a line whose end has not come
	take func(string)
}

// Write takes the lines that b completes.
func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.rest = append(l.rest, b...)
	for {
		line, rest, ok := bytes.Cut(l.rest, []byte{'\n'})
		if !ok {
			return len(b), nil
		}
		l.take(string(line))
		l.rest = rest
	}
}

// flush takes a last line that nobody ended.
func (l *lines) flush() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.rest) > 0 {
		l.take(string(l.rest))
		l.rest = nil
	}
}
