//go:build !amd64 || purego || race

package transport

import (
	"sync/atomic"
	"time"
	"unsafe"
)

const plainStores = false

func storeLoad(p *uint64, v uint64, flag *uint32, _ unsafe.Pointer) uint32 {
	atomic.SwapUint64(p, v)
	return atomic.LoadUint32(flag)
}

func poll(p *uint64, want uint64, n int) bool {
	for range 4*n + 1 {
		if int64(atomic.LoadUint64(p)-want) >= 0 {
			return true
		}
	}
	return false
}

func pause(int) {}

func count(t *[4]uint64, sent, received uint64) {
	for i, v := range [4]uint64{sent, received, 1, 1} {
		atomic.StoreUint64(&t[i], t[i]+v)
	}
}

// Note stores v where others look now and then.
func Note(p *uint64, v uint64) { atomic.StoreUint64(p, v) }

// Ticks is a counter of one to four a nanosecond.
func Ticks() int64 { return int64(time.Since(began)) }

var began = time.Now()
