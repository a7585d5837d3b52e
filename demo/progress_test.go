package demo

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"
)

// done feeds p the last report of every rank; change alters the one of rank 1.
func done(p *Progress, change func(*Report)) {
	for rank := range p.Size {
		r := Report{
			Kind: Done, Rank: rank, Size: p.Size, Epochs: p.Epochs, Agree: true, Digest: "d1",
			Links: []string{"shared memory"},
		}
		if rank == 1 && change != nil {
			change(&r)
		}
		p.Add(r)
	}
}

func TestAgreementIsChecked(t *testing.T) {
	for _, c := range []struct {
		what   string
		change func(*Report)
		want   bool
	}{
		{"all equal", nil, true},
		{"another digest", func(r *Report) { r.Digest = "d2" }, false},
		{"a rank that found a difference", func(r *Report) { r.Agree = false }, false},
		{"a rank that did not finish", func(r *Report) { r.Kind = Going }, false},
	} {
		p := NewProgress(2)
		epochs(p, 1, func() {})
		done(p, c.change)
		text := strings.Join(p.Summary(time.Second), "\n")
		if p.Agree() != c.want || strings.Contains(text, "all ranks agree bit for bit") != c.want || strings.Contains(text, "DISAGREE") == c.want {
			t.Errorf("%s: Agree is %v:\n%s", c.what, p.Agree(), text)
		}
		if err := (&Result{Progress: p}).verdict(); (err == nil) != c.want {
			t.Errorf("%s: verdict %v", c.what, err)
		}
	}
}

func TestSummary(t *testing.T) {
	p := NewProgress(2)
	epochs(p, 2, func() {})
	done(p, func(r *Report) { r.Links, r.Stalled = []string{"TCP", "shared memory"}, 0.5 })
	text := strings.Join(p.Summary(1500*time.Millisecond), "\n")
	for _, want := range []string{
		"2 processes trained 2 epochs in 0.2 s (1.5 s with starting and testing)",
		"test accuracy  97.00 % of 360 images", "20,000 samples/s together, 10,000 per rank",
		"communication  10.0 % of a step, waiting for the later rank 10.0 %", "links          TCP and shared memory",
		"cores          busy: computing stood still for 25 % of its time",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in\n%s", want, text)
		}
	}
	done(p, func(r *Report) { r.Stalled = 0.1 })
	if text := strings.Join(p.Summary(0), "\n"); strings.Contains(text, "busy") {
		t.Errorf("5 %% is no busy machine:\n%s", text)
	}
}

// TestStepsDoneAgainCountOnce: after a loss ranks report an epoch a second time.
func TestStepsDoneAgainCountOnce(t *testing.T) {
	p := NewProgress(2)
	r := Report{Kind: Epoch, Epochs: 2, Epoch: 1, Seconds: 1}
	for _, step := range []struct {
		rank   int
		want   news
		points int
	}{{0, nothingNew, 0}, {0, nothingNew, 0}, {1, newEpoch, 1}, {1, nothingNew, 1}, {0, nothingNew, 1}} {
		r.Rank = step.rank
		if got := p.Add(r); got != step.want || len(p.Points) != step.points {
			t.Fatalf("%+v: news %d and %d points", step, got, len(p.Points))
		}
	}
	r.Rank = 2
	if p.Add(r) != nothingNew {
		t.Error("a rank that is not there reports")
	}
}

// TestOneNoteForAllRanks follows a warning of the library from every rank to the screen.
func TestOneNoteForAllRanks(t *testing.T) {
	p := NewProgress(3)
	var shown []string
	for rank := range 3 {
		var out bytes.Buffer
		log := noteTo(func(note string) { Report{Kind: Note, Rank: rank, Note: note}.Write(&out) })
		log.Info("nobody asked")
		cause := "share memory: make shared memory: no; the ranks of this host can go by TCP instead"
		if rank > 0 {
			cause = strings.Replace(cause, "make", "rank 0 says: make", 1)
		}
		log.With(slog.Int("pid", 1)).Warn("ranks go by TCP", "host", "a", "cause", errors.New(cause))
		r, ok := ParseReport(out.String())
		if !ok {
			t.Fatalf("no report in %q", out.String())
		}
		if p.Add(r) == newNote {
			shown = append(shown, r.Note)
		}
	}
	if got := strings.Join(shown, "|"); got != "a: ranks go by TCP: share memory: make shared memory: no" {
		t.Error(got)
	}
}

func TestParseReport(t *testing.T) {
	for _, line := range []string{"", "loss 3", "hora-demo", "hora-demo {", "hora-demo []"} {
		if r, ok := ParseReport(line); ok {
			t.Errorf("%q is taken for %+v", line, r)
		}
	}
}

func TestLinesAreWhole(t *testing.T) {
	var got []string
	l := &lines{take: func(s string) { got = append(got, s) }}
	for _, part := range []string{"a", "b\nc\n\nd", "", "e\nend"} {
		if n, err := l.Write([]byte(part)); n != len(part) || err != nil {
			t.Fatal(n, err)
		}
	}
	l.flush()
	l.flush()
	if all := strings.Join(got, "|"); all != "ab|c||de|end" {
		t.Error(all)
	}
}

// TestARankThatWasKilledBeforeItSaidSo: an epoch that a rank has done and could not tell of is shown like the others.
func TestARankThatWasKilledBeforeItSaidSo(t *testing.T) {
	p := NewProgress(2)
	tell := func(rank, epoch int) news {
		return p.Add(Report{Kind: Epoch, Rank: rank, Size: 2, Epochs: 4, Epoch: epoch, Loss: float64(epoch)})
	}
	// Rank 1 is killed at the end of epoch 2.
	for _, x := range []struct{ rank, epoch int }{{0, 1}, {1, 1}, {0, 2}, {0, 3}} {
		tell(x.rank, x.epoch)
	}
	if got := tell(1, 3); got != newEpoch || len(p.Points) != 3 {
		t.Fatalf("%v, %+v", got, p.Points)
	}
	if tell(1, 4) != nothingNew || tell(0, 4) != newEpoch {
		t.Error("the last epoch is not shown when all have told of it")
	}
	for i, pt := range p.Points {
		if pt.Epoch != i+1 || pt.Loss != float64(i+1) {
			t.Errorf("epoch %d is shown as %+v", i+1, pt)
		}
	}
}
