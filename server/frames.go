package server

import (
	"bytes"
	"encoding/json"
	"sync"

	"hora/server/client"
	"hora/server/store"
)

// framesMost is how many blocks are kept as followers get them: those who follow a job are near each other.
const framesMost = 32

// frames keeps blocks of lines as the events that followers get: a block is unpacked and written as text once, however
// many follow. The zero value is ready.
type frames struct {
	mu    sync.Mutex // guards what follows
	all   map[frameKey]*frame
	order []frameKey // the oldest first
}

type frameKey struct {
	job, attempt int64
	first, last  uint64
}

type frame struct {
	once sync.Once
	text []byte
	err  error
}

// of returns a block's events.
func (f *frames) of(job int64, b *store.Block) ([]byte, error) {
	key := frameKey{job, int64(b.Attempt), b.First, b.Last}
	f.mu.Lock()
	x := f.all[key]
	if x == nil {
		x = &frame{}
		if f.all == nil {
			f.all = map[frameKey]*frame{}
		}
		f.all[key] = x
		if f.order = append(f.order, key); len(f.order) > framesMost {
			delete(f.all, f.order[0])
			f.order = append(f.order[:0], f.order[1:]...)
		}
	}
	f.mu.Unlock()
	x.once.Do(func() {
		lines, err := b.Lines()
		if x.err = err; err == nil {
			x.text, x.err = lineEvents(lines)
		}
	})
	return x.text, x.err
}

// lineEvents writes lines as server-sent events.
func lineEvents(lines []client.Line) ([]byte, error) {
	var out bytes.Buffer
	for i := range lines {
		l := &lines[i]
		b, err := json.Marshal(l)
		if err != nil {
			return nil, err
		}
		writeEvent(&out, cursorText(store.Cursor{Attempt: l.Attempt, Line: l.Number}), "line", b)
	}
	return out.Bytes(), nil
}
