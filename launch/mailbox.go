package launch

import "hora/launch/reach"

// mailbox is what the job's owner hears of everybody else.
type mailbox struct {
	events chan any
	over   chan struct{} // closed when Run returns
}

// post hands an event to the owner, unless the job is over.
func (m *mailbox) post(e any) {
	select {
	case m.events <- e:
	case <-m.over:
	}
}

// said is a message of an agent's.
type said struct {
	l      *link
	kind   uint8
	body   []byte
	waited bool   // it has been put off
	n      uint64 // of the message, where they are numbered
}

// greeted is an agent's answer.
type greeted struct {
	l    *link
	host *reach.Host
}

// probed says which addresses a host reaches.
type probed struct {
	l  *link
	ok []bool
}

// linkEnd is the end of a way to an agent.
type linkEnd struct {
	l   *link
	why *reach.Lost
}

// outputFault is what keeps the workers' output from being kept.
type outputFault struct{ err error }
