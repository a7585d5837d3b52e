//go:build !purego

package kernel

import (
	"bytes"
	"testing"

	"hora/tensor"
)

// TestTheStringInstruction copies with it on processors too where nothing else does.
func TestTheStringInstruction(t *testing.T) {
	r := newRand(t)
	dst, src := newArena(t, 400000), newArena(t, 400000)
	for _, n := range append(lengths(r), 4096, 32768, 65537, 393000) {
		x, z := src.take(r, n), dst.take(r, n)
		fill(r, x, tensor.Uint8)
		copyString(ptr(z), ptr(x), n)
		if !bytes.Equal(x, z) || !dst.intact(z) || !src.intact(x) {
			t.Fatalf("%d bytes: copied wrongly, or something outside the range was written", n)
		}
	}
}
