package main

/*
#include "lib.h"
#include "cuda.h"
*/
import "C"

import (
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"time"
	"unsafe"

	"hora"
	"hora/device"
	"hora/internal/bridge"
)

// gpu is one group's way between its members' GPUs. A worker goroutine, locked to a
// thread whose GPU it is, queues the operations in the order of submission; a watch
// goroutine, likewise, sees them end and ends what takes too long. The group beside it
// (host) carries what passes through host memory, so that its order is the worker's own.
type gpu struct {
	handle  uint64
	index   int // the GPU's number in this process
	context unsafe.Pointer
	life    *life
	host    *hora.Group
	timeout time.Duration // of an operation that brings none; 0: none
	bytes   int           // of a slot
	nccl    *ncclComm     // nil: everything passes through host memory
	stream  device.Stream // NCCL's
	lane    *lane         // the worker's

	mu     sync.Mutex // guards what follows; never held over a wait
	queue  []*gpuOp   // to be started
	live   map[C.int64_t]*gpuOp
	order  []*gpuOp // live ones, oldest first
	events []device.Event
	lanes  []*lane // of messages, between two uses
	err    error   // why nothing goes any more
	closed bool

	work, look chan struct{}  // something is in queue; something is live
	running    sync.WaitGroup // worker, watch, messages
}

// gpuOp is one submission.
type gpuOp struct {
	ticket      C.int64_t
	requests    []hora.Request
	ready, done device.Event
	deadline    time.Time
	started     chan struct{} // closed when done has been recorded, or err set
	err         error
}

// gpus finds a gpu by its handle.
type gpus struct {
	mu   sync.Mutex // guards what follows
	all  map[uint64]*gpu
	made uint64
	asks map[string]int // how many were made of a group, so that members' numbers agree
}

func (gs *gpus) find(handle C.uint64_t) (*gpu, error) {
	gs.mu.Lock()
	defer gs.mu.Unlock()
	if g := gs.all[uint64(handle)]; g != nil {
		return g, nil
	}
	return nil, &failure{C.HORA_CLOSED, "use GPU group: it is closed; make a new one"}
}

// closeLife ends all that belongs to a membership that ends.
func (gs *gpus) closeLife(l *life) {
	gs.mu.Lock()
	var mine []*gpu
	for _, g := range gs.all {
		if g.life == l {
			mine = append(mine, g)
		}
	}
	gs.asks = nil
	gs.mu.Unlock()
	for _, g := range mine {
		g.close()
	}
}

// gpuSettings are the JSON of hora_gpu.
type gpuSettings struct {
	Group   uint64  `json:"group"`
	Device  int     `json:"device"`
	Path    string  `json:"path"`    // auto, nccl, staged
	NCCL    string  `json:"nccl"`    // where libnccl.so.2 lies if the process has not loaded it
	CUDA    string  `json:"cuda"`    // where libcuda.so.1 lies likewise
	Chunk   int     `json:"chunk"`   // bytes of one turn through host memory
	Timeout float64 `json:"timeout"` // seconds; 0: none
}

const (
	defaultChunk = 4 << 20
	slotsOfLane  = 3
)

