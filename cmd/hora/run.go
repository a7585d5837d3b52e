package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"hora/event"
	"hora/internal/secret"
	"hora/job"
	"hora/launch"
	"hora/launch/machine"
)

const horovodrunCommand = "horovodrun"

// options is what the flags of one `hora run` say: of the job, and to this program alone.
type options struct {
	spec                         job.Spec
	stdin                        int
	version, checkBuild, verbose bool
	dryRun, printSpec, schema    bool
	secretFile                   string
	call, results                string // --call and --results
	adopt                        string // the folder of a job to take over
	untilStdinEnds               bool
	controllers                  []string
	tags                         []string // --tag-output and --no-tag, as meant on the command line
	given                        map[string]bool
	voids                        []*job.Field
	table                        []job.Field
	horovod                      bool        // called as horovodrun
	hub                          *hubOptions // of hora hub
}

func (p *program) runCommand() *cobra.Command {
	c := p.launcher("run", &options{given: map[string]bool{}})
	c.Use = "run [flags] [--] COMMAND... | -m MODULE..."
	c.Short = "start a command on many processes and hosts"
	c.Example = `  hora run -np 2 python train.py                   two processes on this machine
  hora run -np 2 -m train.main --lr 0.1            python -m train.main --lr 0.1
  hora run -np 8 -H a:4,b:4 python train.py        four on each of two hosts, over ssh
  hora run -np 4 --restarts 3 python train.py      three failed workers are started again
  hora run --dry-run -np 8 --hostfile F COMMAND    who would run where`
	return c
}

func (p *program) horovodrunCommand() *cobra.Command {
	c := p.launcher(horovodrunCommand, &options{given: map[string]bool{}, horovod: true})
	c.Use = horovodrunCommand + " [flags] COMMAND..."
	c.Short = "hora run for command lines written for Horovod's horovodrun, whose flags and rules it keeps"
	return c
}

// launcher is both commands. Its flags are parsed by hand through the table, so that spellings such as -np work.
func (p *program) launcher(name string, o *options) *cobra.Command {
	c := &cobra.Command{DisableFlagParsing: true}
	table := job.Fields()
	if o.horovod {
		table = slices.DeleteFunc(table, func(f job.Field) bool { return f.Ours })
		job.Find(table, "-np").Help = "number of processes; required"
	}
	if o.hub != nil {
		table = slices.Concat(hubFields(), table)
	}
	o.table = table
	c.RunE = func(c *cobra.Command, args []string) error {
		define(c.Flags(), table, o)
		args, err := normalise(table, args, o.horovod)
		if err != nil {
			return usageError{fmt.Errorf("%w: see hora %s --help", err, name)}
		}
		if err := c.Flags().Parse(args); err != nil {
			if strings.Contains(err.Error(), "help requested") {
				return c.Help()
			}
			return usageError{fmt.Errorf("%w: see hora %s --help", flagFault(table, err), name)}
		}
		if c.Flags().Changed("help") {
			return c.Help()
		}
		return p.launch(c, o, c.Flags().Args())
	}
	c.ValidArgsFunction = func(_ *cobra.Command, _ []string, word string) ([]string, cobra.ShellCompDirective) {
		if !strings.HasPrefix(word, "-") {
			return nil, cobra.ShellCompDirectiveDefault
		}
		var out []string
		for _, r := range table {
			for s := range strings.FieldsSeq(r.Flags) {
				if strings.HasPrefix(s, word) {
					out = append(out, s+"\t"+r.Help)
				}
			}
		}
		return out, cobra.ShellCompDirectiveNoFileComp
	}
	c.SetHelpFunc(func(c *cobra.Command, _ []string) {
		fmt.Fprintf(p.out, "%s\n\nusage: hora %s\n", c.Short, c.Use)
		if c.Example != "" {
			fmt.Fprintf(p.out, "\n%s\n", c.Example)
		}
		width := terminalWidth(p.out)
		if width == 0 {
			width = plainWidth
		}
		writeHelp(p.out, table, width)
	})
	return c
}

func (p *program) launch(c *cobra.Command, o *options, command []string) error {
	switch {
	case o.version:
		fmt.Fprintln(p.out, version())
		return nil
	case o.checkBuild:
		p.checkBuild()
		return nil
	}
	if o.schema {
		_, err := p.out.Write(job.Schema())
		return err
	}
	if o.adopt != "" {
		return p.adopt(o, command)
	}
	place, err := p.spec(o, command)
	if err != nil {
		return err
	}
	if o.printSpec {
		_, err := p.out.Write(o.spec.YAML())
		return err
	}
	if o.dryRun {
		return p.dryRun(&o.spec, place)
	}
	if o.hub != nil {
		return p.startHub(o, place)
	}
	return p.start(o, place, func(chan os.Signal) (launch.Outcome, error) {
		return launch.Run(context.WithoutCancel(p.ctx), o.spec, *place)
	})
}

