package main

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"hora/event"
	"hora/job"
	"hora/server/client"
)

func (p *program) poolCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "pool", Short: "add, list and remove the pools of nodes that a server has",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usageError{fmt.Errorf("hora pool has no %q: it has add, list, remove and token", args[0])}
			}
			return nil
		},
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(p.poolAddCommand(), p.poolListCommand(), p.poolRemoveCommand(), p.poolTokenCommand())
	return c
}

// onePool wants one name.
func onePool(what string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) != 1 || args[0] == "" {
			return usageError{fmt.Errorf("hora pool %s takes the name of a pool: see hora pool %s --help", what, what)}
		}
		return nil
	}
}

func (p *program) poolAddCommand() *cobra.Command {
	pool := client.Pool{Provider: "static"}
	size, idle, within := "", "", ""
	c := &cobra.Command{
		Use:   "add NAME",
		Short: "add a pool, or change one",
		Long: "add makes a pool of nodes, or changes one that is there.\n\n" +
			"  hora pool add lab                                                    machines that run hora node\n" +
			"  hora pool add two --provider local --max 2 --node cores=2,memory=2GiB    processes of the server's machine\n" +
			"  hora pool add cloud --provider command --max 4 --idle 20m --node cores=8,memory=32GiB,gpus=1 \\\n" +
			"      --create 'mk-vm $HORA_NODE' --delete 'rm-vm $HORA_NODE' --list ls-vms\n\n" +
			"The commands run in a shell on the server's machine, with HORA_NODE and HORA_POOL; create has HORA_SERVER and\n" +
			"HORA_TOKEN too, with which the new machine runs: hora node --pool $HORA_POOL --name $HORA_NODE\n\n" +
			"With --project vision,speech jobs of these projects alone go to the pool. A pool that is changed is as the flags say,\n" +
			"and what they leave out is as for a new one: without --project it is everybody's.",
		Args: onePool("add"),
		RunE: func(c *cobra.Command, args []string) error {
			pool.Name = args[0]
			if err := nodeSize(size, &pool.Node); err != nil {
				return usageError{err}
			}
			for _, x := range []struct {
				flag, text string
				to         *float64
			}{{"idle", idle, &pool.Idle}, {"within", within, &pool.Within}} {
				if x.text == "" {
					continue
				}
				d, err := job.ParseTime(x.text)
				if err != nil || d <= 0 {
					return usageError{fmt.Errorf("--%s %q is not %s", x.flag, x.text, job.ATime)}
				}
				*x.to = d.Seconds()
			}
			s, err := p.server()
			if err != nil {
				return err
			}
			is, err := s.AddPool(c.Context(), pool)
			if err != nil {
				return err
			}
			fmt.Fprintf(p.out, "pool %s: %s\n", is.Name, poolText(&is))
			if is.Warning != "" {
				fmt.Fprintf(p.err, "hora: pool %s: %s\n", is.Name, event.Visible(is.Warning))
			}
			return nil
		},
	}
	f := c.Flags()
	f.StringVar(&pool.Provider, "provider", "static", "static (machines that run hora node), local (processes of the server's machine) or command")
	f.IntVar(&pool.Min, "min", 0, "nodes that stay while they are idle, and are refilled when they are taken")
	f.IntVar(&pool.Max, "max", 0, "nodes that there may be")
	f.StringVar(&idle, "idle", "", "the `time` after which an idle node beyond --min is ended (default 20m)")
	f.StringVar(&within, "within", "", "the `time` in which a node that was made must come; another one is made then (default 10m)")
	f.StringSliceVar(&pool.Projects, "project", nil, "jobs of these `projects` alone go there, as vision,speech (default everybody's)")
	f.StringVar(&size, "node", "", "what each node has, as `cores=2,memory=8GiB,gpus=0`")
	f.StringVar(&pool.Create, "create", "", "`command` that makes the node $HORA_NODE")
	f.StringVar(&pool.Delete, "delete", "", "`command` that ends the node $HORA_NODE")
	f.StringVar(&pool.List, "list", "", "`command` that writes the names of the nodes that there are, a line each")
	return c
}

// nodeSize reads cores=2,memory=8GiB,gpus=0.
func nodeSize(text string, to *client.NodeSize) error {
	if text == "" {
		return nil
	}
	for part := range strings.SplitSeq(text, ",") {
		name, value, _ := strings.Cut(part, "=")
		n, err := strconv.Atoi(value)
		switch name {
		case "cores":
			to.Cores = n
		case "gpus":
			to.GPUs = n
		case "memory":
			to.Memory, err = parseMemory(value)
		default:
			return fmt.Errorf("--node: %q is none of cores, memory and gpus: write it as cores=2,memory=8GiB,gpus=0", name)
		}
		if err != nil || n < 0 {
			return fmt.Errorf("--node: %s %q is no amount: write it as cores=2,memory=8GiB,gpus=0", name, value)
		}
	}
	return nil
}

