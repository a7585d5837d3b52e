package main

/*
#include "lib.h"
*/
import "C"

import (
	"context"
	"encoding/json"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"hora"
	"hora/internal/bridge"
)

// group is one of the caller's groups: an ordered one, and, once somebody calls by
// name, a named one beside it.
type group struct {
	g      *hora.Group
	lower  bridge.Group // of g
	table  uint32
	handle uint64 // 0 for the world
	life   *life
	label  string
	ranks  []int // nil: all
	opts   []hora.GroupOption

	names sync.Map     // string → string: names seen, so that C's need no copy each time
	known atomic.Int32 // how many of them
	sized sync.Map     // hora.Ticket → *sizedResult: operations that allocate their result

	mu       sync.Mutex // guards what follows
	named    atomic.Pointer[group]
	making   bool
	err      error // why there is no named group
	deferred []func(*group, error)
	claimed  map[string]bool // names in use by operations that came before named was there
	owed     int             // calls among deferred
}

// tables finds a group by the table of its tickets. Table 0 is the library's own.
type tables struct {
	mu    sync.Mutex // guards next and changes of all and world
	next  uint32
	all   [C.HORA_TABLES]atomic.Pointer[group]
	world atomic.Pointer[group]
}

func (ts *tables) at(table uint32) *group { return ts.all[table&0xffff].Load() }

// add gives g a table. Numbers come round late, so that old handles and tickets stay
// wrong, those of an earlier life of the world too.
func (ts *tables) add(g *group, world bool) error {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	for n := 0; g.table == 0; n++ {
		if n == C.HORA_TABLES {
			return argument("make group: there are too many; close some")
		}
		ts.next++
		if t := ts.next & 0xffff; t > 0 && ts.all[t].Load() == nil {
			g.table = t
		}
	}
	helps := C.int(0)
	if g.g.Named() {
		helps = 1
	}
	C.libhora_table(C.uint32_t(g.table), cellBase(g), helps)
	ts.all[g.table].Store(g)
	if world {
		ts.world.Store(g)
	} else {
		g.handle = uint64(ts.next)
	}
	return nil
}

// each calls f with what was made in a life.
func (ts *tables) each(of *life, f func(*group)) {
	for i := range ts.all {
		if g := ts.all[i].Load(); g != nil && g.life == of {
			f(g)
		}
	}
}

// owe counts calls by name that wait for their group to be made with those of g. If all are
// making it, it is there in a moment.
func (g *group) owe() {
	made := make(chan struct{})
	g.mu.Lock()
	if g.making {
		g.deferred = append(g.deferred, func(*group, error) { close(made) })
	} else {
		close(made)
	}
	g.mu.Unlock()
	select {
	case <-made:
	case <-time.After(makeGrace):
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.lower.Engine.Owe(g.owed)
}

// makeGrace is how long a rank that leaves waits for a group that is being made.
const makeGrace = 300 * time.Millisecond

// cellBase returns where a group's cells begin: that of a ticket with lower half 0.
func cellBase(g *group) unsafe.Pointer { return g.lower.Engine.Cell(hora.Ticket(1 << 32)) }

// find answers the group that a caller's number stands for.
func (l *library) find(handle uint64) (*group, error) {
	if handle == 0 {
		if g := l.tables.world.Load(); g != nil {
			return g, nil
		}
		return nil, errNoWorld
	}
	if g := l.tables.at(uint32(handle) & 0xffff); g != nil && g.handle == handle {
		return g, nil
	}
	if l.tables.world.Load() == nil {
		return nil, errNoWorld
	}
	return nil, errNoGroup
}

// close takes the group away: pending operations fail, and its cells go once no thread
// looks at them.
func (l *library) close(g *group) {
	if n := g.named.Load(); n != nil {
		l.close(n)
	}
	if !l.tables.all[g.table].CompareAndSwap(g, nil) {
		return
	}
	l.tables.world.CompareAndSwap(g, nil)
	g.lower.Engine.Fail(hora.ErrClosed)
	C.libhora_table(C.uint32_t(g.table), nil, 0)
	for C.libhora_idle(C.uint32_t(g.table)) == 0 {
		time.Sleep(100 * time.Microsecond)
	}
	g.g.Close()
}

// maxNames is how many names a group remembers.
const maxNames = 8192

// name returns the Go string of a C one, copied once for each different name; one that counts
// the caller's calls does not come again, and is copied each time.
func (g *group) name(s C.hora_str, counted bool) string {
	if s == nil {
		return ""
	}
	n := 0
	for *(*byte)(unsafe.Add(unsafe.Pointer(s), n)) != 0 {
		n++
	}
	seen := unsafe.String((*byte)(unsafe.Pointer(s)), n)
	if counted {
		return strings.Clone(seen)
	}
	if known, ok := g.names.Load(seen); ok {
		return known.(string)
	}
	own := C.GoStringN(s, C.int(n))
	if g.known.Add(1) <= maxNames { // a program that makes up a name for each call is not to fill the memory
		g.names.Store(own, own)
	}
	return own
}

// withNamed calls f with the named group beside g, now if it is there, else when it has
// been made; calls are served in their order.
func (g *group) withNamed(f func(*group, error)) { g.withNamedWithin(0, f) }

// withNamedWithin does so, and has the making end after a time of its own.
func (g *group) withNamedWithin(limit time.Duration, f func(*group, error)) {
	if n := g.named.Load(); n != nil {
		f(n, nil)
		return
	}
	g.mu.Lock()
	if n := g.named.Load(); n != nil || g.err != nil {
		err := g.err
		g.mu.Unlock()
		f(n, err)
		return
	}
	g.deferred = append(g.deferred, f)
	if !g.making {
		g.making = true
		go g.makeNamed(limit)
	}
	g.mu.Unlock()
}

// companion returns the named group beside g; it is made when it is not there.
func (g *group) companion() (*group, error) {
	type made struct {
		n   *group
		err error
	}
	answer := make(chan made, 1)
	g.withNamed(func(n *group, err error) { answer <- made{n, err} })
	m := <-answer
	return m.n, m.err
}

// isMaking reports that the named group beside g is being made.
func (g *group) isMaking() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.making
}

