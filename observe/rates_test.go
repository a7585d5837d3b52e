package observe

import (
	"math"
	"testing"
	"time"

	"hora/event"
)

// Two ranks exchange; the one that spends less of its time in collectives is the one that the other waits for.
func TestWhoComesLastIsNamed(t *testing.T) {
	now := time.Unix(100, 0)
	var r Rates
	tell := func(rank int, host string, seconds, inside float64) {
		r.Add(&event.Progress{Rank: rank, Host: host, Work: event.Work{
			Elapsed: time.Duration(seconds * 1e9), Inside: time.Duration(inside * 1e9),
			Operations: int64(100 * seconds), Bytes: int64(1e6 * seconds),
		}}, now)
	}
	if p, known := r.Pace(now); known || p.Slowest != -1 {
		t.Errorf("nobody has told anything: %+v", p)
	}
	for rank, inside := range []float64{0.9, 0.3, 0.86} {
		tell(rank, "a", 1, 0)
		tell(rank, "a", 2, inside)
	}
	p, known := r.Pace(now)
	if !known || p.Operations != 100 || p.Bytes != 1e6 || p.Slowest != 1 || p.Host != "" ||
		math.Abs(p.Waits-0.56) > 1e-9 {
		t.Errorf("rank 1 is in collectives for 0.3 s where the others are for 0.86: %+v, %v", p, known)
	}

	tell(3, "b", 1, 0)
	tell(3, "b", 2, 0.1)
	if p, _ = r.Pace(now); p.Slowest != 3 || p.Host != "b" {
		t.Errorf("with ranks of two hosts the host is told: %+v", p)
	}
	r.Forget(3)
	if p, _ = r.Pace(now); p.Slowest != 1 {
		t.Errorf("rank 3 has ended: %+v", p)
	}
	tell(1, "a", 0.5, 0) // another process: one report is no rate
	if p, _ = r.Pace(now); p.Slowest != -1 {
		t.Errorf("0.04 of the time is not worth a word: %+v", p)
	}
	if p, known = r.Pace(now.Add(Fresh + time.Second)); known {
		t.Errorf("old reports count: %+v", p)
	}
	r.Clear()
	if p, known = r.Pace(now); known {
		t.Errorf("another epoch: %+v", p)
	}
}

// Rates follow what a job does now, not what it did at its beginning, and a step longer than a second is no standstill.
func TestRatesAreOfTheLatestReports(t *testing.T) {
	var r Rates
	now := time.Unix(0, 0)
	operations := int64(0)
	for second := range 20 {
		if second >= 10 && second%3 == 0 {
			operations += 30 // every third second, 10 a second
		} else if second < 10 {
			operations += 1000
		}
		now = now.Add(time.Second)
		r.Add(&event.Progress{Work: event.Work{
			Elapsed:    time.Duration(second+1) * time.Second,
			Operations: operations,
		}}, now)
	}
	if p, known := r.Pace(now); !known || p.Operations < 5 || p.Operations > 15 {
		t.Errorf("it ends 10 collectives a second: %+v", p)
	}
}
