package secret

import (
	"fmt"
	"sync"
	"time"
)

const (
	firstStrangers = 3           // refusals that are told as they come
	strangersEvery = time.Minute // between two words about those after them
)

// Refused is one word about connections that were refused.
type Refused struct {
	Count int    // how many since the word before this one
	Last  string // where the last of them came and why it was refused
}

// String is one sentence.
func (r Refused) String() string {
	if r.Count == 1 {
		return "refused a connection " + r.Last
	}
	return fmt.Sprintf("refused %d more connections, the last %s", r.Count, r.Last)
}

// Strangers tells of refused connections, which may be tens of thousands a second: the first three as they come, from
// then on one word a minute with how many there were. All listeners of a process share one, and the process that
// serves a job's meeting has one for the whole job. A nil *Strangers tells nobody.
type Strangers struct {
	tell  func(Refused)
	first int
	every time.Duration

	mu     sync.Mutex // guards the rest; not held while tell is called
	told   int
	at     time.Time   // when tell was last called
	next   Refused     // what has not been told
	timer  *time.Timer // nil while nothing waits to be told
	closed bool
}

// NewStrangers tells by calling tell, one call at a time or, rarely, two at once. It must not block for long.
func NewStrangers(tell func(Refused)) *Strangers {
	return &Strangers{tell: tell, first: firstStrangers, every: strangersEvery}
}

// Telling sets how many refusals are told as they come, and how much time passes between two words about later ones.
func (s *Strangers) Telling(first int, every time.Duration) *Strangers {
	s.first, s.every = first, every
	return s
}

// Refuse notes one refused connection: at says where it came, as in "at rank 3's port", err why it was refused.
func (s *Strangers) Refuse(at string, err error) {
	if s != nil {
		s.Add(Refused{1, at + ": " + err.Error()})
	}
}

// Add notes refused connections that another process tells of.
func (s *Strangers) Add(r Refused) {
	if s == nil || r.Count <= 0 {
		return
	}
	s.mu.Lock()
	s.next.Count += r.Count
	s.next.Last = r.Last
	wait := s.every - time.Since(s.at)
	switch {
	case s.closed:
	case s.told < s.first || s.timer == nil && wait <= 0:
		s.say()
		return
	case s.timer == nil:
		s.timer = time.AfterFunc(wait, func() {
			s.mu.Lock()
			s.timer = nil
			s.say()
		})
	}
	s.mu.Unlock()
}

// say tells what there is. It is called with mu and gives it back.
func (s *Strangers) say() {
	r := s.next
	s.next = Refused{}
	s.told++
	s.at = time.Now()
	s.mu.Unlock()
	if r.Count > 0 {
		s.tell(r)
	}
}

// Close tells what has not been told, and is the last word.
func (s *Strangers) Close() {
	if s == nil {
		return
	}
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return
	}
	s.closed = true
	if s.timer != nil {
		s.timer.Stop()
	}
	s.say()
}
