package demo

import (
	"testing"

	"hora/demo/digits"
)

// BenchmarkStep is one step of one process: 64 images forward and backward through the
// demo's network, and Adam. bench/demo_step.py does the same with torch on one thread.
func BenchmarkStep(b *testing.B) {
	train, _, err := digits.Load()
	if err != nil {
		b.Fatal(err)
	}
	c := Training{}.WithDefaults()
	t, err := NewTrainer(c, 0, 1, train, make([]float32, c.SharedCount()))
	if err != nil {
		b.Fatal(err)
	}
	alone := func([]float32) error { return nil }
	n := 0
	for b.Loop() {
		if err := t.Step(n%t.Steps(), alone); err != nil {
			b.Fatal(err)
		}
		n++
	}
}
