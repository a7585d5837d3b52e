package server

import (
	"errors"
	"fmt"
	"time"

	"hora/job/schedule"
	"hora/server/client"
	"hora/server/fleet"
	"hora/server/node"
)

// A gang of fixed size on several nodes begins when all of them are there. Its first node makes its environment, says
// which releases it took, and awaits the others; these are started then, with that lock, and each is watched until the
// gang has opened: making an environment may take long, so the first waits without a limit, and what ends instead of
// coming ends the attempt, with its own words. Once it is open the first node sees for itself who is lost.

// gang is how a running job on several nodes stands. The loop owns it.
type gang struct {
	gathered bool          // the other nodes have been told where they are awaited
	opened   bool          // all of them have come
	failed   *node.Exit    // why the attempt ends: a part that has failed
	said     []client.Line // what that wrote last
}

// gangOfSeveral says whether nodes other than the first must come before this attempt begins.
func (f *follower) gangOfSeveral() bool {
	return f.job.Document.Spec.MinNP == 0 && len(f.attempt.Shares) > 1
}

// gather has the others of a gang go to its first node, once, and watches them; in the loop.
func (f *follower) gather(hub []string, opened bool) {
	l := f.goesOn()
	if l == nil {
		return
	}
	l.gang.opened = l.gang.opened || opened
	if l.gang.gathered {
		return
	}
	l.gang.gathered = true
	to := shares(l.attempt.Shares)
	for i := 1; i < len(to); i++ {
		f.beside(l, func(one *follower) { one.part(f, to, i, hub) })
	}
}

// part starts what one node has of a gang, and tells of its end.
func (f *follower) part(of *follower, to []schedule.Share, i int, hub []string) {
	g, err := f.whole(to)
	var end fleet.Ended
	if err == nil {
		end, err = f.back.Join(f.until, g, i, 0, hub)
	}
	select {
	case <-time.After(partedAfter):
	case <-f.until.Done(): // the whole has ended too, which is all there is to tell
		return
	}
	_ = f.do(func() { of.absent(to[i].Node, end, err) })
}

// absent ends an attempt of which a part has ended before all had come; in the loop.
func (f *follower) absent(name string, end fleet.Ended, err error) {
	l := f.goesOn()
	if l == nil || l.gang.opened {
		return
	}
	f.failed(l, name, end, err)
}

// failed ends an attempt with how one of its parts has ended, and the last that wrote; in the loop.
func (f *follower) failed(l *live, name string, end fleet.Ended, err error) {
	e := &node.Exit{Code: exitSystem, Outcome: string(client.Failure)}
	switch gone := (*fleet.Lost)(nil); {
	case errors.As(err, &gone):
		e.Code, e.Outcome, e.Text = exitHost, string(client.Lost), err.Error()
	case errors.Is(err, node.ErrLost):
		e.Code, e.Outcome = exitHost, string(client.Lost)
		e.Text = fmt.Sprintf("the process that kept its part on node %s was killed", name)
	case err != nil:
		e.Text = fmt.Sprintf("its part on node %s could not be started: %v", name, err)
	case end.Exit.Outcome == string(client.Lost):
		e.Code, e.Outcome, e.Text = exitHost, end.Exit.Outcome, fmt.Sprintf("node %s was lost: %s", name, end.Exit.Text)
	case end.Exit.Text != "":
		e.Code, e.Text = max(end.Exit.Code, 1), fmt.Sprintf("its part on node %s failed: %s", name, end.Exit.Text)
	default:
		e.Code = max(end.Exit.Code, 1)
		e.Text = fmt.Sprintf("its part on node %s ended with exit code %d before the job began", name, end.Exit.Code)
	}
	l.gang.failed = e
	for _, s := range f.quoted(name, end) {
		l.gang.said = append(l.gang.said, client.Line{At: s.At, Rank: s.Rank, Err: s.Err, Text: s.Text})
	}
	f.endFor(l, client.Outcome(e.Outcome), e.Text)
}

// quoted is the last that a part wrote, for the job's output; nothing where it wrote nothing.
func (f *follower) quoted(name string, end fleet.Ended) []node.Line {
	if len(end.Said) == 0 {
		return nil
	}
	head := node.Line{At: f.now().UTC(), Rank: -1, Err: true, Text: "hora: the last that node " + name + " wrote:"}
	return append([]node.Line{head}, end.Said...)
}

// What hora run exits with where the machine or one of its programs is at fault, and where a host is lost.
const (
	exitSystem = 71
	exitHost   = 69
)

// instead is how an attempt has ended of which a part had failed; its words come after all others.
func (g *gang) instead(e *node.Exit, b *batch) *node.Exit {
	if g.failed == nil || e.Outcome == string(client.Success) {
		return e
	}
	if b != nil {
		b.said = g.said
	}
	return g.failed
}
