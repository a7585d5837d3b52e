package server

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"hora/server/client"
)

// A machine that could not be ended may cost something for as long as nobody ends it. So it is tried again until it is
// gone; meanwhile it counts as one of the pool's, and the pool says so.

// departure is that of a node whose machine is to be gone. The loop owns it.
type departure struct {
	tried bool      // just now: by us, or by who has removed a pool of this name
	again time.Time // when it is tried next
	why   error     // it could not be ended
}

// endsAgain is how long after a node could not be ended that is tried again.
const endsAgain = time.Minute

// ends has the machine of a node be gone: it is listed until it is, and is none that may still come; in the loop, and
// what it answers outside.
func (s *Server) ends(p *pool, name string) func() {
	return s.endsIf(p, name, func(*client.Pool) bool { return true })
}

// endsIf is the same where what made the node says so.
func (s *Server) endsIf(p *pool, name string, made func(by *client.Pool) bool) func() {
	e := p.ending[name]
	if e == nil {
		e = &departure{}
		p.ending[name] = e
	}
	e.tried = true
	spec := p.Pool
	return func() {
		by, _, err := s.madeBy(&spec, name)
		if err == nil && made(by) {
			err = s.deleted(&spec, name)
		}
		_ = s.do(func() {
			e.tried, e.why, e.again = false, err, time.Now().Add(endsAgain)
			if gone := err == nil || p.there[name]; gone && p.ending[name] == e { // or it has come back meanwhile
				delete(p.ending, name)
			}
			s.spare()
		})
	}
}

// endAgain ends those that could not be ended before; in the loop, and what it answers outside.
func (s *Server) endAgain(p *pool) (todo []func()) {
	for name, e := range p.ending {
		if e.why != nil && !e.tried && !time.Now().Before(e.again) {
			todo = append(todo, s.ends(p, name))
		}
	}
	return todo
}

// goneBut forgets the machines that could not be ended and are gone all the same, as a list of those that there are
// says; in the loop.
func (p *pool) goneBut(there []string) (gone []string) {
	for name, e := range p.ending {
		if e.why != nil && !e.tried && !slices.Contains(there, name) {
			delete(p.ending, name)
			gone = append(gone, name)
		}
	}
	return gone
}

// stuck counts the machines that could not be ended; in the loop.
func (p *pool) stuck() (n int) {
	for _, e := range p.ending {
		if e.why != nil {
			n++
		}
	}
	return n
}

// unended says which could not be, and why; nil where there is none. In the loop.
func (p *pool) unended() error {
	for _, name := range slices.Sorted(maps.Keys(p.ending)) {
		if e := p.ending[name]; e.why != nil {
			others := ""
			if n := p.stuck() - 1; n > 0 {
				others = fmt.Sprintf(" and %d more", n)
			}
			return fmt.Errorf("node %s%s could not be ended, is tried again each minute, and counts until it is gone: %w", name, others, e.why)
		}
	}
	return nil
}
