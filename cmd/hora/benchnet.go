package main

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"

	"hora"
	"hora/launch"
	"hora/launch/machine"
	"hora/probe"
)

const benchNetRankCommand = "bench-net-rank"

func (p *program) benchNet() *cobra.Command {
	var r reach
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "net -H server1,server2",
		Short: "latency and bandwidth between hosts, and what they mean for a training",
		Long: "Measures each pair of hosts through hora's own connections, how far their clocks are apart, and an allreduce among all of\n" +
			"them beside the time that latency and bandwidth let expect (α–β model), and says what to do about it.",
		Args: noArguments("bench net"),
		RunE: func(*cobra.Command, []string) error {
			if r.hosts == "" {
				return usageError{fmt.Errorf("there are no hosts to measure between: name them, as in hora bench net -H server1,server2")}
			}
			hosts, err := r.list()
			if err != nil {
				return err
			}
			if len(hosts) < 2 {
				return usageError{fmt.Errorf("-H %s: there is nothing between one host and itself: name at least two", r.hosts)}
			}
			ctx, release := p.untilStopped()
			defer release()
			machine.Adopt()
			defer machine.Sweep()
			net, err := p.measureNet(ctx, &r, hosts)
			if stopped := p.stopped(ctx, " before all pairs were measured"); err != nil && stopped != nil {
				return stopped
			}
			if err != nil {
				return err
			}
			if asJSON {
				enc := json.NewEncoder(p.out)
				enc.SetIndent("", "  ")
				err = enc.Encode(net)
			} else {
				err = net.WritePage(p.out)
			}
			if err != nil {
				return fmt.Errorf("write the figures: %w", err)
			}
			return nil
		},
	}
	r.flags(cmd.Flags())
	cmd.Flags().BoolVar(&asJSON, "json", false, "figures as JSON, for machines")
	return cmd
}

// measureNet runs one rank of the measurement on each host.
func (p *program) measureNet(ctx context.Context, r *reach, hosts []launch.Host) (*probe.Net, error) {
	text, err := p.onHosts(ctx, r, hosts, benchNetRankCommand)
	if err != nil {
		return nil, err
	}
	var net probe.Net
	if err := json.Unmarshal([]byte(text), &net); err != nil {
		return nil, fmt.Errorf("read the figures of host %s: %w: look whether it prints something when a program starts", hosts[0].Name, err)
	}
	return &net, nil
}

// benchNetRank is the process on one of the hosts.
func (p *program) benchNetRank() *cobra.Command {
	return &cobra.Command{
		Use: benchNetRankCommand, Hidden: true, Short: "a rank of hora bench net", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			cfg, err := hora.FromEnv(p.getenv)
			if err != nil {
				return err
			}
			cfg.Timeline = "" // of somebody's training
			ctx, stop := context.WithCancel(p.ctx)
			defer stop()
			return probe.Measure(ctx, cfg, p.out)
		},
	}
}
