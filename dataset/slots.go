package dataset

import (
	"fmt"
	"sync"
	"syscall"
	"unsafe"
)

// What a slot's first numbers are, all int64.
const (
	hRows     = iota
	hPadded   // rows at the end that are repeated to fill the step
	hEpoch    // where the state stands after this batch
	hPosition //
	hHeld     // batches that the caller holds, this one included
	hTexts    // of each text field: where its texts begin in the slot, and their bytes
)

const (
	align = 64
	ring  = 8 // slots that a caller may hold before he is told
)

// slot is the memory of a batch.
type slot struct {
	mem []byte
}

func (s *slot) header() []int64 {
	return unsafe.Slice((*int64)(unsafe.Pointer(unsafe.SliceData(s.mem))), len(s.mem)/8)
}

// slots are a Set's: those that nobody holds wait here for the next batch.
type slots struct {
	mu   sync.Mutex // guards what follows
	free []*slot
	held int  // by callers
	over bool // nothing is kept any more
}

// take gives a slot of so many bytes or more.
func (s *slots) take(bytes int, most int64) (*slot, error) {
	s.mu.Lock()
	for i, sl := range s.free {
		if len(sl.mem) >= bytes {
			s.free[i] = s.free[len(s.free)-1]
			s.free = s.free[:len(s.free)-1]
			s.mu.Unlock()
			return sl, nil
		}
	}
	held := s.held
	var small *slot
	if n := len(s.free); n > 0 { // too small for anything that comes
		small, s.free = s.free[n-1], s.free[:n-1]
	}
	s.mu.Unlock()
	if small != nil {
		small.unmap()
	}
	if held > 4*ring && int64(held)*int64(bytes) > most {
		return nil, fmt.Errorf("read data: %d batches of %d KiB are held, more than memory= allows (%d MiB); drop batches when they are used, copy what is kept, or raise memory=", held, bytes>>10, most>>20)
	}
	return mapSlot(bytes)
}

func mapSlot(bytes int) (*slot, error) {
	const page = 4096
	mem, err := syscall.Mmap(
		-1, 0, (bytes+bytes/8+page)&^(page-1), syscall.PROT_READ|syscall.PROT_WRITE,
		syscall.MAP_PRIVATE|syscall.MAP_ANON,
	)
	if err != nil {
		return nil, fmt.Errorf("read data: the system gives no %d KiB for a batch: %w; use smaller batches", bytes>>10, err)
	}
	return &slot{mem}, nil
}

func (s *slot) unmap() {
	if s.mem != nil {
		_ = syscall.Munmap(s.mem) // it is ours and mapped
		s.mem = nil
	}
}

// hand counts a slot that a caller gets.
func (s *slots) hand() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held++
	return s.held
}

// give takes a slot back; more than a ring of them go back to the system.
func (s *slots) give(sl *slot, held bool) {
	s.mu.Lock()
	if held {
		s.held--
	}
	keep := len(s.free) < ring && !s.over
	if keep {
		s.free = append(s.free, sl)
	}
	s.mu.Unlock()
	if !keep {
		sl.unmap()
	}
}

// drain gives back what nobody holds, and from now on what anybody gives back.
func (s *slots) drain() {
	s.mu.Lock()
	free := s.free
	s.free, s.over = nil, true
	s.mu.Unlock()
	for _, sl := range free {
		sl.unmap()
	}
}

// Batch is rows in a slot. It is the holder's until Release.
type Batch struct {
	Rows     int
	Padded   int
	Epoch    uint64
	Position int64
	slot     *slot
	slots    *slots
	err      error
}

// Memory is the slot: its header, then the arrays where Fields says.
func (b *Batch) Memory() []byte { return b.slot.mem }

// Release gives the memory back; nobody may look at it any more.
func (b *Batch) Release() {
	if b.slot != nil {
		b.slots.give(b.slot, true)
		b.slot = nil
	}
}

// layout places the fields in a slot of so many rows and answers the bytes before texts.
func (s *Set) layout(rows int) ([]Field, int) {
	at := up((hTexts + 2*s.texts()) * 8)
	all := s.Fields()
	text := 0
	for i := range all {
		f := &all[i]
		f.At = at
		if f.Width == 0 {
			f.Text = hTexts + 2*text
			text++
			at = up(at + 8*(rows+1))
		} else {
			at = up(at + f.Width*rows)
		}
		if f.Mask {
			f.MaskAt = at
			at = up(at + rows*max(1, f.Count))
		}
	}
	return all, at
}

func up(n int) int { return (n + align - 1) &^ (align - 1) }

// View is an array of a batch as values of T, row after row; f is the reader's Layout of
// it. Texts and lists of any number have Item.
func View[T any](b *Batch, f *Field) []T {
	one := int(unsafe.Sizeof(*new(T)))
	if f.Width == 0 || f.Width%one != 0 || b.Rows == 0 {
		return nil
	}
	return unsafe.Slice((*T)(unsafe.Pointer(&b.Memory()[f.At])), b.Rows*f.Width/one)
}

// Item is a row's text, bytes or values of a list of any number.
func (b *Batch) Item(f *Field, row int) []byte {
	if f.Text < 0 || row < 0 || row >= b.Rows {
		return nil
	}
	ends := unsafe.Slice((*int64)(unsafe.Pointer(&b.Memory()[f.At])), b.Rows+1)
	begin := b.slot.header()[f.Text]
	return b.Memory()[begin+ends[row] : begin+ends[row+1]]
}
