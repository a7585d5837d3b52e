package main

/*
#include "lib.h"
*/
import "C"

import (
	"errors"
	"fmt"
	"runtime"
	"time"
	"unsafe"

	"hora"
	"hora/device"
)

// worker starts operations in the order of submission, on one thread.
func (g *gpu) worker() {
	defer g.running.Done()
	fault := onThread(g.index, g.context)
	defer runtime.UnlockOSThread()
	for range g.work {
		for {
			op, closed := g.next()
			if op == nil {
				if closed {
					return
				}
				break
			}
			if messages(op) && g.nccl == nil {
				g.running.Add(1)
				go g.pass(op)
				continue
			}
			err := fault
			if err == nil {
				err = g.start(op)
			}
			g.begun(op, err)
		}
	}
}

func (g *gpu) next() (op *gpuOp, closed bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.queue) == 0 {
		return nil, g.closed
	}
	op = g.queue[0]
	g.queue = g.queue[1:]
	return op, false
}

// begun lets waiters go on: op's end is marked, or it has failed.
func (g *gpu) begun(op *gpuOp, err error) {
	g.mu.Lock()
	op.err = err
	g.mu.Unlock()
	close(op.started)
	wake(g.look)
}

// messages reports that op only sends and receives: the worker does not wait for it.
func messages(op *gpuOp) bool {
	for i := range op.requests {
		if k := op.requests[i].Kind; k != hora.KindSend && k != hora.KindRecv {
			return false
		}
	}
	return true
}

// start queues op on the GPU.
func (g *gpu) start(op *gpuOp) error {
	if err := g.failed(); err != nil {
		return err
	}
	byNCCL := g.nccl != nil
	plans := make([]device.Reduction, len(op.requests))
	for i := range op.requests {
		var ok bool
		plans[i], ok = native(&op.requests[i], g.host.Size())
		byNCCL = byNCCL && ok
	}
	if byNCCL {
		return g.startNative(op, plans)
	}
	if g.lane == nil {
		if err := g.makeLane(g.life.ctx); err != nil {
			return err
		}
	}
	q := g.lane.staging.Queue.(*cudaQueue)
	q.until = op.deadline
	ready := op.ready
	for i := range op.requests {
		if err := g.stage(g.lane, &op.requests[i], ready, op); err != nil {
			g.drain(g.lane, op.done)
			return err
		}
		ready = op.done
	}
	return nil
}

// drain lets copies of a failed operation end before its caller hears of it and frees
// the tensor. A fault of the GPU itself ends all.
func (g *gpu) drain(l *lane, e device.Event) {
	q := &cudaQueue{gpu: g.index, halted: func() error { return nil }, until: time.Now().Add(time.Second)}
	for _, s := range []device.Stream{l.staging.Down, l.staging.Up} {
		err := q.Record(e, s)
		if err == nil {
			err = q.Ended(e)
		}
		var fault *gpuFault
		if errors.As(err, &fault) {
			g.fail(err)
		}
	}
}

// startNative hands op to NCCL as one operation of its.
func (g *gpu) startNative(op *gpuOp, plans []device.Reduction) error {
	q := cudaQueue{gpu: g.index}
	if err := q.Await(g.stream, op.ready); err != nil {
		return err
	}
	name := op.requests[0].Kind.String()
	var drops []func()
	err := g.nccl.grouped(func(c device.Communicator) error {
		for i := range plans {
			if f := plans[i].Factor; f != 0 && f != 1 {
				made, drop, err := c.Scaled(f, plans[i].Type)
				if err != nil {
					return err
				}
				plans[i].Op, drops = made, append(drops, drop)
			}
		}
		if err := c.Start(); err != nil {
			return err
		}
		var first error
		for i := range plans {
			if err := enqueue(c, &op.requests[i], plans[i], g.host.Rank(), g.host.Size(), g.stream); err != nil {
				first = err
				break
			}
		}
		if err := c.End(); err != nil && first == nil {
			first = err
		}
		return first
	})
	if err == nil {
		err = g.nccl.settle(name, func() error { return g.overdue(op) })
	}
	if err == nil && drops != nil {
		err = g.nccl.grouped(func(device.Communicator) error {
			for _, drop := range drops {
				drop()
			}
			return nil
		})
	}
	if err != nil {
		g.fail(err) // the others' communicators cannot go on without this one
		return err
	}
	return q.Record(op.done, g.stream)
}

