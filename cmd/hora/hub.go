package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"hora/elastic"
	"hora/event"
	"hora/internal/secret"
	"hora/job"
	"hora/launch"
	"hora/launch/hub"
)

// hubOptions are the flags that `hora hub` has beside those of `hora run`.
type hubOptions struct {
	listen         string
	untilStdinEnds bool
	ownEnvironment bool
	limits         string
	within         time.Duration // how long agents are awaited; 0 is the start timeout
}

// The limits of a job whose hosts are agents that have come: a cluster gives up a task sooner than a person a terminal.
const (
	hubGrace   = 500 * time.Millisecond
	hubSilence = 5 * time.Second
)

func (p *program) hubCommand() *cobra.Command {
	o := &options{given: map[string]bool{}, hub: &hubOptions{}}
	c := p.launcher("hub", o)
	c.Use = "hub [flags] [--] COMMAND..."
	c.Short = "start a command where agents come from: hora run for clusters that start processes themselves"
	c.Example = `  hora hub -np 4 --secret-file F --listen :7070 -- python train.py    wait for four agents
  hora agent --hub HOST:7070 <F                                       on each machine: one worker
  hora hub -np 4 --min-np 2 --max-np 8 -- python train.py             begin with two, take up to eight`
	return c
}

// hubFields are its flags.
func hubFields() []job.Field {
	const group = "agents"
	return []job.Field{
		{Flags: "--listen", Arg: "HOST:PORT", Default: "a free port at all addresses", Help: "where agents come to", Group: group, Ours: true},
		{Flags: "--agents-within", Arg: "T", Default: "the start timeout", Help: "how long agents are awaited", Group: group, Ours: true},
		{Flags: "--limits", Arg: "FILE", Help: "lines such as node1:4, read each second: no more slots of the agents' machines are used, and none of others; a line !end ends the job at its next commit", Group: group, Ours: true},
		{Flags: "--own-environment", Help: "workers get their agent's environment, and nothing of the hub's but what flags say", Group: group, Ours: true},
		{Flags: "--until-stdin-ends", Help: "the end of standard input ends the job: of whoever started the hub, in whatever way", Group: group, Ours: true},
	}
}

// set keeps one; known is false for other flags.
func (h *hubOptions) set(name, v string) (known bool, err error) {
	switch name {
	case "listen":
		h.listen = v
	case "until-stdin-ends":
		h.untilStdinEnds = v == "true"
	case "limits":
		h.limits = v
	case "agents-within":
		if h.within, err = job.ParseTime(v); err != nil || h.within <= 0 {
			return true, fmt.Errorf("%q is not %s", v, job.ATime)
		}
	case "own-environment":
		h.ownEnvironment = v == "true"
	default:
		return false, nil
	}
	return true, nil
}

