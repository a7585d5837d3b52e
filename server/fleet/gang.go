package fleet

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"hora/job/schedule"
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

// joinTries bounds how often a part that does not begin is started.
const joinTries = 3

// Quote has the output of a gang say what the part of one of its nodes wrote that the gang goes on without.
func (f *Fleet) Quote(ctx context.Context, r Ref, lines []node.Line) error {
	return f.reach(ctx, r.Pool, first(r.Nodes), func(p place) error { return p.Quote(r.Job, r.Attempt, lines) })
}

// Ended is how what a node had of a gang has ended.
type Ended struct {
	Exit    *node.Exit
	Said    []node.Line // the last that it wrote
	Unready bool        // its environment was never made
}

// saidMost is how many lines of a part are kept for when it fails: what makes environments tells why in fifteen.
const saidMost = 20

// Join has a node take part in a gang that awaits agents at its hub, for the time after it was left so often, and
// returns when that has ended: how, or that its node is lost. To join one twice is to join it once.
func (f *Fleet) Join(ctx context.Context, g node.Gang, i, coming int, hub []string) (end Ended, err error) {
	name, part := g.Shares[i].Node, f.part(&g, i)
	part.Hub, part.Coming = hub, coming
	end.Unready = g.Document.Environment != nil
	g.Part, g.Shares = &part, []schedule.Share{g.Shares[i]}
	for try := 0; ; try++ {
		if err := f.reach(ctx, g.Document.Pool, name, func(p place) error { return p.Start(g) }); err != nil {
			return end, err
		}
		err := f.reach(ctx, g.Document.Pool, name, func(p place) error {
			return p.Watch(ctx, g.Job, g.Attempt, 0, func(all []node.Record) error {
				for _, r := range all {
					end.Unready = end.Unready && r.Ready == nil
					end.Said = append(end.Said, r.Lines...)
					end.Said = end.Said[max(0, len(end.Said)-saidMost):]
				}
				end.Exit = all[len(all)-1].Exit
				return nil
			})
		})
		if errors.Is(err, node.ErrUnbegun) && try == joinTries {
			return end, fmt.Errorf("the process that should keep it ended %d times before it began: %s", try, f.Says(Ref{g.Job, g.Attempt, g.Document.Pool, []string{name}}))
		}
		if !errors.Is(err, node.ErrUnbegun) {
			return end, err
		}
	}
}
