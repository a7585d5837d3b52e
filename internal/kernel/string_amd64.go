//go:build !purego

package kernel

import (
	"math"
	"unsafe"

	"golang.org/x/sys/cpu"
)

// copyString copies n bytes with REP MOVSB.
//
//go:noescape
func copyString(dst, src unsafe.Pointer, n int)

// vendor returns the processor maker's name as CPUID has it.
func vendor() (b, c, d uint32)

// stringLeast is the length from which memory that passes between two cores is copied by the string instruction.
// AMD's processors carry it out without fetching the lines that it overwrites, which the other core still holds: two
// ranks are 1.2 to 2.8 times as fast from 64 KiB to 4 MiB (docs/algorithms.md). Below, beginning it costs more; Intel's
// gain nothing.
var stringLeast = func() int {
	b, c, d := vendor()
	if amd := b == 0x68747541 && d == 0x69746e65 && c == 0x444d4163; amd && cpu.X86.HasERMS {
		return 32 << 10
	}
	return math.MaxInt
}()

func copyTakeVector(l Level, dst, src unsafe.Pointer, n int) int {
	if n >= stringLeast {
		copyString(dst, src, n)
		return n
	}
	return copyFetchVector(l, dst, src, n)
}
