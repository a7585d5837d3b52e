package collective

import (
	"unsafe"

	"hora/internal/kernel"
)

// arena is memory that grows to the largest demand once. It is aligned to a cache
// line and never zeroed.
type arena struct{ mem []byte }

func (a *arena) take(n int) []byte {
	const line = 64
	if len(a.mem) < n {
		size := max(n, 2*len(a.mem)) + line
		raw := make([]byte, size)
		skip := -uintptr(unsafe.Pointer(&raw[0])) & (line - 1)
		a.mem = raw[skip:]
	}
	return a.mem[:n]
}

// pointer is b's first byte, nil for none.
func pointer(b []byte) unsafe.Pointer { return unsafe.Pointer(unsafe.SliceData(b)) }

// shift is p plus an offset in bytes, nil where nothing lies there: a pointer just past
// a tensor could point into what belongs to somebody else.
func shift(p unsafe.Pointer, offset, n int) unsafe.Pointer {
	if n == 0 {
		return nil
	}
	return unsafe.Add(p, offset)
}

// copyAt copies n bytes, none being fine, unless they are where they should be.
func copyAt(dst unsafe.Pointer, dstAt int, src unsafe.Pointer, srcAt, n int) {
	if n <= 0 {
		return
	}
	if d, s := unsafe.Add(dst, dstAt), unsafe.Add(src, srcAt); d != s {
		kernel.Copy(d, s, n)
	}
}

// fetchAt copies n bytes, none being fine, that another rank has just written.
func fetchAt(dst unsafe.Pointer, dstAt int, src unsafe.Pointer, srcAt, n int) {
	if n > 0 {
		kernel.CopyFetch(unsafe.Add(dst, dstAt), unsafe.Add(src, srcAt), n)
	}
}

// putAt is copyAt, past the cache if asked to.
func putAt(dst unsafe.Pointer, dstAt int, src unsafe.Pointer, srcAt, n int, past bool) {
	if n <= 0 || !past {
		copyAt(dst, dstAt, src, srcAt, n)
		return
	}
	if d, s := unsafe.Add(dst, dstAt), unsafe.Add(src, srcAt); d != s {
		kernel.CopyStream(d, s, n)
	}
}

// takeAt is fetchAt of a block that is part of the result as it is, past the cache if asked to.
func takeAt(dst unsafe.Pointer, dstAt int, src unsafe.Pointer, srcAt, n int, past bool) {
	if past && n > 0 {
		kernel.CopyStream(unsafe.Add(dst, dstAt), unsafe.Add(src, srcAt), n)
		return
	}
	if n > 0 {
		kernel.CopyTake(unsafe.Add(dst, dstAt), unsafe.Add(src, srcAt), n)
	}
}

// at is n bytes of memory from offset on.
func at(p unsafe.Pointer, offset, n int) []byte {
	if n == 0 {
		return nil
	}
	return unsafe.Slice((*byte)(unsafe.Add(p, offset)), n)
}
