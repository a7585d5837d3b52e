package main

/*
#include <stdlib.h>
#include "cuda.h"
#include "lib.h"
*/
import "C"

import (
	"fmt"
	"runtime"
	"time"
	"unsafe"

	"hora/device"
)

// cudaError says what the driver was asked for.
func cudaError(doing string, gpu int, code C.int) error {
	if code == 0 {
		return nil
	}
	return &gpuFault{fmt.Sprintf("%s GPU %d: %s (CUDA error %d)", doing, gpu, C.GoString(C.libhora_cuda_text(code)), code)}
}

// gpuFault is what the driver refused.
type gpuFault struct{ text string }

func (f *gpuFault) Error() string { return f.text }

// cudaQueue is one GPU as a thread sees it whose context is current; see device.Queue.
type cudaQueue struct {
	gpu    int
	halted func() error // why waiting is no longer worth it
	until  time.Time    // the operation's deadline; zero: none
}

func (q *cudaQueue) Copy(to, from device.Ptr, n int, s device.Stream) error {
	return cudaError("copy tensor of", q.gpu, C.libhora_cuda_copy(C.uint64_t(to), C.uint64_t(from), C.uint64_t(n), C.uint64_t(s)))
}

func (q *cudaQueue) Record(e device.Event, s device.Stream) error {
	return cudaError("record event on", q.gpu, C.libhora_cuda_record(C.uint64_t(e), C.uint64_t(s)))
}

func (q *cudaQueue) Await(s device.Stream, e device.Event) error {
	return cudaError("order streams of", q.gpu, C.libhora_cuda_await(C.uint64_t(s), C.uint64_t(e)))
}

// spins is how often an event is looked at before the thread begins to sleep between.
const spins = 200

// Ended polls: the driver's own wait could neither be ended by a failure nor bounded.
func (q *cudaQueue) Ended(e device.Event) error {
	for n := 0; ; n++ {
		done, err := q.query(e)
		if done || err != nil {
			return err
		}
		if err := q.halted(); err != nil {
			return err
		}
		if !q.until.IsZero() && time.Now().After(q.until) {
			return &failure{C.HORA_DEADLINE, fmt.Sprintf("wait for GPU %d: its stream had not come to the tensor within the operation's timeout; "+
				"look for work that waits for another rank on the same stream", q.gpu)}
		}
		if n < spins {
			runtime.Gosched()
		} else {
			time.Sleep(20 * time.Microsecond)
		}
	}
}

func (q *cudaQueue) query(e device.Event) (bool, error) {
	code := C.libhora_cuda_query(C.uint64_t(e))
	if code == C.HORA_CUDA_NOT_READY {
		return false, nil
	}
	return code == 0, cudaError("look at", q.gpu, code)
}

func newStream(gpu int) (device.Stream, error) {
	var s C.uint64_t
	err := cudaError("make stream on", gpu, C.libhora_cuda_stream(&s))
	return device.Stream(s), err
}

func newEvent(gpu int) (device.Event, error) {
	var e C.uint64_t
	err := cudaError("make event on", gpu, C.libhora_cuda_event(&e))
	return device.Event(e), err
}

func closeStream(s device.Stream) { C.libhora_cuda_stream_close(C.uint64_t(s)) }
func closeEvent(e device.Event)   { C.libhora_cuda_event_close(C.uint64_t(e)) }

// loadCUDA makes the driver ready and answers the GPU's place on this machine, which
// tells two processes whether they use the same one, and its context.
func loadCUDA(path string, gpu int) (bus string, context unsafe.Pointer, err error) {
	p := C.CString(path)
	defer C.free(unsafe.Pointer(p))
	if why := C.libhora_cuda_load(p); why != nil {
		return "", nil, fmt.Errorf("%s", C.GoString(why))
	}
	var at [32]C.char
	if err := cudaError("find", gpu, C.libhora_cuda_bus(C.int(gpu), &at[0], C.int(len(at)))); err != nil {
		return "", nil, err
	}
	if err := cudaError("open", gpu, C.libhora_cuda_open(C.int(gpu), &context)); err != nil {
		return "", nil, err
	}
	return C.GoString(&at[0]), context, nil
}

// onThread locks the goroutine to its thread and makes the GPU that thread's.
func onThread(gpu int, context unsafe.Pointer) error {
	runtime.LockOSThread()
	return cudaError("use", gpu, C.libhora_cuda_use(context))
}

// lane is the pinned host memory, streams and events that tensors pass through, for one
// thread at a time.
type lane struct {
	staging   device.Staging
	apart     []device.Slot // what goes down and what comes back lie apart
	inPlace   []device.Slot
	memory    []byte
	giveBack  func()
	pinnedNow bool
}

// newLane cuts memory into slots and pins it. Memory that cannot be pinned is used as
// it is: slower, but right.
func newLane(gpu int, q *cudaQueue, memory []byte, slots int, giveBack func()) (l *lane, err error) {
	l = &lane{memory: memory, giveBack: giveBack}
	defer func() {
		if err != nil {
			l.close()
		}
	}()
	base := unsafe.Pointer(unsafe.SliceData(memory))
	l.pinnedNow = C.libhora_cuda_pin(base, C.uint64_t(len(memory))) == 0
	l.staging.Queue, l.staging.Bytes = q, len(memory)/(2*slots)&^63
	if l.staging.Down, err = newStream(gpu); err != nil {
		return l, err
	}
	if l.staging.Up, err = newStream(gpu); err != nil {
		return l, err
	}
	at := device.Ptr(uintptr(base))
	for i := range slots {
		s := device.Slot{In: at + device.Ptr(2*i*l.staging.Bytes), Out: at + device.Ptr((2*i+1)*l.staging.Bytes)}
		if s.Down, err = newEvent(gpu); err != nil {
			return l, err
		}
		if s.Up, err = newEvent(gpu); err != nil {
			closeEvent(s.Down)
			return l, err
		}
		l.apart = append(l.apart, s)
		s.Out = s.In
		l.inPlace = append(l.inPlace, s)
	}
	return l, nil
}

func (l *lane) close() {
	for _, s := range l.apart {
		closeEvent(s.Down)
		closeEvent(s.Up)
	}
	for _, s := range []device.Stream{l.staging.Down, l.staging.Up} {
		if s != 0 {
			closeStream(s)
		}
	}
	if l.pinnedNow {
		C.libhora_cuda_unpin(unsafe.Pointer(unsafe.SliceData(l.memory)))
	}
	l.giveBack()
}
