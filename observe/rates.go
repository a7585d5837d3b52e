// Package observe concludes from what ranks tell of themselves how fast a job goes and who waits for whom.
//
// It is pure: events and the time come in, figures come out. It has no clock, no files, no network, no lock and no
// goroutine, and it chooses no words: who shows the figures does.
package observe

import (
	"slices"
	"time"

	"hora/event"
)

const (
	// over is how many reports of a rank, about a second apart, its rates are taken over: a training step may take
	// longer than a second.
	over = 6
	// Fresh is how long a rank's last report counts.
	Fresh = 5 * time.Second
	// behind is by how much more of their time the others have to wait for a rank before it is named.
	behind = 0.05
)

// Rates turns ranks' reports into a job's pace. The zero Rates has heard nothing.
type Rates struct{ ranks map[int]*trail }

// trail is a rank's latest reports, oldest first.
type trail struct {
	host    string
	heard   time.Time
	reports []event.Work
}

// Pace is how fast a job goes.
type Pace struct {
	Operations float64 // collectives per second, of the rank that ends most
	Bytes      float64 // of their tensors per second, likewise
	// Slowest is the rank that the others wait for, -1 when nobody waits worth a word. Who comes last to a collective
	// waits least in it.
	Slowest int
	Host    string  // its host, where ranks of several hosts are compared; else empty
	Waits   float64 // the part of their time, 0 to 1, that the others wait for it
}

// Add takes a rank's report that was heard now. A rank whose time does not go on is another process: its reports begin
// anew.
func (r *Rates) Add(p *event.Progress, now time.Time) {
	t := r.ranks[p.Rank]
	if t == nil {
		if r.ranks == nil {
			r.ranks = map[int]*trail{}
		}
		t = &trail{}
		r.ranks[p.Rank] = t
	}
	if n := len(t.reports); n > 0 && p.Elapsed <= t.reports[n-1].Elapsed {
		t.reports = t.reports[:0]
	}
	if len(t.reports) == over {
		t.reports = slices.Delete(t.reports, 0, 1)
	}
	t.host, t.heard, t.reports = p.Host, now, append(t.reports, p.Work)
}

// Forget drops what a rank has told.
func (r *Rates) Forget(rank int) { delete(r.ranks, rank) }

// Clear drops all: ranks have other numbers, and another pace.
func (r *Rates) Clear() { clear(r.ranks) }

// Pace concludes from what counts now; false while nothing is known. Two reports make a rate.
func (r *Rates) Pace(now time.Time) (Pace, bool) {
	p := Pace{Slowest: -1}
	var shares []float64 // of its time that a rank is in collectives
	slowest, least, hosts := -1, 0.0, map[string]bool{}
	for rank, t := range r.ranks {
		n := len(t.reports)
		if n < 2 || now.Sub(t.heard) > Fresh {
			continue
		}
		first, last := t.reports[0], t.reports[n-1]
		span := (last.Elapsed - first.Elapsed).Seconds()
		p.Operations = max(p.Operations, float64(last.Operations-first.Operations)/span)
		p.Bytes = max(p.Bytes, float64(last.Bytes-first.Bytes)/span)
		share := (last.Inside - first.Inside).Seconds() / span
		shares = append(shares, share)
		hosts[t.host] = true
		if slowest < 0 || share < least || share == least && rank < slowest {
			slowest, least = rank, share
		}
	}
	if len(shares) == 0 || p.Operations == 0 {
		return Pace{Slowest: -1}, false
	}
	slices.Sort(shares)
	if more := shares[len(shares)/2] - least; more >= behind {
		p.Slowest, p.Waits = slowest, min(more, 1)
		if len(hosts) > 1 {
			p.Host = r.ranks[slowest].host
		}
	}
	return p, true
}
