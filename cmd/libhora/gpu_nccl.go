package main

/*
#include <stdlib.h>
#include "nccl.h"
*/
import "C"

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"hora/device"
)

// ncclComm is one NCCL communicator. Its calls never block: what NCCL does in the
// background is asked for by settle.
type ncclComm struct {
	calls   sync.Mutex // held over each call into NCCL, none of which waits for others; abort takes it
	aborted atomic.Bool
	comm    unsafe.Pointer
	why     func() error // why it was aborted
}

func loadNCCL(path string) (version int, err error) {
	p := C.CString(path)
	defer C.free(unsafe.Pointer(p))
	if why := C.libhora_nccl_load(p); why != nil {
		return 0, fmt.Errorf("%s", C.GoString(why))
	}
	return int(C.libhora_nccl_version()), nil
}

func (c *ncclComm) fault(doing string, code C.int) error {
	if code == 0 || code == C.HORA_NCCL_IN_PROGRESS {
		return nil
	}
	text := fmt.Sprintf("%s: NCCL says %s (%d)", doing, C.GoString(C.libhora_nccl_text(code)), code)
	if more := C.GoString(C.libhora_nccl_last(c.comm)); more != "" {
		text += ": " + more
	}
	return fmt.Errorf("%s; set NCCL_DEBUG=INFO to see more", text)
}

// call runs f, unless the communicator was aborted meanwhile.
func (c *ncclComm) call(doing string, f func() C.int) error {
	c.calls.Lock()
	defer c.calls.Unlock()
	if c.aborted.Load() {
		return c.why()
	}
	return c.fault(doing, f())
}

// grouped runs f with the communicator to itself.
func (c *ncclComm) grouped(f func(device.Communicator) error) error {
	c.calls.Lock()
	defer c.calls.Unlock()
	if c.aborted.Load() {
		return c.why()
	}
	return f(inGroup{c})
}

// newID makes the number by which ranks find each other.
func newID() (id [C.HORA_NCCL_ID]byte, err error) {
	c := &ncclComm{}
	err = c.fault("make NCCL group", C.libhora_nccl_id((*C.char)(unsafe.Pointer(&id[0]))))
	return id, err
}

func (c *ncclComm) init(ranks, rank int, id [C.HORA_NCCL_ID]byte) error {
	return c.call("make NCCL group", func() C.int {
		return C.libhora_nccl_init(&c.comm, C.int(ranks), (*C.char)(unsafe.Pointer(&id[0])), C.int(rank))
	})
}

// state returns what NCCL's background work has come to: still busy, or an error.
func (c *ncclComm) state(doing string) (busy bool, err error) {
	err = c.call(doing, func() C.int {
		code := C.libhora_nccl_state(c.comm)
		busy = code == C.HORA_NCCL_IN_PROGRESS
		return code
	})
	return busy, err
}

// settle waits until NCCL has taken over what it was told.
func (c *ncclComm) settle(doing string, halted func() error) error {
	for n := 0; ; n++ {
		busy, err := c.state(doing)
		if !busy || err != nil {
			return err
		}
		if err := halted(); err != nil {
			return err
		}
		if n > 20 {
			time.Sleep(100 * time.Microsecond)
		}
	}
}

// abort ends everything that runs on the communicator. A call that is stuck inside NCCL
// is given a second, then cut short.
func (c *ncclComm) abort() {
	if c.aborted.Swap(true) {
		return
	}
	held := c.calls.TryLock()
	for end := time.Now().Add(time.Second); !held && time.Now().Before(end); held = c.calls.TryLock() {
		time.Sleep(time.Millisecond)
	}
	if c.comm != nil {
		C.libhora_nccl_abort(c.comm)
	}
	if held {
		c.calls.Unlock()
	}
}

// close ends a communicator whose operations have ended.
func (c *ncclComm) close(halted func() error) {
	err := c.call("close NCCL group", func() C.int { return C.libhora_nccl_finalize(c.comm) })
	if err == nil {
		err = c.settle("close NCCL group", halted)
	}
	if err != nil {
		c.abort()
		return
	}
	_ = c.call("close NCCL group", func() C.int { return C.libhora_nccl_destroy(c.comm) })
	c.aborted.Store(true)
}

// inGroup is the communicator between Start and End, while its calls are held.
type inGroup struct{ *ncclComm }

func (g inGroup) Start() error { return g.fault("start NCCL operation", C.libhora_nccl_start()) }
func (g inGroup) End() error   { return g.fault("start NCCL operation", C.libhora_nccl_end()) }

func (g inGroup) AllReduce(send, recv device.Ptr, count, t, op int, s device.Stream) error {
	return g.fault("allreduce", C.libhora_nccl_allreduce(C.uint64_t(send), C.uint64_t(recv), C.uint64_t(count), C.int(t),
		C.int(op), g.comm, C.uint64_t(s)))
}

func (g inGroup) Reduce(send, recv device.Ptr, count, t, op, root int, s device.Stream) error {
	return g.fault("reduce", C.libhora_nccl_reduce(C.uint64_t(send), C.uint64_t(recv), C.uint64_t(count), C.int(t), C.int(op),
		C.int(root), g.comm, C.uint64_t(s)))
}

func (g inGroup) Broadcast(send, recv device.Ptr, count, t, root int, s device.Stream) error {
	return g.fault("broadcast", C.libhora_nccl_broadcast(C.uint64_t(send), C.uint64_t(recv), C.uint64_t(count), C.int(t),
		C.int(root), g.comm, C.uint64_t(s)))
}

func (g inGroup) AllGather(send, recv device.Ptr, count, t int, s device.Stream) error {
	return g.fault("allgather", C.libhora_nccl_allgather(C.uint64_t(send), C.uint64_t(recv), C.uint64_t(count), C.int(t), g.comm,
		C.uint64_t(s)))
}

func (g inGroup) ReduceScatter(send, recv device.Ptr, count, t, op int, s device.Stream) error {
	return g.fault("reducescatter", C.libhora_nccl_reduce_scatter(C.uint64_t(send), C.uint64_t(recv), C.uint64_t(count), C.int(t),
		C.int(op), g.comm, C.uint64_t(s)))
}

func (g inGroup) Send(send device.Ptr, count, t, peer int, s device.Stream) error {
	return g.fault("send", C.libhora_nccl_send(C.uint64_t(send), C.uint64_t(count), C.int(t), C.int(peer), g.comm,
		C.uint64_t(s)))
}

func (g inGroup) Recv(recv device.Ptr, count, t, peer int, s device.Stream) error {
	return g.fault("recv", C.libhora_nccl_recv(C.uint64_t(recv), C.uint64_t(count), C.int(t), C.int(peer), g.comm,
		C.uint64_t(s)))
}

func (g inGroup) Scaled(factor float64, t int) (op int, drop func(), err error) {
	var made C.int
	if err := g.fault("make scaled sum", C.libhora_nccl_scaled(&made, C.double(factor), C.int(t), g.comm)); err != nil {
		return 0, nil, err
	}
	return int(made), func() { C.libhora_nccl_scaled_close(made, g.comm) }, nil
}
