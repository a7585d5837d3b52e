package main

import (
	"cmp"
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
		if !slices.Contains([]string{"adopt", "verbose", "events", "results", "until-stdin-ends"}, name) {
			return usageError{errors.New("--adopt and --" + name + ": the job goes on as it was started: give --adopt alone, or with --verbose, --events or --results")}
		}
	}
	if len(command) > 0 {
		return usageError{errors.New("--adopt takes no command: the job goes on with the one it was started with")}
	}
	job, err := launch.Find(o.adopt)
	if err != nil {
		return p.ended(o, err)
	}
	place, err := p.place()
	if err != nil {
		return err
	}
	events := o.spec.Events
	o.spec = job.Spec
	o.spec.Events, o.spec.Timeline = events, "" // rank 0 writes that
	place.Hosts, place.Results = job.Hosts, o.results
	fmt.Fprintf(p.err, "hora: taking over job %s from %s\n", event.Visible(job.Name()), o.adopt)
	place.Progress = job.Keep() != nil && events != ""
	return p.start(o, place, func(chan os.Signal) (launch.Outcome, error) {
		if job.Keep() != nil {
			return p.adoptHub(job, place)
		}
		return job.Run(context.WithoutCancel(p.ctx), *place)
	})
}

// ended gives whoever awaits a job's results what it has left, if it has ended meanwhile, and its exit code.
func (p *program) ended(o *options, err error) error {
	var over *launch.EndedError
	if o.results == "" || !errors.As(err, &over) {
		return err
	}
	if is, bad := over.Deliver(o.results); bad != nil || !is {
		return cmp.Or(bad, err)
	}
	if p.code = over.Code; p.code != 0 {
		fmt.Fprintf(p.err, "hora: the job has ended: %s\n", event.Visible(over.Outcome))
	}
	return nil
}