// overdue returns why it is no longer worth waiting for op.
func (g *gpu) overdue(op *gpuOp) error {
	if err := g.failed(); err != nil {
		return err
	}
	if !op.deadline.IsZero() && time.Now().After(op.deadline) {
		return g.late(op)
	}
	return nil
}

func (g *gpu) late(op *gpuOp) error {
	r := &op.requests[0]
	name := r.Kind.String()
	if r.Name != "" {
		name += " " + r.Name
	}
	return &failure{C.HORA_DEADLINE, fmt.Sprintf("%s on GPU %d: the other ranks of %s had not come within its timeout, and the NCCL group was aborted; "+
		"look at what they do instead, then make a new group", name, g.index, g.host.Name())}
}

// at returns where a view begins.
func at(v hora.View) device.Ptr { return device.Ptr(uintptr(v.Ptr)) }

// pass carries messages through host memory beside the worker: they never wait for
// collectives or for one another.
func (g *gpu) pass(op *gpuOp) {
	defer g.running.Done()
	err := onThread(g.index, g.context)
	defer runtime.UnlockOSThread()
	if err != nil {
		g.begun(op, err)
		return
	}
	if len(op.requests) > 1 { // of a batch each goes on its own
		g.passAll(op)
		return
	}
	g.begun(op, g.passOne(op, &op.requests[0]))
}

// passAll carries a batch; it has ended when all have.
func (g *gpu) passAll(op *gpuOp) {
	type part struct {
		done device.Event
		err  error
	}
	parts := make(chan part)
	for i := range op.requests {
		go func() {
			one := &gpuOp{requests: op.requests[i : i+1], ready: op.ready, deadline: op.deadline}
			err := onThread(g.index, g.context)
			defer runtime.UnlockOSThread()
			if err == nil {
				if one.done, err = g.event(); err == nil {
					err = g.passOne(one, &one.requests[0])
				}
			}
			parts <- part{one.done, err}
		}()
	}
	var first error
	var dones []device.Event
	for range op.requests {
		p := <-parts
		if first == nil {
			first = p.err
		}
		if p.done != 0 {
			dones = append(dones, p.done)
		}
	}
	if first == nil {
		first = g.join(dones, op.done)
	}
	g.mu.Lock()
	g.events = append(g.events, dones...)
	g.mu.Unlock()
	g.begun(op, first)
}

// join marks as done what comes after all of dones.
func (g *gpu) join(dones []device.Event, done device.Event) error {
	l, err := g.takeLane()
	if err != nil {
		return err
	}
	defer g.giveLane(l)
	for _, e := range dones {
		if err := l.staging.Queue.Await(l.staging.Up, e); err != nil {
			return err
		}
	}
	return l.staging.Queue.Record(done, l.staging.Up)
}

func (g *gpu) passOne(op *gpuOp, r *hora.Request) error {
	l, err := g.takeLane()
	if err != nil {
		return err
	}
	l.staging.Queue.(*cudaQueue).until = op.deadline
	if err := g.stage(l, r, op.ready, op); err != nil {
		g.drain(l, op.done)
		l.close()
		return err
	}
	g.giveLane(l)
	return nil
}

func (g *gpu) takeLane() (*lane, error) {
	g.mu.Lock()
	if n := len(g.lanes); n > 0 {
		l := g.lanes[n-1]
		g.lanes = g.lanes[:n-1]
		g.mu.Unlock()
		return l, nil
	}
	g.mu.Unlock()
	size := 2 * 2 * min(g.bytes, 1<<20)
	memory := the.memory.allocate(size)
	if memory == nil {
		return nil, fmt.Errorf("stage tensor: no memory is left")
	}
	handle := uint64(uintptr(memory))
	return newLane(g.index, &cudaQueue{gpu: g.index, halted: g.failed}, unsafe.Slice((*byte)(memory), size), 2,
		func() { the.memory.close(handle) })
}

func (g *gpu) giveLane(l *lane) {
	g.mu.Lock()
	g.lanes = append(g.lanes, l)
	g.mu.Unlock()
}
