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
		"short", "", "a word/that/is/longer/than/the/whole/terminal/is/wide is kept", "trailing space                                                ",
		"  hora demo --compare          1, 2, … processes, with the speed-up",
	}
	for _, line := range lines {
		for _, width := range []int{40, 60, 80} {
			got := wrap(line, width)
			for _, row := range strings.Split(got, "\n") {
				if len([]rune(row)) > width && len(strings.Fields(row)) > 1 {
					t.Errorf("width %d: %q is too long", width, row)
				}
			}
			if a, b := strings.Join(strings.Fields(got), " "), strings.Join(strings.Fields(line), " "); a != b {
				t.Errorf("width %d: %q became %q", width, b, a)
			}
		}
		if got := wrap("  rate   7 a second, which is more than one would have thought", 40); got != "  rate   7 a second, which is more than\n         one would have thought" {
			t.Errorf("%q", got)
		}
		if wrap(line, 0) != line {
			t.Errorf("a pipe has no width: %q became %q", line, wrap(line, 0))
		}
	}
}

// epochs feeds p as many epochs of all its ranks as it expects and calls after each.
func epochs(p *Progress, n int, after func()) {
	for epoch := 1; epoch <= n; epoch++ {
		for rank := range p.Size {
			r := Report{
				Kind: Epoch, Rank: rank, Size: p.Size, Epochs: n, Epoch: epoch, Loss: 1 / float64(epoch),
				Accuracy: 0.97,
				Seconds:  0.1 * float64(epoch), Samples: 1000 * epoch, Busy: 0.08, Talk: 0.01, Wait: 0.01,
			}
			if p.Add(r) == newEpoch {
				after()
			}
		}
	}
}

// TestLiveScreenFitsForty draws a whole training on terminals of few columns.
func TestLiveScreenFitsForty(t *testing.T) {
	for _, width := range []int{20, 40, 80} {
		for _, colour := range []bool{false, true} {
			var out bytes.Buffer
			s := &screen{out: &out, err: &out, term: Terminal{Live: true, Width: width, Colour: colour}, ranks: true}
			p := NewProgress(2)
			epochs(p, 2, func() { s.epoch(p, p.Last(), false) })
			if strings.Contains(out.String(), "\x1b[32m") != colour {
				t.Errorf("colour %v: %q", colour, out.String())
			}
			text := strings.NewReplacer("\x1b[32m", "", "\x1b[0m", "", "\r\x1b[5A\x1b[J", "").Replace(out.String())
			for _, row := range strings.Split(text, "\n") {
				if len([]rune(row)) >= width {
					t.Errorf("%q reaches the edge of a terminal of %d columns", row, width)
				}
			}
		}
	}
}

// TestBlockIsTakenAway: whatever is written while a block is on the terminal replaces it,
// even when a key has moved the cursor; at the end the block stays.
func TestBlockIsTakenAway(t *testing.T) {
	const taken = "\r\x1b[3A\x1b[J"
	var out, errs bytes.Buffer
	s := &screen{out: &out, err: &errs, term: Terminal{Live: true, Width: 60}}
	p := NewProgress(2)
	epochs(p, 1, func() { s.epoch(p, p.Last(), false) })
	block := out.String()
	out.Reset()
	s.say("news")
	if got := out.String(); got != taken+"news\n" {
		t.Errorf("news over a block: %q", got)
	}
	out.Reset()
	s.say("more")
	if got := out.String(); got != "more\n" {
		t.Errorf("news without a block: %q", got)
	}
	s.epoch(p, p.Last(), false)
	out.Reset()
	s.complain("trouble")
	if out.String() != taken || errs.String() != "trouble\n" {
		t.Errorf("trouble over a block: %q and %q", out.String(), errs.String())
	}
	s.epoch(p, p.Last(), false)
	out.Reset()
	s.end(false)
	if got := out.String(); got != taken+block {
		t.Errorf("the last block is %q, want %q", got, block)
	}
	s.epoch(p, p.Last(), true)
	out.Reset()
	s.end(true)
	if got := out.String(); got != taken {
		t.Errorf("of a training aside %q is left", got)
	}
}

// TestPipeShowsOneTraining: a training aside leaves nothing in a pipe.
func TestPipeShowsOneTraining(t *testing.T) {
	var out bytes.Buffer
	s := &screen{out: &out, err: &out}
	p := NewProgress(2)
	epochs(p, 3, func() { s.epoch(p, p.Last(), true) })
	s.end(true)
	if out.Len() > 0 {
		t.Errorf("%q", out.String())
	}
	p = NewProgress(2)
	epochs(p, 3, func() { s.epoch(p, p.Last(), false) })
	s.end(false)
	if n := strings.Count(out.String(), "\n"); n != 3 || strings.Contains(out.String(), "\x1b") {
		t.Errorf("%q", out.String())
	}
}

func TestSpark(t *testing.T) {
	for _, c := range []struct {
		values []float64
		room   int
		want   string
	}{
		{[]float64{3}, 5, "▁"},
		{[]float64{2, 2, 2}, 5, "▁▁▁"},
		{[]float64{0, 1, 2, 3, 4, 5, 6, 7}, 8, "▁▂▃▄▅▆▇█"},
		{[]float64{0, 1, 2, 3, 4, 5, 6, 7}, 4, "▂▄▆█"},
	} {
		if got := spark(c.values, c.room); got != c.want {
			t.Errorf("spark(%v, %d) = %s, want %s", c.values, c.room, got, c.want)
		}
	}
}
