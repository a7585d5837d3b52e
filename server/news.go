package server

import "sync"

// news wakes those who follow a job; 0 stands for the list of jobs. Nobody is told what has happened: who is woken
// reads the store.
type news struct {
	mu     sync.Mutex // guards what follows
	wait   map[int64]chan struct{}
	closed bool
}

func newNews() *news { return &news{wait: map[int64]chan struct{}{}} }

// of is closed with the next news of a job. Take it before reading, so that none is missed.
func (n *news) of(job int64) <-chan struct{} {
	n.mu.Lock()
	defer n.mu.Unlock()
	c := n.wait[job]
	if c == nil {
		c = make(chan struct{})
		if n.closed {
			close(c)
			return c
		}
		n.wait[job] = c
	}
	return c
}

// lines is closed when a job has written more, and nothing else of it is new.
func (n *news) lines(job int64) <-chan struct{} { return n.of(-job) }

func (n *news) wakeLines(job int64) { n.wake(-job) }

func (n *news) wake(job int64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if c := n.wait[job]; c != nil {
		close(c)
		delete(n.wait, job)
	}
}

func (n *news) close() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.closed = true
	for job, c := range n.wait {
		close(c)
		delete(n.wait, job)
	}
}
