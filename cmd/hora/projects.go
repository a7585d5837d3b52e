package main

import (
	"fmt"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"hora/event"
	"hora/server/client"
)

func (p *program) projectsCommand() *cobra.Command {
	asJSON := false
	c := &cobra.Command{
		Use: "projects", Short: "list what projects have, have had and may have", Args: noArguments("projects"),
		RunE: func(c *cobra.Command, _ []string) error {
			s, err := p.server()
			if err != nil {
				return err
			}
			all, err := s.Projects(c.Context())
			if err != nil {
				return err
			}
			if asJSON {
				return p.writeJSON(all)
			}
			w := tabwriter.NewWriter(p.out, 0, 4, 2, ' ', 0)
			fmt.Fprintln(w, "PROJECT\tRUNNING\tWAITING\tUSED\tQUOTA")
			for i := range all {
				a := &all[i]
				fmt.Fprintf(
					w, "%s\t%s\t%s\t%v\t%s\n", event.Visible(a.Name), event.Counted(a.Running, "slot"),
					event.Counted(a.Waiting, "job"), time.Duration(a.Used*float64(time.Second)).Round(time.Second),
					quotaText(a.Quota),
				)
			}
			return w.Flush()
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "as JSON")
	return c
}

// quotaText is a quota in words.
func quotaText(q client.Quota) string {
	text := "none"
	switch {
	case q.Slots > 0 && q.Max == q.Slots:
		text = event.Counted(q.Slots, "slot")
	case q.Slots > 0 && q.Max > 0:
		text = fmt.Sprintf("%s, %d with what it borrows", event.Counted(q.Slots, "slot"), q.Max)
	case q.Slots > 0:
		text = event.Counted(q.Slots, "slot") + " and what it borrows"
	}
	if q.Share > 0 {
		text += fmt.Sprintf("; share %g", q.Share)
	}
	return text
}

func (p *program) quotaCommand() *cobra.Command {
	var q client.Quota
	c := &cobra.Command{
		Use: "quota PROJECT", Short: "bound the slots of a project; without flags nothing bounds it",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 || args[0] == "" {
				return usageError{fmt.Errorf("hora quota takes a project: see hora quota --help")}
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error {
			if c.Flags().Changed("share") && !(q.Share > 0) {
				return usageError{fmt.Errorf("--share %g is no weight: give a number above 0, or leave it out, which is 1; hora pause keeps a job from running", q.Share)}
			}
			s, err := p.server()
			if err != nil {
				return err
			}
			a, err := s.SetQuota(c.Context(), args[0], q)
			if err != nil {
				return err
			}
			fmt.Fprintf(p.out, "project %s: %s\n", event.Visible(args[0]), quotaText(a.Quota))
			if a.Running == 0 && a.Waiting == 0 && a.Used == 0 {
				fmt.Fprintf(p.err, "hora: nothing of project %s runs, waits or has run yet: hora projects lists those that there are\n", event.Visible(args[0]))
			}
			return nil
		},
	}
	c.Flags().IntVar(&q.Slots, "slots", 0, "its own slots")
	c.Flags().IntVar(&q.Max, "max", 0, "slots with what it borrows while nobody else wants them; without it, it borrows without a bound")
	c.Flags().Float64Var(&q.Share, "share", 0, "weight of its fair share (default 1)")
	return c
}
