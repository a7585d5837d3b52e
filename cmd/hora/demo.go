package main

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"hora"
	"hora/demo"
	"hora/demo/digits"
	"hora/launch"
)

// demoWorkerCommand is the hidden subcommand that the demo's processes run.
const demoWorkerCommand = "demo-worker"

func (p *program) demoCommand() *cobra.Command {
	var o demo.Options
	var about, plain bool
	var hosts string
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "train a small network on local processes, with live progress",
		Long: "demo trains a small network on 1,797 handwritten digits that are part of this program, with two processes\n" +
			"(-np for more), on the same launcher and engine that everything else uses.",
		Args: noArguments("demo"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if about {
				fmt.Fprintln(p.out, digits.About)
				return nil
			}
			if o.NP < 1 {
				return usageError{fmt.Errorf("-np %d: a training needs at least one process: try hora demo -np 2", o.NP)}
			}
			if o.Epochs < 1 {
				return usageError{fmt.Errorf("--epochs %d: at least one epoch is needed", o.Epochs)}
			}
			var err error
			if o.Hosts, err = demoHosts(hosts); err != nil {
				return usageError{err}
			}
			if err := killable(&o); err != nil {
				return usageError{err}
			}
			return p.demo(&o, plain)
		},
	}
	f := cmd.Flags()
	f.IntVar(&o.NP, "np", 2, "number of processes")
	f.IntVar(&o.Epochs, "epochs", 20, "passes over the training images")
	f.Uint64Var(&o.Seed, "seed", 1, "of the weights and of the order of images")
	f.StringVarP(&hosts, "hosts", "H", "", "hosts and slots to train on, as h1:2,h2:2 (default: this machine)")
	f.BoolVar(&o.Ranks, "ranks", false, "show a line per rank")
	f.BoolVar(&plain, "plain", false, "lines instead of live progress")
	f.StringVar(&o.Plot, "plot", "", "write loss and accuracy to this SVG `file`, with one process as the reference")
	f.BoolVar(&o.Compare, "compare", false, "train with 1, 2, … processes and show the speed-up")
	f.BoolVar(&o.Kill, "kill", false, "kill a rank in the middle: another takes its place and the result stays the same")
	f.BoolVar(&about, "about", false, "where the data comes from")
	return cmd
}

// killable says why --kill makes no sense with the other flags.
func killable(o *demo.Options) error {
	switch {
	case !o.Kill:
		return nil
	case o.NP < 2:
		return fmt.Errorf("--kill with -np %d leaves nobody who knows the weights: try hora demo --kill -np 2", o.NP)
	case o.Compare, o.Plot != "":
		return errors.New("--kill goes alone: leave --compare and --plot out")
	case len(o.Hosts) > 0:
		return errors.New("--kill ends a process of this machine: leave --hosts out")
	}
	return nil
}

// longNP lets -np be written as everywhere else: the flag library takes a single dash for
// one letter only.
func longNP(argv []string) []string {
	out := slices.Clone(argv)
	for i, a := range out {
		if a == "-np" || strings.HasPrefix(a, "-np=") {
			out[i] = "-" + a
		}
	}
	return out
}

func noArguments(name string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) > 0 {
			return usageError{fmt.Errorf("hora %s takes flags only, not %q: see hora %s --help", name, args[0], name)}
		}
		return nil
	}
}

// demoHosts reads "a:2,b:4".
func demoHosts(s string) ([]launch.Host, error) {
	if s == "" {
		return nil, nil
	}
	var hosts []launch.Host
	for _, part := range strings.Split(s, ",") {
		name, slots, ok := strings.Cut(part, ":")
		n := 1
		if ok {
			var err error
			if n, err = strconv.Atoi(slots); err != nil || n < 1 {
				return nil, fmt.Errorf("--hosts %q: %q is not a number of slots", s, slots)
			}
		}
		if name == "" {
			return nil, fmt.Errorf("--hosts %q: a host has no name", s)
		}
		hosts = append(hosts, launch.Host{Name: name, Slots: n})
	}
	return hosts, nil
}

func (p *program) demo(o *demo.Options, plain bool) error {
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program: %w", err)
	}
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	defer signal.Stop(signals)
	o.Self, o.Agent = []string{self, demoWorkerCommand}, []string{self, agentCommand}
	o.Environ, o.Out, o.Err, o.Signals = os.Environ(), p.out, p.err, signals
	o.Local, _ = os.Hostname()
	if o.Local == "" {
		o.Local = "localhost"
	}
	o.Term = p.terminal(plain)
	train := demo.Run
	switch {
	case o.Compare:
		return demo.Compare(p.ctx, *o)
	case o.Kill:
		train = demo.Kill
	}
	res, err := train(p.ctx, *o)
	if err != nil {
		return err
	}
	p.code = res.Outcome.ExitCode()
	if res.Outcome.Kind != launch.Finished {
		return errors.New(res.Outcome.String())
	}
	return nil
}

// terminal says what standard output can show.
func (p *program) terminal(plain bool) demo.Terminal {
	f, ok := p.out.(*os.File)
	if !ok || plain || p.getenv("TERM") == "dumb" {
		return demo.Terminal{}
	}
	size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	if err != nil {
		return demo.Terminal{}
	}
	return demo.Terminal{Live: true, Width: int(size.Col), Colour: p.getenv("NO_COLOR") == ""}
}

// demoWorker is one process of the demo.
func (p *program) demoWorker() *cobra.Command {
	var t demo.Training
	var widths []int
	cmd := &cobra.Command{
		Use: demoWorkerCommand, Hidden: true, Short: "a process of hora demo", Args: noArguments(demoWorkerCommand),
		RunE: func(*cobra.Command, []string) error {
			t.Widths = widths
			cfg, err := hora.FromEnv(p.getenv)
			if err != nil {
				return err
			}
			return demo.Work(p.ctx, cfg, t, p.out)
		},
	}
	f := cmd.Flags()
	f.IntVar(&t.Epochs, "epochs", 0, "")
	f.IntVar(&t.Batch, "batch", 0, "")
	f.Uint64Var(&t.Seed, "seed", 0, "")
	f.Float32Var(&t.Rate, "rate", 0, "")
	f.IntSliceVar(&widths, "widths", nil, "")
	return cmd
}
