package demo

import (
	"bytes"
	"strings"
	"testing"
)

func TestWrapFitsAndLosesNothing(t *testing.T) {
	lines := []string{
		"  replicas       all ranks agree bit for bit (digest ce96fca18c43a3c6)",
		"training a 64-128-64-10 network on 1,437 handwritten digits with 2 processes on this machine",
		"short", "", "  hora demo --compare          1, 2, … processes, with the speed-up",
	}
	for _, line := range lines {
		for _, width := range []int{40, 60, 80} {
			got := wrap(line, width)
			for _, row := range strings.Split(got, "\n") {
				if len([]rune(row)) > width {
					t.Errorf("width %d: %q is too long", width, row)
				}
			}
			if a, b := strings.Join(strings.Fields(got), " "), strings.Join(strings.Fields(line), " "); a != b {
				t.Errorf("width %d: %q became %q", width, b, a)
			}
		}
		if wrap(line, 0) != line {
			t.Errorf("a pipe has no width: %q became %q", line, wrap(line, 0))
		}
	}
}

// TestLiveScreenFitsForty draws a whole training on a terminal of forty columns.
func TestLiveScreenFitsForty(t *testing.T) {
	for _, colour := range []bool{false, true} {
		var out bytes.Buffer
		s := &screen{out: &out, term: Terminal{Live: true, Width: 40, Colour: colour}, ranks: true}
		p := NewProgress(2)
		for rank := range 2 {
			p.Add(Report{Kind: "start", Rank: rank, Epochs: 2})
		}
		for epoch := 1; epoch <= 2; epoch++ {
			for rank := range 2 {
				r := Report{Kind: "epoch", Rank: rank, Epoch: epoch, Loss: 0.5, Accuracy: 0.97, Seconds: 0.1, Samples: 1000, Busy: 0.08, Talk: 0.01, Wait: 0.01}
				if p.Add(r) {
					s.epoch(p)
				}
			}
		}
		s.erase()
		if strings.Contains(out.String(), "\x1b[32m") != colour {
			t.Errorf("colour %v: %q", colour, out.String())
		}
		text := strings.NewReplacer("\x1b[32m", "", "\x1b[0m", "", "\x1b[4A\x1b[J", "").Replace(out.String())
		for _, row := range strings.Split(text, "\n") {
			if len([]rune(row)) > 40 {
				t.Errorf("%q is wider than the terminal", row)
			}
		}
		if !strings.HasSuffix(out.String(), "\x1b[4A\x1b[J") {
			t.Errorf("the live block is not erased at the end: %q", out.String())
		}
	}
}
