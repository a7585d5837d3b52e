package fleet

import (
	"context"
	"errors"
	"slices"

	"hora/job/schedule"
	"hora/server/node"
)

// An elastic gang has nodes that come and go: its first one keeps it and says where agents are awaited and which slots
// they may use, and each of the others is joined to it by itself.

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

// Join has a node take part in an elastic gang that awaits agents at its hub, for the time after it was left so often,
// and returns when that has ended: how, or that its node is lost. To join one twice is to join it once.
func (f *Fleet) Join(ctx context.Context, g node.Gang, i, coming int, hub []string) (end *node.Exit, err error) {
	name, part := g.Shares[i].Node, f.part(&g, i)
	part.Hub, part.Coming = hub, coming
	g.Part, g.Shares = &part, []schedule.Share{g.Shares[i]}
	for try := 0; ; try++ {
		if err := f.reach(ctx, name, func(p place) error { return p.Start(g) }); err != nil {
			return nil, err
		}
		err := f.reach(ctx, name, func(p place) error {
			return p.Watch(ctx, g.Job, g.Attempt, 0, func(all []node.Record) error {
				end = all[len(all)-1].Exit
				return nil
			})
		})
		if !errors.Is(err, node.ErrUnbegun) || try == joinTries {
			return end, err
		}
	}
}
