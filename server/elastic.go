package server

import (
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"hora/job/schedule"
	"hora/server/backend"
	"hora/server/client"
	"hora/server/store"
)

// An elastic job's nodes come and go. To start its gang again tells it what each node may have: it follows at its next
// commit, and says how it stands, which is where all begins anew: whenever it says so what it has not heard is told
// again, and what it has given away is free. So nothing of it is lost by a server that is killed: the next one tells it
// once, and hears how it stands.
//
// A node that the job has left stays among the attempt's shares, with no slots, for when it may have slots there again.
// What it has in outputs/ is taken then and in the end.

// elastic is how a running elastic job stands. The loop owns it.
type elastic struct {
	follower *follower
	failed   map[string]int // how often a node's part has ended by itself
	heard    map[string]int // what each node may have, as the gang has heard last
}

// held is what a job holds: with what it is to give away at its next commit.
func held(all []client.Share) (out []schedule.Share) {
	for _, s := range all {
		if backend.Holds(s) {
			out = append(out, schedule.Share{Node: s.Node, Slots: max(s.Slots, s.Held)})
		}
	}
	return out
}

func slotsOf(all []schedule.Share) (n int) {
	for _, s := range all {
		n += s.Slots
	}
	return n
}

// total is how many slots a job may have.
func total(all []client.Share) int { return slotsOf(backend.Slots(all)) }

// resharing is what a job has when it is told what it may have: the nodes that it had come first.
func resharing(all []client.Share, to []schedule.Share) []client.Share {
	out := slices.Clone(all)
	for i := range out {
		had := max(out[i].Slots, out[i].Held)
		out[i].Slots, out[i].Held = 0, had
		if at := slices.IndexFunc(to, func(x schedule.Share) bool { return x.Node == out[i].Node }); at >= 0 {
			out[i].Slots = to[at].Slots
		}
		if out[i].Slots >= had {
			out[i].Held = 0
		}
	}
	for _, x := range to {
		if !slices.ContainsFunc(out, func(s client.Share) bool { return s.Node == x.Node }) {
			out = append(out, client.Share{Node: x.Node, Slots: x.Slots})
		}
	}
	return out
}

// resize tells an elastic job what it may have; in the loop.
func (s *Server) resize(l *live, to []schedule.Share, shrink bool) {
	if l == nil || l.attempt == nil {
		return
	}
	n := slotsOf(to)
	text := fmt.Sprintf("it gets %d slots from its next commit on", n)
	if shrink {
		l.target = n
		text = fmt.Sprintf("it gives slots away at its next commit and keeps %d", n)
	}
	s.reshare(l, resharing(l.attempt.Shares, to))
	s.noted(l, client.Happening{Kind: "resized", Text: text})
}

// noted writes an attempt's shares down, with what happened if anything did, and tells the job; in the loop.
func (s *Server) noted(l *live, h client.Happening) {
	job, attempt, all, f := l.job.ID, l.attempt.Number, l.attempt.Shares, l.elastic.follower
	h.At, h.Attempt = s.now(), attempt
	w := s.write(s.ctx, l, func(tx *sql.Tx) error {
		if err := store.SetShares(tx, job, attempt, all); err != nil || h.Kind == "" {
			return err
		}
		return store.AddHappening(tx, job, h)
	})
	s.wg.Go(func() {
		if <-w.done; w.ok {
			s.news.wake(job)
			_ = s.do(f.tell)
		}
	})
}

// goesOn is the job while this attempt of it runs and nobody has told it to end; in the loop.
func (f *follower) goesOn() *live {
	l := f.l
	if l.attempt == nil || l.attempt.Number != f.attempt.Number || l.finishing || l.stop != "" {
		return nil
	}
	return l
}

// beside does something beside what follows the attempt, with a copy of what that owns. The attempt is not forgotten
// before it has returned; in the loop.
func (f *follower) beside(l *live, do func(one *follower)) {
	one := &follower{
		Server: f.Server, l: f.l, job: l.job, until: f.until,
		attempt: client.Attempt{Number: f.attempt.Number, Started: f.attempt.Started}, turn: f.turn,
	}
	f.wg.Add(1)
	f.parts.Add(1)
	go func() {
		defer f.wg.Done()
		defer f.parts.Done()
		do(one)
	}()
}

// heardWithin is after how long the job is told again what it does not say to have heard.
const heardWithin = 5 * time.Second

