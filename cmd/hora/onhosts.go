package main

import (
	"bytes"
	"context"
	"errors"
	"time"

	"github.com/spf13/pflag"

	"hora/job"
	"hora/launch"
)

// reach is how other hosts are named and reached by subcommands that run this program there.
type reach struct {
	hosts, identity, remoteHora string
	port                        int
	interfaces                  []string
	start                       time.Duration
}

func (r *reach) flags(fl *pflag.FlagSet) {
	fl.StringVarP(&r.hosts, "hosts", "H", "", "look at these hosts, as server1,server2; they are reached by ssh")
	fl.IntVarP(&r.port, "ssh-port", "p", 0, "ssh port of the other hosts")
	fl.StringVarP(&r.identity, "ssh-identity-file", "i", "", "ssh key for the other hosts")
	fl.StringVar(&r.remoteHora, "remote-hora", "", "hora's place on the other hosts; without it this one is copied there")
	fl.StringSliceVar(&r.interfaces, "network-interface", nil, "use addresses of these interfaces only")
	r.start = 15 * time.Second
	fl.Var(timeFlag{&r.start}, "start-timeout", "until every host has answered")
}

// list is the hosts, one rank on each.
func (r *reach) list() ([]launch.Host, error) {
	hosts, err := launch.ParseHosts(r.hosts)
	if err != nil {
		return nil, err
	}
	for i := range hosts {
		hosts[i].Slots = 1
	}
	return hosts, nil
}

// onHosts runs this program with args as one rank on each host and returns what they printed. A rank that fails is no
// error as long as it printed something.
func (p *program) onHosts(ctx context.Context, r *reach, hosts []launch.Host, args ...string) (string, error) {
	place, err := p.place()
	if err != nil {
		return "", err
	}
	var out, errs bytes.Buffer
	place.Itself, place.Hosts, place.Stdout, place.Stderr = true, hosts, &out, &errs
	place.Events.Add(&reporter{w: p.err})
	plain := false
	s := job.Spec{
		Name: "hora " + args[0], Command: args, NP: len(hosts), Bind: job.BindNone, TagOutput: &plain,
		// The hosts are given that long to answer, and not the ranks to join.
		Env:          map[string]string{"HORA_LINKS": "tcp", "HORA_START_TIMEOUT": "", "HOROVOD_START_TIMEOUT": ""},
		StartTimeout: r.start, Interfaces: r.interfaces,
		SSHPort: r.port, SSHIdentityFile: r.identity, RemoteHora: r.remoteHora,
	}
	o, err := launch.Run(ctx, s, *place)
	if err != nil {
		return "", err
	}
	if o.Kind != launch.Finished && (o.Kind != launch.Failed || out.Len() == 0) {
		return "", errors.New(o.String())
	}
	return out.String(), nil
}
