package launch

import (
	"fmt"
	"math/rand/v2"
	"time"

	"hora/elastic"
)

// blacklist remembers where workers failed. Without a range of cool-downs a place is given up for good; with one it is
// tried again after a pause that doubles with each failure there, from Min to Max, spread by up to a fifth so that
// places that failed together do not return together.
type blacklist struct {
	min, max time.Duration
	spread   func() float64 // from 0 to 1; nil is random
	places   map[spot]*banned
}

// spot is a host, or a slot of it when slots are judged alone.
type spot struct {
	host string
	slot int // -1: the whole host
}

type banned struct {
	failures int
	until    time.Time // zero: for good
}

// add bans a place and says for how long; 0 is for good.
func (b *blacklist) add(p spot, now time.Time) time.Duration {
	if b.places == nil {
		b.places = map[spot]*banned{}
	}
	e := b.places[p]
	if e == nil {
		e = &banned{}
		b.places[p] = e
	}
	e.failures++
	if b.min <= 0 {
		e.until = time.Time{}
		return 0
	}
	spread := rand.Float64
	if b.spread != nil {
		spread = b.spread
	}
	pause := b.min << min(e.failures-1, 20)
	pause = min(pause+time.Duration(spread()*float64(pause)/5), max(b.max, b.min))
	e.until = now.Add(pause)
	return pause
}

// bans says whether nothing may start at a slot of a host.
func (b *blacklist) bans(host string, slot int, now time.Time) bool {
	for _, p := range [2]spot{{host, -1}, {host, slot}} {
		if e := b.places[p]; e != nil && (e.until.IsZero() || now.Before(e.until)) {
			return true
		}
	}
	return false
}

// giveUp takes a host of a job without a discovery away, since a worker failed there: its other workers commit and leave
// for slots of other hosts, and so does the failed one's rank when giveUp is true. A host without which the job would
// have too few workers stays. As with a discovery, a limit of 0 restarts is none.
func (j *job) giveUp(o Outcome) bool {
	if !j.spec.ByHost || o.Kind == Drained || j.off[o.Host] != "" || len(j.spec.Hosts) < 2 {
		return false
	}
	var others []int
	for rank, s := range j.seats {
		if rank != o.Rank && j.present(rank) && j.links[s.Host].name == o.Host {
			others = append(others, rank)
		}
	}
	replaced := j.spec.Restarts == 0 || j.again.used < j.spec.Restarts
	spare, wanted := j.vacancies(o.Host), len(others)
	if replaced {
		wanted++
	}
	stays := j.left - len(others)
	if enough := stays > 0 && stays+min(spare, wanted) >= max(j.spec.Min, 1); !enough || j.spec.OnLoss == elastic.Replace && (!replaced || spare < wanted) {
		return false
	}
	j.shun(o.Host, fmt.Sprintf("rank %d: %s", o.Rank, o.Cause()))
	j.ask(others, "a worker failed on "+o.Host)
	return replaced
}
