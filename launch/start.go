package launch

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"hora/elastic"
	"hora/event"
	"hora/internal/secret"
	jobs "hora/job"
)

// Words that make the program hora, as its first argument, one of a job's processes.
const (
	AgentCommand       = "__agent"       // a host's agent
	CoordinatorCommand = "__coordinator" // a job's coordinator, where that is a process of its own
)

// Place is what only the process that starts a job has, and the job itself says nothing of. Self, or Reach, is
// required.
type Place struct {
	Self        []string // argv of an agent on this host
	Coordinator []string // argv of a coordinator, for jobs with a CoordinatorState
	Lasts       bool     // Self, or Reach's agents, can wait for another launcher; such jobs can then be adopted
	Guard       string   // the program whose first argument __guard makes it a Guard, "" for none
	Binary      string   // path of the program to copy to other hosts; "" means Self[0]
	Temp        string   // where agents on this host keep the secret; what a killed one leaves is removed
	Reach       Reach    // nil reaches hosts by their names: this machine by a process, others over ssh

	Environ   []string // the environment that workers inherit
	LocalName string   // this host's name in messages and HORA_HOST; "" is localhost
	IsLocal   func(name string) bool
	Hosts     []Host                                    // found already, instead of by the job's Hosts and Hostfile
	Find      func(ctx context.Context) ([]Host, error) // instead of the job's Discover
	// what a program that adopts the job must know to make Reach and Find again; nil where it cannot
	Keep []byte
	// has Find asked at once; without it, and at most, it is asked once a second
	Changed <-chan struct{}
	// this file's bytes are handed to every worker as a private file, named in HORA_CALL
	Call string
	// what a worker writes to the file that HORA_RESULT names arrives in this folder as rank.N
	Results string
	Secret  secret.Secret // zero makes one
	// the command is arguments of this program, which every host has
	Itself bool
	// Outcome.Apart is wanted: rank 0's agent looks who is at MASTER_PORT, which takes 5 to 20 ms at the job's end
	Apart bool

	Stdin      *os.File // what StdinRank reads, if it runs on this machine; the others read nothing
	StdinRank  int
	StdinAsked bool // it was named: that it cannot have the input is an error
	Prompts    bool // StdinRank's output is passed on as it comes: a prompt has no line end
	Stdout     io.Writer
	Stderr     io.Writer
	Signals    <-chan os.Signal
	Events     *event.Sink // who listens from the beginning; nil makes one
	Progress   bool        // workers tell what they do, as events

	Grace time.Duration // between TERM and KILL; 0 means 5 s
	// the same where one of Signals asks for the end: workers may want to save what they have; 0 is Grace
	Notice time.Duration
	// how long ranks that have joined wait for the others; 0 is what the job says, else 30 minutes
	Join     time.Duration
	JoinWord time.Duration // when to say for whom they wait, and half of when to say so again; 0 means 30 s
}

// lasts reports whether another launcher could go on by what this one keeps.
func (p *Place) lasts() bool { return p.Lasts && (p.Reach == nil && p.Find == nil || p.Keep != nil) }

// Program returns the place of a process that starts jobs by the program hora at path, which becomes the agents: with
// this process's output, no input, and an environment for the workers.
func Program(path string, environ []string) Place {
	name, err := os.Hostname()
	if err != nil {
		name = ""
	}
	return Place{
		Self: []string{path, AgentCommand}, Coordinator: []string{path, CoordinatorCommand}, Lasts: true, Binary: path,
		Temp:    os.TempDir(),
		Environ: environ, LocalName: name, Stdout: os.Stdout, Stderr: os.Stderr,
	}
}

// Job is one that was started.
type Job struct {
	events  *event.Sink
	signals chan os.Signal
	done    chan struct{} // closed when nothing of it is left; what follows is written before
	outcome Outcome
	report  *event.Report
	err     error
}

// Start starts a job and returns at once. A job that contradicts itself is an error here; that hosts cannot be reached,
// or a command not started, is what Wait returns. The job is told to stop when ctx ends.
func Start(ctx context.Context, spec jobs.Spec, place Place) (*Job, error) {
	s, err := resolve(&spec, &place)
	if err != nil {
		return nil, err
	}
	j := &Job{events: s.Place.Events, signals: make(chan os.Signal, 16), done: make(chan struct{})}
	from := s.Signals
	s.Signals = j.signals
	s.told = func(r *event.Report) { j.report = r }
	go func() {
		defer close(j.done)
		j.outcome, j.err = run(ctx, *s)
	}()
	if from != nil {
		go func() {
			for {
				select {
				case sig := <-from:
					j.Signal(sig)
				case <-j.done:
					return
				}
			}
		}()
	}
	return j, nil
}

// Run starts a job and returns when nothing of it is left. An error means that it could not begin; its text is one
// sentence, and *Error carries the exit code.
func Run(ctx context.Context, spec jobs.Spec, place Place) (Outcome, error) {
	j, err := Start(ctx, spec, place)
	if err != nil {
		return Outcome{}, err
	}
	return j.Wait()
}

// Wait returns when nothing of the job is left, and how it ended. It may be called by several goroutines.
func (j *Job) Wait() (Outcome, error) {
	<-j.done
	return j.outcome, j.err
}

// Done returns a channel that is closed when nothing of the job is left.
func (j *Job) Done() <-chan struct{} { return j.done }

// Events returns what its listeners hear the job by. Who must not miss the first events gives them by Place.Events.
func (j *Job) Events() *event.Sink { return j.events }

