// Package launch turns hosts and slots into processes: it places ranks, has an agent reached on every host, starts the
// coordinator, hands every worker its environment, carries output and signals, and reports how the job ended.
//
// It never reads the environment or flags itself, never ends its own process, and takes no part in what workers say to
// each other. What kind of host it works with it does not know: a [Reach] has the agent on each host be, by whatever
// way, and that one ([hora/launch/agent]) is the parent of the workers and ends their whole tree when the launcher is
// gone.
//
// Goroutines: a Job has one that owns it, one that passes signals on, one while host names are looked up, one reader
// and one writer per agent, and what rendezvous.Serve runs. All have ended when Wait returns.
package launch

import (
	"io"
	"time"

	"hora/elastic"
	"hora/event"
	"hora/internal/secret"
	jobs "hora/job"
	"hora/launch/local"
	"hora/launch/machine"
	"hora/launch/named"
	"hora/launch/reach"
	"hora/launch/ssh"
)

// Bind says to which cores a worker is bound.
type Bind = machine.Bind

// The ways to bind.
const (
	BindCore = machine.BindCore
	BindNone = machine.BindNone
)

// Host is a machine with room for workers.
type Host = elastic.Host

// SSH says how other hosts are reached.
type SSH = ssh.Options

// Reach is how the agents of a job's hosts come to be.
type Reach = reach.Reach

// settings are what a job and its place come to. Command and NP are required; the zero value of the rest works. What
// stands in them and here too is worked out here from what is said there in words, or in either.
type settings struct {
	jobs.Spec
	Place

	source    *jobs.Spec // as it was given
	Hosts     []Host     // empty: this host
	Env       []string   // NAME=VALUE, added to or over Environ and over what the launcher sets
	Bind      Bind
	OnLoss    elastic.Policy
	ByHost    bool          // a failed worker takes its host away, where enough is left, and not its slot alone
	Silence   time.Duration // a silent worker or host counts as lost; 0 means 10 s
	Discovery *discovery    // finds hosts while the job runs, instead of Hosts; the job is elastic then
	Adopt     time.Duration // how long agents of a job that can be adopted wait for another launcher

	wanted  int                 // how many slots a discovery has to find
	listed  time.Duration       // when it had
	deliver string              // where Results are wanted, where that is the folder of a job that can be adopted
	told    func(*event.Report) // hears the story at the end; nil for nobody
}

func (s *settings) defaults() {
	if s.Grace <= 0 {
		s.Grace = 5 * time.Second
	}
	if s.Notice <= 0 {
		s.Notice = s.Grace
	}
	if s.StartTimeout <= 0 {
		s.StartTimeout = 30 * time.Second
	}
	if s.Join <= 0 {
		s.Join = 30 * time.Minute
	}
	if s.JoinWord <= 0 {
		s.JoinWord = 30 * time.Second
	}
	if s.Silence <= 0 {
		s.Silence = 10 * time.Second
	}
	if s.Adopt <= 0 {
		s.Adopt = adoptWait
	}
	if s.ElasticTimeout <= 0 {
		s.ElasticTimeout = 10 * time.Minute
	}
	if s.Secret.IsZero() {
		s.Secret = secret.New()
	}
	if s.Stdout == nil {
		s.Stdout = io.Discard
	}
	if s.Stderr == nil {
		s.Stderr = io.Discard
	}
	if s.LocalName == "" {
		s.LocalName = "localhost"
	}
	if len(s.Hosts) == 0 {
		s.Hosts = []Host{{Name: s.LocalName, Slots: s.NP}}
	}
	if s.Reach == nil {
		s.Reach = s.named()
	}
}

// named returns the reach of hosts that have no other.
func (s *settings) named() Reach {
	binary := s.Binary
	if binary == "" && len(s.Self) > 0 {
		binary = s.Self[0]
	}
	return named.New(named.Config{
		Local: local.Config{Self: s.Self, Guard: s.Guard, Temp: s.Temp, Environ: s.Environ},
		SSH: ssh.Config{
			Options: SSH{Port: s.SSHPort, Identity: s.SSHIdentityFile, RemoteHora: s.RemoteHora}, Binary: binary,
			Environ: s.Environ, Start: s.StartTimeout, Silence: s.Silence,
		},
		LocalName: s.LocalName, IsLocal: s.IsLocal,
	})
}