// tell tells the job what it may have; in the loop.
func (f *follower) tell() {
	l := f.goesOn()
	if l == nil {
		return
	}
	f.beside(l, func(one *follower) {
		if err := one.declare(true); err != nil && one.until.Err() == nil {
			one.log.Warn("tell an elastic job its slots", "job", one.job.ID, "error", err)
		}
		select {
		case <-time.After(heardWithin):
		case <-one.until.Done():
			return
		}
		_ = one.do(func() {
			l := f.goesOn()
			if l == nil || l.elastic.heard == nil {
				return
			}
			if !maps.Equal(l.elastic.heard, slotsBy(backend.Slots(l.attempt.Shares))) {
				f.tell()
			}
		})
	})
}

// sized notes that an elastic job of one node, which an earlier release started, has shrunk as it was told.
func (f *follower) sized(n int) {
	if l := f.l; l.attempt != nil && l.target > 0 && n <= l.target && len(l.attempt.Shares) == 1 {
		f.shrunk(l)
	}
}

// stood hears how an elastic job stands; in the loop.
func (f *follower) stood(st *backend.Stands) {
	l := f.goesOn()
	if l == nil {
		return
	}
	f.machine.Spreads(l.job.ID)
	f.dirty = true // it may grow from now on
	l.elastic.heard = slotsBy(st.Shares)
	to := slotsBy(backend.Slots(l.attempt.Shares))
	switch {
	case !maps.Equal(l.elastic.heard, to):
		f.tell()
	case l.target > 0 && st.Seats != nil && within(st.Seats, to):
		f.shrunk(l)
	}
}

func slotsBy(all []schedule.Share) map[string]int {
	out := map[string]int{}
	for _, s := range all {
		out[s.Node] = s.Slots
	}
	return out
}

// within says whether no node has more ranks than slots.
func within(seats, slots map[string]int) bool {
	for name, n := range seats {
		if n > slots[name] {
			return false
		}
	}
	return true
}

// shrunk notes that a job has given away what it was told to; in the loop.
func (f *follower) shrunk(l *live) {
	all := slices.Clone(l.attempt.Shares)
	for i := range all {
		all[i].Held = 0
	}
	l.target = 0
	f.reshare(l, all)
	f.machine.Shrunk(l.job.ID, f.now())
	f.dirty = true
	f.noted(l, client.Happening{})
}

// partTries is how often a part that ends by itself is started again.
const partTries = 2

// parted notes that what a node had of the job has ended. Where the job may have slots there it is started again; at
// last the job goes on without, and its output says what that node wrote last; in the loop.
func (f *follower) parted(p *backend.Parted) {
	l := f.goesOn()
	if l == nil {
		return
	}
	all := slices.Clone(l.attempt.Shares)
	at := slices.IndexFunc(all, func(s client.Share) bool { return s.Node == p.Node })
	if at < 1 || all[at].Coming != p.Coming {
		return
	}
	all[at].Coming++
	l.attempt.Shares = all
	var gone *backend.Lost
	lost := errors.As(p.Err, &gone)
	switch {
	case !backend.Holds(all[at]):
		f.noted(l, client.Happening{})
		return
	case !lost && all[at].Slots > 0 && l.elastic.failed[p.Node] < partTries:
		if l.elastic.failed == nil {
			l.elastic.failed = map[string]int{}
		}
		l.elastic.failed[p.Node]++
		f.noted(l, client.Happening{})
		return
	}
	all[at].Slots, all[at].Held = 0, 0
	f.reshare(l, all)
	if total(all) == slotsOf(held(all)) {
		l.target = 0
	}
	why := fmt.Sprintf("its part on node %s has ended", p.Node)
	if lost {
		f.machine.Lost(l.job.ID, p.Node, f.now())
	} else {
		f.machine.Parted(l.job.ID, p.Node, f.now())
	}
	f.dirty = true
	switch {
	case lost:
		why = p.Err.Error()
	case p.Err != nil:
		why += ": " + p.Err.Error()
	case p.Exit != nil && p.Exit.Text != "":
		why += ": " + p.Exit.Text
	}
	n, least := total(all), l.job.Document.Spec.MinNP
	then := "it goes on with " + slotsIn(n)
	if n < least {
		then = fmt.Sprintf("%s left, fewer than --min-np %d", slotsIn(n), least)
	}
	f.noted(l, client.Happening{Kind: "resized", Text: why + "; " + then})
	switch {
	case n >= least: // to be started without it
	case p.Err == nil && p.Unready && p.Exit != nil && // no node's fault
		(p.Exit.Outcome == string(client.Failure) || p.Exit.Outcome == string(client.Unresolved)):
		f.failed(l, p)
	default:
		f.end(l, client.Lost)
	}
}
