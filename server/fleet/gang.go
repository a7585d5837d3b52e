package fleet

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"hora/job/schedule"
	"hora/server/backend"
	"hora/server/node"
)

// A gang on several nodes has a first one that keeps it and says where agents are awaited, and each of the others is
// joined to it by itself. Those of an elastic gang come and go, and its first one says which slots they may use.

func elastic(g *node.Gang) bool { return g.Document.Spec.MinNP > 0 }

// spreads says whether elastic jobs of a node may have other nodes: those of earlier releases may not.
func (f *Fleet) spreads(name string) bool {
	if f.here(name) {
		return true
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	m := f.members[name]
	return m == nil || m.hello.Spreads
}

func (f *Fleet) here(name string) bool {
	return slices.ContainsFunc(f.cfg.Here.Nodes, func(n schedule.Node) bool { return n.Name == name })
}

// toldTo is a gang as its nodes are told of it.
func toldTo(g *backend.Gang) node.Gang {
	return node.Gang{
		Job: g.Job, Attempt: g.Attempt, Document: g.Document, Shares: backend.Slots(g.Shares), Code: g.Code,
		Outputs: g.Outputs, Secrets: g.Secrets, Lent: g.Lent, Token: g.Token,
	}
}

// Start starts a gang on its first node, or tells it there what its shares are now; it tells the others when it awaits
// them.
func (f *Fleet) Start(ctx context.Context, g backend.Gang) error {
	r := f.runOf(key{g.Job, g.Attempt})
	to := toldTo(&g)
	if len(to.Shares) > 1 || elastic(&to) {
		r.declare(&g)
	}
	if len(to.Shares) > 1 || elastic(&to) && f.spreads(to.Shares[0].Node) {
		p := f.part(&to, 0)
		to.Part = &p
	}
	to.Tell = g.Tell // the first alone: on others the parts begin that it is told of
	err := f.reach(ctx, g.Document.Pool, to.Shares[0].Node, func(p place) error { return p.Start(to) })
	if err == nil {
		r.join()
	}
	return err
}

// joinTries bounds how often a part that does not begin is started.
const joinTries = 3

// saidMost is how many lines of a part are kept for when it fails: what makes environments tells why in fifteen.
const saidMost = 20

// partOf has a node take part in a gang that awaits agents at its hub, for the time after it was left so often, and
// returns when that has ended: how, or that its node is lost. To join one twice is to join it once.
// What its ranks say is handed over from its first record on, and again after the link to it broke.
func (f *Fleet) partOf(
	ctx context.Context, g node.Gang, i, coming int, hub []string, take func([]backend.Record) error,
) *backend.Parted {
	name, part := g.Shares[i].Node, f.part(&g, i)
	part.Hub, part.Coming = hub, coming
	end := &backend.Parted{Node: name, Coming: coming, Unready: g.Document.Environment != nil}
	g.Part, g.Shares = &part, []schedule.Share{g.Shares[i]}
	for try := 0; ; try++ {
		end.Err = f.reach(ctx, g.Document.Pool, name, func(p place) error { return p.Start(g) })
		if end.Err != nil {
			return end
		}
		err := f.reach(ctx, g.Document.Pool, name, func(p place) error {
			of := ranks{node: name}
			return p.Watch(ctx, g.Job, g.Attempt, 0, said(p, g.Job, g.Attempt, func(all []node.Record) error {
				if err := take(of.said(all)); err != nil {
					return err
				}
				for _, r := range all {
					end.Unready = end.Unready && r.Ready == nil && (r.Gone == nil || r.Gone.Ready == nil)
					end.Said = append(end.Said, r.Lines...)
					end.Said = end.Said[max(0, len(end.Said)-saidMost):]
				}
				end.Exit = all[len(all)-1].Exit
				return nil
			}))
		})
		if errors.Is(err, node.ErrUnbegun) && try == joinTries {
			err = fmt.Errorf("the process that should keep it ended %d times before it began: %s", try, f.says(had{g.Document.Pool, name, g.Job, g.Attempt}))
		}
		if end.Err = err; !errors.Is(err, node.ErrUnbegun) {
			return end
		}
	}
}

// had is what one node has of an attempt.
type had struct {
	pool, node string
	job        int64
	attempt    int
}

// hadBy is what a node has of the attempt that is named.
func hadBy(r *backend.Ref, name string) had { return had{r.Pool, name, r.Job, r.Attempt} }

// ranks are those on one node, which the keeper of its part hears.
type ranks struct {
	node  string
	since time.Time // when that began
}

// said picks what they have said out of what the keeper says, from its first record on.
func (o *ranks) said(all []node.Record) (out []backend.Record) {
	for i := range all {
		n := &all[i]
		switch {
		case n.Begun != nil:
			o.since = n.At
		case n.Gone != nil:
			o.since = n.Gone.Begun
		}
		if n.Report != nil || n.Gone != nil {
			one := backend.Record{N: n.N, At: n.At, From: o.node, Since: o.since, Report: n.Report, Gone: n.Gone}
			out = append(out, one)
		}
	}
	return out
}

// reports are what the ranks of one node's part of a gang have said: all of it that is still there, where the part has
// ended or is lost.
func (f *Fleet) reports(ctx context.Context, of had) (all []backend.Record, err error) {
	p, _, _ := f.at(of.pool, of.node)
	if p == nil {
		return nil, errAway
	}
	who := ranks{node: of.node}
	err = p.Watch(ctx, of.job, of.attempt, 0, func(some []node.Record) error {
		all = append(all, who.said(some)...)
		return nil
	})
	if errors.Is(err, backend.ErrLost) || errors.Is(err, node.ErrUnbegun) {
		err = nil
	}
	return all, err
}

// output opens a file of outputs/.
func (f *Fleet) output(ctx context.Context, of had, path string) (io.ReadCloser, error) {
	p, _, _ := f.at(of.pool, of.node)
	if p == nil {
		return nil, errAway
	}
	return p.Output(ctx, of.job, of.attempt, path)
}

// outputs lists the files of outputs/.
func (f *Fleet) outputs(ctx context.Context, of had) ([]string, error) {
	p, _, _ := f.at(of.pool, of.node)
	if p == nil {
		return nil, errAway
	}
	return p.Outputs(ctx, of.job, of.attempt)
}

// artifact is a file of outputs/, for who watches.
func (f *Fleet) artifact(of had, path string) *backend.Artifact {
	open := func(ctx context.Context) (io.ReadCloser, error) { return f.output(ctx, of, path) }
	return &backend.Artifact{Path: path, Open: open}
}

// says is the last of what the keeper wrote about itself.
func (f *Fleet) says(of had) string {
	if p, _, _ := f.at(of.pool, of.node); p != nil {
		return p.Says(of.job, of.attempt)
	}
	return ""
}