// spec completes the job that the flags describe, and returns what only this process has.
func (p *program) spec(o *options, command []string) (*launch.Place, error) {
	j := &o.spec
	if len(command) > 0 {
		j.Command = command
	}
	o.settle()
	if err := o.check(); err != nil {
		return nil, err
	}
	hosts, err := launch.HostsOf(j)
	if err != nil {
		return nil, err
	}
	o.widen(hosts)
	if err := o.torchDefaults(p.getenv, len(hosts) > 0); err != nil {
		return nil, err
	}
	place, err := p.place()
	if err != nil {
		return nil, err
	}
	if place.Hosts = hosts; o.horovod && len(hosts) == 0 {
		place.LocalName = "localhost"
	}
	place.Call, place.Results = o.call, o.results
	if o.secretFile != "" {
		if place.Secret, err = secret.Read(o.secretFile); err != nil {
			return nil, usageError{secretFault(o.secretFile, err)}
		}
	}
	return place, p.input(o, place)
}

// place is this process as the launcher of a job.
func (p *program) place() (*launch.Place, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this program's file: %w", err)
	}
	place := launch.Program(self, os.Environ())
	place.Guard, place.Stdout, place.Stderr, place.Events = guardProgram, p.out, p.err, &event.Sink{}
	place.Notice = p.notice
	return &place, nil
}

// input decides which rank reads what this program does: --stdin names it; else rank 0 has a file or a pipe, and a
// terminal where it is and stays the only one. Of several, none could know who is meant.
func (p *program) input(o *options, s *launch.Place) error {
	if o.untilStdinEnds && o.given["stdin"] {
		return usageError{errors.New("--stdin and --until-stdin-ends: nobody can read what tells the end: give one of them")}
	} else if o.untilStdinEnds {
		return nil
	}
	typed, np := terminalWidth(p.in) > 0, launch.Size(&o.spec, s.Hosts)
	if s.StdinAsked = o.given["stdin"]; s.StdinAsked {
		if s.StdinRank = o.stdin; s.StdinRank >= np {
			return usageError{fmt.Errorf("--stdin %d: the ranks are 0 to %d: name one of them", o.stdin, np-1)}
		}
		s.Stdin = p.in
	} else if st, err := p.in.Stat(); err == nil && st.Mode()&os.ModeCharDevice == 0 ||
		typed && np == 1 && o.spec.MaxNP <= 1 && o.spec.Discover == "" && foreground(p.in) {
		s.Stdin = p.in
	}
	s.Prompts = s.Stdin != nil && typed && terminalWidth(p.out) > 0 && o.spec.TagOutput == nil && !o.spec.Timestamps
	return nil
}

// secretFault speaks of the flag where the reader of secrets knows only the variable.
func secretFault(path string, err error) error {
	const next = "name the file that holds the job's secret, or leave the flag out for a new one"
	var pe *os.PathError
	if errors.As(err, &pe) {
		return fmt.Errorf("--secret-file %s: %w: %s", path, pe.Err, next)
	}
	if st, bad := os.Stat(path); bad == nil && !st.Mode().IsRegular() {
		return fmt.Errorf("--secret-file %s: it is no regular file: %s", path, next)
	}
	return fmt.Errorf("--secret-file: %w", err)
}

// start runs the job, by run, and prints its last line.
func (p *program) start(o *options, s *launch.Place, run func(signals chan os.Signal) (launch.Outcome, error)) error {
	written, err := timeline(&o.spec, s)
	if err != nil {
		return err
	}
	s.Apart = len(o.spec.Command) > 0 && pythonScript(o.spec.Command) != ""
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2)
	if !signal.Ignored(syscall.SIGHUP) { // nohup did that
		signal.Notify(signals, syscall.SIGHUP)
	}
	defer signal.Stop(signals)
	s.Signals = signals
	if o.untilStdinEnds {
		go p.awaitEnd(o.spec.CoordinatorState != "" || o.adopt != "", signals)
	}
	var events *eventFile
	if o.spec.Events != "" {
		if events, err = openEvents(o.spec.Events); err != nil {
			return err
		}
		defer s.Events.Add(events)()
	}
	clear := p.showStatus(s, launch.Size(&o.spec, s.Hosts))
	defer s.Events.Add(&reporter{w: s.Stderr, verbose: o.verbose})()
	if slices.Contains(o.controllers, "mpi") {
		s.Events.Emit(&event.Warning{Text: mpiUnused})
	}
	if o.verbose {
		for _, r := range o.voids {
			s.Events.Emit(&event.Note{Text: fmt.Sprintf("--%s has no effect: %s", r.Name(), r.Void)})
		}
	}
	machine.Adopt()
	out, err := run(signals)
	machine.Sweep()
	clear()
	var unwritten error
	if events != nil {
		unwritten = events.close()
	}
	if err != nil {
		return err
	}
	if p.code = out.ExitCode(); p.code == 0 && unwritten != nil {
		return unwritten
	}
	if p.code != 0 {
		fmt.Fprintf(p.err, "hora: %s\n", event.Visible(out.String()))
	} else if text := written.missing(o.spec.Command); text != "" {
		fmt.Fprintf(p.err, "hora: warning: %s\n", text)
	} else if text := apart(o.spec.Command, &out); text != "" {
		fmt.Fprintf(p.err, "hora: warning: %s\n", text)
	}
	return nil
}

