//go:build !amd64 || purego || race

package transport

import "sync/atomic"

const (
	pollLoads   = 4
	plainStores = false
)

func storeLoad(p *uint64, v uint64, flag *uint32) uint32 {
	atomic.SwapUint64(p, v)
	return atomic.LoadUint32(flag)
}

func poll(p *uint64, want uint64, n int) bool {
	for range n*pollLoads + 1 {
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
