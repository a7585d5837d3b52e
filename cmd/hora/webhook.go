package main

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"hora/event"
	"hora/job"
	"hora/server/client"
)

func (p *program) webhookCommand() *cobra.Command {
	return group(
		"webhook", "let an address hear of a server's jobs", p.webhookAddCommand(), p.webhookListCommand(),
		p.webhookRemoveCommand(), p.webhookTestCommand(),
	)
}

func (p *program) webhookAddCommand() *cobra.Command {
	w, on := client.Webhook{}, ""
	states := []string{"queued", "preparing", "running", "paused", "finished", "failed", "cancelled"}
	c := &cobra.Command{
		Use:   "add URL",
		Short: "add a webhook; prints its number and its secret",
		Long: "add lets an address hear when a job has ended, by a POST that is signed with the secret that is printed, this once.\n\n" +
			"  hora webhook add https://chat.example.org/hooks/jobs\n" +
			"  hora webhook add https://chat.example.org/hooks/jobs --on running,failed --project vision",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 || args[0] == "" {
				return usageError{errors.New("hora webhook add takes an address: write it as https://HOST/PATH")}
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error {
			w.URL = args[0]
			for name := range strings.SplitSeq(on, ",") {
				if name = strings.TrimSpace(name); name != "" && !slices.Contains(states, name) {
					return usageError{fmt.Errorf("--on: %q is none of %s: give one of them, or several with commas", name, strings.Join(states, ", "))}
				} else if name != "" {
					w.States = append(w.States, job.State(name))
				}
			}
			s, err := p.server()
			if err != nil {
				return err
			}
			is, err := s.AddWebhook(c.Context(), w)
			if err != nil {
				return err
			}
			fmt.Fprintf(p.out, "%d %s\n", is.ID, is.Secret)
			fmt.Fprintf(p.err, "hora: webhook %d hears %s; its secret is shown this once; hora webhook test %d sends a ping\n", is.ID, hears(&is), is.ID)
			_ = p.noteProject(c.Context(), s, w.Project) // the webhook is there, and its secret was shown
			return nil
		},
	}
	c.Flags().StringVar(&on, "on", "", "`states` of jobs, with commas: "+strings.Join(states, ", ")+" (default finished,failed,cancelled)")
	c.Flags().StringVar(&w.Project, "project", "", "only jobs of this project")
	return c
}

// hears is what a webhook hears, in words.
func hears(w *client.Webhook) string {
	var names []string
	for _, st := range w.States {
		names = append(names, string(st))
	}
	text := strings.Join(names, ", ")
	if w.Project != "" {
		text += " of project " + event.Visible(w.Project)
	}
	return text
}

func (p *program) webhookListCommand() *cobra.Command {
	asJSON := false
	c := &cobra.Command{
		Use: "list", Short: "list the webhooks, and how their last deliveries went", Args: noArguments("webhook list"),
		RunE: func(c *cobra.Command, _ []string) error {
			s, err := p.server()
			if err != nil {
				return err
			}
			all, err := s.Webhooks(c.Context())
			if err != nil {
				return err
			}
			if asJSON {
				return p.writeJSON(all)
			}
			w := tabwriter.NewWriter(p.out, 0, 4, 2, ' ', 0)
			fmt.Fprintln(w, "WEBHOOK\tADDRESS\tHEARS\tDELIVERED\tWAITING\tFAILED")
			for i := range all {
				a := &all[i]
				last := "never"
				if !a.Delivered.IsZero() {
					last = a.Delivered.Local().Format(time.DateTime)
				}
				fmt.Fprintf(w, "%d\t%s\t%s\t%s\t%d\t%s\n", a.ID, event.Visible(a.URL), hears(a), last, a.Waiting, event.Visible(a.Failed))
			}
			return w.Flush()
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "as JSON")
	return c
}

// oneWebhook wants one number.
func oneWebhook(what string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) == 1 {
			if id, err := strconv.ParseInt(args[0], 10, 64); err == nil && id > 0 {
				return nil
			}
		}
		return usageError{fmt.Errorf("hora webhook %s takes the number of a webhook: hora webhook list has them", what)}
	}
}

func (p *program) webhookRemoveCommand() *cobra.Command {
	return &cobra.Command{
		Use: "remove ID", Short: "remove a webhook, with what it has not heard yet", Args: oneWebhook("remove"),
		RunE: func(c *cobra.Command, args []string) error {
			s, err := p.server()
			if err != nil {
				return err
			}
			id, _ := strconv.ParseInt(args[0], 10, 64)
			if err := s.RemoveWebhook(c.Context(), id); err != nil {
				return err
			}
			fmt.Fprintf(p.out, "webhook %d is removed\n", id)
			return nil
		},
	}
}

func (p *program) webhookTestCommand() *cobra.Command {
	return &cobra.Command{
		Use: "test ID", Short: "send a webhook a ping now; exits with 1 when its answer is no success", Args: oneWebhook("test"),
		RunE: func(c *cobra.Command, args []string) error {
			s, err := p.server()
			if err != nil {
				return err
			}
			id, _ := strconv.ParseInt(args[0], 10, 64)
			a, err := s.TestWebhook(c.Context(), id)
			if err != nil {
				return err
			}
			took := time.Duration(a.Seconds * float64(time.Second)).Round(time.Millisecond)
			if a.Status < 200 || a.Status > 299 {
				return fmt.Errorf("webhook %d answered %d after %v: a delivery counts with an answer from 200 to 299", id, a.Status, took)
			}
			fmt.Fprintf(p.out, "webhook %d answered %d after %v\n", id, a.Status, took)
			return nil
		},
	}
}

