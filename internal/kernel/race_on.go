//go:build race

package kernel

import (
	"runtime"
	"unsafe"
)

// The race detector does not see what assembly touches: tell it.

func raceRead(p unsafe.Pointer, n int) {
	if n > 0 {
		runtime.RaceReadRange(p, n)
	}
}

func raceWrite(p unsafe.Pointer, n int) {
	if n > 0 {
		runtime.RaceWriteRange(p, n)
	}
}
