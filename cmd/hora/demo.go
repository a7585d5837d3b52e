package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
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

// demoFlags are the flags of hora demo that are no options of a training.
type demoFlags struct {
	hosts                       string
	compare, kill, about, plain bool
}

func (p *program) demoCommand() *cobra.Command {
	var o demo.Options
	var d demoFlags
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "train a small network on local processes, with live progress",
		Long: "demo trains a small network on 1,797 handwritten digits that are part of this\n" +
			"program, with two processes, by the launcher and engine of every other job.",
		Args: noArguments("demo"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if d.about {
				fmt.Fprintln(p.out, digits.About)
				return nil
			}
			if d.hosts != "" {
				var err error
				if o.Hosts, err = launch.ParseHosts(d.hosts); err != nil {
					return err
				}
				if !cmd.Flags().Changed("np") {
					o.NP = launch.Slots(o.Hosts)
				}
			}
			if err := d.check(&o); err != nil {
				return usageError{err}
			}
			return p.demo(&o, &d)
		},
	}
	f := cmd.Flags()
	f.IntVar(&o.NP, "np", 2, "`N` processes (also -np)")
	f.IntVar(&o.Epochs, "epochs", 20, "`N` passes over the training images")
	f.Uint64Var(&o.Seed, "seed", 1, "`N` draws weights and the order of images")
	f.StringVar(&o.Optimizer, "optimizer", "adam", "`NAME` of adam or sgd, with momentum")
	f.StringVarP(&d.hosts, "hosts", "H", "", "on hosts with slots, as `h1:2,h2:2`")
	f.BoolVar(&o.Ranks, "ranks", false, "show a line per rank")
	f.BoolVar(&d.plain, "plain", false, "lines instead of live progress")
	f.StringVar(&o.Plot, "plot", "", "draw loss and accuracy to `FILE.svg`")
	f.BoolVar(&d.compare, "compare", false, "1, 2, … N processes, with the speed-up")
	f.BoolVar(&d.kill, "kill", false, "kill a rank in the middle; another replaces it")
	f.BoolVar(&d.about, "about", false, "where the data comes from")
	f.SortFlags = false
	return cmd
}

// check says what is wrong with the command line, before anything is started.
func (d *demoFlags) check(o *demo.Options) error {
	batch := demo.Training{}.WithDefaults().Batch
	_, known := demo.Optimizers[o.Optimizer]
	switch {
	case o.NP < 1:
		return fmt.Errorf("-np %d: a training needs at least one process: try hora demo -np 2", o.NP)
	case o.NP > batch:
		return fmt.Errorf("-np %d: a step has %d images, which are too few to share: try hora demo -np %d", o.NP, batch, batch)
	case o.Epochs < 1:
		return fmt.Errorf("--epochs %d: at least one epoch is needed", o.Epochs)
	case o.Seed < 1:
		return fmt.Errorf("--seed %d: seeds count from 1", o.Seed)
	case !known:
		return fmt.Errorf("--optimizer %s: choose adam or sgd", o.Optimizer)
	case d.compare && (o.Plot != "" || o.Ranks):
		return errors.New("--compare shows one line for each number of processes: leave --plot and --ranks out")
	case !d.kill:
		return nil
	case o.NP < 2:
		return fmt.Errorf("--kill with -np %d leaves nobody who knows the weights: try hora demo --kill -np 2", o.NP)
	case d.compare, o.Plot != "":
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

func (p *program) demo(o *demo.Options, d *demoFlags) error {
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program: %w", err)
	}
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	defer signal.Stop(signals)
	o.Worker, o.Agent = []string{demoWorkerCommand}, []string{self, agentCommand}
	o.Program = calledAs(os.Args[0], self)
	broken := make(chan os.Signal, 1) // nobody reads it: a write to a closed pipe is an error then, and no end
	signal.Notify(broken, syscall.SIGPIPE)
	defer signal.Stop(broken)
	out := &outlet{Writer: p.out, stop: signals}
	o.Environ, o.Out, o.Err, o.Signals = os.Environ(), out, p.err, signals
	o.Local, _ = os.Hostname()
	if o.Local == "" {
		o.Local = "localhost"
	}
	o.Term = p.terminal(d.plain)
	train := demo.Run
	switch {
	case d.compare:
		train = demo.Compare
	case d.kill:
		train = demo.Kill
	}
	res, err := train(p.ctx, *o)
	if out.closed.Load() {
		p.code = launch.ExitSignal + int(syscall.SIGPIPE)
		return nil
	}
	if err != nil {
		return err
	}
	p.code = res.Outcome.ExitCode()
	if res.Outcome.Kind != launch.Finished {
		return errors.New(res.Outcome.String())
	}
	return nil
}

// outlet is standard output. When whoever read it has seen enough, as in hora demo | head,
// the training is stopped as by Ctrl-C: the program's own end by SIGPIPE would leave that
// to the agent, which says so.
type outlet struct {
	io.Writer
	stop   chan<- os.Signal
	closed atomic.Bool
}

func (o *outlet) Write(b []byte) (int, error) {
	n, err := o.Writer.Write(b)
	if errors.Is(err, syscall.EPIPE) && o.closed.CompareAndSwap(false, true) {
		select {
		case o.stop <- syscall.SIGINT:
		default: // somebody asked already
		}
	}
	return n, err
}

// calledAs is how the user gets this program again: as now, or by `go run`, which built
// it in a folder that is gone afterwards.
func calledAs(name, self string) string {
	if strings.Contains(self, "/go-build") && filepath.Base(filepath.Dir(self)) == "exe" {
		return "go run ./cmd/hora"
	}
	return name
}

// terminal says what standard output can show.
func (p *program) terminal(plain bool) demo.Terminal {
	f, ok := p.out.(*os.File)
	if !ok || plain || p.getenv("TERM") == "dumb" || p.getenv("TERM") == "" {
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
	var victim demo.Victim
	cmd := &cobra.Command{
		Use: demoWorkerCommand, Hidden: true, Short: "a process of hora demo", Args: noArguments(demoWorkerCommand),
		RunE: func(*cobra.Command, []string) error {
			t.Widths = widths
			cfg, err := hora.FromEnv(p.getenv)
			if err != nil {
				return err
			}
			err = demo.Work(p.ctx, cfg, t, victim, p.out)
			if errors.Is(err, hora.ErrDrained) {
				return nil // it was asked to, before it had joined: the launcher says why
			}
			return err
		},
	}
	f := cmd.Flags()
	f.IntVar(&t.Epochs, "epochs", 0, "")
	f.IntVar(&t.Batch, "batch", 0, "")
	f.Uint64Var(&t.Seed, "seed", 0, "")
	f.StringVar(&t.Optimizer, "optimizer", "", "")
	f.Float32Var(&t.Rate, "rate", 0, "")
	f.IntSliceVar(&widths, "widths", nil, "")
	f.IntVar(&victim.Rank, "victim", 0, "")
	f.IntVar(&victim.Epoch, "victim-epoch", 0, "")
	return cmd
}
