package main

import (
	"context"
	"errors"
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

// project is what a project has; nothing where a server knows none by its name.
func project(ctx context.Context, s *client.Client, name string) (client.Project, error) {
	all, err := s.Projects(ctx)
	for i := range all {
		if all[i].Name == name {
			return all[i], err
		}
	}
	return client.Project{Name: name}, err
}

// noteProject says that nobody has used a project's name yet: there may be an error in it.
func (p *program) noteProject(ctx context.Context, s *client.Client, name string) error {
	if name == "" {
		return nil
	}
	a, err := project(ctx, s, name)
	if err == nil && a.Running == 0 && a.Waiting == 0 && a.Used == 0 {
		fmt.Fprintf(p.err, "hora: nothing of project %s runs, waits or has run yet: hora projects lists those that there are\n", event.Visible(name))
	}
	return err
}

func (p *program) quotaCommand() *cobra.Command {
	none, q := false, client.Quota{}
	c := &cobra.Command{
		Use: "quota PROJECT", Short: "bound the slots of a project, or show what bounds it",
		Long: "quota shows what bounds a project, or says it anew: what is not given is as without a quota.\n\n" +
			"  hora quota vision                        shows it\n" +
			"  hora quota vision --slots 4 --max 8      four of its own, and four more that it borrows\n" +
			"  hora quota vision --slots 4 --max 4      four, and borrows nothing\n" +
			"  hora quota vision --none                 nothing bounds it any more",
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
			given := c.Flags().Changed("slots") || c.Flags().Changed("max") || c.Flags().Changed("share")
			switch {
			case none && given:
				return usageError{errors.New("--none takes the quota away, and one is given: leave one of them out")}
			case q.Slots < 0:
				return usageError{fmt.Errorf("--slots %d is no number of slots: give 0 or more", q.Slots)}
			case q.Max < 0:
				return usageError{fmt.Errorf("--max %d is no number of slots: give 0 or more", q.Max)}
			case q.Max > 0 && q.Slots == 0:
				return usageError{fmt.Errorf("--max %d counts the project's own slots and those that it borrows, and it has none of its own: give --slots %d --max %d for no more than so many", q.Max, q.Max, q.Max)}
			case q.Max > 0 && q.Max < q.Slots:
				return usageError{fmt.Errorf("--max %d is below --slots %d: it counts what the project borrows as well", q.Max, q.Slots)}
			}
			s, err := p.server()
			if err != nil {
				return err
			}
			var a client.Project
			if given || none {
				a, err = s.SetQuota(c.Context(), args[0], q)
			} else {
				a, err = project(c.Context(), s, args[0])
			}
			if err != nil {
				return err
			}
			fmt.Fprintf(p.out, "project %s: %s\n", event.Visible(args[0]), quotaText(a.Quota))
			_ = p.noteProject(c.Context(), s, args[0])
			return nil
		},
	}
	c.Flags().BoolVar(&none, "none", false, "take the quota away: nothing bounds the project any more")
	c.Flags().IntVar(&q.Slots, "slots", 0, "its own slots")
	c.Flags().IntVar(&q.Max, "max", 0, "slots with what it borrows while nobody else wants them; without it, it borrows without a bound")
	c.Flags().Float64Var(&q.Share, "share", 0, "weight of its fair share (default 1)")
	return c
}
