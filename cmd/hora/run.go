package main

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"hora/elastic"
	"hora/event"
	"hora/internal/secret"
	"hora/launch"
)

const horovodrunCommand = "horovodrun"

// options is what the flags of one `hora run` say.
type options struct {
	np, min, max, slots, restarts, gpus, sshPort, port int
	stdin                                              int
	version, checkBuild, verbose, dryRun               bool
	untagged, timestamps                               bool
	hosts, hostfile, sshIdentity, remoteHora           string
	logDir, secretFile, job, onLoss, discover, report  string
	drainOn, stateDir, blacklist, timeline, events     string
	bind                                               launch.Bind
	start, elasticTimeout                              time.Duration
	cooldown                                           [2]time.Duration
	interfaces, controllers                            []string
	env                                                []string // --env
	tags                                               []string // --tag-output and --no-tag, as meant on the command line
	extra                                              []string // what flags set for the workers
	given                                              map[string]bool
	voids                                              []*flagRow
	table                                              []flagRow
	horovod                                            bool // called as horovodrun
}

func (o *options) workerEnv(name, value string) {
	o.extra = append(o.extra, name+"="+value)
	if ours := ourName[name]; ours != "" {
		o.extra = append(o.extra, ours+"="+value)
	}
}

// ourName is the variable of ours that wins over one of Horovod's: a flag says more than what happens to be exported.
var ourName = map[string]string{
	"HOROVOD_CACHE_CAPACITY": "HORA_NAMES", "HOROVOD_FUSION_THRESHOLD": "HORA_FUSION_BYTES",
	"HOROVOD_STALL_CHECK_TIME_SECONDS": "HORA_STALL_WARN", "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS": "HORA_STALL_END",
	"HOROVOD_START_TIMEOUT": "HORA_START_TIMEOUT", "HOROVOD_TIMELINE": "HORA_TIMELINE",
	"HOROVOD_TIMELINE_MARK_CYCLES": "HORA_TIMELINE_MARK_CYCLES",
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
	table := flagTable()
	o.table = table
	if o.horovod {
		findFlag(table, "-np").help = "number of processes; required"
	}
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
			for s := range strings.FieldsSeq(r.spellings) {
				if strings.HasPrefix(s, word) {
					out = append(out, s+"\t"+r.help)
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
	spec, err := p.spec(o, command)
	if err != nil {
		return err
	}
	if o.dryRun {
		return p.dryRun(spec)
	}
	return p.start(spec, o)
}

// spec makes a job of the flags.
func (p *program) spec(o *options, command []string) (*launch.Spec, error) {
	if err := o.check(command); err != nil {
		return nil, err
	}
	hosts, err := o.hostList()
	if err != nil {
		return nil, err
	}
	if err := o.torchDefaults(p.getenv, len(hosts) > 0); err != nil {
		return nil, err
	}
	if o.np == 0 {
		o.np = 1
		switch {
		case len(hosts) > 0:
			o.np = launch.Slots(hosts)
		case o.discover != "":
			o.np = max(o.min, 1)
		}
	}
	s := &launch.Spec{
		Command: command, NP: o.np, Hosts: hosts, Job: o.job, Bind: o.bind, GPUs: o.gpus, Start: o.start,
		Min: o.min, Max: o.max, LogDir: o.logDir, Report: o.report, Interfaces: o.interfaces, Port: o.port, Untagged: o.untagged, Timestamps: o.timestamps,
		Environ: os.Environ(), Env: append(o.extra, o.env...), Stdout: p.out, Stderr: p.err,
		SSH: launch.SSH{Port: o.sshPort, Identity: o.sshIdentity, RemoteHora: o.remoteHora},
	}
	s.StateDir = o.stateDir
	s.DrainOn, s.Wait = o.drainOn, o.elasticTimeout
	s.CoolMin, s.CoolMax = o.cooldown[0], o.cooldown[1]
	environ := append(os.Environ(), s.Env...)
	if s.Silence, err = waitOf(environ, "HORA_PEER_TIMEOUT"); err != nil {
		return nil, err
	}
	if s.Join, err = waitOf(environ, "HORA_START_TIMEOUT", "HOROVOD_START_TIMEOUT", "HOROVOD_GLOO_TIMEOUT_SECONDS"); err != nil {
		return nil, err
	}
	o.elastic(s)
	if o.discover != "" {
		s.Hosts = nil
		s.Discovery = &launch.Discovery{
			Find: launch.ScriptHosts(o.discover, o.slots, os.Environ()), Wait: o.elasticTimeout,
			CoolMin: s.CoolMin, CoolMax: s.CoolMax,
		}
	}
	if s.Job == "" {
		var b [4]byte
		rand.Read(b[:])
		s.Job = "job-" + hex.EncodeToString(b[:])
	}
	if s.LocalName, err = os.Hostname(); err != nil || o.horovod && len(hosts) == 0 {
		s.LocalName = "localhost"
	}
	if s.Dir, err = os.Getwd(); err != nil {
		return nil, fmt.Errorf("find the working directory: %w: change to one that exists", err)
	}
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this program's file: %w", err)
	}
	s.Coordinator = []string{self, coordinatorCommand}
	s.Self, s.Binary, s.Temp = []string{self, agentCommand}, self, os.TempDir()
	s.Guard = guardProgram
	if o.secretFile != "" {
		if s.Secret, err = secret.Read(o.secretFile); err != nil {
			return nil, usageError{secretFault(o.secretFile, err)}
		}
	}
	return s, p.input(o, s)
}

// input decides which rank reads what this program does: --stdin names it; else rank 0 has a file or a pipe, and a
// terminal where it is and stays the only one. Of several, none could know who is meant.
func (p *program) input(o *options, s *launch.Spec) error {
	typed := terminalWidth(p.in) > 0
	if s.StdinAsked = o.given["stdin"]; s.StdinAsked {
		if s.StdinRank = o.stdin; s.StdinRank >= s.NP {
			return usageError{fmt.Errorf("--stdin %d: the ranks are 0 to %d: name one of them", o.stdin, s.NP-1)}
		}
		s.Stdin = p.in
	} else if st, err := p.in.Stat(); err == nil && st.Mode()&os.ModeCharDevice == 0 || typed && s.NP == 1 && o.max <= 1 && o.discover == "" && foreground(p.in) {
		s.Stdin = p.in
	}
	s.Prompts = s.Stdin != nil && typed && terminalWidth(p.out) > 0 && len(o.tags) == 0 && !o.timestamps
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

// waitOf is a time limit of the workers, so that the launcher waits as long as they do: the first of some variables that is
// set; 0 without one.
func waitOf(environ []string, names ...string) (time.Duration, error) {
	for _, name := range names {
		text := ""
		for _, kv := range environ {
			if v, ok := strings.CutPrefix(kv, name+"="); ok {
				text = v
			}
		}
		if text == "" {
			continue
		}
		d, err := parseTime(text)
		if err != nil || d <= 0 {
			return 0, usageError{fmt.Errorf("%s: %q is not %s", name, text, aTime)}
		}
		return d, nil
	}
	return 0, nil
}

// start runs the job and prints its last line.
func (p *program) start(s *launch.Spec, o *options) error {
	written, err := timeline(s, o.timeline)
	if err != nil {
		return err
	}
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2)
	if !signal.Ignored(syscall.SIGHUP) { // nohup did that
		signal.Notify(signals, syscall.SIGHUP)
	}
	defer signal.Stop(signals)
	s.Signals = signals
	s.Events = &event.Sink{}
	var events *eventFile
	if o.events != "" {
		if events, err = openEvents(o.events); err != nil {
			return err
		}
		defer s.Events.Add(events)()
	}
	clear := p.showStatus(s)
	defer s.Events.Add(&reporter{w: s.Stderr, verbose: o.verbose})()
	if slices.Contains(o.controllers, "mpi") {
		s.Events.Emit(&event.Warning{Text: mpiUnused})
	}
	if o.verbose {
		for _, r := range o.voids {
			s.Events.Emit(&event.Note{Text: fmt.Sprintf("--%s has no effect: %s", r.name(), r.void)})
		}
	}
	launch.Adopt()
	out, err := launch.Run(context.WithoutCancel(p.ctx), *s)
	launch.Sweep()
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
	} else if text := written.missing(s.Command); text != "" {
		fmt.Fprintf(p.err, "hora: warning: %s\n", text)
	} else if text := apart(s.Command, &out); text != "" && !s.Itself {
		fmt.Fprintf(p.err, "hora: warning: %s\n", text)
	}
	return nil
}

