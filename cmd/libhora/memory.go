package main

/*
#include <stdlib.h>
#include "lib.h"
*/
import "C"

import (
	"sync"
	"unsafe"
)

// memories are the results and buffers that callers hold, by their handle: the address
// of what the library allocated.
type memories struct {
	mu   sync.Mutex // guards all and last
	all  map[uint64]memory
	last uint64
}

type memory struct {
	bytes int
	free  func()
}

func (m *memories) add(at unsafe.Pointer, mem memory) uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.all == nil {
		m.all = map[uint64]memory{}
	}
	m.all[uint64(uintptr(at))] = mem
	return uint64(uintptr(at))
}

// registered keeps memory of the caller's own; one address may be registered with
// several groups, so its handle is a number of its own, odd as no address is.
func (m *memories) registered(mem memory) uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.all == nil {
		m.all = map[uint64]memory{}
	}
	m.last += 2
	m.all[m.last|1] = mem
	return m.last | 1
}

// allocate takes memory outside Go's heap, aligned for every element type; nil when
// there is none.
func (m *memories) allocate(bytes int) unsafe.Pointer {
	at := C.aligned_alloc(64, C.size_t(max(64, (bytes+63)&^63)))
	if at != nil {
		m.add(at, memory{bytes, func() { C.free(at) }})
	}
	return at
}

// bytes returns how much lies at handle, 0 when it was given back.
func (m *memories) bytes(handle uint64) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.all[handle].bytes
}

func (m *memories) close(handle uint64) {
	m.mu.Lock()
	mem, ok := m.all[handle]
	delete(m.all, handle)
	m.mu.Unlock()
	if ok {
		mem.free()
	}
}

//export horaBuffer
func horaBuffer(handle, bytes C.uint64_t) (answer C.int64_t) {
	defer guard(&answer)
	g, err := the.find(uint64(handle))
	if err != nil {
		return errOut(err)
	}
	return the.background(func(o *outcome) error {
		b, err := g.g.Buffer(g.life.ctx, int(bytes))
		if err != nil {
			return err
		}
		g.lower.Outlive(b) // arrays that view it may be read after the group's end
		o.memory = the.memory.add(unsafe.Pointer(unsafe.SliceData(b)),
			memory{bytes: len(b), free: func() { g.g.Free(b) }})
		return nil
	})
}

//export horaRegister
func horaRegister(handle C.uint64_t, at unsafe.Pointer, bytes C.uint64_t, fd C.int32_t, offset C.uint64_t,
	flags C.uint32_t,
) (answer C.int64_t) {
	defer guard(&answer)
	g, err := the.find(uint64(handle))
	if err != nil {
		return errOut(err)
	}
	return the.background(func(o *outcome) error {
		to := g
		if flags&C.HORA_NAMED != 0 {
			var err error
			if to, err = g.companion(); err != nil {
				return err
			}
		}
		if err := to.lower.Register(g.life.ctx, at, int(bytes), int(fd), int64(offset)); err != nil {
			return err
		}
		o.memory = the.memory.registered(memory{
			int(bytes),
			func() { to.g.Free(unsafe.Slice((*byte)(at), int(bytes))) },
		})
		return nil
	})
}

//export horaBufferClose
func horaBufferClose(buffer C.uint64_t) (answer C.int32_t) {
	defer guard(&answer)
	the.memory.close(uint64(buffer))
	return 0
}