// makeNamed makes the named group and serves those who wait for it.
func (g *group) makeNamed(limit time.Duration) {
	ctx, cancel := g.life.ctx, context.CancelFunc(func() {})
	if limit > 0 {
		ctx, cancel = context.WithTimeout(ctx, limit)
	}
	inner, err := g.g.ByName(ctx)
	cancel()
	var n *group
	if err == nil {
		n = &group{g: inner, lower: bridge.Of(inner), life: g.life, label: g.label}
		if err = the.tables.add(n, false); err != nil {
			inner.Close()
			n = nil
		}
	}
	for {
		g.mu.Lock()
		waiting := g.deferred
		g.deferred = nil
		if err == nil && g.err != nil { // one has been given up: the others' would wait for it
			err = g.err
			n.lower.Engine.Fail(err)
			n = nil
		}
		if err == nil {
			g.owed = 0
		}
		if len(waiting) == 0 {
			g.making, g.err = false, err
			if n != nil {
				g.named.Store(n)
			}
			g.mu.Unlock()
			return
		}
		g.mu.Unlock()
		for _, f := range waiting {
			f(n, err)
		}
	}
}

// groupSettings are the JSON of hora_group.
type groupSettings struct {
	Ranks   []int   `json:"ranks"`
	Tag     string  `json:"tag"`
	Timeout float64 `json:"timeout"` // seconds; 0: the world's
}

//export horaGroup
func horaGroup(settings C.hora_str) (answer C.int64_t) {
	defer guard(&answer)
	var s groupSettings
	if err := json.Unmarshal([]byte(C.GoString(settings)), &s); err != nil {
		return errOut(argument("make group: settings are not JSON: %v", err))
	}
	w, err := the.find(0)
	if err != nil {
		return errOut(err)
	}
	return the.background(func(o *outcome) error {
		g := &group{life: w.life, label: groupLabel(s), ranks: s.Ranks}
		if s.Timeout > 0 {
			g.opts = append(g.opts, hora.Timeout(time.Duration(s.Timeout*float64(time.Second))))
		}
		inner, err := w.life.world.NewGroup(w.life.ctx, s.Ranks,
			append([]hora.GroupOption{hora.Called(g.label)}, g.opts...)...)
		if err != nil {
			return err
		}
		g.g, g.lower = inner, bridge.Of(inner)
		if err := the.tables.add(g, false); err != nil {
			inner.Close()
			return err
		}
		o.value = int64(g.handle)
		return nil
	})
}

// groupLabel returns what messages call the group; groups of the same ranks differ by tag.
func groupLabel(s groupSettings) string {
	if s.Tag != "" {
		return s.Tag
	}
	return "group"
}

//export horaGroupClose
func horaGroupClose(handle C.uint64_t) (answer C.int32_t) {
	defer guard(&answer)
	g, err := the.find(uint64(handle))
	switch {
	case handle == 0:
		return C.int32_t(errOut(argument("close group: the world is closed by shutdown")))
	case err == nil:
		go func() {
			g.lower.Finish()
			if n := g.named.Load(); n != nil {
				n.lower.Finish()
			}
			the.close(g)
		}()
	}
	return 0
}

//export horaAbort
func horaAbort(handle C.uint64_t, reason C.hora_str) (answer C.int32_t) {
	defer guard(&answer)
	g, err := the.find(uint64(handle))
	if err != nil {
		return C.int32_t(errOut(err))
	}
	why := &failure{C.HORA_CLOSED, C.GoString(reason)}
	g.lower.Engine.Fail(why)
	if n := g.named.Load(); n != nil {
		n.lower.Engine.Fail(why)
	}
	return 0
}

// life is one epoch of the job: from init to shutdown, or to the next epoch.
type life struct {
	cfg    hora.Config // of a life without member
	ctx    context.Context
	cancel context.CancelFunc
	world  *hora.World
	member *hora.Membership // of an elastic job: it outlives this life
	joined chan struct{}    // closed when joining has ended, well or not
}