// reporter prints what a job's user should see beside the workers' output.
type reporter struct {
	w       io.Writer
	verbose bool
}

func (r *reporter) Operation(*event.Operation) {}

func (r *reporter) Event(e event.Event) {
	switch e.(type) {
	case *event.Restarted, *event.Shrunk, *event.Grown, *event.Moved, *event.Parked, *event.Told, *event.Delay, *event.Held:
		fmt.Fprintf(r.w, "hora: %s\n", event.Visible(e.String()))
	case *event.Warning, *event.Banned:
		fmt.Fprintf(r.w, "hora: warning: %s\n", event.Visible(e.String()))
	case *event.Started, *event.Exited, *event.Note, *event.Hosts:
		if r.verbose {
			fmt.Fprintf(r.w, "hora: %s\n", event.Visible(e.String()))
		}
	}
}

// torchDefaults takes what torchrun's own variables say for flags that are not given.
func (o *options) torchDefaults(getenv func(string) string, hosts bool) error {
	for _, d := range []struct {
		flag, name string
		wanted     bool
	}{
		{"num-proc", "PET_NPROC_PER_NODE", !hosts},
		{"restarts", "PET_MAX_RESTARTS", !o.given["reset-limit"]},
	} {
		v := getenv(d.name)
		if v == "" || !d.wanted || o.given[d.flag] {
			continue
		}
		if err := findFlag(o.table, "--"+d.flag).set(o, v); err != nil {
			return usageError{fmt.Errorf("%s: %w: correct it, or give --%s", d.name, err, d.flag)}
		}
	}
	return nil
}

