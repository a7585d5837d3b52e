package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"

	"hora/cmd/console"
	"hora/job"
	"hora/server/client"
	"hora/server/environment"
	"hora/server/snapshot"
	"hora/storage/credentials"
)

// queueFields are the flags of hora submit, and the lines of its file, beside those of a job.
func queueFields() []job.Field {
	f := []job.Field{
		{Flags: "--pool", Arg: "NAME", Help: "where it runs", Default: "default"},
		{Flags: "--node", Arg: "NAME", Help: "this node of the pool and no other"},
		{Flags: "--fresh", Help: "nodes that the pool makes for it, which run nothing else and end with it"},
		{Flags: "--nodes", Arg: "N", Help: "so many different nodes, with --per-node processes each, instead of -np"},
		{Flags: "--per-node", Arg: "M", Help: "processes on each of --nodes", Default: "1"},
		{Flags: "--memory", Arg: "SIZE", Help: "memory that a process needs, as 500MiB or 8GiB"},
		{Flags: "--priority", Arg: "0-100", Help: "higher first", Default: "50"},
		{Flags: "--preemptible", Help: "it may be ended for one of a higher priority, and queues again"},
		{Flags: "--time-limit", Arg: "TIME", Help: "it is ended after this; others that wait are then planned around it"},
		{Flags: "--retries", Arg: "N", Help: "how often it queues again after it has failed", Default: "0"},
		{Flags: "--project", Arg: "NAME", Help: "whose share of the slots it counts against", Default: "default"},
		{Flags: "--pip", Arg: "REQUIREMENT", Help: "a package that the job needs, as numpy==2.1; may be repeated"},
		{Flags: "--env-file", Arg: "FILE", Help: "what it needs: a requirements file, or an environment of conda (.yml); --env FILE is the same"},
		{Flags: "--secret", Arg: "NAME", Help: "a secret of the project that it gets as the file NAME in the folder HORA_SECRETS; may be repeated"},
		{Flags: "--storage-credentials", Help: "your keys to storage (S3, Google's, Azure's) go along, from the variables and files that hora data takes them from"},
		{Flags: "--whole", Help: "nobody else's job runs on its nodes meanwhile"},
		{Flags: "--held", Help: "it begins paused; hora resume lets it queue"},
		{Flags: "--follow -f", Help: "show what it writes, and exit with its code"},
		{Flags: "--no-code", Help: "the present folder does not go along"},
	}
	for i := range f {
		f[i].Group = "queue"
	}
	return f
}

// submission is what one hora submit says.
type submission struct {
	client.Document
	follow, noCode, lends bool
}

func (p *program) submitCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "submit [flags] [--] COMMAND... | -m MODULE...", Short: "hand a job to the server", DisableFlagParsing: true,
		Example: `  hora submit -np 2 python train.py                 the present folder goes along
  hora submit -np 4 --follow python train.py        show what it writes, exit with its code
  hora submit --nodes 2 --per-node 8 --time-limit 4h python train.py
  hora submit --file job.yaml                       the job from a file
  hora submit -np 4 --min-np 2 python train.py      elastic: 2 to 4 processes
  hora submit --pip pandas --env requirements.txt python train.py`,
	}
	table := append(queueFields(), slices.DeleteFunc(job.Fields(), notForServers)...)
	c.SetHelpFunc(func(c *cobra.Command, _ []string) {
		fmt.Fprintf(p.out, "%s\n\nusage: hora %s\n\n%s\n", c.Short, c.Use, c.Example)
		width := terminalWidth(p.out)
		if width == 0 {
			width = plainWidth
		}
		writeHelp(p.out, table, width)
	})
	c.RunE = func(c *cobra.Command, args []string) error {
		s, help, err := readSubmission(table, args)
		switch {
		case err != nil:
			return usageError{fmt.Errorf("%w: see hora submit --help", err)}
		case help:
			return c.Help()
		case len(s.Spec.Command) == 0:
			return usageError{errors.New("there is no command to start: write it after the flags, as in hora submit -np 2 python train.py")}
		}
		return p.submit(c.Context(), s)
	}
	return c
}

// notForServers are the settings of hora run that a server gives itself, or that belong to a terminal.
func notForServers(f job.Field) bool {
	name := f.Name()
	return f.Void != "" || slices.Contains([]string{
		"version", "check-build", "verbose", "dry-run", "print-spec", "schema", "config-file", "stdin", "dir", "secret-file", "hosts", "hostfile", "ssh-port",
		"ssh-identity-file", "remote-hora", "discover", "host-discovery-script", "slots-per-host", "max-num-proc", "drain-on", "coordinator-state", "adopt", "until-stdin-ends",
		"call", "results", "events", "report", "tag-output", "no-tag", "prefix-output-with-timestamp",
	}, name)
}

