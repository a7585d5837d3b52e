package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
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

// standing is where a job stands, in a sentence.
func standing(j *client.Job) string {
	switch {
	case j.State == job.Queued && j.Reason != nil && j.Reason.Code == "next" && len(j.Shares) > 0:
		return "starts with " + onNodes(j.Shares)
	case j.State == job.Queued && j.Reason != nil && j.Reason.Code == "next":
		return "starts at once"
	case j.State == job.Queued && j.Reason != nil:
		return "waits: " + j.Reason.Text
	case j.State == job.Paused && j.Reason != nil:
		return j.Reason.Text
	case j.Stopping:
		return "it was told to end"
	case (j.State == job.Preparing || j.State == job.Running) && j.Reason != nil:
		return "runs with " + onNodes(j.Shares) + "; " + j.Reason.Text
	case j.State == job.Preparing:
		return "its environment is made, with " + onNodes(j.Shares)
	case j.State == job.Running:
		return "runs with " + onNodes(j.Shares)
	case j.State == job.Finished:
		return "finished after " + j.Ended.Sub(j.Started).Round(time.Millisecond).String()
	case j.State.Ended():
		text := string(j.State)
		if j.Text != "" {
			text += ": " + j.Text
		}
		return text
	}
	return string(j.State)
}

// asked is what a job was submitted with: its slots and its environment.
func asked(sent *client.Document, j *client.Job) string {
	d := &j.Document
	text := event.Counted(max(d.Spec.NP, 1), "slot")
	switch {
	case d.Nodes > 0 && d.Whole:
		text = fmt.Sprintf("%s with %d processes each", event.Counted(d.Nodes, "whole node"), max(d.PerNode, 1))
	case d.Nodes > 0:
		text = fmt.Sprintf("%s on each of %s", event.Counted(max(d.PerNode, 1), "slot"), event.Counted(d.Nodes, "node"))
	case d.Spec.MinNP > 0:
		text = fmt.Sprintf("%d to %s", d.Spec.MinNP, event.Counted(d.Spec.NP, "slot"))
	}
	text += " of pool " + d.Pool + "; environment: "
	if sent.Environment == nil || d.Environment == nil {
		return text + "the pool's own"
	}
	names := slices.Concat(sent.Environment.Pip, sent.Environment.Conda)
	if f := sent.Environment.File; f != nil {
		names = append([]string{filepath.Base(f.Name)}, names...)
	}
	if more := len(names) - mostPackages; more > 0 {
		names = append(names[:mostPackages], fmt.Sprintf("%d more", more))
	}
	return text + strings.Join(names, ", ") + " beside the pool's own"
}

// mostPackages is how many packages a line names.
const mostPackages = 5

// foretold says when a job that waits is expected to start.
func foretold(j *client.Job, now time.Time) string {
	switch {
	case j.State != job.Queued || j.Reason == nil || j.Reason.Place == 0 || j.Reason.Code == "next":
		return ""
	case j.Reason.Expected.IsZero():
		return "; when it starts is not known: jobs before it have no --time-limit, or are many"
	}
	wait := max(j.Reason.Expected.Sub(now), 0).Round(time.Second)
	return fmt.Sprintf("; it is expected to start in %v, at %s", wait, j.Reason.Expected.Local().Format(time.TimeOnly))
}

func onNodes(all []client.Share) string {
	var parts []string
	for _, s := range all {
		parts = append(parts, fmt.Sprintf("%s on %s", event.Counted(s.Slots, "slot"), s.Node))
	}
	return strings.Join(parts, ", ")
}

// jobNumber reads a job's number.
func jobNumber(text string) (int64, error) {
	id, err := strconv.ParseInt(strings.TrimPrefix(text, "job-"), 10, 64)
	if err != nil || id < 1 {
		return 0, usageError{fmt.Errorf("%q is no job: give its number, as hora jobs shows it", text)}
	}
	return id, nil
}

