// Command libhora is the shared library behind hora.h: collectives for every language
// that can call C. It owns the process's one world, its groups, plans and tickets by
// number; what is sent and in what order is the business of package hora.
//
// A call goes through lib.c, which refuses forked children, keeps each thread's last
// failure, and waits for tickets: without entering Go, but that who waits for an
// operation matched by name does pending work first. The rest is exported from here.
// The library never calls back into its caller and never blocks it longer than 50 ms.
//
// Goroutines: one for each ticket that stands for more than one operation (init,
// shutdown, making a group or a buffer, exchanging sizes, join, opening data); each ends
// with its ticket. Opened data have those of package dataset. It lives until the process ends: a Go library cannot be
// unloaded.
package main

/*
#include "lib.h"
*/
import "C"

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"unsafe"

	"hora"
)

// version is set by the builder with -X.
var version = "0.0.0-dev"

// the is the library's state: a C interface has nowhere else to keep it.
var the library

// library is what the numbers that callers hold stand for.
type library struct {
	mu     sync.Mutex // guards what follows; never held over an operation
	life   *life      // the world, or one being joined; nil when there is none
	setUp  bool
	record recorder
	tables tables
	own    slots
	joins  sync.Map               // a ticket of join → *hora.Group, while it lasts
	doubt  atomic.Pointer[string] // who else may free this process: see noteDoubt
	plans  plans
	memory memories
	gpus   gpus
	data   datasets
	build  *C.char
}

func main() {}

// errOut gives the calling thread err as its last failure and answers -1.
func errOut(err error) C.int64_t {
	kind, rank := classify(err)
	text := err.Error()
	C.libhora_fail(C.int32_t(kind), C.int32_t(rank), (*C.char)(unsafe.Pointer(unsafe.StringData(text))),
		C.uint64_t(len(text)))
	return -1
}

// guard turns a panic, which is a fault of ours, into a failure of the call.
func guard[T ~int32 | ~int64](answer *T) {
	if p := recover(); p != nil {
		*answer = T(errOut(&failure{C.HORA_INTERNAL, fmt.Sprintf("internal fault of hora: %v; please report it with this: %s", p, debug.Stack())}))
	}
}

// failure is an error that knows its number in hora.h.
type failure struct {
	kind int
	text string
}

func (f *failure) Error() string { return f.text }

func argument(format string, a ...any) error {
	return &failure{C.HORA_ARGUMENT, fmt.Sprintf(format, a...)}
}

var (
	errNoWorld = &failure{C.HORA_NOT_INITIALIZED, "use hora: it is not initialized; call init first"}
	errNoGroup = &failure{C.HORA_CLOSED, "use group: it is closed; make a new one"}
)

// classify finds the number of an error in hora.h and the rank that it names, or -1.
func classify(err error) (kind, rank int) {
	var own *failure
	var invalid *hora.InvalidError
	var mismatch *hora.MismatchError
	var lost *hora.PeerLostError
	var late *hora.DeadlineError
	var knot *hora.DeadlockError
	switch {
	case errors.As(err, &own):
		return own.kind, -1
	case errors.As(err, &invalid):
		return C.HORA_ARGUMENT, -1
	case errors.As(err, &mismatch):
		return C.HORA_MISMATCH, -1
	case errors.As(err, &lost):
		return C.HORA_PEER_LOST, lost.Rank
	case errors.As(err, &knot):
		return C.HORA_DEADLINE, -1
	case errors.Is(err, hora.ErrFinished):
		return C.HORA_FINISHED, -1
	case errors.Is(err, hora.ErrDrained):
		return C.HORA_DRAINED, -1
	case errors.As(err, &late):
		return C.HORA_DEADLINE, late.Rank
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded):
		return C.HORA_DEADLINE, -1
	case errors.Is(err, hora.ErrClosed), errors.Is(err, hora.ErrCancelled), errors.Is(err, context.Canceled):
		return C.HORA_CLOSED, -1
	}
	return C.HORA_FAILED, -1
}

// prepare does what the first init does to the Go runtime. A process bound to one core
// would get one P, and a waiting operation would hold it.
func (l *library) prepare() {
	if !l.setUp {
		l.setUp = true
		runtime.GOMAXPROCS(max(4, runtime.GOMAXPROCS(0)))
	}
}

//export horaBuild
func horaBuild() *C.char {
	the.mu.Lock()
	defer the.mu.Unlock()
	if the.build == nil {
		the.build = C.CString(fmt.Sprintf("hora %s %s %s/%s", version, runtime.Version(), runtime.GOOS, runtime.GOARCH))
	}
	return the.build
}

// answerText hands a text to the calling thread; it is valid until its next call.
func answerText(v any) *C.char {
	text, err := json.Marshal(v)
	if err != nil {
		errOut(err)
		return nil
	}
	return C.libhora_text((*C.char)(unsafe.Pointer(unsafe.SliceData(text))), C.uint64_t(len(text)))
}
