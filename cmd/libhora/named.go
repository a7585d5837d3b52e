package main

/*
#include "lib.h"
*/
import "C"

import (
	"context"
	"sync/atomic"
	"time"

	"hora"
	"hora/internal/bridge"
)

// submitNamed queues operations that are matched by name. Tickets are the engine's once
// the named group is there, and the library's own while it is being made.
func (l *library) submitNamed(g *group, ops []C.hora_op, out []C.uint64_t) error {
	for i := range ops {
		if ops[i].name == nil {
			return argument("submit operation: an operation matched by name needs one")
		}
	}
	if n := g.named.Load(); n != nil {
		return n.submit(ops, out)
	}
	rs, err := g.readAll(ops)
	if err != nil {
		return err
	}
	if n, err := g.claim(rs); n != nil || err != nil {
		if err == nil {
			err = n.submit(ops, out)
		}
		return err
	}
	own := make([]C.int64_t, len(ops))
	for i := range own {
		if own[i], err = l.own.begin(); err != nil {
			g.unclaim(rs)
			for _, t := range own[:i] {
				l.own.end(t, &outcome{err: err})
				l.own.release(C.uint64_t(t))
			}
			return err
		}
		out[i] = C.uint64_t(own[i])
	}
	g.mu.Lock()
	if g.named.Load() == nil {
		g.owed++
	}
	g.mu.Unlock()
	var told atomic.Bool // how it goes on
	fail := func(err error) {
		g.unclaim(rs)
		for _, t := range own {
			l.own.end(t, &outcome{err: err})
		}
	}
	if limit := bridge.Soonest(rs); limit > 0 {
		time.AfterFunc(limit, func() {
			if told.CompareAndSwap(false, true) {
				fail(g.giveUp(limit))
			}
		})
	}
	g.withNamed(func(n *group, err error) {
		if !told.CompareAndSwap(false, true) {
			return
		}
		ts := make([]hora.Ticket, len(rs))
		if err == nil {
			err = n.post(rs, ts)
		}
		if err != nil {
			fail(err)
			return
		}
		go func() {
			for i, t := range own {
				o := n.await(ts[i])
				g.unclaim(rs[i : i+1])
				l.own.end(t, o)
			}
		}()
	})
	return nil
}

// claim takes the names of rs for operations that are submitted while the named group is being made: until they have
// ended nobody else has them. It answers the group when that has come meanwhile.
func (g *group) claim(rs []hora.Request) (*group, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if n := g.named.Load(); n != nil {
		return n, nil
	}
	if g.claimed == nil {
		g.claimed = map[string]bool{}
	}
	for i := range rs {
		if rs[i].Kind == hora.KindSend || rs[i].Kind == hora.KindRecv {
			continue // messages are matched by tag
		}
		if name := rs[i].Name; g.claimed[name] {
			for j := range i {
				delete(g.claimed, rs[j].Name)
			}
			return nil, argument("Duplicate tensor name %s: an operation of that name is in flight on this rank; wait for it or choose another name", name)
		}
		g.claimed[rs[i].Name] = true
	}
	return nil, nil
}

func (g *group) unclaim(rs []hora.Request) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for i := range rs {
		delete(g.claimed, rs[i].Name)
	}
}

// await waits for one of the engine's tickets, takes what it left and releases it.
func (g *group) await(t hora.Ticket) *outcome {
	_ = g.lower.Engine.Await(t) // outcomeOf gives its error
	o, err := outcomeOf(C.uint64_t(pack(g.table, t)))
	if err != nil {
		o = &outcome{err: err}
	}
	g.release(t)
	return o
}

// outcome returns what an ended operation of the engine left.
func (g *group) outcome(t hora.Ticket) (*outcome, error) {
	if _, err := g.g.Poll(t); err != nil {
		return nil, err
	}
	o := &outcome{value: int64(g.lower.Engine.Source(t))}
	if _, sized := g.sized.Load(t); sized {
		ptr, _, counts := g.lower.Engine.Result(t, nil)
		o.memory = uint64(uintptr(ptr))
		for _, c := range counts {
			o.counts = append(o.counts, int64(c))
		}
	}
	return o, nil
}

// release gives an engine's ticket up. Memory that was made for its result and that
// nobody asked for goes with it.
func (g *group) release(t hora.Ticket) {
	v, sized := g.sized.LoadAndDelete(t)
	if !sized {
		g.g.Release(t)
		return
	}
	s := v.(*sizedResult)
	if done, _ := g.g.Poll(t); !done {
		go func() {
			g.g.Wait(t, -1)
			the.memory.close(s.at.Load())
		}()
		return
	}
	g.g.Release(t)
	if o := s.outcome.Load(); o != nil {
		o.pin.Unpin()
	} else {
		the.memory.close(s.at.Load())
	}
}

// sizedResult is the result of an operation whose size only the operation finds out.
type sizedResult struct {
	at      atomic.Uint64
	outcome atomic.Pointer[outcome] // once the caller has taken it
}

//export horaJoin
func horaJoin(handle C.uint64_t) (answer C.int64_t) {
	defer guard(&answer)
	g, err := the.find(uint64(handle))
	if err != nil {
		return errOut(err)
	}
	return the.backgroundTicket(func(o *outcome, ticket C.int64_t) error {
		type made struct {
			n   *group
			err error
		}
		ready := make(chan made, 1)
		g.withNamed(func(n *group, err error) { ready <- made{n, err} })
		m := <-ready
		if m.err != nil {
			return m.err
		}
		the.joins.Store(uint64(ticket), m.n.g)
		defer the.joins.Delete(uint64(ticket))
		last, _, err := m.n.g.Join(-1)
		o.value = int64(last)
		return err
	})
}

// giveUp ends the group of names beside g before it is made: as where it is there, it is over with an operation that
// has had its time.
func (g *group) giveUp(after time.Duration) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.err == nil {
		g.err = &bridge.Unmet{Named: true, After: after, Err: context.DeadlineExceeded}
	}
	return g.err
}
