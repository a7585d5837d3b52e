package launch

import (
	"slices"
	"time"

	"hora/elastic/rendezvous"
)

// pastOrders are a job's orders to its coordinator while an heir lives through the ledger. Their numbers say what a
// coordinator knows, so they are those that the ledger holds: what an heir works out anew may be another sequence,
// since what the coordinator had said by then is not all in the ledger. Only what follows from the last entry may have
// not been given any more; it is given then.
type pastOrders struct {
	given []order
	due   []order // by the present entry, and not given so far
}

func (p *pastOrders) order(o order) { p.due = append(p.due, o) }

// entry begins to live through an entry: its launcher had given all orders that follow from the one before.
func (p *pastOrders) entry() { p.due = nil }

// recall takes in one that was given.
func (p *pastOrders) recall(o order) {
	o.N = uint64(len(p.given) + 1)
	p.given = append(p.given, o)
	if i := slices.IndexFunc(p.due, func(d order) bool { return alike(d, o) }); i >= 0 {
		p.due = slices.Delete(p.due, i, i+1)
	}
}

// alike compares orders by what they do: the words that go with them come from what a worker has printed.
func alike(a, b order) bool {
	return a.Kind == b.Kind && a.Rank == b.Rank && a.Process == b.Process && a.Is == b.Is && a.More == b.More &&
		(a.Reason == "") == (b.Reason == "")
}

// recall lives through an order that was given.
func (m *meeting) recall(p *pastOrders, o order) {
	p.recall(o)
	switch {
	case o.Kind == rendezvous.OrderAbsent:
		m.absent[o.Rank] = o.Is
	case o.Kind != rendezvous.OrderComing:
	case o.Is:
		m.coming[o.Rank] = onItsWay{o.Process, time.Now()}
	case m.coming[o.Rank].process == o.Process:
		delete(m.coming, o.Rank)
	}
}

// resume ends living through the past: what was not given any more is.
func (k *kept) resume(l *ledger) {
	p := k.past
	k.past, k.ledger, k.orders = nil, l, p.given
	for _, o := range p.due {
		k.order(o)
	}
}
