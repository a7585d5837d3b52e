package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"hora/event"
	"hora/server/client"
)

func (p *program) compareCommand() *cobra.Command {
	asJSON := false
	c := &cobra.Command{
		Use: "compare ID ID...", Short: "show jobs beside each other: how they ended, what differs in what was asked, their metrics",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) < 2 {
				return usageError{fmt.Errorf("hora compare takes two jobs or more: hora jobs --all lists them")}
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error {
			s, err := p.server()
			if err != nil {
				return err
			}
			var jobs []client.Job
			var metrics [][]client.Metric
			for _, arg := range args {
				id, err := jobNumber(arg)
				if err != nil {
					return err
				}
				j, err := s.Job(c.Context(), id)
				if err != nil {
					return err
				}
				all, err := s.Metrics(c.Context(), id, "", 1)
				if err != nil {
					return err
				}
				jobs, metrics = append(jobs, j), append(metrics, all)
			}
			v, err := client.Compare(jobs, metrics, time.Now())
			if err != nil {
				return err
			}
			if asJSON {
				return p.writeJSON(v)
			}
			return p.showComparison(v)
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "as JSON")
	return c
}

// shown is a value on one line; a list is told as JSON.
func shown(x any) string {
	switch x := x.(type) {
	case nil:
		return "-"
	case string:
		return event.Visible(x)
	}
	b, err := json.Marshal(x)
	if err != nil {
		return fmt.Sprint(x)
	}
	return event.Visible(string(b))
}

// cellMost is how many characters of a value the table shows.
const cellMost = 40

func (p *program) showComparison(v *client.Comparison) error {
	w := tabwriter.NewWriter(p.out, 0, 4, 2, ' ', 0)
	line := func(name string, cell func(i int) string) {
		fmt.Fprint(w, event.Visible(name))
		for i := range v.Jobs {
			text := []rune(cell(i))
			if len(text) > cellMost {
				text = append(text[:cellMost-1], '…')
			}
			fmt.Fprint(w, "\t"+string(text))
		}
		fmt.Fprintln(w)
	}
	line("JOB", func(i int) string { return fmt.Sprint(v.Jobs[i]) })
	line("state", func(i int) string { return v.States[i] })
	line("ran", func(i int) string {
		if v.Seconds[i] == 0 { // it never ran
			return "-"
		}
		return fmt.Sprintf("%.1f s", v.Seconds[i])
	})
	for _, name := range slices.Sorted(maps.Keys(v.Differs)) {
		line(name, func(i int) string { return shown(v.Differs[name][i]) })
	}
	for _, name := range slices.Sorted(maps.Keys(v.Tags)) {
		line("tag "+name, func(i int) string { return shown(v.Tags[name][i]) })
	}
	for _, name := range slices.Sorted(maps.Keys(v.Metrics)) {
		line(name, func(i int) string {
			c := v.Metrics[name][i]
			if c == nil {
				return "-"
			}
			last := client.Worded(c.Last, c.LastIs, short)
			if c.Min == nil || c.Max == nil { // it never was a number
				return last
			}
			return fmt.Sprintf("%s (%s to %s)", last, short(*c.Min), short(*c.Max))
		})
	}
	return w.Flush()
}

func rounded(x *float64) string { return client.Worded(x, "", short) }

func short(x float64) string { return fmt.Sprintf("%.6g", x) }
