package engine

import (
	"cmp"
	"slices"

	"hora/internal/wire"
)

// Ranks can wait for each other in different groups for ever: one in an operation of names
// that the other has left, the other in an ordered one. No group sees that alone. So each rank
// can say what its threads wait for and what it has given to each of its groups, and Knot finds
// in what several ranks said those that can never go on.
//
// The argument. A rank counts only if every thread of it that has called hora waits. Its wait
// is held by another rank that has not given its part. If that rank counts too, nobody in it
// can give the part; if every wait of every rank of a set is held by a rank of the set, none of
// them ever ends. What ranks said at different times is a state that they were in at one time
// if each says the same once more after all had said it first: what is given is counted, and
// the counts only grow.

// Awaited is one wait of one thread.
type Awaited struct {
	Group uint64 // number of the group, equal on its members
	Kind  AwaitedKind
	Call  uint64 // of an ordered group: which call; of names: the key; of a send: the message
	Peer  int    // of a message: the other rank in the group, AnyRank for any
	Nth   uint64 // how often the name will have run with this; 0 where it is not known
	What  string // in words: kind and name
}

// AwaitedKind says how what is waited for gets done.
type AwaitedKind uint8

// An ordered call needs as many calls of every member, a named one its key, a join everybody's
// join, a receive a message, a send its receive.
const (
	AwaitedCall AwaitedKind = 1 + iota
	AwaitedName
	AwaitedJoin
	AwaitedRecv
	AwaitedSend
)

// Given is what a rank has given to one group.
type Given struct {
	Group  uint64
	Name   string
	Ranks  []int // in the world
	Calls  uint64
	Ended  uint64   // the last operation that has; a group's are numbered alike on all ranks
	Keys   []uint64 // names in flight, the least first
	Joined bool
	Sent   []uint64 // offers to each rank of the group; nil while there were none
	Heard  []uint64 // offers from each
	Open   []Offer  // of those the ones that nobody wants yet
}

// Offer is a message that a rank sends.
type Offer struct {
	From int
	ID   uint64
}

// Standing is what one rank says: it waits in all of Waits.
type Standing struct {
	Rank  int
	Waits []Awaited
	Given []Given
	Doubt string // who else on this rank may free it; empty: nobody
}

// MaxWaits is how many waits a rank can say: of so many names, with their keys in Given, one message has room.
const MaxWaits = 512

const (
	maxGroups    = 256
	maxGivenKeys = 512
	maxRanks     = 1 << 20
	wordedNames  = 8 // of the waits for names so many come with their words
)

// Append returns the encoding of s. A rank can wait for hundreds of names, one on each thread or in a graph of a
// framework's, and what proves something is the key alone: that is all of those past the first ones, which come last.
func (s *Standing) Append(b []byte) []byte {
	b = wire.AppendI64(b, int64(s.Rank))
	b = wire.AppendString(b, s.Doubt[:min(len(s.Doubt), maxDescribedName)])
	full, rest := make([]Awaited, 0, len(s.Waits)), []Awaited(nil)
	names := 0
	for _, a := range s.Waits {
		if a.Kind == AwaitedName {
			names++
		}
		if a.Kind == AwaitedName && names > wordedNames {
			rest = append(rest, a)
		} else {
			full = append(full, a)
		}
	}
	b = wire.AppendU32(b, uint32(len(full)))
	for _, a := range full {
		b = wire.AppendU64(b, a.Group)
		b = wire.AppendU8(b, uint8(a.Kind))
		b = wire.AppendU64(b, a.Call)
		b = wire.AppendI64(b, int64(a.Peer))
		b = wire.AppendU64(b, a.Nth)
		b = wire.AppendString(b, a.What[:min(len(a.What), maxDescribedName)])
	}
	b = wire.AppendU32(b, uint32(len(rest)))
	for _, a := range rest {
		b = wire.AppendU64(wire.AppendU64(b, a.Group), a.Call)
	}
	b = wire.AppendU32(b, uint32(len(s.Given)))
	for _, v := range s.Given {
		b = wire.AppendU64(b, v.Group)
		b = wire.AppendString(b, v.Name[:min(len(v.Name), maxDescribedName)])
		b = wire.AppendInts(b, v.Ranks)
		b = wire.AppendU64(b, v.Calls)
		b = wire.AppendU64(b, v.Ended)
		b = wire.AppendBool(b, v.Joined)
		for _, list := range [][]uint64{v.Keys, v.Sent, v.Heard} {
			b = wire.AppendU32(b, uint32(len(list)))
			for _, k := range list {
				b = wire.AppendU64(b, k)
			}
		}
		b = wire.AppendU32(b, uint32(len(v.Open)))
		for _, o := range v.Open {
			b = wire.AppendU64(wire.AppendI64(b, int64(o.From)), o.ID)
		}
	}
	return b
}

