package transport

import (
	"time"
	"unsafe"
)

// Board is memory that the ranks of one host share.
type Board struct{ cfg BoardConfig }

// BoardSize is the length of the memory that NewBoard needs.
func BoardSize(seats int, cfg BoardConfig) int { return 0 }

// NewBoard lays a board over mem, which must be zero when the first seat comes.
func NewBoard(mem []byte, seats, seat int, cfg BoardConfig) (*Board, error) { return nil, nil }

func (b *Board) Seats() int                        { return 0 }
func (b *Board) Seat() int                         { return 0 }
func (b *Board) Ranks() []int                      { return nil }
func (b *Board) SlotBytes() int                    { return 0 }
func (b *Board) PartBytes() int                    { return 0 }
func (b *Board) Parts() int                        { return 0 }
func (b *Board) Begin(s Stamp, deadline time.Time) {}
func (b *Board) Arrive(inline []byte)              {}
func (b *Board) AwaitArrival(seat int, budget time.Duration) (inline []byte, ok bool, err error) {
	return nil, false, nil
}
func (b *Board) Post(phase uint32)                  {}
func (b *Board) Await(seat int, phase uint32) error { return nil }
func (b *Board) AwaitAll(phase uint32) error        { return nil }
func (b *Board) Slot(seat, parity int) []byte       { return nil }
func (b *Board) Part(seat, i int) []byte            { return nil }
func (b *Board) Registered(ptr unsafe.Pointer, n int) (id uint32, offset uint64, ok bool) {
	return 0, 0, false
}
func (b *Board) Mapped(seat int, id uint32, offset uint64, n int) unsafe.Pointer { return nil }
func (b *Board) Count(sent, received int)                                        {}
func (b *Board) Traffic() Traffic                                                { return Traffic{} }
func (b *Board) Fail(err error)                                                  {}
func (b *Board) Explain(mine []byte) ([][]byte, error)                           { return nil, nil }
func (b *Board) Leave()                                                          {}