// startHub waits for agents and runs the job on them.
func (p *program) startHub(o *options, s *launch.Place) error {
	switch {
	case len(s.Hosts) > 0 || o.spec.Discover != "":
		return usageError{errors.New("hora hub runs where agents come from: leave -H, --hostfile and --discover away")}
	case o.given["stdin"]:
		return usageError{errors.New("--stdin: the ranks run where agents have come from, and this machine's input stays here: leave the flag away")}
	case o.spec.CoordinatorState != "":
		return usageError{errors.New("--coordinator-state: a hub that is killed ends its agents: leave the flag away")}
	}
	silence := o.spec.PeerTimeout
	if text := p.getenv("HORA_PEER_TIMEOUT"); silence == 0 && text != "" {
		var err error
		if silence, err = job.ParseTime(text); err != nil || silence <= 0 {
			return usageError{fmt.Errorf("HORA_PEER_TIMEOUT: %q is not %s", text, job.ATime)}
		}
	} else if silence == 0 {
		silence, o.spec.PeerTimeout = hubSilence, hubSilence
	}
	s.Stdin, s.Prompts, s.Grace = nil, false, hubGrace
	var limits func() (map[string]int, error)
	if o.hub.limits != "" {
		s.Grace = 0 // of hora run: workers are to leave at their next commit
		limits = func() (map[string]int, error) { return readLimits(o.hub.limits) }
	}
	s.Progress = o.spec.Events != "" // who follows the events shows it
	made := ""
	if s.Secret.IsZero() {
		s.Secret = secret.New()
		dir, err := os.MkdirTemp(s.Temp, "hora-hub-")
		if err != nil {
			return &launch.Error{Code: launch.ExitSystem, Text: fmt.Sprintf("make the secret's folder: %v: set TMPDIR to a folder with room", err)}
		}
		defer os.RemoveAll(dir)
		made = filepath.Join(dir, "secret")
		if err := s.Secret.WriteFile(made); err != nil {
			return err
		}
	}
	return p.start(o, s, func(signals chan os.Signal) (launch.Outcome, error) {
		if o.hub.untilStdinEnds {
			go func() {
				_, _ = io.Copy(io.Discard, p.in)
				signals <- syscall.SIGTERM
			}()
		}
		var mine []string
		if o.hub.ownEnvironment {
			mine = os.Environ()
		}
		h, err := hub.New(p.ctx, hub.Config{
			Mine: mine, Limits: limits,
			Secret: s.Secret, Host: s.LocalName, ID: p.getenv("HORA_HOST_ID"), Listen: o.hub.listen, Interfaces: o.spec.Interfaces,
			Silence: silence, Events: s.Events, SecretFile: made, Wanted: launch.Size(&o.spec, nil),
		})
		if err != nil {
			return launch.Outcome{}, err
		}
		defer h.Stop()
		out, err := p.runHub(h, o, s, signals)
		switch known := (*launch.Error)(nil); {
		case err == nil:
			h.Over(out.ExitCode(), event.OneLine(out.String()))
		case errors.As(err, &known):
			h.Over(known.Code, event.OneLine(err.Error()))
		default:
			h.Over(1, event.OneLine(err.Error()))
		}
		return out, err
	})
}

// readLimits reads how many slots of each machine may be used.
func readLimits(name string) (map[string]int, error) {
	b, err := os.ReadFile(name)
	if err != nil {
		return nil, usageError{fmt.Errorf("--limits: %w: name a file with lines such as node1:4", err)}
	}
	limits := map[string]int{}
	for line := range strings.Lines(string(b)) {
		line = strings.TrimSpace(line)
		at := strings.LastIndexByte(line, ':')
		n, err := strconv.Atoi(line[at+1:])
		switch {
		case line == "":
		case line == job.EndLine:
			return nil, elastic.ErrEnd
		case at < 1 || err != nil || n < 0:
			return nil, usageError{fmt.Errorf("--limits %s: %q is no line such as node1:4", name, line)}
		default:
			limits[line[:at]] += n
		}
	}
	return limits, nil
}

// runHub gathers agents and runs the job on them: on those alone, or with flags for workers that come and go on whoever
// comes.
func (p *program) runHub(h *hub.Hub, o *options, s *launch.Place, signals <-chan os.Signal) (launch.Outcome, error) {
	j := o.spec
	want := launch.Size(&j, nil)
	least, limit := want, j.StartTimeout
	if limit == 0 {
		limit = 30 * time.Second
	}
	if o.hub.within > 0 {
		limit = o.hub.within
	}
	comeAndGo := j.MinNP > 0 || j.MaxNP > 0 || j.AfterLoss() == job.Continue
	if comeAndGo && j.MinNP > 0 {
		least = j.MinNP
	}
	hosts, err := h.Gather(p.ctx, want, least, limit, signals)
	if err != nil {
		return launch.Outcome{}, err
	}
	s.Reach, s.Hosts, j.NP = h, hosts, want
	if comeAndGo {
		s.Hosts, s.Find, s.Changed = nil, h.Find, h.Changed()
		j.NP, j.MinNP = min(launch.Slots(hosts), want), least
		if j.MaxNP == 0 {
			j.MaxNP = want
		}
	}
	return launch.Run(p.ctx, j, *s)
}
