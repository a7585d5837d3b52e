package engine

import (
	"fmt"
	"time"

	"hora/collective"
	"hora/event"
	"hora/transport"
)

// StallError ends a group in which an operation has waited for others longer than
// Config.StallEnd.
type StallError struct{ Stall event.Stall }

func (e *StallError) Error() string {
	return e.Stall.String() + "; the job ends for it: mend the missing ranks, or raise the stall limit"
}

const (
	shortestTick = 5 * time.Millisecond
	longestTick  = 15 * time.Second
	// answerTime is how long ranks have to say where they are.
	answerTime = 500 * time.Millisecond
	// askAll is the largest group in which every rank asks every other; in larger ones
	// ranks 0 and 1 do.
	askAll = 64
)

// watching is the state of the watch. Only its goroutine uses it, but for answers.
type watching struct {
	seq      uint64 // what was in progress at the last tick
	name     string
	since    time.Time
	reported time.Time // when the last report went out
	nonce    uint64
	heard    map[int]answer // where others said they were when this operation was reported before

	pairReported time.Time // and the last one about a send or receive
}

// watch looks a few times per stall limit whether something waits for too long. It
// sleeps otherwise.
func (g *Group) watch() {
	defer g.wg.Done()
	limit := g.cfg.StallWarn
	if limit <= 0 || g.cfg.StallEnd > 0 && g.cfg.StallEnd < limit {
		limit = g.cfg.StallEnd
	}
	if t := g.cfg.OpTimeout; g.names != nil && t > 0 && (limit <= 0 || t < limit) {
		limit = t
	}
	tick := time.NewTicker(longestTick)
	defer tick.Stop()
	if limit > 0 {
		tick.Reset(ticks(limit))
	} else {
		tick.Stop()
	}
	var w watching
	for {
		select {
		case <-g.stop:
			return
		case <-g.hurried:
			if own := time.Duration(g.shortest.Load()); limit <= 0 || own < limit {
				limit = own
				tick.Reset(ticks(limit))
			}
		case <-tick.C:
			g.look(&w)
		}
	}
}

// ticks returns how often to look for a limit.
func ticks(limit time.Duration) time.Duration { return min(max(limit/4, shortestTick), longestTick) }

// look does what one tick asks for.
func (g *Group) look(w *watching) {
	now := time.Now()
	if g.names != nil && g.cause.Load() == nil {
		if at, limit := g.names.overdue(now); limit > 0 {
			w.nonce++
			g.expire(at, w.nonce, limit)
			return
		}
	}
	g.lookPairs(w, now)
	stuck := g.stuck()
	if stuck.seq == 0 && stuck.name == "" || g.cause.Load() != nil {
		w.since = time.Time{}
		return
	}
	if w.since.IsZero() || stuck.seq != w.seq || stuck.name != w.name ||
		!stuck.since.IsZero() && !stuck.since.Equal(w.since) {
		w.seq, w.name, w.since, w.reported, w.heard = stuck.seq, stuck.name, now, time.Time{}, nil
		if !stuck.since.IsZero() {
			w.since = stuck.since
		}
	}
	waited := now.Sub(w.since)
	if t := g.cfg.OpTimeout; g.names != nil && t > 0 && waited >= t {
		w.nonce++
		g.expire(stuck, w.nonce, t)
		return
	}
	final := g.cfg.StallEnd > 0 && waited >= g.cfg.StallEnd
	warn := g.cfg.StallWarn > 0 && waited >= g.cfg.StallWarn &&
		(w.reported.IsZero() || now.Sub(w.reported) >= g.cfg.StallWarn)
	if !final && !warn {
		return
	}
	w.reported = now
	w.nonce++
	g.reportStall(w, stuck, waited, final)
}

// expire ends a group of names whose oldest operation has taken too long, naming a rank
// that has not come to it.
func (g *Group) expire(at stuckAt, nonce uint64, after time.Duration) {
	answers := g.ask(question{nonce: nonce, seq: at.seq, name: at.name})
	for r := range g.Size() {
		if a, ok := answers[r]; r != g.Rank() && (!ok || !a.here) {
			g.Fail(&transport.DeadlineError{Rank: r, After: after})
			return
		}
	}
	g.Fail(fmt.Errorf("%s %s: not done within the timeout of %v although every rank has come", at.kind, at.name, after))
}

// stuckAt is the oldest operation that waits for others.
type stuckAt struct {
	seq   uint64
	kind  collective.Kind
	name  string
	since time.Time // zero when unknown
}

func (g *Group) stuck() stuckAt {
	if g.names != nil {
		return g.names.oldest()
	}
	busy, present, _ := g.view.read()
	if !busy {
		return stuckAt{}
	}
	return stuckAt{seq: present.seq, kind: present.kind, name: present.name}
}

