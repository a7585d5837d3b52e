package store

import (
	"testing"
	"time"
)

// TestALongStepOfTheClockIsWaitedOut: each row is a look at the clock, in hours since the first, and until when nothing
// is removed.
func TestALongStepOfTheClockIsWaitedOut(t *testing.T) {
	for name, looks := range map[string][][2]float64{
		"even, and a weekend away":      {{0, 0}, {1, 0}, {60, 0}, {131, 0}},
		"ten years on":                  {{0, 0}, {87600, 87624}, {87601, 87624}, {87624, 0}},
		"ten years on, and set right":   {{0, 0}, {87600, 87624}, {2, 26}, {25, 26}, {26, 0}, {90, 0}},
		"back a year":                   {{0, 0}, {-8760, -8736}, {-8737, -8736}, {-8736, 0}},
		"an hour back, as clocks do it": {{0, 0}, {-1, 0}, {0, 0}},
		"again and again":               {{0, 0}, {100, 124}, {200, 224}, {223, 224}, {224, 0}},
	} {
		first := time.Date(2026, 11, 28, 0, 0, 0, 0, time.UTC)
		hours := func(n float64) time.Time { return first.Add(time.Duration(n * float64(time.Hour))) }
		var c Clock
		for i, look := range looks {
			want := time.Time{}
			if look[1] != 0 {
				want = hours(look[1])
			}
			if got := c.look(hours(look[0])); !got.Equal(want) {
				t.Errorf("%s: look %d: nothing is removed until %v, not %v", name, i, got, want)
			}
		}
	}
}