// Signal passes a signal on to all workers; a second SIGINT ends them at once. One that comes when the job is over is
// lost.
func (j *Job) Signal(sig os.Signal) {
	select {
	case j.signals <- sig:
	case <-j.done:
	}
}

// Outcome returns how the job ended; false while it runs, and where it could not begin.
func (j *Job) Outcome() (Outcome, bool) {
	select {
	case <-j.done:
		return j.outcome, j.err == nil
	default:
		return Outcome{}, false
	}
}

// Report returns the job's story: its epochs, who left and why, what it cost; nil while it runs, and where it could not
// begin.
func (j *Job) Report() *event.Report {
	select {
	case <-j.done:
		return j.report
	default:
		return nil
	}
}

// resolve works out what a job and its place come to.
func resolve(spec *jobs.Spec, place *Place) (*settings, error) {
	checked := *spec
	if place.Itself && len(checked.Command) == 0 {
		checked.Command = place.Self
	}
	if err := checked.Check(); err != nil {
		return nil, fault(ExitUsage, "%s", err)
	}
	hosts := place.Hosts
	if hosts == nil {
		var err error
		if hosts, err = HostsOf(spec); err != nil {
			return nil, err
		}
	}
	s := &settings{
		Spec: *spec, Place: *place, source: spec, Hosts: hosts, Env: spec.WorkerEnv(), ByHost: spec.TakesHost(),
	}
	s.Lasts = place.lasts()
	s.Restarts = cmp.Or(spec.Restarts, spec.ResetLimit) // how many failed workers are started again
	if s.Place.Events == nil {
		s.Place.Events = &event.Sink{}
	}
	if spec.Bind == jobs.BindNone {
		s.Bind = BindNone
	}
	if s.Name == "" {
		var b [4]byte
		rand.Read(b[:])
		s.Name = "job-" + hex.EncodeToString(b[:])
	}
	find := place.Find
	var script *Script
	if find == nil && spec.Discover != "" {
		script = &Script{Command: spec.Discover, Slots: spec.SlotsPerHost, Environ: place.Environ}
		find = script.Find
	}
	if s.NP = Size(spec, hosts); place.Find != nil && spec.NP == 0 {
		s.NP = max(spec.MinNP, 1)
	}
	if find != nil {
		s.Hosts = nil
		s.Discovery = &discovery{
			Find: find, Changed: place.Changed, Wait: s.ElasticTimeout, CoolMin: s.BlacklistCooldown.Min,
			CoolMax: s.BlacklistCooldown.Max, Script: script,
		}
	}
	switch spec.AfterLoss() {
	case jobs.Continue:
		if s.OnLoss = elastic.Continue; s.MinNP == 0 {
			s.MinNP = s.NP
		}
	case jobs.Replace:
		s.OnLoss = elastic.Replace
	}
	var err error
	if s.Dir, err = folder(spec.Dir, len(s.Hosts) == 0 && find == nil && place.Reach == nil); err != nil {
		return nil, err
	}
	return s, s.limits()
}

// Size returns how many ranks a job begins with on hosts that it names; none stand for this machine.
func Size(spec *jobs.Spec, hosts []Host) int {
	switch {
	case spec.NP > 0:
		return spec.NP
	case spec.Discover != "":
		return max(spec.MinNP, 1)
	case len(hosts) > 0:
		return Slots(hosts)
	}
	return 1
}

// HostsOf returns the hosts that a job names, by themselves or in a file; none where it names none.
func HostsOf(spec *jobs.Spec) ([]Host, error) {
	switch {
	case spec.Hosts != "":
		return ParseHosts(spec.Hosts)
	case spec.Hostfile != "":
		b, err := os.ReadFile(spec.Hostfile)
		if err != nil {
			var pe *fs.PathError
			if errors.As(err, &pe) {
				err = pe.Err
			}
			return nil, fault(ExitUsage, "read hostfile %s: %v: give a file with lines such as \"server1 slots=4\"", spec.Hostfile, err)
		}
		return ParseHostfile(spec.Hostfile, string(b))
	}
	return nil, nil
}

// folder returns where workers start: the present one, or that of --dir. Whether it is there is looked at where it is
// here.
func folder(asked string, here bool) (string, error) {
	if asked == "" {
		dir, err := os.Getwd()
		if err != nil {
			return "", fault(1, "find the working directory: %v: change to one that exists", err)
		}
		return dir, nil
	}
	if st, err := os.Stat(asked); here && (err != nil || !st.IsDir()) {
		return "", fault(ExitUsage, "--dir %s: there is no such folder: name one, or make it", asked)
	}
	return filepath.Abs(asked)
}

// limits takes over the workers' own time limits, so that the launcher waits as long as they do.
func (s *settings) limits() error {
	environ := append(append([]string(nil), s.Environ...), s.Env...)
	for _, limit := range []struct {
		of    *time.Duration
		names []string
	}{
		{&s.Silence, []string{"HORA_PEER_TIMEOUT"}},
		{&s.Adopt, []string{adoptTimeout}},
		{&s.Join, []string{"HORA_START_TIMEOUT", "HOROVOD_START_TIMEOUT", "HOROVOD_GLOO_TIMEOUT_SECONDS"}},
	} {
		for _, name := range limit.names {
			text := ""
			for _, kv := range environ {
				if v, ok := strings.CutPrefix(kv, name+"="); ok {
					text = v
				}
			}
			if text == "" || *limit.of > 0 {
				continue
			}
			d, err := jobs.ParseTime(text)
			if err != nil || d <= 0 {
				return fault(ExitUsage, "%s: %q is not %s", name, text, jobs.ATime)
			}
			*limit.of = d
		}
	}
	return nil
}
