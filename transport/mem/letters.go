package mem

import (
	"fmt"
	"slices"
	"sync"
)

// letterbox delivers a rank's control messages on one goroutine, which runs from
// OnTell to Close. There is no bound: it is for ranks of one process.
type letterbox struct {
	// mu guards all below it; it is not held while a letter is delivered.
	mu      sync.Mutex
	cond    *sync.Cond
	deliver func(from int, msg []byte)
	set     bool // OnTell was called; until then letters stay
	list    []letter
	closed  bool
	done    chan struct{} // nil while no goroutine runs
}

type letter struct {
	from int
	msg  []byte
}

// Tell queues a copy of msg for another rank's listener.
func (m *Mesh) Tell(to int, msg []byte) error {
	if to < 0 || to >= len(m.c.nodes) {
		return fmt.Errorf("tell rank %d: the group has %d ranks", to, len(m.c.nodes))
	}
	m.mu.Lock()
	gone := m.gone
	m.mu.Unlock()
	if gone || m.c.silenced(m.rank) {
		return nil
	}
	b := &m.c.nodes[to].letters
	b.mu.Lock()
	if !b.closed && (b.deliver != nil || !b.set) {
		b.list = append(b.list, letter{m.rank, slices.Clone(msg)})
	}
	b.mu.Unlock()
	b.cond.Signal()
	return nil
}

// OnTell installs the listener, which gets what came before; nil drops what comes.
func (m *Mesh) OnTell(f func(from int, msg []byte)) {
	b := &m.letters
	b.mu.Lock()
	defer b.mu.Unlock()
	b.deliver, b.set = f, true
	if f != nil && b.done == nil && !b.closed {
		b.done = make(chan struct{})
		go b.run()
	}
}

func (b *letterbox) run() {
	defer close(b.done)
	b.mu.Lock()
	defer b.mu.Unlock()
	for !b.closed {
		if len(b.list) == 0 {
			b.cond.Wait()
			continue
		}
		l, f := b.list[0], b.deliver
		b.list = slices.Delete(b.list, 0, 1)
		if f != nil {
			b.mu.Unlock()
			f(l.from, l.msg)
			b.mu.Lock()
		}
	}
}

// close ends the goroutine and waits for it.
func (b *letterbox) close() {
	b.mu.Lock()
	b.closed = true
	done := b.done
	b.mu.Unlock()
	b.cond.Broadcast()
	if done != nil {
		<-done
	}
}