// poolText is a pool in words.
func poolText(a *client.Pool) string {
	text := nodesText(a)
	if len(a.Projects) > 0 {
		text += "; for jobs of " + event.Visible(strings.Join(a.Projects, ", ")) + " alone"
	}
	return text
}

func nodesText(a *client.Pool) string {
	if a.Provider == "static" {
		return "machines that come by themselves: hora pool token " + a.Name + " prints what they run"
	}
	text := fmt.Sprintf("%d to %s by %s, each with %s", a.Min, event.Counted(a.Max, "node"), a.Provider, nodeText(a))
	return text + fmt.Sprintf("; an idle one ends after %v", time.Duration(a.Idle*float64(time.Second)))
}

func (p *program) poolListCommand() *cobra.Command {
	asJSON := false
	c := &cobra.Command{
		Use: "list", Short: "list the pools", Args: noArguments("pool list"),
		RunE: func(c *cobra.Command, _ []string) error {
			s, err := p.server()
			if err != nil {
				return err
			}
			all, err := s.Pools(c.Context())
			if err != nil {
				return err
			}
			if asJSON {
				return p.writeJSON(all)
			}
			w := tabwriter.NewWriter(p.out, 0, 4, 2, ' ', 0)
			fmt.Fprintln(w, "POOL\tPROVIDER\tREADY\tSTARTING\tMIN\tMAX\tNODE\tPROJECTS")
			for i := range all {
				a := &all[i]
				limit, size := "-", "-"
				if a.Provider != "static" {
					limit, size = strconv.Itoa(a.Max), nodeText(a)
				}
				whose := "all"
				if len(a.Projects) > 0 {
					whose = event.Visible(strings.Join(a.Projects, ","))
				}
				fmt.Fprintf(
					w, "%s\t%s\t%d\t%d\t%d\t%s\t%s\t%s\n", a.Name, a.Provider, a.Ready, a.Starting, a.Min, limit, size, whose,
				)
			}
			if err := w.Flush(); err != nil {
				return err
			}
			for i := range all {
				if all[i].Warning != "" {
					fmt.Fprintf(p.err, "hora: pool %s: %s\n", all[i].Name, event.Visible(all[i].Warning))
				}
			}
			return nil
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "as JSON")
	return c
}

func (p *program) poolRemoveCommand() *cobra.Command {
	return &cobra.Command{
		Use: "remove NAME", Short: "remove a pool that no job uses; its nodes end", Args: onePool("remove"),
		RunE: func(c *cobra.Command, args []string) error {
			s, err := p.server()
			if err != nil {
				return err
			}
			if err := s.RemovePool(c.Context(), args[0]); err != nil {
				return err
			}
			fmt.Fprintf(p.out, "pool %s is removed\n", event.Visible(args[0]))
			return nil
		},
	}
}

func (p *program) poolTokenCommand() *cobra.Command {
	valid := "24h"
	c := &cobra.Command{
		Use: "token NAME", Short: "print what a machine runs to join a pool",
		Long: "token makes a token with which machines may join a pool for some time, and prints the line that they run.\n" +
			"A node that has joined has a token of its own from then on.",
		Args: onePool("token"),
		RunE: func(c *cobra.Command, args []string) error {
			d, err := job.ParseTime(valid)
			if err != nil || d < time.Second {
				return usageError{fmt.Errorf("--for %q is not %s", valid, job.ATime)}
			}
			s, err := p.server()
			if err != nil {
				return err
			}
			t, err := s.JoinToken(c.Context(), args[0], d)
			if err != nil {
				return err
			}
			if t.Token == "" {
				return errors.New("the server gave no token: see that it is of this release")
			}
			fmt.Fprintf(p.out, "HORA_TOKEN=%s hora node --pool %s --server '%s'\n", t.Token, t.Pool, t.Server)
			fmt.Fprintf(p.err, "hora: valid until %s\n", t.Expires.Local().Format(time.DateTime))
			if strings.HasPrefix(t.Server, "http:") {
				fmt.Fprintln(p.err, "hora: the server is reached from its own machine alone: for others start it with hora up --listen 0.0.0.0")
			}
			return nil
		},
	}
	c.Flags().StringVar(&valid, "for", valid, "how long machines may join with it")
	return c
}

// nodeText is what each node of a pool has, as far as it was said.
func nodeText(a *client.Pool) string {
	text := event.Counted(a.Node.Cores, "core")
	if a.Node.Memory > 0 {
		text += fmt.Sprintf(", %d MiB", a.Node.Memory>>20)
	}
	if a.Node.GPUs > 0 {
		text += ", " + event.Counted(a.Node.GPUs, "GPU")
	}
	return text
}
