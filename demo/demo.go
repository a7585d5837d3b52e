package demo

import (
	"context"
	"errors"
	"io"
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"

	"hora/demo/digits"
	"hora/job"
	"hora/launch"
)

// Options are what `hora demo` was asked for.
type Options struct {
	Training
	NP      int
	Ranks   bool          // a line per rank
	Plot    string        // file for the curves; "" draws none
	Hosts   []launch.Host // empty: this machine
	Local   string        // this machine's name
	Program string        // what the user calls this program, for the commands that the screen names
	Worker  []string      // arguments that make this program a worker
	Agent   []string      // argv of launch's agent
	Environ []string
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

func (r *Result) finished() bool { return r.Outcome.Kind == launch.Finished }

// verdict is an error when the replicas differ.
func (r *Result) verdict() error {
	if r.Progress.Agree() {
		return nil
	}
	return errors.New("compare replicas: the ranks disagree; this is a bug of hora, please report it with the output of hora version")
}

// Run trains once and shows it, as `hora demo` does without further flags.
func Run(ctx context.Context, o Options) (Result, error) {
	s := o.begin()
	plot, err := o.openPlot()
	if err != nil {
		return Result{}, err
	}
	o.greet(s)
	res, err := o.train(ctx, s, round{np: o.NP})
	if err != nil || !res.finished() {
		return res, errors.Join(err, plot.drop())
	}
	s.say("")
	for _, line := range res.Progress.Summary(res.Took) {
		s.say("%s", line)
	}
	if err := o.draw(ctx, s, plot, &res); err != nil {
		return res, err
	}
	o.next(s)
	return res, res.verdict()
}

// begin fills in defaults and makes the screen.
func (o *Options) begin() *screen {
	o.Training = o.WithDefaults()
	return &screen{out: o.Out, err: o.Err, term: o.Term, ranks: o.Ranks}
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
	s.say("%s a %s network on %s digits on %s", plural(o.NP, "process trains", "processes train"),
		shape(o.Widths, "-"), thousands(digits.Images-digits.Tests), where)
	if cores := runtime.NumCPU(); len(o.Hosts) == 0 && o.NP > cores {
		s.say("note: %d processes share %s: it works, and is slower than %d would be", o.NP, plural(cores, "core", "cores"), cores)
	}
}

// next names three things to try, each a command that works.
func (o *Options) next(s *screen) {
	s.say("")
	s.say("next:")
	for _, line := range [][2]string{
		{"demo --compare", "1, 2, … processes, with the speed-up"},
		{"demo --kill", "a process dies, the result is the same"},
		{"run -np 2 hostname", "any program of yours on two processes"},
	} {
		s.say("  %s %-20s%s", o.Program, line[0], line[1])
	}
}

// round is one training; some commands of the demo need several.
type round struct {
	np     int
	aside  bool    // beside the one that is shown: nothing of it stays on the screen
	killer *killer // nil leaves everybody alive
}

// train starts r.np workers, feeds their reports to a Progress and shows each epoch.
func (o *Options) train(ctx context.Context, s *screen, r round) (Result, error) {
	p := NewProgress(r.np)
	reports := &lines{}
	reports.take = func(line string) {
		report, ok := ParseReport(line)
		if !ok {
			s.say("%s", line)
			return
		}
		shown := len(p.Points)
		news := p.Add(report)
		switch {
		case news == newNote:
			s.say("note: %s", report.Note)
		case news == newEpoch:
			for _, pt := range p.Points[shown:] {
				s.epoch(p, pt, r.aside)
			}
		}
		if r.killer != nil {
			r.killer.hear(report)
		}
	}
	complaints := &lines{take: s.complain}
	plain := false
	spec := job.Spec{Name: "demo", Command: o.command(r.killer), NP: r.np, TagOutput: &plain}
	place := launch.Place{
		Itself: true, Hosts: o.Hosts, Environ: o.Environ, Self: o.Agent, LocalName: o.Local,
		Stdout: reports, Stderr: complaints, Signals: o.Signals,
	}
	if r.killer != nil {
		defer r.killer.attach(&spec, &place, s, p, &reports.mu)()
	}
	began := time.Now()
	out, err := launch.Run(ctx, spec, place)
	took := time.Since(began)
	reports.flush()
	complaints.flush()
	s.end(r.aside)
	return Result{Progress: p, Outcome: out, Took: took}, err
}

// command is what a worker is started with; demoWorker of cmd/hora reads it.
func (o *Options) command(k *killer) []string {
	all := append(append([]string(nil), o.Worker...),
		"--epochs", strconv.Itoa(o.Epochs), "--batch", strconv.Itoa(o.Batch), "--seed", strconv.FormatUint(o.Seed, 10),
		"--optimizer", o.Optimizer, "--rate", strconv.FormatFloat(float64(o.Rate), 'g', -1, 32), "--widths", shape(o.Widths, ","))
	if k != nil {
		all = append(all, "--victim", strconv.Itoa(k.victim), "--victim-epoch", strconv.Itoa(k.epoch))
	}
	return all
}

func shape(widths []int, between string) string {
	parts := make([]string, len(widths))
	for i, w := range widths {
		parts[i] = strconv.Itoa(w)
	}
	return strings.Join(parts, between)
}
