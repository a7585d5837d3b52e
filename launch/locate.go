package launch

import (
	"context"
	"time"

	"hora/event"
)

// locate has the reach look up the job's hosts, and says for which it waits.
func (c *crew) locate(ctx context.Context) error {
	used := 0 // hosts are filled in order
	for _, s := range c.seats {
		used = max(used, s.Host+1)
	}
	if c.spec.elastic() { // the rest may follow
		used = len(c.spec.Hosts)
	}
	var names []string
	for _, h := range c.spec.Hosts[:used] {
		names = append(names, h.Name)
	}
	looking, stop := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		c.reach.Look(looking, names)
	}()
	defer func() {
		stop()
		<-done
	}()
	tick := time.NewTicker(firstWord / 4)
	defer tick.Stop()
	var patience patience
	for {
		select {
		case <-done:
			return nil
		case now := <-tick.C:
			if left := c.reach.Looking(); patience.due(now) && len(left) > 0 {
				c.event(&event.Delay{Text: "looking up the name of host " + list(left), Over: now.Sub(patience.began)})
			}
		case s := <-c.spec.Signals:
			if err := c.spec.early(s, "while host names were being looked up"); err != nil {
				return err
			}
		case <-ctx.Done():
			return fault(1, "stopped while host names were being looked up")
		}
	}
}
