package elastic

import "time"

// Spot is a slot of a host, or the whole host.
type Spot struct {
	Host string
	Slot int // -1: the whole host
}

// Blacklist remembers where workers failed. Without a range of cool-downs a place is given up for good; with one it is
// tried again after a pause that doubles with each failure there, from Min to Max, spread by up to a fifth so that
// places that failed together do not return together.
type Blacklist struct {
	Min, Max time.Duration
	Spread   func() float64 // from 0 to 1; nil spreads nothing
	spots    map[Spot]*banned
}

type banned struct {
	failures int
	why      string
	forGood  bool
	until    time.Duration
}

// Ban takes a place away and says for how long; 0 is for good. Times count from the job's beginning.
func (b *Blacklist) Ban(at Spot, why string, now time.Duration) time.Duration {
	if b.spots == nil {
		b.spots = map[Spot]*banned{}
	}
	e := b.spots[at]
	if e == nil {
		e = &banned{}
		b.spots[at] = e
	}
	e.failures++
	if why == "" {
		why = "it failed"
	}
	e.why, e.forGood = why, b.Min <= 0
	if e.forGood {
		return 0
	}
	pause := b.Min << min(e.failures-1, 20)
	if b.Spread != nil {
		pause += time.Duration(b.Spread() * float64(pause) / 5)
	}
	pause = min(pause, max(b.Max, b.Min))
	e.until = now + pause
	return pause
}

// Final reports whether a slot of a host, or the host, is given up for good.
func (b *Blacklist) Final(host string, slot int) bool {
	for _, at := range [2]Spot{{host, -1}, {host, slot}} {
		if e := b.spots[at]; e != nil && e.forGood {
			return true
		}
	}
	return false
}

// Knows reports whether a slot of a host, or the host, was taken away before.
func (b *Blacklist) Knows(host string, slot int) bool {
	return b.spots[Spot{host, -1}] != nil || b.spots[Spot{host, slot}] != nil
}

// Why returns the reason why nothing may start at a slot of a host, "" when something may. Slot -1 asks for the host
// alone.
func (b *Blacklist) Why(host string, slot int, now time.Duration) string {
	for _, at := range [2]Spot{{host, -1}, {host, slot}} {
		if e := b.spots[at]; e != nil && (e.forGood || now < e.until) {
			return e.why
		}
	}
	return ""
}
