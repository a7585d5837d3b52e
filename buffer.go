package hora

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"unsafe"

	"hora/tensor"
	"hora/transport/shm"
)

// Buffer returns memory that all ranks of this host map: operations on it copy nothing. It
// is collective: all ranks of the group ask for the same size in the same order. It
// lives until Free or, unless it is to Outlive it, until the group is closed. Where no memory is shared it is
// ordinary memory.
func (g *Group) Buffer(ctx context.Context, bytes int) ([]byte, error) {
	if bytes <= 0 {
		return nil, &InvalidError{Text: fmt.Sprintf("make buffer: %d bytes; ask for at least one", bytes)}
	}
	if g.link == nil {
		return make([]byte, bytes), nil
	}
	b, err := g.link.Buffer(ctx, bytes)
	if err != nil {
		return nil, &OperationError{Kind: "make buffer of group " + g.name, Err: err}
	}
	g.keep(b)
	return b.Bytes(), nil
}

// BufferOf makes a Buffer of count elements. Free and Outlive take it as BytesOf.
func BufferOf[T Element](ctx context.Context, g *Group, count int) ([]T, error) {
	size := tensor.TypeOf[T]().Size()
	if count <= 0 || count > math.MaxInt/size {
		return nil, &InvalidError{Text: fmt.Sprintf("make buffer: %d elements; ask for at least one, and for no more than memory has", count)}
	}
	if g.link == nil {
		return make([]T, count), nil
	}
	b, err := g.Buffer(ctx, count*size)
	if err != nil {
		return nil, err
	}
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(b))), count), nil // it begins with a page
}

// BytesOf returns the memory of x.
func BytesOf[T Element](x []T) []byte { return tensor.Of(x).Bytes() }

// Free gives a buffer, or registered memory that begins at the same place, back. No
// operation may be using it on any rank of the host.
func (g *Group) Free(buffer []byte) error {
	g.mu.Lock()
	b := takeOut(&g.buffers, buffer)
	if b == nil {
		b = takeOut(&g.lasting, buffer)
	}
	g.mu.Unlock()
	if b == nil {
		if g.link == nil {
			return nil
		}
		return errors.New("free buffer: it is none of this group's")
	}
	return b.Close()
}

// takeOut removes the buffer that begins where this memory does.
func takeOut(list *[]*shm.Buffer, memory []byte) *shm.Buffer {
	at := unsafe.SliceData(memory)
	i := slices.IndexFunc(*list, func(b *shm.Buffer) bool { return unsafe.SliceData(b.Bytes()) == at })
	if i < 0 {
		return nil
	}
	b := (*list)[i]
	*list = slices.Delete(*list, i, i+1)
	return b
}

func (g *Group) keep(b *shm.Buffer) {
	g.mu.Lock()
	g.buffers = append(g.buffers, b)
	g.mu.Unlock()
}