// onJob is a subcommand that takes a job.
func (p *program) onJob(
	use, short string, f func(ctx context.Context, c *client.Client, id int64, args []string) error,
) *cobra.Command {
	words := strings.Fields(use)
	return &cobra.Command{
		Use: use, Short: short,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != len(words)-1 {
				return usageError{fmt.Errorf("hora %s takes %s: see hora %s --help", words[0], strings.Join(words[1:], " and "), words[0])}
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error {
			id, err := jobNumber(args[0])
			if err != nil {
				return err
			}
			s, err := p.server()
			if err != nil {
				return err
			}
			return f(c.Context(), s, id, args[1:])
		},
	}
}

func (p *program) writeJSON(v any) error {
	out := json.NewEncoder(p.out)
	out.SetIndent("", "  ")
	return out.Encode(v)
}

func (p *program) jobsCommand() *cobra.Command {
	all, asJSON, project, limit := false, false, "", 50
	c := &cobra.Command{
		Use: "jobs", Short: "list the server's jobs, and why those wait that do", Args: noArguments("jobs"),
		RunE: func(c *cobra.Command, _ []string) error {
			s, err := p.server()
			if err != nil {
				return err
			}
			states := []string{string(job.Queued), string(job.Preparing), string(job.Running), string(job.Paused)}
			if all {
				states = nil
			}
			if limit < 1 {
				return usageError{fmt.Errorf("--limit %d is no number of jobs: give one from 1", limit)}
			}
			page, err := newest(c.Context(), s, states, project, limit)
			switch {
			case err != nil:
				return err
			case asJSON:
				return p.writeJSON(page.Jobs)
			case len(page.Jobs) == 0 && !all:
				fmt.Fprintln(p.out, "nothing waits or runs; hora jobs --all lists what has ended")
				return nil
			}
			w := tabwriter.NewWriter(p.out, 0, 4, 2, ' ', 0)
			fmt.Fprintln(w, "JOB\tSTATE\tSLOTS\tPRIORITY\tPROJECT\tNAME\t")
			for i := range page.Jobs {
				j := &page.Jobs[i]
				d := &j.Document
				fmt.Fprintf(
					w, "%d\t%s\t%d\t%d\t%s\t%s\t%s\n", j.ID, j.State, max(d.Spec.NP, d.Nodes*max(d.PerNode, 1), 1),
					*d.Priority, d.Project, event.Visible(j.Title()), event.Visible(standing(j)),
				)
			}
			if err := w.Flush(); err != nil {
				return err
			}
			if page.Next != "" {
				fmt.Fprintf(p.out, "there are more: --limit %d shows them\n", limit*4)
			}
			return nil
		},
	}
	c.Flags().BoolVarP(&all, "all", "a", false, "those that have ended too")
	c.Flags().StringVar(&project, "project", "", "only this `project`")
	c.Flags().IntVar(&limit, "limit", limit, "at most so many, the newest")
	c.Flags().BoolVar(&asJSON, "json", false, "as JSON")
	return c
}

// jobsAtOnce is how many jobs a server lists in one answer at most.
const jobsAtOnce = 1000

// newest lists so many jobs, in as many calls as that takes; the list's next is empty where these are all.
func newest(
	ctx context.Context, s *client.Client, states []string, project string, limit int,
) (all client.Page, err error) {
	all.Jobs = []client.Job{} // in JSON, no null
	for {
		more, err := s.Jobs(ctx, states, project, all.Next, min(limit-len(all.Jobs), jobsAtOnce))
		if err != nil {
			return all, err
		}
		all.Jobs, all.Next = append(all.Jobs, more.Jobs...), more.Next
		if all.Next == "" || len(all.Jobs) >= limit {
			return all, nil
		}
	}
}

func (p *program) jobCommand() *cobra.Command {
	asJSON := false
	c := p.onJob("job ID", "show one job, why it waits, and its story", func(ctx context.Context, s *client.Client, id int64, _ []string) error {
		j, story, err := withStory(ctx, s, id)
		if err != nil {
			return err
		}
		if asJSON {
			return p.writeJSON(struct {
				client.Job
				Happenings []client.Happening `json:"happenings"`
			}{j, story})
		}
		p.writeJob(&j, story)
		return nil
	})
	c.Flags().BoolVar(&asJSON, "json", false, "as JSON")
	return c
}

func (p *program) writeJob(j *client.Job, story []client.Happening) {
	d := &j.Document
	w := tabwriter.NewWriter(p.out, 0, 4, 2, ' ', 0)
	row := func(name, format string, a ...any) {
		fmt.Fprintf(w, "%s\t%s\n", name, event.Visible(fmt.Sprintf(format, a...)))
	}
	row("job", "%d", j.ID)
	row("command", "%s", strings.Join(d.Spec.Command, " "))
	row("state", "%s", j.State)
	row("", "%s%s", standing(j), foretold(j, time.Now()))
	if j.Reason != nil && !j.Reason.Start.IsZero() {
		row("starts", "%s at the latest", j.Reason.Start.Local().Format("15:04:05 on 2 January"))
	}
	row("pool", "%s", d.Pool)
	row("project", "%s, priority %d", d.Project, *d.Priority)
	if d.TimeLimit > 0 {
		row("time limit", "%v", time.Duration(d.TimeLimit*float64(time.Second)))
	}
	if c := d.Source["commit"]; c != "" {
		if d.Source["changed"] != "" {
			c += ", with changes"
		}
		row("commit", "%s", c)
	}
	if len(d.Credentials) > 0 {
		row("keys to storage", "%s", strings.Join(slices.Sorted(maps.Keys(d.Credentials)), ", "))
	}
	if e := d.Environment; e != nil && len(e.Lock) > 0 {
		row("environment", "%s", event.Counted(len(e.Lock), "package")+" beside the pool's: "+strings.Join(shortLock(e.Lock), ", "))
	}
	for _, name := range slices.Sorted(maps.Keys(j.Tags)) {
		row("tag", "%s: %s", name, j.Tags[name])
	}
	if j.State.Ended() {
		row("exit code", "%d", j.ExitCode)
	}
	for _, h := range story {
		row(h.At.Local().Format("15:04:05.000"), "%s", h.Text)
	}
	_ = w.Flush()
}

// shortLock is a lock for people: names and releases of the first few.
func shortLock(lock []string) (short []string) {
	for i, line := range lock {
		if i == 12 {
			return append(short, "…")
		}
		line, _, _ = strings.Cut(line, " --hash")
		short = append(short, line)
	}
	return short
}

// follow shows what a job writes until it ends; this program exits with its code.
func (p *program) follow(
	ctx context.Context, c *client.Client, id int64, f client.Following, submitted *client.Job,
) error {
	last, own, away := "", "", false
	if submitted != nil {
		last = standing(submitted)
		f.State = func(j client.Job) {
			away = false
			if now := standing(&j); now != last && !j.State.Ended() { // its end comes after its last line
				last = now
				fmt.Fprintf(p.err, "hora: job %d: %s\n", id, event.Visible(now))
			}
		}
	}
	f.Line = func(l client.Line) {
		if l.Rank < 0 {
			own = strings.TrimPrefix(l.Text, "hora: ")
		}
		p.showLine(&l)
	}
	f.Lost = func(error) {
		if !away {
			away = true
			fmt.Fprintf(p.err, "hora: the server is away; the job goes on, and so does this when it is back\n")
		}
	}
	j, err := c.Follow(ctx, id, f)
	if err != nil {
		return err
	}
	p.code = j.ExitCode
	if j.Text == own { // it was just said
		j.Text = ""
	}
	if now := standing(&j); now != last && (submitted != nil || j.State != job.Finished) {
		fmt.Fprintf(p.err, "hora: job %d: %s\n", id, event.Visible(now))
	}
	return nil
}

// showLine writes a line of a job as hora run does.
func (p *program) showLine(l *client.Line) {
	var w io.Writer = p.out
	stream := "stdout"
	if l.Err {
		w, stream = p.err, "stderr"
	}
	if l.Rank < 0 {
		fmt.Fprintln(w, event.Visible(l.Text))
		return
	}
	fmt.Fprintf(w, "[%d]<%s>:%s\n", l.Rank, stream, l.Written())
}

func (p *program) logsCommand() *cobra.Command {
	follow, rank, since := false, -2, ""
	var c *cobra.Command
	c = p.onJob("logs ID", "show what a job has written", func(ctx context.Context, s *client.Client, id int64, _ []string) error {
		f := client.Following{Rank: rank}
		if c.Flags().Changed("since") {
			d, err := job.ParseTime(since)
			if err == nil && d < 0 {
				err = fmt.Errorf("%s is a time to come: write how long ago, as 10m", since)
			}
			if err != nil {
				return usageError{fmt.Errorf("--since: %w", err)}
			}
			f.Since = time.Now().Add(-d)
		}
		if follow {
			return p.follow(ctx, s, id, f, nil)
		}
		shown := false
		err := s.Lines(ctx, id, f, func(l client.Line) {
			shown = true
			p.showLine(&l)
		})
		if err == nil && !shown {
			err = p.nothingWritten(ctx, s, id, rank, since)
		}
		return err
	})
	c.Flags().BoolVarP(&follow, "follow", "f", false, "show what comes too, and exit with the job's code")
	c.Flags().IntVar(&rank, "rank", rank, "only this rank; -1 is hora itself, -2 are all")
	c.Flags().StringVar(&since, "since", "", "only what is no older than this `time`, as 10m")
	return c
}

// withStory is a job and what has happened to it.
func withStory(ctx context.Context, s *client.Client, id int64) (client.Job, []client.Happening, error) {
	j, err := s.Job(ctx, id)
	if err != nil {
		return j, nil, err
	}
	story, err := s.Happenings(ctx, id)
	return j, story, err
}

// nothingWritten says why there are no lines of a job to show. To ask for a rank that the job never has is an error, as
// a wrong number of a job is one.
func (p *program) nothingWritten(ctx context.Context, s *client.Client, id int64, rank int, since string) error {
	j, story, err := withStory(ctx, s, id)
	if err != nil {
		return err
	}
	d := &j.Document
	ranks := max(d.Spec.NP, d.Nodes*max(d.PerNode, 1), 1)
	of := "of it"
	if rank >= 0 {
		of = fmt.Sprintf("of its rank %d", rank)
	} else if rank == -1 {
		of = "of hora's own"
	}
	if since != "" {
		of += " from the last " + since
	}
	text := "nothing " + of + " is there"
	switch {
	case rank >= ranks && ranks == 1:
		return fmt.Errorf("job %d has no rank %d: its only one is 0", id, rank)
	case rank >= ranks:
		return fmt.Errorf("job %d has no rank %d: its ranks are 0 to %d", id, rank, ranks-1)
	case slices.ContainsFunc(story, func(h client.Happening) bool {
		return h.Kind == "removed" && strings.HasPrefix(h.Text, "what it wrote")
	}):
		text = "what it wrote was removed, since it was kept as long as hora retention says"
	case !j.State.Ended():
		text += " yet; " + standing(&j)
	}
	fmt.Fprintf(p.err, "hora: job %d: %s\n", id, event.Visible(text))
	return nil
}

func (p *program) waitCommand() *cobra.Command {
	return p.onJob("wait ID", "wait until a job has ended, and exit with its code", func(ctx context.Context, s *client.Client, id int64, _ []string) error {
		j, err := s.Follow(ctx, id, client.Following{Quiet: true, Rank: -2})
		if err != nil {
			return err
		}
		p.code = j.ExitCode
		fmt.Fprintf(p.err, "hora: job %d: %s\n", id, event.Visible(standing(&j)))
		return nil
	})
}

// doing is a subcommand that does one thing to a job.
func (p *program) doing(what, short string) *cobra.Command {
	return &cobra.Command{
		Use: what + " ID...", Short: short,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usageError{fmt.Errorf("hora %s takes the number of a job, or of several: see hora %s --help", what, what)}
			}
			for _, arg := range args { // before anything is done
				if _, err := jobNumber(arg); err != nil {
					return err
				}
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error {
			s, err := p.server()
			if err != nil {
				return err
			}
			var errs []error
			for _, arg := range args {
				id, _ := jobNumber(arg)
				j, err := s.Do(c.Context(), id, what)
				if errs = append(errs, err); err == nil {
					fmt.Fprintf(p.out, "job %d: %s\n", id, event.Visible(standing(&j)))
				}
			}
			return errors.Join(errs...)
		},
	}
}

func (p *program) cancelCommand() *cobra.Command { return p.doing("cancel", "end jobs") }

func (p *program) pauseCommand() *cobra.Command {
	return p.doing("pause", "keep jobs from running; those that run are drained first")
}

func (p *program) resumeCommand() *cobra.Command { return p.doing("resume", "let paused jobs queue") }

func (p *program) priorityCommand() *cobra.Command {
	return p.onJob("priority ID 0-100", "give a job another priority; higher comes first", func(ctx context.Context, s *client.Client, id int64, args []string) error {
		n, err := strconv.Atoi(args[0])
		if err != nil || n < 0 || n > 100 {
			return usageError{fmt.Errorf("%q is no priority: give a whole number from 0 to 100", args[0])}
		}
		j, err := s.Priority(ctx, id, n)
		if err == nil {
			fmt.Fprintf(p.out, "job %d: priority %d; %s\n", id, n, event.Visible(standing(&j)))
		}
		return err
	})
}

func (p *program) metricsCommand() *cobra.Command {
	asJSON, points := false, 0
	c := p.onJob("metrics ID", "show what a job's ranks reported with hora.report", func(ctx context.Context, s *client.Client, id int64, _ []string) error {
		if asJSON && points == 0 {
			points = 1000
		}
		all, err := s.Metrics(ctx, id, "", points)
		switch {
		case err != nil:
			return err
		case asJSON:
			return p.writeJSON(all)
		case len(all) == 0:
			fmt.Fprintf(p.out, "job %d has reported nothing: hora.report(step, loss=...) in its script does\n", id)
			return nil
		}
		w := tabwriter.NewWriter(p.out, 0, 4, 2, ' ', 0)
		fmt.Fprintln(w, "METRIC\tRANK\tPOINTS\tLAST\tLEAST\tGREATEST")
		for _, m := range all {
			fmt.Fprintf(
				w, "%s\t%d\t%d\t%s\t%s\t%s\n", event.Visible(m.Name), m.Rank, m.Count,
				client.Worded(client.Finite(m.Last), m.LastIs, short),
				rounded(client.Finite(m.Min)), rounded(client.Finite(m.Max)),
			)
			for _, x := range m.Points {
				fmt.Fprintf(w, "  %d\t%s\n", x.Step, rounded(client.Finite(x.Value)))
			}
		}
		return w.Flush()
	})
	c.Flags().BoolVar(&asJSON, "json", false, "as JSON, with up to 1,000 points of each")
	c.Flags().IntVar(&points, "points", 0, "up to so many points of each")
	return c
}

func (p *program) artifactsCommand() *cobra.Command {
	to := ""
	c := p.onJob("artifacts ID", "list, or fetch, what came back of a job's outputs/", func(ctx context.Context, s *client.Client, id int64, _ []string) error {
		all, err := s.Artifacts(ctx, id)
		switch {
		case err != nil:
			return err
		case len(all) == 0:
			fmt.Fprintf(p.out, "nothing has come back of job %d: what its script writes into outputs/ does\n", id)
			return nil
		case to != "":
			return p.fetch(ctx, s, all, to)
		}
		w := tabwriter.NewWriter(p.out, 0, 4, 2, ' ', tabwriter.AlignRight)
		for _, a := range all {
			fmt.Fprintf(w, "%d\t  %s\n", a.Size, event.Visible(a.Path))
		}
		return w.Flush()
	})
	c.Flags().StringVar(&to, "to", "", "fetch them into this `folder`")
	return c
}

// fetch writes artifacts below a folder.
func (p *program) fetch(ctx context.Context, s *client.Client, all []client.Artifact, to string) error {
	if err := os.MkdirAll(to, 0o755); err != nil {
		return err
	}
	root, err := os.OpenRoot(to)
	if err != nil {
		return err
	}
	defer root.Close()
	for _, a := range all {
		if err := fetchOne(ctx, s, root, a); err != nil {
			return fmt.Errorf("fetch %s: %w", a.Path, err)
		}
	}
	fmt.Fprintf(p.out, "%s in %s\n", event.Counted(len(all), "file"), to)
	return nil
}

func fetchOne(ctx context.Context, s *client.Client, root *os.Root, a client.Artifact) error {
	in, err := s.Get(ctx, a.Hash)
	if err != nil {
		return err
	}
	defer in.Close()
	name := filepath.FromSlash(a.Path)
	if err := root.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	part := name + ".part"
	out, err := root.Create(part)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	if err = errors.Join(err, out.Close()); err != nil { // a part under the file's name would pass for the whole
		return errors.Join(err, root.Remove(part))
	}
	return root.Rename(part, name)
}