// ParseStanding reads what Append wrote.
func ParseStanding(b []byte) (s Standing, err error) {
	d := wire.NewDecoder(b)
	s.Rank, s.Doubt = d.Int(0, maxRanks), d.String(maxDescribedName)
	few := func(most int) int { // what does not fit into the message stops the decoder at once
		if n := int(d.U32()); n <= most && d.Err() == nil {
			return n
		}
		return 0
	}
	for range few(MaxWaits) {
		s.Waits = append(s.Waits, Awaited{
			Group: d.U64(), Kind: AwaitedKind(d.U8()), Call: d.U64(), Peer: d.Int(AnyRank, maxRanks), Nth: d.U64(),
			What: d.String(maxDescribedName),
		})
	}
	for range few(MaxWaits) {
		s.Waits = append(s.Waits, Awaited{Group: d.U64(), Kind: AwaitedName, Call: d.U64()})
	}
	for range few(maxGroups) {
		v := Given{
			Group: d.U64(), Name: d.String(maxDescribedName), Ranks: d.Ints(maxRanks, 0, maxRanks),
			Calls: d.U64(), Ended: d.U64(), Joined: d.Bool(),
		}
		for _, list := range []*[]uint64{&v.Keys, &v.Sent, &v.Heard} {
			for range few(maxRanks) {
				if d.Err() == nil {
					*list = append(*list, d.U64())
				}
			}
		}
		for range few(maxGivenKeys) {
			v.Open = append(v.Open, Offer{From: d.Int(0, maxRanks), ID: d.U64()})
		}
		s.Given = append(s.Given, v)
	}
	return s, d.Done()
}

// given finds what s says of a group.
func (s *Standing) given(group uint64) *Given {
	for i := range s.Given {
		if s.Given[i].Group == group {
			return &s.Given[i]
		}
	}
	return nil
}

// Holders returns the ranks among all that hold wait a of rank r: they have not given their part
// and will not while they wait. Empty means that a may end.
func Holders(all map[int]*Standing, r *Standing, a *Awaited) (list []int) {
	mine := r.given(a.Group)
	if mine == nil {
		return nil
	}
	me := slices.Index(mine.Ranks, r.Rank)
	for place, rank := range mine.Ranks {
		s := all[rank]
		if s == nil {
			if a.Kind == AwaitedRecv && a.Peer == AnyRank && place != me {
				return nil // it may send
			}
			continue
		}
		g := s.given(a.Group)
		if g == nil {
			continue // it is making the group, or has closed it
		}
		switch a.Kind {
		case AwaitedCall:
			if g.Calls < a.Call {
				list = append(list, rank)
			}
		case AwaitedName: // who is further has done it, and the rest is on its way
			if _, has := slices.BinarySearch(g.Keys, a.Call); g.Ended == mine.Ended && !g.Joined && !has {
				list = append(list, rank)
			}
		case AwaitedJoin:
			if g.Ended == mine.Ended && !g.Joined {
				list = append(list, rank)
			}
		case AwaitedRecv:
			if a.Peer != AnyRank && a.Peer != place || a.Peer == AnyRank && place == me {
				continue
			}
			if nth(g.Sent, me) != nth(mine.Heard, place) {
				if a.Peer == AnyRank {
					return nil // something is on its way
				}
				continue
			}
			list = append(list, rank)
		case AwaitedSend:
			if a.Peer == place && slices.Contains(g.Open, Offer{me, a.Call}) {
				list = append(list, rank)
			}
		}
	}
	return list
}

func nth(list []uint64, i int) uint64 {
	if i < 0 || i >= len(list) {
		return 0
	}
	return list[i]
}

// Knot finds ranks that wait for each other for ever: the smallest set of them, in which
// every wait is held by another of the set. It is nil where there is none.
func Knot(said []Standing) []int {
	all := map[int]*Standing{}
	for i := range said {
		if len(said[i].Waits) > 0 {
			all[said[i].Rank] = &said[i]
		}
	}
	for shrunk := true; shrunk; {
		shrunk = false
		for r, s := range all {
			for i := range s.Waits {
				if len(Holders(all, s, &s.Waits[i])) == 0 {
					delete(all, r)
					shrunk = true
					break
				}
			}
		}
	}
	// Of what is left, the ranks that one rank's waits lead to are such a set; the smallest
	// such is one where all lead to all.
	var best []int
	for r := range all {
		reach := map[int]bool{}
		next := []int{r}
		for len(next) > 0 {
			s := all[next[len(next)-1]]
			next = next[:len(next)-1]
			for i := range s.Waits {
				for _, h := range Holders(all, s, &s.Waits[i]) {
					if !reach[h] {
						reach[h] = true
						next = append(next, h)
					}
				}
			}
		}
		if best == nil || len(reach) < len(best) {
			best = best[:0]
			for h := range reach {
				best = append(best, h)
			}
		}
	}
	slices.Sort(best)
	return best
}