//export horaGpu
func horaGpu(settings C.hora_str) (answer C.int64_t) {
	defer guard(&answer)
	s := gpuSettings{Path: "auto", Chunk: defaultChunk}
	if err := json.Unmarshal([]byte(C.GoString(settings)), &s); err != nil {
		return errOut(argument("make GPU group: settings are not JSON: %v", err))
	}
	if s.Path != "auto" && s.Path != "nccl" && s.Path != "staged" || s.Chunk < 4096 || s.Device < 0 {
		return errOut(argument("make GPU group: path %q must be auto, nccl or staged, chunk %d at least 4096, device %d at least 0", s.Path, s.Chunk, s.Device))
	}
	of, err := the.find(s.Group)
	if err != nil {
		return errOut(err)
	}
	label := the.gpus.label(of)
	return the.background(func(o *outcome) error {
		g := &gpu{
			index: s.Device, life: of.life, bytes: s.Chunk &^ 63,
			timeout: time.Duration(s.Timeout * float64(time.Second)),
			live:    map[C.int64_t]*gpuOp{}, work: make(chan struct{}, 1), look: make(chan struct{}, 1),
		}
		report, err := g.open(of, label, &s)
		if err != nil {
			g.drop()
			return err
		}
		the.gpus.add(g)
		text, err := json.Marshal(report)
		if err != nil {
			return err
		}
		at := the.memory.allocate(len(text))
		if at == nil {
			return errors.New("make GPU group: no memory is left")
		}
		copy(unsafe.Slice((*byte)(at), len(text)), text)
		o.value, o.memory = int64(g.handle), uint64(uintptr(at))
		return nil
	})
}

// label names the group beside a group; equal on all members, who ask in one order.
func (gs *gpus) label(of *group) string {
	gs.mu.Lock()
	defer gs.mu.Unlock()
	if gs.asks == nil {
		gs.asks = map[string]int{}
	}
	key := fmt.Sprint(of.label, of.ranks)
	gs.asks[key]++
	return fmt.Sprintf("%s (GPUs, %d)", of.label, gs.asks[key])
}

func (gs *gpus) add(g *gpu) {
	gs.mu.Lock()
	defer gs.mu.Unlock()
	if gs.all == nil {
		gs.all = map[uint64]*gpu{}
	}
	gs.made++
	g.handle = gs.made
	gs.all[g.handle] = g
	g.running.Add(2)
	go g.worker()
	go g.watch()
}

// event takes an event from those not in use. The thread's GPU is g's.
func (g *gpu) event() (device.Event, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if n := len(g.events); n > 0 {
		e := g.events[n-1]
		g.events = g.events[:n-1]
		return e, nil
	}
	return newEvent(g.index)
}

// failed returns why nothing goes any more: a fault of NCCL's, a lost rank, the end.
func (g *gpu) failed() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.err != nil {
		return g.err
	}
	return g.host.Err()
}

//export horaGpuSubmit
func horaGpuSubmit(handle C.uint64_t, ops *C.hora_op, n, stream C.uint64_t) (answer C.int64_t) {
	defer guard(&answer)
	g, err := the.gpus.find(handle)
	if err != nil {
		return errOut(err)
	}
	op, err := g.read(unsafe.Slice(ops, n))
	if err == nil {
		err = g.submit(op, device.Stream(stream))
	}
	if err != nil {
		return errOut(err)
	}
	return op.ticket
}

// read turns hora_ops into a submission.
func (g *gpu) read(ops []C.hora_op) (*gpuOp, error) {
	op := &gpuOp{requests: make([]hora.Request, len(ops)), started: make(chan struct{})}
	side := &group{g: g.host, lower: bridge.Of(g.host)}
	wait := time.Duration(0)
	for i := range ops {
		if ops[i].flags != 0 {
			return nil, argument("start operation on GPU: it is matched in order and with known sizes; named ones pass host tensors")
		}
		r := &op.requests[i]
		if err := side.read(r, &ops[i]); err != nil {
			return nil, err
		}
		if err := check(r, g.host.Size()); err != nil {
			return nil, err
		}
		wait = max(wait, r.Timeout)
	}
	if wait == 0 {
		wait = g.timeout
	}
	if wait > 0 {
		op.deadline = time.Now().Add(wait)
	}
	return op, nil
}

