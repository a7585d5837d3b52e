package launch

import (
	"context"
	"time"

	"hora/event"
)

// locate has the reach look up the job's hosts, and says for which it waits.
func (c *crew) locate(ctx context.Context) error {
	hosts := c.peopled()
	if c.spec.elastic() { // the rest may follow
		hosts = c.spec.Hosts
	}
	var names []string
	for _, h := range hosts {
		names = append(names, h.Name)
	}
	looking, stop := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		c.spec.Reach.Look(looking, names)
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
			if left := c.spec.Reach.Looking(); patience.due(now) && len(left) > 0 {
				c.spec.Place.Events.Emit(&event.Delay{Text: "looking up the name of host " + list(left), Over: now.Sub(patience.began)})
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