// theirs says whether one of horovodrun's elastic flags is used.
func (o *options) theirs() bool {
	return slices.ContainsFunc(o.table, func(r flagRow) bool { return r.elastic && o.given[r.name()] })
}

// elastic sets what becomes of the job when a worker is lost.
func (o *options) elastic(s *launch.Spec) {
	s.Restarts = o.restarts
	s.ByHost = o.blacklist == "host" || o.blacklist == "" && (o.horovod || o.theirs())
	switch {
	case o.onLoss == "continue", o.onLoss == "" && o.theirs():
		s.OnLoss = elastic.Continue
	case o.onLoss == "replace", o.restarts > 0:
		s.OnLoss = elastic.Replace
	}
	if s.OnLoss == elastic.Continue && s.Min == 0 {
		s.Min = s.NP
	}
}

// check finds flags that contradict each other.
func (o *options) check(command []string) error {
	bad := func(format string, a ...any) error { return usageError{fmt.Errorf(format, a...)} }
	hostSources := 0
	for _, s := range []string{o.hosts, o.hostfile, o.discover} {
		if s != "" {
			hostSources++
		}
	}
	switch {
	case len(command) == 0:
		return bad("there is no command to start: write it after the flags, as in hora run -np 2 python train.py")
	case command[0] == "":
		return bad("the command to start is empty: look whether a variable in it is")
	case o.sshIdentity != "" && !readable(o.sshIdentity):
		return bad("--ssh-identity-file %s cannot be read: name a private key, such as ~/.ssh/id_ed25519", o.sshIdentity)
	case hostSources > 1:
		return bad("-H, --hostfile and --discover each say where to run: give one of them")
	case o.discover != "" && o.onLoss == "replace":
		return bad("--discover and --on-loss replace contradict each other: with a discovery the job goes on with the workers there are and grows again")
	case o.drainOn != "" && o.onLoss == "" && o.restarts == 0 && o.discover == "" && !o.theirs():
		return bad("--drain-on without another elastic flag would end the job: add --restarts N, --on-loss continue or --discover")
	case o.onLoss == "replace" && o.restarts == 0:
		return bad("--on-loss replace without --restarts has nothing to replace with: add --restarts N")
	case slices.Contains(o.tags, "--tag-output") && slices.Contains(o.tags, "--no-tag"):
		return bad("--tag-output and --no-tag contradict each other: give one of them")
	case o.horovod && o.np == 0:
		return bad("-np is missing: say how many processes to start, as in horovodrun -np 2 %s", strings.Join(command, " "))
	case len(o.controllers) > 1:
		return bad("--%s contradict each other: give one of them", strings.Join(o.controllers, " and --"))
	case o.min > 0 && o.max > 0 && o.min > o.max:
		return bad("--min-np %d is above --max-np %d: swap them", o.min, o.max)
	case o.np > 0 && o.min > o.np:
		return bad("--min-np %d is above -np %d: lower it, or raise -np", o.min, o.np)
	case o.np > 0 && o.max > 0 && o.max < o.np:
		return bad("--max-np %d is below -np %d: raise it, or lower -np", o.max, o.np)
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

func (o *options) hostList() ([]launch.Host, error) {
	switch {
	case o.hosts != "":
		return launch.ParseHosts(o.hosts)
	case o.hostfile != "":
		b, err := os.ReadFile(o.hostfile)
		if err != nil {
			var pe *os.PathError
			if errors.As(err, &pe) {
				err = pe.Err
			}
			return nil, usageError{fmt.Errorf("read hostfile %s: %w: give a file with lines such as \"server1 slots=4\"", o.hostfile, err)}
		}
		return launch.ParseHostfile(o.hostfile, string(b))
	}
	return nil, nil
}
