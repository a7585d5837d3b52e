package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"time"

	"hora/launch"
)

// Options are what `hora demo` was asked for.
type Options struct {
	Training
	NP      int
	Ranks   bool   // a line per rank
	Plot    string // file for the curves
	Compare bool
	Kill    bool     // a rank, in the middle
	Self    []string // argv that makes this program a worker, e.g. "/usr/bin/hora", "demo-worker"
	Agent   []string // argv of launch's agent
	Environ []string
	Local   string // this host's name
	Hosts   []launch.Host
	SSH     launch.SSH
	Out     io.Writer
	Err     io.Writer
	Term    Terminal
	Signals <-chan os.Signal
}

// Result is how a training of the demo ended.
type Result struct {
	Progress *Progress
	Outcome  launch.Outcome
	Took     time.Duration // from the first process's start to the last one's end
}

// Run trains once and shows it, as `hora demo` does without further flags.
func Run(ctx context.Context, o Options) (Result, error) {
	s := &screen{out: o.Out, term: o.Term, ranks: o.Ranks}
	o.greet(s)
	res, err := o.train(ctx, s, o.NP)
	s.erase()
	if err != nil || res.Outcome.Kind != launch.Finished {
		return res, err
	}
	for _, note := range res.Progress.Notes {
		s.say("%s", note)
	}
	s.say("")
	for _, line := range res.Progress.Summary(res.Took.Seconds()) {
		s.say("%s", wrap(line, o.Term.Width))
	}
	if o.Plot != "" {
		if err := o.plot(ctx, s, res); err != nil {
			return res, err
		}
	}
	o.next(s)
	if o.NP > 1 && !res.Progress.Agree() {
		return res, errors.New("compare replicas: the ranks disagree; this is a bug of hora, please report it with the output of hora version")
	}
	return res, nil
}

func (o *Options) greet(s *screen) {
	where := "this machine"
	if len(o.Hosts) > 0 {
		names := make([]string, len(o.Hosts))
		for i, h := range o.Hosts {
			names[i] = h.Name
		}
		where = strings.Join(names, ", ")
	}
	s.say("%s", wrap(fmt.Sprintf("training a %s network on 1,437 handwritten digits with %d %s on %s",
		shape(o.WithDefaults().Widths), o.NP, plural(o.NP, "process", "processes"), where), o.Term.Width))
	if len(o.Hosts) == 0 && o.NP > runtime.NumCPU() {
		s.say("%s", wrap(fmt.Sprintf("note: %d processes share %d cores: it works, and is slower than %d processes would be",
			o.NP, runtime.NumCPU(), runtime.NumCPU()), o.Term.Width))
	}
}

func shape(widths []int) string {
	parts := make([]string, len(widths))
	for i, w := range widths {
		parts[i] = strconv.Itoa(w)
	}
	return strings.Join(parts, "-")
}

func (o *Options) next(s *screen) {
	s.say("")
	s.say("next:")
	for _, line := range [][2]string{
		{"hora demo --compare", "1, 2, … processes, with the speed-up"},
		{"hora demo --kill", "a process is killed in the middle; the result stays the same"},
		{"hora run -np 2 hostname", "any program of yours on two processes"},
	} {
		s.say("%s", wrap(fmt.Sprintf("  %-28s %s", line[0], line[1]), o.Term.Width))
	}
}

// train starts np workers, feeds their reports to a Progress and shows each epoch.
func (o *Options) train(ctx context.Context, s *screen, np int) (Result, error) {
	return o.trainWith(ctx, s, np, nil)
}

// trainWith does the same with a killer at work, if there is one.
func (o *Options) trainWith(ctx context.Context, s *screen, np int, k *killer) (Result, error) {
	p := NewProgress(np)
	reports := &lines{}
	reports.take = func(line string) {
		if r, ok := ParseReport(line); ok {
			complete := p.Add(r)
			if complete && s != nil {
				s.epoch(p)
			}
			if k != nil {
				k.hear(r, complete)
			}
		} else if s != nil {
			s.say("%s", line)
		}
	}
	began := time.Now()
	spec := launch.Spec{
		Command: o.command(), NP: np, Hosts: o.Hosts, Environ: o.Environ, Self: o.Agent, SSH: o.SSH,
		LocalName: o.Local, Untagged: true, Stdout: reports, Stderr: o.Err, Signals: o.Signals, Job: "demo",
	}
	if k != nil {
		defer k.attach(&spec, s, p, &reports.mu)()
	}
	out, err := launch.Run(ctx, spec)
	return Result{Progress: p, Outcome: out, Took: time.Since(began)}, err
}

func (o *Options) command() []string {
	t := o.WithDefaults()
	widths := make([]string, len(t.Widths))
	for i, w := range t.Widths {
		widths[i] = strconv.Itoa(w)
	}
	return append(append([]string(nil), o.Self...),
		"--epochs", strconv.Itoa(t.Epochs), "--batch", strconv.Itoa(t.Batch), "--seed", strconv.FormatUint(t.Seed, 10),
		"--rate", strconv.FormatFloat(float64(t.Rate), 'g', -1, 32), "--widths", strings.Join(widths, ","))
}

// plot writes the curves of each rank and of one process that trains alone.
func (o *Options) plot(ctx context.Context, s *screen, res Result) error {
	curves := res.Progress.Curves()
	if o.NP > 1 {
		alone, err := o.train(ctx, nil, 1)
		if err != nil || alone.Outcome.Kind != launch.Finished {
			return errors.Join(err, fmt.Errorf("train the reference: %s", alone.Outcome.String()))
		}
		one := alone.Progress.Curves()[0]
		one.Name, one.Dashed = "one process", true
		curves = append(curves, one)
	}
	f, err := os.Create(o.Plot)
	if err != nil {
		return fmt.Errorf("write the picture: %w; name a file in a folder that you may write to", err)
	}
	title := fmt.Sprintf("hora demo: %d processes, %s", o.NP, shape(o.WithDefaults().Widths))
	if err := errors.Join(WritePlot(f, title, curves), f.Close()); err != nil {
		return fmt.Errorf("write the picture: %w", err)
	}
	s.say("  picture        %s", o.Plot)
	return nil
}

// lines cuts what workers write into lines. launch writes from several goroutines.
type lines struct {
	mu   sync.Mutex // guards rest, and that lines are taken one at a time
	rest []byte
	take func(string)
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.rest = append(l.rest, b...)
	for {
		i := strings.IndexByte(string(l.rest), '\n')
		if i < 0 {
			return len(b), nil
		}
		l.take(string(l.rest[:i]))
		l.rest = l.rest[i+1:]
	}
}
