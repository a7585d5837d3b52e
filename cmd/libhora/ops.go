package main

/*
#include "lib.h"
*/
import "C"

import (
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"hora"
)

// budget is how long a blocking call stays on its caller's thread: Python's signal
// handlers run only between calls.
const budget = 50 * time.Millisecond

var requests = sync.Pool{New: func() any { return new(hora.Request) }}

// ints views C's int64s as Go's ints, which are as wide on every platform of ours. They
// stay the caller's until the operation has ended.
func ints(p *C.int64_t, n int) []int {
	if p == nil {
		return nil
	}
	return unsafe.Slice((*int)(unsafe.Pointer(p)), n)
}

// read turns a hora_op into a request of g.
func (g *group) read(r *hora.Request, op *C.hora_op) error {
	if op.size < C.sizeof_hora_op {
		return argument("call hora: the operation structure has %d bytes, this library needs %d", op.size, C.sizeof_hora_op)
	}
	n := g.g.Size()
	t := hora.DType(op.dtype)
	*r = hora.Request{
		Call: hora.Call{
			Kind: hora.Kind(op.kind), Op: hora.Op(op.op), Type: t,
			Pre: float64(op.prescale), Post: float64(op.postscale),
			SendCounts: ints(op.send_counts, n), RecvCounts: ints(op.recv_counts, n),
		},
		Name:    g.name(op.name, op.flags&C.HORA_COUNTED != 0),
		Counted: op.flags&C.HORA_COUNTED != 0,
		Shape:   ints(op.shape, int(op.ndim)),
		Device:  int(op.device),
		Tag:     int(op.tag),
		Timeout: time.Duration(op.timeout_ms) * time.Millisecond,
	}
	if op.flags&C.HORA_SIZES != 0 {
		r.Alloc = the.memory.allocate
	}
	send := hora.View{Ptr: unsafe.Pointer(op.send), Count: int(op.count), Type: t}
	recv := hora.View{Ptr: op.recv, Count: int(op.recv_count), Type: t}
	switch r.Kind {
	case hora.KindSend:
		r.Peer, r.Send = int(op.root), send
	case hora.KindRecv:
		r.Peer, r.Recv = int(op.root), recv
	case hora.KindBarrier:
		r.Type = 0
	default:
		r.Root, r.Send, r.Recv = int(op.root), send, recv
	}
	return nil
}

//export horaRun
func horaRun(handle C.uint64_t, op *C.hora_op) (answer C.int64_t) {
	defer guard(&answer)
	g, err := the.find(uint64(handle))
	if err != nil {
		return errOut(err)
	}
	if op.flags&C.HORA_NAMED != 0 {
		n := g.named.Load()
		if n == nil {
			var ticket [1]C.uint64_t
			if err := the.submitNamed(g, unsafe.Slice(op, 1), ticket[:]); err != nil {
				return errOut(err)
			}
			return C.int64_t(ticket[0])
		}
		g = n
	}
	if op.flags&C.HORA_SIZES != 0 || hora.Kind(op.kind) == hora.KindRecv && op.root < 0 {
		return g.queued(op)
	}
	r := requests.Get().(*hora.Request)
	defer requests.Put(r)
	if err := g.read(r, op); err != nil {
		return errOut(err)
	}
	stay := budget
	if op.budget_us != 0 {
		stay = min(budget, time.Duration(op.budget_us)*time.Microsecond)
	}
	return g.run(r, stay)
}

func (g *group) run(r *hora.Request, stay time.Duration) C.int64_t {
	t, done, err := g.g.Run(r, stay)
	if err != nil {
		return errOut(err)
	}
	if done {
		return 0
	}
	return pack(g.table, t)
}

// queued submits one operation that needs a ticket in any case.
func (g *group) queued(op *C.hora_op) C.int64_t {
	var ticket [1]C.uint64_t
	if err := g.submit(unsafe.Slice(op, 1), ticket[:]); err != nil {
		return errOut(err)
	}
	return C.int64_t(ticket[0])
}

//export horaSubmit
func horaSubmit(handle C.uint64_t, ops *C.hora_op, n C.uint64_t, tickets *C.uint64_t) (answer C.int32_t) {
	defer guard(&answer)
	g, err := the.find(uint64(handle))
	if err == nil {
		all, out := unsafe.Slice(ops, n), unsafe.Slice(tickets, n)
		if all[0].flags&C.HORA_NAMED != 0 {
			err = the.submitNamed(g, all, out)
		} else {
			err = g.submit(all, out)
		}
	}
	if err != nil {
		return C.int32_t(errOut(err))
	}
	return 0
}

// readAll turns hora_ops into requests.
func (g *group) readAll(ops []C.hora_op) ([]hora.Request, error) {
	rs := make([]hora.Request, len(ops))
	for i := range ops {
		if err := g.read(&rs[i], &ops[i]); err != nil {
			return nil, err
		}
	}
	return rs, nil
}

