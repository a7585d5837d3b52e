package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"

	"hora/event"
	"hora/launch"
)

// adopt takes over a job whose launcher was killed.
func (p *program) adopt(o *options, command []string) error {
	for name := range o.given {
		if !slices.Contains([]string{"adopt", "verbose", "events"}, name) {
			return usageError{errors.New("--adopt and --" + name + ": the job goes on as it was started: give --adopt alone, or with --verbose or --events")}
		}
	}
	if len(command) > 0 {
		return usageError{errors.New("--adopt takes no command: the job goes on with the one it was started with")}
	}
	if o.hub != nil || o.horovod {
		return usageError{errors.New("--adopt belongs to hora run: a hub that is killed ends its agents")}
	}
	job, err := launch.Find(o.adopt)
	if err != nil {
		return err
	}
	place, err := p.place()
	if err != nil {
		return err
	}
	events := o.spec.Events
	o.spec = job.Spec
	o.spec.Events, o.spec.Timeline = events, "" // rank 0 writes that
	place.Hosts = job.Hosts
	fmt.Fprintf(p.err, "hora: taking over job %s from %s\n", event.Visible(job.Name()), o.adopt)
	return p.start(o, place, func(chan os.Signal) (launch.Outcome, error) {
		return job.Run(context.WithoutCancel(p.ctx), *place)
	})
}
