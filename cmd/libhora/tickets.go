package main

/*
#include "lib.h"
*/
import "C"

import (
	"runtime"
	"sync"
	"time"
	"unsafe"

	"hora"
)

// A ticket is state << 32 | table << 16 | cell. Table 0 is the library's own, 1 the
// world, others are groups; the upper half and the cell are those of the engine's
// ticket.

func pack(table uint32, t hora.Ticket) C.int64_t {
	return C.int64_t(uint64(t)>>32<<32 | uint64(table)<<16 | uint64(t)&0xffff)
}

func unpack(ticket C.uint64_t) (table uint32, t hora.Ticket) {
	return uint32(ticket>>16) & 0xffff, hora.Ticket(uint64(ticket)>>32<<32 | uint64(ticket)&0xffff)
}

// outcome is what a ticket of the library's own ends with. Its maker fills it before
// slots.end and nobody changes it afterwards.
type outcome struct {
	err    error
	value  int64
	memory uint64 // handle in memories
	counts []int64
	pin    runtime.Pinner // of counts, while callers may read them
}

// slots are the library's own tickets. A cell's state is even at its three values
// (pending, +1, +2) only for its current ticket: each use takes the next multiple of 4.
type slots struct {
	mu    sync.Mutex // guards what follows
	free  []uint32
	used  uint32 // cells [0, used) have been handed out at least once
	cells map[uint32]*slot
	last  map[uint32]uint32 // the state of a cell's last use
}

type slot struct {
	state    uint32
	ended    bool
	released bool
	outcome  *outcome
}

// begin takes a cell and answers its ticket.
func (s *slots) begin() (C.int64_t, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cells == nil {
		s.cells, s.last = map[uint32]*slot{}, map[uint32]uint32{}
	}
	var cell uint32
	switch n := len(s.free); {
	case n > 0:
		cell, s.free = s.free[0], s.free[1:]
	case s.used < C.HORA_CELLS:
		cell = s.used
		s.used++
	default:
		return 0, argument("start operation: %d are in flight; wait for some of them first", C.HORA_CELLS)
	}
	state := s.last[cell] + 4
	if state > 1<<31-4 { // tickets are positive
		state = 4
	}
	s.last[cell] = state
	s.cells[cell] = &slot{state: state}
	C.libhora_done(C.uint32_t(cell), C.uint32_t(state))
	return C.int64_t(state)<<32 | C.int64_t(cell), nil
}

// end completes a ticket.
func (s *slots) end(ticket C.int64_t, o *outcome) {
	cell := uint32(ticket) & 0xffff
	s.mu.Lock()
	defer s.mu.Unlock()
	sl := s.cells[cell]
	sl.outcome, sl.ended = o, true
	if sl.released {
		s.drop(cell, sl)
		return
	}
	state := sl.state + 1
	if o.err != nil {
		state++
	}
	C.libhora_done(C.uint32_t(cell), C.uint32_t(state))
}

// drop gives a cell back. s.mu is held.
func (s *slots) drop(cell uint32, sl *slot) {
	delete(s.cells, cell)
	s.free = append(s.free, cell)
	C.libhora_done(C.uint32_t(cell), 0)
	if sl.outcome != nil {
		sl.outcome.pin.Unpin()
	}
}

// of finds the outcome of an ended ticket.
func (s *slots) of(ticket C.uint64_t) (*outcome, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	sl := s.cells[uint32(ticket)&0xffff]
	if sl == nil || sl.state != uint32(ticket>>32) {
		return nil, &failure{C.HORA_CLOSED, "look at operation: its handle was released"}
	}
	if !sl.ended {
		return nil, argument("look at operation: it has not ended; wait for it first")
	}
	return sl.outcome, nil
}

func (s *slots) release(ticket C.uint64_t) {
	s.mu.Lock()
	defer s.mu.Unlock()
	cell := uint32(ticket) & 0xffff
	sl := s.cells[cell]
	switch {
	case sl == nil || sl.state != uint32(ticket>>32):
	case sl.ended:
		s.drop(cell, sl)
	default:
		sl.released = true
	}
}