// Standing says what ticket t waits for; ok is false where it may be done at any moment. The
// state of the group is Given's.
func (g *Group) Standing(t Ticket) (a Awaited, ok bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	e := g.cells.find(t)
	if e == nil || e.left == 0 || g.cause.Load() != nil {
		return a, false
	}
	if a, found, ok := g.pairs.standing(e); found {
		return a, ok
	}
	if n := g.names; n != nil {
		if e.key == 0 {
			return a, false
		}
		a = Awaited{Kind: AwaitedName, Call: e.key, What: e.what()}
		if !e.counted { // else it never comes again
			a.Nth = n.table.times(e.key) + 1
		}
		return a, true
	}
	queued, at, found := uint64(0), uint64(0), false
	for o := g.head; o != nil; o = o.next {
		if o.at == 0 {
			queued++
		}
		if o.cell == e && !found {
			at, found = queued, true
		}
	}
	a = Awaited{Kind: AwaitedCall, Call: g.calls() - (queued - at), What: e.what()}
	return a, true
}

// StandingJoin returns the wait of a thread in Join.
func (g *Group) StandingJoin() (Awaited, bool) {
	return Awaited{Kind: AwaitedJoin, What: "join"}, g.names != nil && g.cause.Load() == nil
}

// Given returns what this rank has given to the group; ok is false where the group has failed, or
// there is more than can be said.
func (g *Group) Given() (v Given, ok bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	v = Given{Calls: g.calls(), Ended: g.view.ended()}
	if n := g.names; n != nil {
		for _, u := range n.inflight {
			if !slices.Contains(v.Keys, u.key) {
				v.Keys = append(v.Keys, u.key)
			}
		}
		slices.Sort(v.Keys)
		v.Joined = n.joined
		if n.lone != "" {
			return v, false // something has just begun
		}
	}
	g.pairs.given(&v)
	return v, g.cause.Load() == nil && len(v.Keys) <= maxGivenKeys && len(v.Open) <= maxGivenKeys
}

// standing finds the wait of cell e among messages. Group.mu is held.
func (p *pairs) standing(e *cell) (a Awaited, found, ok bool) {
	for _, m := range p.wanted {
		if m.op != nil && m.op.cell == e {
			s := stuckPair{false, m.from, m.tag, m.since}
			return Awaited{Kind: AwaitedRecv, Peer: m.from, What: s.words(p.g)}, true, true
		}
	}
	for _, m := range p.sending {
		if m.op != nil && m.op.cell == e {
			s := stuckPair{true, m.to, m.tag, m.since}
			return Awaited{Kind: AwaitedSend, Call: m.id, Peer: m.to, What: s.words(p.g)}, true,
				m.limit == 0 && m.done == 0
		}
	}
	for _, m := range p.flowing {
		if m.op != nil && m.op.cell == e {
			return a, true, false
		}
	}
	return a, false, false
}

// given notes what has gone and come. Group.mu is held.
func (p *pairs) given(v *Given) {
	v.Sent, v.Heard = slices.Clone(p.sent), slices.Clone(p.heard)
	for _, m := range p.arrived {
		v.Open = append(v.Open, Offer{m.from, m.id})
	}
	slices.SortFunc(v.Open, func(a, b Offer) int {
		return cmp.Or(cmp.Compare(a.From, b.From),
			cmp.Compare(a.ID, b.ID))
	})
}

// tally counts an offer. Group.mu is held.
func (p *pairs) tally(list *[]uint64, rank int) {
	if *list == nil {
		*list = make([]uint64, p.g.Size())
	}
	(*list)[rank]++
}

// await notes what e will be waited for. Group.mu is held.
func (e *cell) await(o *op, key uint64) {
	if e == nil {
		return
	}
	e.key, e.name, e.counted, e.kind = key, o.Name, o.Counted, o.Kind
}

func (e *cell) what() string {
	if e.name == "" {
		return e.kind.String()
	}
	return e.kind.String() + " " + e.name
}

// DeadlockError ends groups in which ranks wait for each other for ever.
type DeadlockError struct{ Text string }

func (e *DeadlockError) Error() string { return e.Text }