// reportStall asks the other ranks where they are and tells whoever listens. Of the
// ranks that wait in the operation, the lowest writes the log line.
func (g *Group) reportStall(w *watching, at stuckAt, waited time.Duration, final bool) {
	me, n := g.Rank(), g.Size()
	s := event.Stall{Group: g.cfg.Name, Name: at.name, Kind: at.kind.String(), Waited: waited, Final: final}
	speak := true
	if n <= askAll || me < 2 {
		answers := g.ask(question{nonce: w.nonce, seq: at.seq, name: at.name})
		for r := range n {
			if r == me {
				continue
			}
			a, ok := answers[r]
			switch {
			case !ok:
				before := w.heard[r] // who has ended, in a moment with us, said where it was
				s.Missing = append(s.Missing, event.Absent{
					Rank: g.worldRank(r), Host: g.mesh.HostName(r),
					Silent: true, Last: before.last, Pending: before.pending, Nearest: before.nearest,
				})
			case !a.here:
				s.Missing = append(s.Missing, event.Absent{
					Rank: g.worldRank(r), Host: g.mesh.HostName(r), Last: a.last,
					Pending: a.pending, Nearest: a.nearest,
				})
			case a.waits && r < me:
				speak = false
			}
		}
		if len(answers) == n-1 {
			w.heard = answers
		}
	} else {
		speak = false
	}
	if b := g.stuck(); b.seq != at.seq || b.name != at.name {
		return // it went on while we asked
	}
	g.cfg.Events.Emit(&s)
	if speak {
		g.cfg.Log.Warn(s.String())
	}
	if final {
		g.stalled.Store(&at)
		g.Fail(&StallError{s})
	}
}

// inquiry collects answers. Group.asking guards it.
type inquiry struct {
	nonce   uint64
	answers map[int]answer
	left    int
	all     chan struct{}
}

// ask sends q to all other ranks and waits for their answers.
func (g *Group) ask(q question) map[int]answer {
	n := g.Size()
	in := &inquiry{nonce: q.nonce, answers: make(map[int]answer, n), left: n - 1, all: make(chan struct{})}
	if n == 1 {
		return in.answers
	}
	g.asking.Lock()
	g.inquiry = in
	g.asking.Unlock()
	msg := q.append(nil)
	for r := range n {
		if r != g.Rank() {
			g.tell(r, msg)
		}
	}
	t := time.NewTimer(answerTime)
	defer t.Stop()
	select {
	case <-in.all:
	case <-t.C:
	case <-g.stop:
	}
	g.asking.Lock()
	defer g.asking.Unlock()
	g.inquiry = nil
	return in.answers
}

// answered takes one answer.
func (g *Group) answered(from int, a answer) {
	g.asking.Lock()
	defer g.asking.Unlock()
	in := g.inquiry
	if in == nil || in.nonce != a.nonce {
		return
	}
	if _, twice := in.answers[from]; twice {
		return
	}
	in.answers[from] = a
	if in.left--; in.left == 0 {
		close(in.all)
	}
}

// answer says where this rank is with regard to q.
func (g *Group) answer(q question) (a answer) {
	a.nonce = q.nonce
	busy, present, last := g.view.read()
	a.last = last.String()
	defer func() {
		if s, ok := g.pairs.oldest(); ok && !a.here && a.pending == "" {
			a.pending = s.words(g)
		}
	}()
	if g.names != nil {
		g.names.answer(&a, q.name)
		return a
	}
	a.here = g.view.ended() >= q.seq || busy && present.seq >= q.seq
	a.waits = busy && present.seq == q.seq
	if busy && !a.here {
		a.pending = present.String()
	}
	return a
}

// nearest returns the name that differs least from want, if that is a slip: at most a third
// of its letters, rounded up.
func nearest(want string, names func(yield func(string) bool)) string {
	best, found := len(want)/3+1, ""
	for name := range names {
		if d := distance(want, name, best); d <= best && d > 0 {
			best, found = d-1, name
			if best == 0 {
				break
			}
		}
	}
	return found
}

// distance returns the number of letters to insert, delete or change; more than limit is
// returned as limit + 1.
func distance(a, b string, limit int) int {
	if d := len(a) - len(b); d > limit || -d > limit {
		return limit + 1
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := 1; i <= len(a); i++ {
		diagonal := row[0]
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			next := min(row[j]+1, row[j-1]+1, diagonal+cost)
			diagonal, row[j] = row[j], next
		}
	}
	return min(row[len(b)], limit+1)
}