// background runs f on a goroutine of its own and answers the ticket that stands for it.
func (l *library) background(f func(*outcome) error) C.int64_t {
	return l.backgroundTicket(func(o *outcome, _ C.int64_t) error { return f(o) })
}

// backgroundTicket does what background does, for what wants to know its ticket.
func (l *library) backgroundTicket(f func(*outcome, C.int64_t) error) C.int64_t {
	ticket, err := l.own.begin()
	if err != nil {
		return errOut(err)
	}
	go func() {
		o := &outcome{}
		o.err = f(o, ticket)
		l.own.end(ticket, o)
	}()
	return ticket
}

// horaHelp does the work of a ticket's group on this thread, which waits for the ticket.
//
//export horaHelp
func horaHelp(ticket C.uint64_t, ms C.uint32_t) {
	var answer C.int32_t
	defer guard(&answer)
	table, t := unpack(ticket)
	if g := the.tables.at(table); g != nil {
		g.lower.Engine.Help(t, time.Duration(ms)*time.Millisecond)
	}
}

//export horaFailed
func horaFailed(ticket C.uint64_t) {
	err := failed(ticket)
	if err == nil {
		err = &failure{C.HORA_CLOSED, "wait for operation: its group was closed meanwhile"}
	}
	errOut(err)
}

func failed(ticket C.uint64_t) error {
	table, t := unpack(ticket)
	if table == 0 {
		o, err := the.own.of(ticket)
		if err != nil {
			return err
		}
		return o.err
	}
	g := the.tables.at(table)
	if g == nil {
		return errNoGroup
	}
	_, err := g.g.Poll(t)
	return err
}

//export horaResult
func horaResult(ticket C.uint64_t, out *C.hora_outcome) (answer C.int32_t) {
	defer guard(&answer)
	if uintptr(out.size) < C.sizeof_hora_outcome {
		return C.int32_t(errOut(argument("look at operation: the result structure has %d bytes, this library needs %d", out.size, C.sizeof_hora_outcome)))
	}
	*out = C.hora_outcome{size: C.sizeof_hora_outcome}
	o, err := outcomeOf(ticket)
	if err != nil {
		return C.int32_t(errOut(err))
	}
	out.value = C.int64_t(o.value)
	if o.memory != 0 {
		out.buffer, out.bytes = C.uint64_t(o.memory), C.uint64_t(the.memory.bytes(o.memory))
		if o.memory&1 == 0 { // else memory of the caller's own
			*(*uint64)(unsafe.Pointer(&out.memory)) = o.memory // C's memory: its handle is its address
		}
	}
	if len(o.counts) > 0 {
		o.pin.Pin(&o.counts[0])
		out.counts, out.ncount = (*C.int64_t)(&o.counts[0]), C.uint32_t(len(o.counts))
	}
	return 0
}

// outcomeOf finds what an ended ticket left; its memory is the caller's from now on.
func outcomeOf(ticket C.uint64_t) (*outcome, error) {
	table, t := unpack(ticket)
	if table == 0 {
		o, err := the.own.of(ticket)
		if err == nil {
			err = o.err
		}
		return o, err
	}
	g := the.tables.at(table)
	if g == nil {
		return nil, errNoGroup
	}
	v, sized := g.sized.Load(t)
	if !sized {
		return g.outcome(t)
	}
	s := v.(*sizedResult)
	if kept := s.outcome.Load(); kept != nil {
		return kept, nil
	}
	o, err := g.outcome(t)
	if err == nil {
		s.outcome.Store(o)
	}
	return o, err
}

//export horaRelease
func horaRelease(ticket C.uint64_t) (answer C.int32_t) {
	defer guard(&answer)
	table, t := unpack(ticket)
	if table == 0 {
		the.own.release(ticket)
	} else if g := the.tables.at(table); g != nil {
		g.release(t)
	}
	return 0
}