// submit queues operations of an ordered group, or of a named one that is there.
func (g *group) submit(ops []C.hora_op, out []C.uint64_t) error {
	rs, err := g.readAll(ops)
	if err != nil {
		return err
	}
	ts := make([]hora.Ticket, len(rs))
	if err := g.post(rs, ts); err != nil {
		return err
	}
	for i, t := range ts {
		out[i] = C.uint64_t(pack(g.table, t))
	}
	return nil
}

// post submits, and notes which tickets will have memory of the library's.
func (g *group) post(rs []hora.Request, ts []hora.Ticket) error {
	var sized []*sizedResult
	for i := range rs {
		if rs[i].Alloc != nil {
			if sized == nil {
				sized = make([]*sizedResult, len(rs))
			}
			s := new(sizedResult)
			sized[i] = s
			rs[i].Alloc = func(bytes int) unsafe.Pointer {
				at := the.memory.allocate(bytes)
				s.at.Store(uint64(uintptr(at)))
				return at
			}
		}
	}
	if err := g.g.Submit(rs, ts); err != nil {
		return err
	}
	for i, s := range sized {
		if s != nil {
			g.sized.Store(ts[i], s)
		}
	}
	return nil
}

// plan is an operation whose arguments were read once.
type plan struct {
	g      *group
	r      hora.Request
	handle uint64
}

// plans finds a plan by the lower half of its handle.
type plans struct {
	mu   sync.Mutex // guards changes of all, and free and made
	all  atomic.Pointer[[]*plan]
	free []uint32
	made uint64
}

func (ps *plans) find(handle uint64) *plan {
	all := ps.all.Load()
	i := uint32(handle)
	if all == nil || int(i) >= len(*all) {
		return nil
	}
	if p := (*all)[i]; p != nil && p.handle == handle {
		return p
	}
	return nil
}

// set puts p at i in a fresh copy, so that readers need no lock.
func (ps *plans) set(i uint32, p *plan) {
	var all []*plan
	if old := ps.all.Load(); old != nil {
		all = append(all, *old...)
	}
	for int(i) >= len(all) {
		all = append(all, nil)
	}
	all[i] = p
	ps.all.Store(&all)
}

func (ps *plans) add(p *plan) {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	i := uint32(0)
	if n := len(ps.free); n > 0 {
		i, ps.free = ps.free[n-1], ps.free[:n-1]
	} else if all := ps.all.Load(); all != nil {
		i = uint32(len(*all))
	}
	ps.made = ps.made%(1<<31-1) + 1
	p.handle = ps.made<<32 | uint64(i)
	ps.set(i, p)
}

func (ps *plans) remove(handle uint64) *plan {
	ps.mu.Lock()
	defer ps.mu.Unlock()
	p := ps.find(handle)
	if p != nil {
		ps.set(uint32(handle), nil)
		ps.free = append(ps.free, uint32(handle))
	}
	return p
}

// keep copies what the caller may drop after this call.
func keep(from []int) []int {
	if from == nil {
		return nil
	}
	return append([]int{}, from...)
}

//export horaPlan
func horaPlan(handle C.uint64_t, op *C.hora_op) (answer C.int64_t) {
	defer guard(&answer)
	g, err := the.find(uint64(handle))
	if err != nil {
		return errOut(err)
	}
	if op.flags != 0 {
		return errOut(argument("make plan: named operations and unknown sizes have no plans; submit them"))
	}
	p := &plan{g: g}
	if err := g.read(&p.r, op); err != nil {
		return errOut(err)
	}
	p.r.Shape, p.r.SendCounts, p.r.RecvCounts = keep(p.r.Shape), keep(p.r.SendCounts), keep(p.r.RecvCounts)
	the.plans.add(p)
	return C.int64_t(p.handle)
}

var errNoPlan = &failure{C.HORA_CLOSED, "start plan: it was closed; make it again"}

//export horaStart
func horaStart(handle C.uint64_t) (answer C.int64_t) {
	defer guard(&answer)
	p := the.plans.find(uint64(handle))
	if p == nil {
		return errOut(errNoPlan)
	}
	if the.tables.at(p.g.table) != p.g {
		return errOut(errNoGroup)
	}
	return p.g.run(&p.r, budget)
}

//export horaStartAsync
func horaStartAsync(handle C.uint64_t) (answer C.int64_t) {
	defer guard(&answer)
	p := the.plans.find(uint64(handle))
	if p == nil {
		return errOut(errNoPlan)
	}
	if the.tables.at(p.g.table) != p.g {
		return errOut(errNoGroup)
	}
	var t [1]hora.Ticket
	if err := p.g.g.Submit(unsafe.Slice(&p.r, 1), t[:]); err != nil {
		return errOut(err)
	}
	return pack(p.g.table, t[0])
}

//export horaPlanClose
func horaPlanClose(handle C.uint64_t) C.int32_t {
	the.plans.remove(uint64(handle))
	return 0
}