// readSubmission reads a command line.
func readSubmission(table []job.Field, argv []string) (s *submission, help bool, err error) {
	args, err := normalise(table, argv, false)
	if err != nil {
		if name := strings.Fields(err.Error()); len(name) == 3 { // unknown flag: --x
			if f := job.Find(job.Fields(), name[2]); f != nil {
				if f.Name() == "call" || f.Name() == "results" {
					return nil, false, fmt.Errorf("%s is of hora run alone: the folder goes along with a job of a server, and what it writes into outputs/ comes back, as hora artifacts shows", name[2])
				}
				return nil, false, fmt.Errorf("%s is not for jobs of a server, which says it itself: leave it out", name[2])
			}
		}
		return nil, false, err
	}
	s = &submission{}
	for i, a := range args {
		if a == "--" {
			s.Spec.Command = args[i+1:]
			if len(s.Spec.Command) > 2 && s.Spec.Command[1] == "-m" && s.Spec.Command[0] == python() {
				s.Spec.Command[0] = "python" // the pool's own
			}
			break
		}
		name, value, joined := strings.Cut(strings.TrimPrefix(a, "--"), "=")
		if name == "help" {
			return nil, true, nil
		}
		f := job.Find(table, "--"+name)
		if f.Arg == "" && !joined {
			value = "true"
		}
		switch {
		case name == "file":
			err = s.readFile(value, table)
		case name == "env" && environment.IsFile(value):
			err = s.set("env-file", value)
		case !f.Own():
			err = f.Set(&s.Spec, value)
		default:
			err = s.set(name, value)
		}
		if err != nil {
			return nil, false, fmt.Errorf("%s: %w", flagNames(f), err)
		}
	}
	return s, false, nil
}

// set reads one of the queue's fields.
func (s *submission) set(name, v string) (err error) {
	whole := func(to *int, lo, hi int) error {
		n, err := strconv.Atoi(v)
		if err != nil || n < lo || n > hi {
			return fmt.Errorf("%q is not a whole number from %d to %d", v, lo, hi)
		}
		*to = n
		return nil
	}
	yes := func(to *bool) error {
		b, err := strconv.ParseBool(v)
		if err != nil {
			return fmt.Errorf("%q is neither true nor false", v)
		}
		*to = b
		return nil
	}
	switch name {
	case "pool":
		s.Pool = v
	case "node":
		s.Node = v
	case "project":
		s.Project = v
	case "nodes":
		return whole(&s.Nodes, 1, 100000)
	case "per-node":
		return whole(&s.PerNode, 1, 100000)
	case "retries":
		return whole(&s.Retries, 0, 1000)
	case "priority":
		s.Priority = new(int)
		return whole(s.Priority, 0, 100)
	case "preemptible":
		return yes(&s.Preemptible)
	case "held":
		return yes(&s.Held)
	case "fresh":
		return yes(&s.Fresh)
	case "whole":
		return yes(&s.Whole)
	case "pip":
		s.needs().Pip = append(s.Environment.Pip, v)
		return environment.Check(s.Environment)
	case "secret":
		s.Secrets = append(s.Secrets, v)
	case "storage-credentials":
		return yes(&s.lends)
	case "env-file":
		more, err := readNeeds(v)
		if err != nil {
			return err
		}
		environment.Add(s.needs(), more)
	case "follow":
		return yes(&s.follow)
	case "no-code":
		return yes(&s.noCode)
	case "memory":
		s.Memory, err = parseMemory(v)
	case "time-limit":
		d, bad := job.ParseTime(v)
		if bad != nil || d <= 0 {
			return fmt.Errorf("%q is not %s", v, job.ATime)
		}
		s.TimeLimit = d.Seconds()
	}
	return err
}

// needs are those of the job beside the pool's packages.
func (s *submission) needs() *client.Environment {
	if s.Environment == nil {
		s.Environment = &client.Environment{}
	}
	return s.Environment
}

// readNeeds reads a file with packages, and those that it names.
func readNeeds(name string) (*client.Environment, error) {
	open := func(name string) (string, error) {
		b, err := os.ReadFile(filepath.FromSlash(name))
		return string(b), err
	}
	text, err := open(filepath.ToSlash(name))
	if err != nil {
		return nil, err
	}
	return environment.Read(filepath.ToSlash(name), text, open)
}

// parseSize reads bytes: a number, or one with KiB, MiB, GiB, TiB or KB, MB, GB, TB.
func parseSize(text string) (int64, error) {
	units := []struct {
		name string
		of   float64
	}{
		{"KiB", 1 << 10},
		{"MiB", 1 << 20},
		{"GiB", 1 << 30},
		{"TiB", 1 << 40},
		{"KB", 1e3},
		{"MB", 1e6},
		{"GB", 1e9},
		{"TB", 1e12},
		{"K", 1 << 10},
		{"M", 1 << 20},
		{"G", 1 << 30},
		{"T", 1 << 40},
		{"B", 1},
		{"", 1},
	}
	for _, u := range units {
		number, ok := strings.CutSuffix(strings.ToLower(text), strings.ToLower(u.name))
		if !ok {
			continue
		}
		f, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
		if err != nil || !(f > 0 && f*u.of < 1<<60) {
			break
		}
		return int64(f * u.of), nil
	}
	return 0, fmt.Errorf("%q is no size: write it as 500MiB or 8GiB", text)
}