// submit notes where the caller's stream is and hands the rest to the worker.
func (g *gpu) submit(op *gpuOp, stream device.Stream) error {
	if err := g.failed(); err != nil {
		return err
	}
	runtime.LockOSThread() // the GPU that is current belongs to the thread
	defer runtime.UnlockOSThread()
	if err := cudaError("use", g.index, C.libhora_cuda_push(g.context)); err != nil {
		return err
	}
	defer C.libhora_cuda_pop()
	var err error
	if op.ready, err = g.event(); err != nil {
		return err
	}
	if op.done, err = g.event(); err != nil {
		return err
	}
	q := cudaQueue{gpu: g.index}
	if err = q.Record(op.ready, stream); err != nil {
		return err
	}
	if op.ticket, err = the.own.begin(); err != nil {
		return err
	}
	g.mu.Lock()
	if g.closed {
		g.mu.Unlock()
		the.own.end(op.ticket, &outcome{err: errGPUClosed})
		return nil
	}
	g.queue = append(g.queue, op)
	g.live[op.ticket] = op
	g.order = append(g.order, op)
	g.mu.Unlock()
	wake(g.work)
	wake(g.look)
	return nil
}

var errGPUClosed = &failure{C.HORA_CLOSED, "use GPU group: it was closed meanwhile"}

func wake(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

//export horaGpuWait
func horaGpuWait(handle, ticket, stream C.uint64_t) (answer C.int32_t) {
	defer guard(&answer)
	g, err := the.gpus.find(handle)
	if err != nil {
		return C.int32_t(errOut(err))
	}
	g.mu.Lock()
	op := g.live[C.int64_t(ticket)]
	g.mu.Unlock()
	if op != nil {
		late := time.NewTimer(budget)
		defer late.Stop()
		select {
		case <-op.started:
		case <-late.C:
			return 1
		}
		if err := g.follow(op, device.Stream(stream)); err != nil {
			return C.int32_t(errOut(err))
		}
		return 0
	}
	if err := failed(ticket); err != nil {
		return C.int32_t(errOut(err))
	}
	return 0
}

// follow makes stream go on after op, unless op has ended already.
func (g *gpu) follow(op *gpuOp, stream device.Stream) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := cudaError("use", g.index, C.libhora_cuda_push(g.context)); err != nil {
		return err
	}
	defer C.libhora_cuda_pop()
	g.mu.Lock() // op's event is its own until it is taken from live
	defer g.mu.Unlock()
	switch {
	case op.err != nil:
		return op.err
	case g.live[op.ticket] == nil:
		return nil
	}
	q := cudaQueue{gpu: g.index}
	return q.Await(stream, op.done)
}

//export horaGpuClose
func horaGpuClose(handle C.uint64_t) (answer C.int32_t) {
	defer guard(&answer)
	if g, err := the.gpus.find(handle); err == nil {
		go g.close()
	}
	return 0
}

// close ends what is in flight, waits for the goroutines, and gives everything back.
func (g *gpu) close() {
	the.gpus.mu.Lock()
	known := the.gpus.all[g.handle] == g
	delete(the.gpus.all, g.handle)
	the.gpus.mu.Unlock()
	if !known {
		return
	}
	g.mu.Lock()
	g.closed = true
	idle := len(g.order) == 0 && g.err == nil
	g.mu.Unlock()
	if !idle {
		g.fail(errGPUClosed)
	}
	wake(g.work)
	wake(g.look)
	g.running.Wait()
	g.drop()
}

// drop gives back what open took. No goroutine of g's runs any more.
func (g *gpu) drop() {
	if g.context != nil && onThread(g.index, g.context) == nil {
		if g.nccl != nil {
			end := time.Now().Add(5 * time.Second)
			g.nccl.close(func() error {
				if time.Now().After(end) {
					return errGPUClosed
				}
				return nil
			})
		}
		for _, l := range g.lanes {
			l.close()
		}
		if g.lane != nil {
			g.lane.close()
		}
		for _, e := range g.events {
			closeEvent(e)
		}
		if g.stream != 0 {
			closeStream(g.stream)
		}
		C.libhora_cuda_use(nil)
		C.libhora_cuda_release(C.int(g.index))
	}
	runtime.UnlockOSThread()
	if g.host != nil {
		g.host.Close()
	}
}
