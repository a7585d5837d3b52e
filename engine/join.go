package engine

import (
	"fmt"
	"strings"
	"time"

	"hora/collective"
	"hora/internal/wire"
	"hora/tensor"
)

// Join says that this rank has no more data: until every rank has joined, it takes part
// in the others' allreduces with zeros. It returns the rank that joined last, the same
// on all ranks. With a timeout ≥ 0 it may return done = false and is called again. What
// this rank submitted before is done first. Only named groups have it.
func (g *Group) Join(timeout time.Duration) (last int, done bool, err error) {
	n := g.names
	if n == nil {
		return 0, true, &InvalidError{fmt.Sprintf("join: group %s matches operations by order; joining needs a group of named operations", g.cfg.Name)}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.cause.Load() != nil {
		return 0, true, g.joinFailure()
	}
	if !n.joined && !n.allIn {
		n.joined, n.joinedAt = true, 0
		n.calm.Store(false)
		g.wake()
	}
	if timeout != 0 {
		w := g.sleeper(timeout)
		for !n.allIn && !w.late && g.cause.Load() == nil {
			g.done.Wait()
		}
		g.awake(w)
	}
	switch {
	case n.allIn:
		n.allIn = false
		return g.worldRank(n.lastOne), true, nil
	case g.cause.Load() != nil:
		return 0, true, g.joinFailure()
	}
	return 0, false, nil
}

func (g *Group) joinFailure() error {
	return &OperationError{Kind: "join", Err: *g.cause.Load()}
}

// gone reports that this rank has joined and has nothing left to do. mu is held.
func (n *names) gone() bool { return n.joined && n.firstPending == nil }

// extreme has the ranks agree on the lowest or highest of a number that each has.
func (n *names) extreme(v int64, op tensor.Op, stamp uint64) (int64, error) {
	n.scratch[0] = v
	view := tensor.Of(n.scratch[:1])
	n.aux = collective.Call{Kind: collective.Allreduce, Op: op, Type: tensor.Int64, Send: view, Recv: view}
	if err := n.small(&n.aux, stamp); err != nil {
		return 0, err
	}
	return n.scratch[0], nil
}

// findLead returns the lowest rank that has not joined.
func (n *names) findLead() (int, error) {
	mine := int64(n.g.Rank())
	if n.away {
		mine = int64(n.g.Size())
	}
	lead, err := n.extreme(mine, tensor.Min, leadPrint)
	return int(lead), err
}

// endJoin finds out who joined last, when all have.
func (n *names) endJoin() {
	g := n.g
	const ranks = 20 // bits
	last, err := n.extreme(int64(n.joinedAt)<<ranks|int64(g.Rank()), tensor.Max, lastPrint)
	if err != nil {
		n.broken(err)
		return
	}
	g.mu.Lock()
	n.lastOne = int(last & (1<<ranks - 1))
	n.joined, n.allIn, n.joinedAt = false, true, 0
	g.mu.Unlock()
	n.joinSeen = false
	g.done.Broadcast()
}

// shareChosen has the lead describe what the round released, for the ranks that have
// joined and must give zeros of the right kind. What zeros are wrong for fails on all
// ranks.
func (n *names) shareChosen(lead int) error {
	g := n.g
	var body []byte
	if g.Rank() == lead {
		body = wire.AppendU32(nil, uint32(len(n.chosen)))
		for _, u := range n.chosen {
			body = wire.AppendU32(body, uint32(u.count))
			for o := u.first; o != nil; o = o.next {
				d := describe(&o.Request, stageCall)
				body = d.append(body)
			}
		}
	}
	n.scratch[0] = int64(len(body))
	size := tensor.Of(n.scratch[:1])
	n.aux = collective.Call{Kind: collective.Broadcast, Type: tensor.Int64, Root: lead, Send: size, Recv: size}
	if err := n.small(&n.aux, phantomPrint); err != nil {
		return err
	}
	const most = 64 << 20
	if n.scratch[0] < 4 || n.scratch[0] > most {
		return fmt.Errorf("join: rank %d described its operations in %d bytes", g.worldRank(lead), n.scratch[0])
	}
	if body == nil {
		body = make([]byte, n.scratch[0])
	}
	v := tensor.Of(body)
	n.aux = collective.Call{Kind: collective.Broadcast, Type: tensor.Uint8, Root: lead, Send: v, Recv: v}
	if err := n.small(&n.aux, phantomPrint+1); err != nil {
		return err
	}
	return n.applyShared(body)
}

// applyShared reads what the lead described. A joined rank makes units of it; every rank
// fails the units that zeros would spoil.
func (n *names) applyShared(body []byte) error {
	const maxUnits, maxOps, maxPhantom = 1 << 16, 1 << 16, 1 << 38
	d := wire.NewDecoder(body)
	units := int(d.U32())
	if units > maxUnits {
		return fmt.Errorf("join: %d operations described at once", units)
	}
	all := n.chosen
	kept := make([]*unit, 0, len(all))
	for i := 0; i < units && d.Err() == nil; i++ {
		count := int(d.U32())
		if count == 0 || count > maxOps {
			return fmt.Errorf("join: a group of %d operations described", count)
		}
		list := make([]description, 0, min(count, 64))
		for range count {
			one, err := decodeDescription(&d)
			if err != nil {
				return fmt.Errorf("join: read described operations: %w", err)
			}
			if one.count > maxPhantom {
				return fmt.Errorf("join: a tensor of %d elements described", one.count)
			}
			list = append(list, one)
		}
		var u *unit
		switch {
		case n.away:
			u = n.phantom(list)
			n.g.count() // this rank takes part in it
		case i < len(all):
			u = all[i]
		default:
			return fmt.Errorf("join: more operations described than released")
		}
		if bad := unsupported(list); bad != "" {
			n.refuse(u, bad)
			continue
		}
		u.stem = "" // as that of a joined rank's units
		kept = append(kept, u)
	}
	n.chosen = kept
	return d.Done()
}

// unsupported returns the kind in list that can not go on without joined ranks, in words.
func unsupported(list []description) string {
	for _, d := range list {
		switch {
		case d.kind != collective.Allreduce:
			k := d.kind.String()
			return strings.ToUpper(k[:1]) + k[1:]
		case d.op == tensor.Adasum:
			return "Adasum"
		case d.op != tensor.Sum && d.op != tensor.Average:
			return "Allreduce with " + d.op.String()
		}
	}
	return ""
}

// refuse fails a unit on every rank.
func (n *names) refuse(u *unit, what string) {
	if u.phantom {
		return
	}
	g := n.g
	g.mu.Lock()
	defer g.mu.Unlock()
	for o := u.first; o != nil; {
		after := o.next
		o.next = nil
		n.finish(o, &MismatchError{Name: o.Name, Text: fmt.Sprintf(
			"%s is not supported with Join at this time. Tensor %s: call it before any rank joins, or give every rank equally many batches.", what, quoted(o.Name))})
		o = after
	}
	n.recycle(u)
}

// phantom makes a unit of zeros like the one described.
func (n *names) phantom(list []description) *unit {
	u := &unit{phantom: true, count: len(list), running: true}
	var last *op
	for i := range list {
		d := &list[i]
		o := &op{}
		o.Kind, o.Op, o.Type, o.Pre, o.Post = d.kind, d.op, d.dtype, d.pre, d.post
		o.Name, o.Counted, o.Shape, o.Device, o.phantom = d.name, d.serial, d.shape, d.device, true
		o.of, o.at = int32(d.of), int32(d.at)
		if d.kind == collective.Allreduce && d.dtype.Valid() {
			bytes := d.count * d.dtype.Size()
			o.Send = tensor.View{Ptr: n.zeros.take(bytes), Count: d.count, Type: d.dtype}
			o.Recv = tensor.View{Ptr: n.ignored.take(bytes), Count: d.count, Type: d.dtype}
		}
		o.print = fingerprintOf(&o.Request)
		if last == nil {
			u.first = o
		} else {
			last.next = o
		}
		last = o
	}
	u.key = nameKey(list[0].name, len(list))
	return u
}
