package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/pflag"

	"hora/event"
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
	self, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("find this program's file: %w", err)
	}
	var out, errs bytes.Buffer
	s := launch.Spec{
		Command: args, Itself: true, NP: len(hosts), Hosts: hosts, Job: "hora " + args[0], Bind: launch.BindNone,
		Start: r.start, Interfaces: r.interfaces, Untagged: true,
		Environ: os.Environ(), Env: []string{"HORA_LINKS=tcp"}, Stdout: &out, Stderr: &errs,
		SSH:  launch.SSH{Port: r.port, Identity: r.identity, RemoteHora: r.remoteHora},
		Self: []string{self, agentCommand}, Guard: guardProgram, Temp: os.TempDir(), Binary: self,
	}
	s.Events = &event.Sink{}
	s.Events.Add(&reporter{w: p.err})
	if s.LocalName, err = os.Hostname(); err != nil {
		s.LocalName = "localhost"
	}
	if s.Dir, err = os.Getwd(); err != nil {
		s.Dir = "/"
	}
	o, err := launch.Run(ctx, s)
	if err != nil {
		return "", err
	}
	if o.Kind != launch.Finished && (o.Kind != launch.Failed || out.Len() == 0) {
		return "", errors.New(o.String())
	}
	return out.String(), nil
}