// parseMemory reads what processes or nodes have. A number alone that is too small for a process to begin in was meant
// as one of something larger.
func parseMemory(text string) (int64, error) {
	const least = 1 << 20
	n, err := parseSize(text)
	if _, bare := strconv.ParseFloat(strings.TrimSpace(text), 64); err == nil && bare == nil && n < least {
		err = fmt.Errorf("%q is less than any process needs: say the unit, as in 500MiB or 8GiB", text)
	}
	return n, err
}

// readFile reads a job's file in which fields of the queue may stand beside those of a job.
func (s *submission) readFile(name string, table []job.Field) error {
	b, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	names := []string{"command"}
	for _, f := range table {
		names = append(names, strings.ReplaceAll(f.Name(), "-", "_"))
		if f.Key != "" {
			names = append(names, f.Key)
		}
	}
	return s.Spec.ReadBeside(name, b, func(key string, value *yaml.Node) (bool, error) {
		f := job.Find(queueFields(), "--"+strings.ReplaceAll(key, "_", "-"))
		switch {
		case f != nil && f.Name() != "follow" && f.Name() != "no-code":
			return true, s.setAll(f.Name(), key, value)
		case slices.Contains(names, key):
			return false, nil
		}
		near := ""
		if n := job.Nearest(strings.ReplaceAll(key, "-", "_"), names); n != "" {
			near = ": did you mean " + n + "?"
		}
		return false, fmt.Errorf("there is no field %q%s", key, near)
	})
}

// setAll reads one of the queue's fields from a file; those that may be repeated may be a list there.
func (s *submission) setAll(name, key string, value *yaml.Node) error {
	values := []*yaml.Node{value}
	if value.Kind == yaml.SequenceNode && (name == "pip" || name == "secret") {
		values = value.Content
	}
	for _, one := range values {
		if one.Kind != yaml.ScalarNode {
			return fmt.Errorf("%s takes one value", key)
		}
		if err := s.set(name, one.Value); err != nil {
			return fmt.Errorf("%s: %w", key, err)
		}
	}
	return nil
}

// submit sends the folder, then the job.
func (p *program) submit(ctx context.Context, s *submission) error {
	c, err := p.server()
	if err != nil {
		return err
	}
	if s.lends {
		if s.Credentials, err = credentials.Find(p.getenv); err != nil {
			return fmt.Errorf("%w; or leave --storage-credentials out", err)
		}
	}
	if !s.noCode {
		if err := p.sendFolder(ctx, c, &s.Document); err != nil {
			return err
		}
	}
	j, err := c.Submit(ctx, s.Document, client.Key())
	if err != nil {
		return err
	}
	fmt.Fprintf(p.err, "hora: job %d: %s\n", j.ID, asked(&s.Document, &j))
	fmt.Fprintf(p.err, "hora: job %d: %s%s\n", j.ID, standing(&j), foretold(&j, time.Now()))
	if s.follow {
		return p.follow(ctx, c, j.ID, client.Following{Rank: -2}, &j)
	}
	fmt.Fprintln(p.out, j.ID)
	fmt.Fprintf(p.err, "hora: next: hora logs -f %d, hora job %d, hora cancel %d\n", j.ID, j.ID, j.ID)
	return nil
}

// sendFolder sends what the server has not got of the present folder.
func (p *program) sendFolder(ctx context.Context, c *client.Client, d *client.Document) error {
	dir, err := os.Getwd()
	if err != nil {
		return fmt.Errorf("find the working directory: %w: change to one that exists", err)
	}
	reading := console.NewProgress(p.err, "hora: reading the folder")
	m, err := snapshot.Take(dir, snapshot.Limit)
	reading.Done()
	if err != nil {
		return fmt.Errorf("%w; --no-code leaves the folder behind", err)
	}
	content, hash, err := m.Encode()
	if err != nil {
		return err
	}
	where := map[string]string{}
	hashes := []string{hash}
	for _, f := range m.Files {
		if f.Hash != "" && where[f.Hash] == "" {
			where[f.Hash] = filepath.Join(dir, filepath.FromSlash(f.Path))
			hashes = append(hashes, f.Hash)
		}
	}
	missing, err := c.Missing(ctx, hashes)
	if err != nil {
		return err
	}
	sending := console.NewProgress(p.err, "hora: sending files")
	files := slices.DeleteFunc(slices.Clone(missing), func(h string) bool { return h == hash })
	sending.Of(len(files))
	defer sending.Done()
	for _, h := range files {
		if err := sendFile(ctx, c, h, where[h]); err != nil {
			return err
		}
		sending.Count()
	}
	if len(files) < len(missing) { // last: who has the list has the files
		if err := c.Put(ctx, hash, bytes.NewReader(content)); err != nil {
			return err
		}
	}
	at, diff := source(ctx, dir, m)
	d.Code, d.Source = hash, at
	if len(diff) == 0 {
		return nil
	}
	return c.Put(ctx, at["diff"], bytes.NewReader(diff))
}

func sendFile(ctx context.Context, c *client.Client, hash, name string) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := c.Put(ctx, hash, f); err != nil {
		return fmt.Errorf("send %s: %w", name, err)
	}
	return nil
}
