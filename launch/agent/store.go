package agent

import (
	"time"

	"hora/launch/machine"
)

// storeFirst is how long after rank 0's start, and each time twice as long after the last look, an agent looks whether
// anybody is at MASTER_PORT, or at JAX's. A look at a worker's end finds what has closed within the last minute.
const storeFirst = time.Second

// store is what rank 0's agent knows of the port that other libraries meet at.
type store struct {
	port  int
	used  bool
	next  time.Time
	pause time.Duration
}

// await begins to look after the port that rank 0 was told.
func (s *store) await(port int) {
	*s = store{port: port, next: time.Now().Add(storeFirst), pause: storeFirst}
}

// look says, once, that the port is used. At a worker's end it looks in any case.
func (s *store) look(end bool) bool {
	if s.port <= 0 || s.used || !end && time.Now().Before(s.next) {
		return false
	}
	s.pause *= 2
	s.next = time.Now().Add(s.pause)
	s.used = machine.PortUsed(s.port, machine.Second(s.port))
	return s.used
}
