package server

import (
	"errors"
	"fmt"

	"hora/server/backend"
	"hora/server/client"
)

// A gang of fixed size on several nodes begins when all of them are there. Its first node makes its environment, says
// which releases it took, and awaits the others; these are started then, with that lock, and each is watched until the
// gang has opened: making an environment may take long, so the first waits without a limit, and what ends instead of
// coming ends the attempt, with its own words. Once it is open the first node sees for itself who is lost.

// gang is how a running job on several nodes stands. The loop owns it.
type gang struct {
	opened bool          // all of them have come; the store knows too
	failed *backend.Exit // why the attempt ends: a part that has failed
	said   []client.Line // what that wrote last
}

// absent ends an attempt of which a part has ended before all had come; in the loop.
func (f *follower) absent(p *backend.Parted) {
	l := f.goesOn()
	if l == nil || l.gang.opened {
		return
	}
	f.failed(l, p)
}

// failed ends an attempt with how one of its parts has ended, and the last that wrote; in the loop.
func (f *follower) failed(l *live, p *backend.Parted) {
	e := &backend.Exit{Code: backend.ExitSystem, Outcome: string(client.Failure)}
	switch gone := (*backend.Lost)(nil); {
	case errors.As(p.Err, &gone):
		e.Code, e.Outcome, e.Text = backend.ExitHost, string(client.Lost), p.Err.Error()
	case errors.Is(p.Err, backend.ErrLost):
		e.Code, e.Outcome = backend.ExitHost, string(client.Lost)
		e.Text = fmt.Sprintf("the process that kept its part on node %s was killed", p.Node)
	case p.Err != nil:
		e.Text = fmt.Sprintf("its part on node %s could not be started: %v", p.Node, p.Err)
	case p.Exit.Outcome == string(client.Lost):
		e.Code, e.Outcome, e.Text = backend.ExitHost, p.Exit.Outcome, fmt.Sprintf("node %s was lost: %s", p.Node, p.Exit.Text)
	case p.Exit.Text != "":
		if p.Exit.Outcome == string(client.Unresolved) {
			e.Outcome = p.Exit.Outcome
		}
		e.Code, e.Text = max(p.Exit.Code, 1), fmt.Sprintf("its part on node %s failed: %s", p.Node, p.Exit.Text)
	default:
		e.Code = max(p.Exit.Code, 1)
		e.Text = fmt.Sprintf("its part on node %s ended with exit code %d before the job began", p.Node, p.Exit.Code)
	}
	l.gang.failed = e
	for _, s := range p.Quoted(f.now()) {
		l.gang.said = append(l.gang.said, client.Line{At: s.At, Rank: s.Rank, Err: s.Err, Text: s.Text, Bytes: s.Bytes})
	}
	f.endFor(l, client.Outcome(e.Outcome), e.Text)
}

// instead is how an attempt has ended of which a part had failed; its words come after all others.
func (g *gang) instead(e *backend.Exit, b *batch) *backend.Exit {
	if g.failed == nil || e.Outcome == string(client.Success) {
		return e
	}
	if b != nil {
		b.said = g.said
	}
	return g.failed
}
