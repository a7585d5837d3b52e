//go:build !purego && !race

package transport

import "unsafe"

// poll loads *p up to n+1 times and reports whether it has reached want, as
// numbers that wrap. It orders what follows after the load.
//
//go:noescape
func poll(p *uint64, want uint64, n int) bool

// pause spends about n × 10–50 ns without asking anything of memory.
func pause(n int)

// count adds sent, received, 1 and 1 to the four counters.
//
//go:noescape
func count(t *[4]uint64, sent, received uint64)

// storeLoad stores v at p with no fence, asks for the two lines at next, which this
// processor will write in its next operation, and then reads flag. The store may become
// visible after the read: see publish.
//
// Between store and read there is a PAUSE. Who looks for the peer's word before that is
// written takes the line away, and then the peer's store waits for it, and then the next
// look waits for the store: two trips between the cores in place of one. Ranks that come
// together do so within some 50 ns.
//
//go:noescape
func storeLoad(p *uint64, v uint64, flag *uint32, next unsafe.Pointer) uint32

// Note stores v where others look now and then. Unlike an atomic store it does not wait
// until the others can see it: the writer's own later reads may come before.
//
//go:noescape
func Note(p *uint64, v uint64)

// Ticks is the processor's counter, one to four a nanosecond. Around a yield it takes up to
// 5 % of a small operation less than the system's clock.
func Ticks() int64

const plainStores = true
