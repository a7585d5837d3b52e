//go:build cgo

package main

import (
	"runtime"
	"slices"
	"time"

	"hora/internal/bridge"
)

// The watch looks often while something is new and seldom when it takes long.
const (
	lookSoon = 50 * time.Microsecond
	lookLate = 5 * time.Millisecond
)

// watch ends tickets when their work on the GPU has ended, and aborts NCCL when it
// reports a fault, when an operation takes too long, or when a rank is lost: NCCL by
// itself would wait for ever.
func (g *gpu) watch() {
	defer g.running.Done()
	fault := onThread(g.index, g.context)
	defer runtime.UnlockOSThread()
	q := &cudaQueue{gpu: g.index}
	pause := lookSoon
	for {
		progress, idle, closed := g.sweep(q, fault)
		switch {
		case idle && closed:
			return
		case idle:
			<-g.look
			pause = lookSoon
		case progress:
			pause = lookSoon
		default:
			time.Sleep(pause)
			pause = min(lookLate, pause*5/4)
		}
	}
}

// sweep looks at every live operation once.
func (g *gpu) sweep(q *cudaQueue, fault error) (progress, idle, closed bool) {
	g.mu.Lock()
	ops := slices.Clone(g.order)
	closed = g.closed && len(g.queue) == 0
	g.mu.Unlock()
	if len(ops) == 0 {
		return false, true, closed
	}
	why := fault
	if why == nil {
		why = g.health(ops)
	}
	var left []*gpuOp
	for _, op := range ops {
		select {
		case <-op.started:
		default:
			continue // the worker has it, or will have it: it fails it if all has failed
		}
		err := op.err
		ended := err != nil
		if !ended {
			ended, err = q.query(op.done)
		}
		// An abort ends what is on the streams, so that an end counts as one only
		// while nothing has failed: asked for after the event, and before our own abort.
		if failed := g.failed(); err == nil && failed != nil {
			ended, err = true, failed
		}
		if !ended && err == nil {
			left = append(left, op)
			continue
		}
		g.end(op, err)
		progress = true
	}
	if why != nil {
		g.fail(why)
		for _, op := range left {
			g.end(op, g.failed())
		}
		progress = progress || len(left) > 0
	}
	return progress, false, closed
}

// health returns what NCCL, the deadline and the group beside it have to say.
func (g *gpu) health(ops []*gpuOp) error {
	if err := g.failed(); err != nil {
		return err
	}
	if g.nccl == nil {
		return nil // host operations bring their own deadlines
	}
	if _, err := g.nccl.state(ops[0].requests[0].Kind.String()); err != nil {
		return err
	}
	for _, op := range ops {
		if !op.deadline.IsZero() && time.Now().After(op.deadline) {
			return g.late(op)
		}
	}
	return nil
}

// fail ends all operations; the first reason stands.
func (g *gpu) fail(err error) {
	g.mu.Lock()
	first := g.err == nil
	if first {
		g.err = err
	}
	g.mu.Unlock()
	if !first {
		return
	}
	if g.nccl != nil {
		g.nccl.abort()
	}
	bridge.Of(g.host).Engine.Fail(err)
	wake(g.look)
}

// end gives op's ticket its end and its events back.
func (g *gpu) end(op *gpuOp, err error) {
	g.mu.Lock()
	delete(g.live, op.ticket)
	g.order = slices.DeleteFunc(g.order, func(o *gpuOp) bool { return o == op })
	if err == nil {
		g.events = append(g.events, op.ready, op.done)
	} else { // what has failed may still be on a stream: its events are not used again
		closeEvent(op.ready)
		closeEvent(op.done)
	}
	g.mu.Unlock()
	the.own.end(op.ticket, &outcome{err: err})
}
