package elastic

import "time"

// Limits of the pause before a worker that failed soon after its start is started again.
const (
	soon       = 10 * time.Second
	firstPause = 100 * time.Millisecond
	lastPause  = 5 * time.Second
)

// Budget counts how often failed workers may be started again. Who asks it has seen a worker fail: the loss of a host
// and a worker that leaves on purpose are none of its business.
type Budget struct {
	Limit  int
	used   int
	quick  map[int]int    // by rank: failures soon after a start, in a row
	causes map[int]string // by rank: of its last failure, if that was soon after a start
}

// Used counts the failures that the job went on after.
func (b *Budget) Used() int { return b.used }

// Left returns how many restarts are left.
func (b *Budget) Left() int { return max(b.Limit-b.used, 0) }

// Spend takes one for the restart of a rank and says after which pause that is due. age is how long the failed process
// had been there; worked excuses a short life, since it had taken part. words says that cause holds the worker's own
// words: same is whether they have been told already.
func (b *Budget) Spend(rank int, age time.Duration, worked bool, cause string, words bool) (pause time.Duration,
	same bool,
) {
	if b.quick == nil {
		b.quick, b.causes = map[int]int{}, map[int]string{}
	}
	b.used++
	if age >= soon || worked {
		delete(b.quick, rank)
		delete(b.causes, rank)
		return 0, false
	}
	if n := b.quick[rank]; n > 0 {
		pause = min(firstPause<<min(n-1, 10), lastPause)
	}
	b.quick[rank]++
	same = words && b.causes[rank] == cause
	b.causes[rank] = cause
	return pause, same
}
