//go:build !purego && !race

package transport

// poll loads *p up to 4n+1 times and reports whether it has reached want, as
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

// storeLoad stores v at p with no fence and then reads flag. The store may become visible
// after the read: see publish.
//
//go:noescape
func storeLoad(p *uint64, v uint64, flag *uint32) uint32

const (
	pollLoads   = 4
	plainStores = true
)
