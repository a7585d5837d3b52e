package launch

import (
	"fmt"
	"time"

	"hora/elastic"
)

// Limits of the pause before a worker that failed soon after its start is started again.
const (
	soon       = 10 * time.Second
	firstPause = 100 * time.Millisecond
	lastPause  = 5 * time.Second
)

// restarts is what an elastic job remembers of its failures.
type restarts struct {
	used    int               // of the budget; with a discovery, failures that others went on after
	began   map[int]time.Time // by rank: when its present process was started
	epoch   map[int]uint64    // by rank: the last epoch before that
	quick   map[int]int       // by rank: failures soon after a start, in a row
	planned map[int]bool      // by rank: a restart is on its way
	causes  map[int]string    // by rank: of its last failure, if that was soon after a start
}

// restart is a pause that is over.
type restart struct {
	rank int
	seat Seat // where: a rank that has been moved since is not started there
}

// Restarted says that a failed worker is started again.
type Restarted struct {
	Rank  int
	Host  string
	Cause string
	Left  int
	In    time.Duration
	Same  bool // it failed like the process before it, whose words have been told
}

func (e *Restarted) String() string {
	if e.Same {
		return fmt.Sprintf("rank %d on %s: it failed in the same way: starting it again, %d restarts left", e.Rank, e.Host, e.Left)
	}
	return fmt.Sprintf("rank %d on %s: %s: starting it again, %d restarts left", e.Rank, e.Host, e.Cause, e.Left)
}

// Shrunk says that a failed worker is not replaced and the others go on.
type Shrunk struct {
	Rank  int
	Host  string
	Cause string
	Left  int
}

func (e *Shrunk) String() string {
	return fmt.Sprintf("rank %d on %s: %s: the other %d go on", e.Rank, e.Host, e.Cause, e.Left)
}

func (s *Spec) elastic() bool {
	return s.Restarts > 0 || s.OnLoss != elastic.Stop || s.Discovery != nil
}

// survive says whether the job goes on without, or with a new process for, a worker that failed.
func (j *job) survive(o Outcome) bool {
	if j.latecomer(o.Rank) || o.Kind == Drained && j.complete.Load() {
		return true // the others have done the work
	}
	if !j.spec.elastic() || j.stopped || j.complete.Load() {
		return false
	}
	if j.disc != nil {
		return j.outlive(o)
	}
	a := &j.again
	if why := j.off[o.Host]; o.Kind == Drained && why != "" {
		return j.move([]int{o.Rank}, o.Host, why)
	}
	if o.Kind == Drained && j.spec.OnLoss == elastic.Replace {
		j.again.planned[o.Rank] = true
		j.left++
		j.event(&Restarted{Rank: o.Rank, Host: o.Host, Cause: o.Cause(), Left: j.spec.Restarts - a.used})
		j.restart(restart{o.Rank, j.seats[o.Rank]})
		return true
	}
	if j.giveUp(o) {
		a.used++
		return j.move([]int{o.Rank}, o.Host, o.Cause())
	}
	if a.used >= j.spec.Restarts || o.Kind == Drained {
		if j.spec.OnLoss == elastic.Continue && j.left >= max(j.spec.Min, 1) {
			j.event(&Shrunk{Rank: o.Rank, Host: o.Host, Cause: o.Cause(), Left: j.left})
			return true
		}
		return false
	}
	a.used++
	began, ok := a.began[o.Rank]
	if !ok {
		began = j.began
	}
	pause, same := time.Duration(0), false
	// A worker that was killed after it had taken part is no worker that cannot start.
	worked := o.Kind == Killed && j.epoch.Load() > a.epoch[o.Rank]
	if time.Since(began) < soon && !worked {
		if n := a.quick[o.Rank]; n > 0 {
			pause = min(firstPause<<min(n-1, 10), lastPause)
		}
		a.quick[o.Rank]++
		same = o.Kind == Failed && o.Last != "" && a.causes[o.Rank] == o.Cause()
		a.causes[o.Rank] = o.Cause()
	} else {
		a.quick[o.Rank], a.causes[o.Rank] = 0, ""
	}
	j.left++ // its successor counts from now on
	a.planned[o.Rank] = true
	j.event(&Restarted{Rank: o.Rank, Host: o.Host, Cause: o.Cause(), Left: j.spec.Restarts - a.used, In: pause, Same: same})
	e := restart{o.Rank, j.seats[o.Rank]}
	if pause == 0 {
		j.restart(e)
		return true
	}
	time.AfterFunc(pause, func() { j.post(e) })
	return true
}

// restart starts a rank's next process where the last one was.
func (j *job) restart(e restart) {
	if j.stopped || j.complete.Load() || !j.again.planned[e.rank] || j.seats[e.rank] != e.seat {
		return
	}
	delete(j.again.planned, e.rank)
	s := j.seats[e.rank]
	l := j.links[s.Host]
	if l.ended {
		return // the loss of its host is dealt with there
	}
	j.again.began[e.rank], j.again.epoch[e.rank] = time.Now(), j.epoch.Load()
	l.sendJSON(cmdStart, j.worker(s, j.epoch.Load()+1))
}