// awaitEnd waits for the end of whoever started this program. A job that can be adopted goes on without this process:
// it must not be told of an end, and nobody reads what this one would say of it.
func (p *program) awaitEnd(adoptable bool, signals chan<- os.Signal) {
	_, _ = io.Copy(io.Discard, p.in)
	if adoptable {
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	}
	signals <- syscall.SIGTERM
}

// reporter prints what a job's user should see beside the workers' output.
type reporter struct {
	w       io.Writer
	verbose bool
}

func (r *reporter) Operation(*event.Operation) {}

func (r *reporter) Event(e event.Event) {
	switch e.(type) {
	case *event.Restarted, *event.Shrunk, *event.Grown, *event.Moved, *event.Parked, *event.Told, *event.Delay,
		*event.Held:
		fmt.Fprintf(r.w, "hora: %s\n", event.Visible(e.String()))
	case *event.Warning, *event.Banned:
		fmt.Fprintf(r.w, "hora: warning: %s\n", event.Visible(e.String()))
	case *event.Started, *event.Exited, *event.Note, *event.Hosts:
		if r.verbose {
			fmt.Fprintf(r.w, "hora: %s\n", event.Visible(e.String()))
		}
	}
}

// mpiUnused is said to who asks for MPI.
const mpiUnused = "--mpi: MPI is not used; the workers start and meet over hora's own transport, so leave the flag out"

// torchDefaults takes what torchrun's own variables say for flags that are not given.
func (o *options) torchDefaults(getenv func(string) string, hosts bool) error {
	for i := range o.table {
		f := &o.table[i]
		if f.Torch == "" || o.given[f.Name()] {
			continue
		}
		v := getenv(f.Torch)
		if v == "" || f.Key == "np" && hosts || f.Key == "restarts" && o.given["reset-limit"] {
			continue
		}
		if err := f.Set(&o.spec, v); err != nil {
			return usageError{fmt.Errorf("%s: %w: correct it, or give --%s", f.Torch, err, f.Name())}
		}
	}
	return nil
}

// settle writes down what horovodrun's name and two of its flags mean beside their values.
func (o *options) settle() {
	theirs := o.given["reset-limit"] || o.given["host-discovery-script"]
	if theirs && o.spec.OnLoss == "" {
		o.spec.OnLoss = job.Continue
	}
	if (theirs || o.horovod) && o.spec.Blacklist == "" {
		o.spec.Blacklist = job.ByHost
	}
}

// widen has an elastic job of horovodrun's begin with all slots of the hosts that it names, or --max-np of them: there
// -np is how many are waited for.
func (o *options) widen(hosts []launch.Host) {
	j := &o.spec
	if !o.horovod || j.MinNP == 0 || len(hosts) == 0 || j.AfterLoss() != job.Continue {
		return
	}
	n := launch.Slots(hosts)
	if j.MaxNP > 0 {
		n = min(n, j.MaxNP)
	}
	j.NP = max(j.NP, n)
}

// check finds flags that contradict each other.
func (o *options) check() error {
	bad := func(format string, a ...any) error { return usageError{fmt.Errorf(format, a...)} }
	if err := o.spec.Check(); err != nil {
		return usageError{err}
	}
	switch identity := o.spec.SSHIdentityFile; {
	case identity != "" && !readable(identity):
		return bad("--ssh-identity-file %s cannot be read: name a private key, such as ~/.ssh/id_ed25519", identity)
	case slices.Contains(o.tags, "--tag-output") && slices.Contains(o.tags, "--no-tag"):
		return bad("--tag-output and --no-tag contradict each other: give one of them")
	case o.horovod && o.spec.NP == 0:
		return bad("-np is missing: say how many processes to start, as in horovodrun -np 2 %s", strings.Join(o.spec.Command, " "))
	case len(o.controllers) > 1:
		return bad("--%s contradict each other: give one of them", strings.Join(o.controllers, " and --"))
	}
	return nil
}

func readable(path string) bool {
	f, err := os.Open(path)
	if err == nil {
		f.Close()
	}
	return err == nil
}
