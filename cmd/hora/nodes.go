package main

import (
	"errors"
	"fmt"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"hora/event"
)

func (p *program) nodesCommand() *cobra.Command {
	asJSON := false
	c := &cobra.Command{
		Use: "nodes", Short: "list the machines of a server", Args: noArguments("nodes"),
		RunE: func(c *cobra.Command, _ []string) error {
			s, err := p.server()
			if err != nil {
				return err
			}
			all, err := s.Nodes(c.Context())
			if err != nil {
				return err
			}
			if asJSON {
				return p.writeJSON(all)
			}
			w := tabwriter.NewWriter(p.out, 0, 4, 2, ' ', 0)
			fmt.Fprintln(w, "NODE\tPOOL\tSLOTS\tFREE\tMEMORY\tGPUS\tJOBS\tSTATE")
			for _, n := range all {
				state := "ready"
				if n.Away {
					state = "away"
				}
				fmt.Fprintf(
					w, "%s\t%s\t%d\t%d\t%d MiB\t%d\t%d\t%s\n", event.Visible(n.Name), event.Visible(n.Pool), n.Slots,
					n.Free, n.Memory>>20, n.GPUs, n.Jobs, state,
				)
			}
			if err := w.Flush(); err != nil {
				return err
			}
			for _, n := range all {
				if n.Warning != "" {
					fmt.Fprintln(p.err, "hora:", event.Visible(n.Warning))
				}
			}
			return nil
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "as JSON")
	return c
}

func (p *program) nodeListCommand() *cobra.Command {
	asJSON := false
	c := &cobra.Command{
		Use: "list", Short: "list the nodes that have joined, and come back with tokens of their own", Args: noArguments("node list"),
		RunE: func(c *cobra.Command, _ []string) error {
			s, err := p.server()
			if err != nil {
				return err
			}
			all, err := s.Members(c.Context())
			if err != nil {
				return err
			}
			if asJSON {
				return p.writeJSON(all)
			}
			w := tabwriter.NewWriter(p.out, 0, 4, 2, ' ', 0)
			fmt.Fprintln(w, "NODE\tPOOL\tJOINED\tSTATE")
			for _, m := range all {
				joined := "-"
				if !m.Joined.IsZero() {
					joined = m.Joined.Local().Format(time.DateTime)
				}
				fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", event.Visible(m.Node), event.Visible(m.Pool), joined, m.State)
			}
			return w.Flush()
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "as JSON")
	return c
}

func (p *program) nodeRevokeCommand() *cobra.Command {
	return &cobra.Command{
		Use: "revoke NAME", Short: "let a node in no more, nor any machine with a token that its pool has given before",
		Long: "revoke takes back a node's token. Its link ends at once, and its jobs count as those of a node that is lost: they queue\n" +
			"again after the server's patience. The machine may have a token with which any may join the pool, so those end too:\n" +
			"hora pool token makes another. What the node has had of jobs, secrets among it, it has still.",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 || args[0] == "" {
				return usageError{errors.New("hora node revoke takes the name of a node: hora node list has them")}
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error {
			s, err := p.server()
			if err != nil {
				return err
			}
			if err := s.RevokeNode(c.Context(), args[0]); err != nil {
				return err
			}
			fmt.Fprintf(p.out, "node %s is let in no more\n", event.Visible(args[0]))
			return nil
		},
	}
}
