package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
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
	}
}

// set keeps one; known is false for other flags.
func (h *hubOptions) set(name, v string) (known bool, err error) {
	switch name {
	case "listen":
		h.listen = v
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
	if o.hub.limits != "" {
		s.Grace = 0 // of hora run: workers are to leave at their next commit
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
		cfg := hub.Config{
			Secret: s.Secret, Host: s.LocalName, ID: p.getenv("HORA_HOST_ID"), Listen: o.hub.listen, Interfaces: o.spec.Interfaces,
			Silence: silence, Events: s.Events, SecretFile: made, Wanted: launch.Size(&o.spec, nil),
		}
		if o.hub.ownEnvironment {
			cfg.Mine = os.Environ()
		}
		limits, err := filepath.Abs(o.hub.limits)
		if err != nil || o.hub.limits == "" {
			limits = ""
		}
		cfg.Limits = limited(limits)
		return p.onHub(cfg, func(h *hub.Hub) (launch.Outcome, error) {
			s.Keep = keptHub{cfg.Mine, limits, h.Addr(), cfg.ID, silence, cfg.Wanted, o.comeAndGo()}.json()
			return p.runHub(h, o, s, signals)
		})
	})
}

// keptHub is what a hub that adopts a job must know of the one that was killed.
type keptHub struct {
	Mine      []string
	Limits    string // the file
	Listen    string
	ID        string
	Silence   time.Duration
	Wanted    int
	ComeAndGo bool // its workers do
}

func (k keptHub) json() []byte {
	b, _ := json.Marshal(k) // of plain fields
	return b
}

// limited returns the Limits of a hub with such a file.
func limited(file string) func() (map[string]int, error) {
	if file == "" {
		return nil
	}
	return func() (map[string]int, error) { return readLimits(file) }
}

// onHub runs a job where agents come to, and tells them how it has ended.
func (p *program) onHub(cfg hub.Config, run func(h *hub.Hub) (launch.Outcome, error)) (launch.Outcome, error) {
	h, err := hub.New(p.ctx, cfg)
	if err != nil {
		return launch.Outcome{}, err
	}
	defer h.Stop()
	out, err := run(h)
	switch known := (*launch.Error)(nil); {
	case err == nil:
		h.Over(out.ExitCode(), event.OneLine(out.String()))
	case errors.As(err, &known):
		h.Over(known.Code, event.OneLine(err.Error()))
	default:
		h.Over(1, event.OneLine(err.Error()))
	}
	return out, err
}

// adoptHub takes a job over whose agents come back by themselves, to where the killed hub listened.
func (p *program) adoptHub(job *launch.Adoption, place *launch.Place) (launch.Outcome, error) {
	var k keptHub
	if err := json.Unmarshal(job.Keep(), &k); err != nil {
		return launch.Outcome{}, fmt.Errorf("read what the hub has kept: %w: start the job again", err)
	}
	known, err := job.Secret()
	if err != nil {
		return launch.Outcome{}, err
	}
	cfg := hub.Config{
		Secret: known, Host: place.LocalName, ID: k.ID, Listen: k.Listen, Interfaces: job.Spec.Interfaces,
		Silence: k.Silence,
		Events:  place.Events, Wanted: k.Wanted, Mine: k.Mine, Limits: limited(k.Limits), Heir: true,
	}
	return p.onHub(cfg, func(h *hub.Hub) (launch.Outcome, error) {
		if place.Reach = h; k.ComeAndGo {
			place.Find, place.Changed = h.Find, h.Changed()
		}
		return job.Run(context.WithoutCancel(p.ctx), *place)
	})
}

// comeAndGo says whether a hub's workers do.
func (o *options) comeAndGo() bool {
	return o.spec.MinNP > 0 || o.spec.MaxNP > 0 || o.spec.AfterLoss() == job.Continue
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
	comeAndGo := o.comeAndGo()
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
