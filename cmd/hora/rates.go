package main

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	"hora/launch"
)

const (
	// ratesOver is how many reports of a rank, about a second apart, its rates are taken over: a training step may take
	// longer than a second.
	ratesOver = 6
	// ratesFor is how long a rank's last report counts.
	ratesFor = 5 * time.Second
	// behind is by how much more of their time the others have to wait for a rank before it is named.
	behind = 0.05
)

// rates turns what ranks tell of themselves into what the status line says.
type rates map[int]*trail

// trail is a rank's latest reports, oldest first.
type trail struct {
	host    string
	heard   time.Time
	reports []launch.Progress
}

func (r rates) add(p *launch.Progress, now time.Time) {
	t := r[p.Rank]
	if t == nil {
		t = &trail{}
		r[p.Rank] = t
	}
	if n := len(t.reports); n > 0 && p.Elapsed <= t.reports[n-1].Elapsed {
		t.reports = t.reports[:0] // another process
	}
	if len(t.reports) == ratesOver {
		t.reports = slices.Delete(t.reports, 0, 1)
	}
	t.host, t.heard, t.reports = p.Host, now, append(t.reports, *p)
}

// text is collectives and bytes per second and rank, and the rank that the others wait for; "" while nothing is known.
func (r rates) text(now time.Time) string {
	var operations, bytes float64
	var shares []float64 // of its time that a rank is in collectives
	slowest, least, hosts := -1, 0.0, map[string]bool{}
	for rank, t := range r {
		n := len(t.reports)
		if n < 2 || now.Sub(t.heard) > ratesFor {
			continue
		}
		first, last := t.reports[0], t.reports[n-1]
		span := (last.Elapsed - first.Elapsed).Seconds()
		operations = max(operations, float64(last.Operations-first.Operations)/span)
		bytes = max(bytes, float64(last.Bytes-first.Bytes)/span)
		share := (last.Inside - first.Inside).Seconds() / span
		shares = append(shares, share)
		hosts[t.host] = true
		if slowest < 0 || share < least || share == least && rank < slowest {
			slowest, least = rank, share
		}
	}
	if len(shares) == 0 || operations == 0 {
		return ""
	}
	text := fmt.Sprintf(", %s collectives/s, %sB/s", counted(operations), scaled(bytes))
	slices.Sort(shares)
	if more := shares[len(shares)/2] - least; more >= behind {
		text += fmt.Sprintf(", slowest: rank %d", slowest)
		if len(hosts) > 1 {
			text += " on " + r[slowest].host
		}
		text += fmt.Sprintf(" (others wait %.0f %%)", 100*min(more, 1))
	}
	return text
}

// counted writes a number as people count.
func counted(v float64) string {
	if v < 99.95 {
		return fmt.Sprintf("%.1f", v)
	}
	s := strconv.FormatFloat(v, 'f', 0, 64)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// scaled writes a number in three digits and a prefix.
func scaled(v float64) string {
	for _, unit := range []string{"", "k", "M", "G"} {
		if v < 999.5 {
			if v < 99.95 {
				return fmt.Sprintf("%.1f %s", v, unit)
			}
			return fmt.Sprintf("%.0f %s", v, unit)
		}
		v /= 1000
	}
	return fmt.Sprintf("%.1f T", v)
}