func (p *program) retentionCommand() *cobra.Command {
	jobs, logs, metrics, artifacts, all, none := "", "", "", "", false, false
	c := &cobra.Command{
		Use:   "retention [PROJECT | --all]",
		Short: "say how long jobs that have ended, and what they left, are kept",
		Long: "retention lists how long things are kept, or says it for a project, or for all that have no times of their own. What is\n" +
			"not named is kept for ever. A time is an hour or more, with its unit (d, h, m); what is older goes at once, and is told.\n\n" +
			"  hora retention                                        lists\n" +
			"  hora retention --all --logs 90d                       for all projects\n" +
			"  hora retention vision --jobs 365d --artifacts 30d     for one\n" +
			"  hora retention vision --none                          what holds for all holds for it again",
		Args: cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			var r client.Retention
			given := none
			for _, f := range []struct {
				flag, text string
				to         *int64
			}{{"jobs", jobs, &r.Jobs}, {"logs", logs, &r.Logs}, {"metrics", metrics, &r.Metrics}, {"artifacts", artifacts, &r.Artifacts}} {
				if f.text == "" {
					continue
				}
				seconds, err := daysOrTime(f.text)
				if err != nil {
					return usageError{fmt.Errorf("--%s %q %w", f.flag, f.text, err)}
				}
				*f.to, given = seconds, true
			}
			project := strings.Join(args, "")
			switch {
			case given && all == (project != ""):
				return usageError{errors.New("hora retention takes a project or --all to say for whom it is: see hora retention --help")}
			case none && r != client.Retention{}:
				return usageError{errors.New("--none takes the times away, and others are given: leave one of them out")}
			case !given && (all || project != ""):
				return usageError{errors.New("hora retention was not told how long: give --jobs, --logs, --metrics or --artifacts, or --none")}
			}
			s, err := p.server()
			if err != nil {
				return err
			}
			if given {
				r, err := s.SetRetention(c.Context(), project, r)
				if err != nil {
					return err
				}
				fmt.Fprintln(p.out, retentionText(&r))
				for _, line := range removesText(&r, time.Now()) {
					fmt.Fprintln(p.err, "hora:", line)
				}
				_ = p.noteProject(c.Context(), s, project)
				return nil
			}
			are, err := s.Retentions(c.Context())
			if err == nil && len(are) == 0 {
				fmt.Fprintln(p.out, "everything is kept for ever")
			}
			for i := range are {
				fmt.Fprintln(p.out, retentionText(&are[i]))
			}
			return err
		},
	}
	f := c.Flags()
	f.BoolVar(&all, "all", false, "for all projects that have no times of their own")
	f.StringVar(&jobs, "jobs", "", "how long jobs are kept, as 365d, with all that is left of them")
	f.StringVar(&logs, "logs", "", "how long their output is")
	f.StringVar(&metrics, "metrics", "", "how long what they reported is")
	f.StringVar(&artifacts, "artifacts", "", "how long what came back of outputs/ is")
	f.BoolVar(&none, "none", false, "take the times away")
	return c
}

// errNoTime is what is said of a text that is no time.
var errNoTime = errors.New("is no time from a second on: write it as 90d, 12h or 30m")

// daysOrTime reads 90d, and what else is a time with its unit, as seconds: who means days and leaves that out would
// have seconds.
func daysOrTime(text string) (int64, error) {
	if days, found := strings.CutSuffix(text, "d"); found {
		n, err := strconv.ParseInt(days, 10, 32)
		if err != nil || n < 1 || n > 10000 {
			return 0, errNoTime
		}
		return n * 24 * 3600, nil
	}
	d, err := job.ParseTime(text)
	if err != nil || d < time.Second {
		return 0, errNoTime
	}
	if n, err := strconv.Atoi(text); err == nil && n <= 10000 {
		return 0, fmt.Errorf("has no unit: say it, as %dd or %dh", n, n)
	} else if _, err := strconv.ParseFloat(text, 64); err == nil {
		return 0, errors.New("has no unit: say it, as 365d or 12h")
	}
	return int64(d.Seconds()), nil
}

// removesText says what goes now, a line each.
func removesText(r *client.Retention, now time.Time) (lines []string) {
	if r.Removes == nil {
		return nil
	}
	for _, k := range []struct {
		what       string
		n, seconds int64
	}{
		{"", r.Removes.Jobs, r.Jobs},
		{"what they wrote, of ", r.Removes.Logs, r.Logs},
		{"what they reported, of ", r.Removes.Metrics, r.Metrics},
		{"what came back of outputs/, of ", r.Removes.Artifacts, r.Artifacts},
	} {
		if k.n > 0 {
			before := ""
			if k.seconds > 0 { // or it goes by the times of all projects
				before = " that ended before " + now.Add(-time.Duration(k.seconds)*time.Second).Local().Format(time.DateTime)
			}
			lines = append(lines, fmt.Sprintf("%s%s%s: removed now", k.what, event.Counted(int(k.n), "job"), before))
		}
	}
	return lines
}

func retentionText(r *client.Retention) string {
	who := "all projects"
	if r.Project != "" {
		who = "project " + event.Visible(r.Project)
	}
	var parts []string
	for _, k := range []struct {
		name    string
		seconds int64
	}{{"jobs", r.Jobs}, {"logs", r.Logs}, {"metrics", r.Metrics}, {"artifacts", r.Artifacts}} {
		if k.seconds%(24*3600) == 0 && k.seconds > 0 {
			parts = append(parts, fmt.Sprintf("%s for %dd", k.name, k.seconds/24/3600))
		} else if k.seconds > 0 {
			parts = append(parts, fmt.Sprintf("%s for %v", k.name, time.Duration(k.seconds)*time.Second))
		}
	}
	if len(parts) == 0 {
		return who + ": no times of its own"
	}
	return who + ": " + strings.Join(parts, ", ")
}
