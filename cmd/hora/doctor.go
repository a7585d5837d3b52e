package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"hora"
	"hora/doctor"
	"hora/launch"
	"hora/launch/machine"
	"hora/probe"
)

func (p *program) doctorCommand() *cobra.Command {
	var asJSON bool
	var r reach
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "look at this machine, or several, with the eyes of a distributed job",
		Long: "doctor prints one page of what it found on this machine, and what to do about what is not as it should be. With -H it looks\n" +
			"at each of the hosts and at the network and the clocks between them. It exits with 1 when something stands in the way of a job.",
		Args: noArguments("doctor"),
		RunE: func(*cobra.Command, []string) error {
			ctx, release := p.untilStopped()
			defer release()
			found, net, err := p.examine(ctx, &r)
			if err != nil {
				return err
			}
			if asJSON {
				err = doctor.WriteJSON(p.out, found, net)
			} else {
				err = doctor.WritePage(p.out, found)
			}
			if err != nil {
				return fmt.Errorf("write the page: %w", err)
			}
			if err := p.stopped(ctx, ": the page above is what was found until then"); err != nil {
				return err
			}
			if doctor.Worst(found) == doctor.Problem {
				p.code = 1
			}
			return nil
		},
	}
	r.flags(cmd.Flags())
	cmd.Flags().BoolVar(&asJSON, "json", false, "findings as JSON, for machines")
	return cmd
}

// examine looks at this machine or at the hosts of the command line.
func (p *program) examine(ctx context.Context, r *reach) ([]doctor.Finding, *probe.Net, error) {
	if r.hosts == "" {
		m := &doctor.Machine{Lookup: p.getenv, Command: doctor.RunCommand, Version: hora.Version()}
		return doctor.Examine(ctx, m), nil, nil
	}
	hosts, err := r.list()
	if err != nil {
		return nil, nil, err
	}
	machine.Adopt()
	defer machine.Sweep()
	var names []string
	for _, h := range hosts {
		names = append(names, h.Name)
	}
	found, net := doctor.ExamineHosts(ctx, names, doctor.Hosts{
		Page: func(ctx context.Context, host string) (string, error) {
			return p.onHosts(ctx, r, []launch.Host{{Name: host, Slots: 1}}, "doctor", "--json")
		},
		Net: func(ctx context.Context, up []string) (*probe.Net, error) {
			var list []launch.Host
			for _, name := range up {
				list = append(list, launch.Host{Name: name, Slots: 1})
			}
			return p.measureNet(ctx, r, list)
		},
	})
	return found, net, nil
}
