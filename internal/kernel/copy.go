package kernel

import (
	"math"
	"unsafe"
)

// Copy copies bytes with plain stores. The ranges may be equal or disjoint, no other overlap.
func Copy(dst, src unsafe.Pointer, bytes int) {
	// The runtime's own copy turns to streaming stores from 1 MiB on; what a peer reads next must
	// stay in cache, and a piece ends soon enough for the garbage collector.
	for from := 0; from < bytes; from += pieceBytes {
		m := min(bytes-from, pieceBytes)
		copy(view[byte](unsafe.Add(dst, from), m), view[byte](unsafe.Add(src, from), m))
	}
}

// CopyStream copies disjoint ranges with stores that bypass the cache: for results larger than it that nobody on
// this host reads soon. It has finished for other threads when it returns.
func CopyStream(dst, src unsafe.Pointer, bytes int) { Best().CopyStream(dst, src, bytes) }

// CopyAhead copies disjoint ranges into memory that another core has just read, a slot: it
// asks for the lines some way before it writes them.
func CopyAhead(dst, src unsafe.Pointer, bytes int) { Best().CopyAhead(dst, src, bytes) }

// CopyFetch copies disjoint ranges from memory that another core has just written: it
// asks for the lines some way before it reads them.
func CopyFetch(dst, src unsafe.Pointer, bytes int) { Best().CopyFetch(dst, src, bytes) }

// CopyTake is CopyFetch of what nobody adds to soon: a block that has come whole.
func CopyTake(dst, src unsafe.Pointer, bytes int) { Best().CopyTake(dst, src, bytes) }

// ByString reports that long copies between two cores go by the processor's string instruction.
func ByString() bool { return stringLeast < math.MaxInt }

// CopyStream is the package's CopyStream with the instructions of l.
func (l Level) CopyStream(dst, src unsafe.Pointer, bytes int) {
	l.copyBy(dst, src, bytes, copyStreamVector)
}

// CopyAhead is the package's CopyAhead with the instructions of l.
func (l Level) CopyAhead(dst, src unsafe.Pointer, bytes int) {
	l.copyBy(dst, src, bytes, copyAheadVector)
}

// CopyFetch is the package's CopyFetch with the instructions of l.
func (l Level) CopyFetch(dst, src unsafe.Pointer, bytes int) {
	l.copyBy(dst, src, bytes, copyFetchVector)
}

// CopyTake is the package's CopyTake with the instructions of l.
func (l Level) CopyTake(dst, src unsafe.Pointer, bytes int) {
	l.copyBy(dst, src, bytes, copyTakeVector)
}

func (l Level) copyBy(dst, src unsafe.Pointer, bytes int, vector func(Level, unsafe.Pointer, unsafe.Pointer, int) int) {
	if l == Pure || bytes <= 0 {
		Copy(dst, src, bytes)
		return
	}
	raceRead(src, bytes)
	raceWrite(dst, bytes)
	for from := 0; from < bytes; from += pieceBytes / 2 {
		m := min(bytes-from, pieceBytes/2)
		done := vector(l, unsafe.Add(dst, from), unsafe.Add(src, from), m)
		if done < m {
			Copy(unsafe.Add(dst, from+done), unsafe.Add(src, from+done), m-done)
		}
	}
}
