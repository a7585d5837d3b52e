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
	"os"
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

// settings are what a job and its place come to, with everything parsed. Command and NP are required; the zero value of
// the rest works.
type settings struct {
	Command []string
	Itself  bool // Command is arguments of this program, which every host has
	NP      int
	Hosts   []Host // empty: this host
	Dir     string // where workers start; a host that lacks it uses the home directory

	Environ []string // the environment that workers inherit
	Env     []string // NAME=VALUE, added to or over Environ and over what the launcher sets

	Job    string
	Secret secret.Secret // zero makes one
	Bind   Bind
	GPUs   int           // devices per rank; 0 leaves CUDA_VISIBLE_DEVICES as it is
	Grace  time.Duration // between TERM and KILL; 0 means 5 s
	Start  time.Duration // until every host has answered; 0 means 30 s
	// Join is how long ranks that have joined wait for the others, 0 means 30 minutes: it is 30 s in which to start
	// what dies and is seen to, and all the time that a living one may take. JoinWord is when to say for whom they
	// wait, and half of when to say so again; 0 means 30 s.
	Join, JoinWord time.Duration
	Silence        time.Duration // a silent worker or host counts as lost; 0 means 10 s

	OnLoss    elastic.Policy
	Min, Max  int        // see elastic.Config and elastic.Supply
	Discovery *discovery // finds hosts while the job runs, instead of Hosts; the job is elastic then
	// A host of Hosts that was lost is tried again after a pause from CoolMin, which doubles, to CoolMax; 0 is never.
	// Ranks that found no other slot wait for it up to Wait; 0 means 10 minutes.
	CoolMin, CoolMax, Wait time.Duration
	// a failed worker takes its whole host away, where the job has enough without it, and not its slot alone
	ByHost bool
	Resets int // how often the job may begin anew, see elastic.Config
	// how many failed workers are started again; above 0 the job is elastic, as it is with a policy other than Stop
	Restarts int
	// DrainOn names a file whose appearance on a host, or after "sh:" a command whose success there (HORA_HOST names it),
	// is notice that the host is about to go: its workers commit and leave.
	DrainOn string
	// StateDir, when set, keeps the coordinator's story: the coordinator is then a child of this process, Coordinator
	// its argv, and when it is killed another takes over where it was.
	StateDir    string
	Lasts       bool          // agents of such a job can wait for another launcher
	Adopt       time.Duration // how long agents of such a job wait for another launcher
	source      *jobs.Spec    // what all this was made of
	wanted      int           // how many slots a discovery has to find
	listed      time.Duration // when it had
	Coordinator []string
	Report      string   // the job's story is written to this file
	Call        string   // this file's bytes are handed to every worker as a private file, named in HORA_CALL
	Results     string   // what a worker writes to the file that HORA_RESULT names arrives in this folder as rank.N
	Apart       bool     // see Place
	LogDir      string   // rank.N/stdout and stderr are written under it
	Port        int      // of the coordinator; 0 takes a free one
	Interfaces  []string // only addresses of these network interfaces are used
	Self        []string // argv of an agent on this host
	Reach       Reach    // nil reaches Hosts by their names: this machine by a process, others over ssh
	Guard       string   // the program whose first argument __guard makes it a Guard, "" for none
	Temp        string   // where agents on this host keep the secret; what a killed one leaves is removed
	SSH         SSH
	Binary      string   // path of the program to copy to other hosts; "" means Self[0]
	Progress    bool     // workers tell what they do, as events
	Untagged    bool     // no "[rank]<stdout>:" before lines
	Timestamps  bool     // the time before each tagged line
	Elastic     bool     // workers are told so (HOROVOD_ELASTIC)
	Stdin       *os.File // what StdinRank reads, if it runs on this machine; the others read nothing
	StdinRank   int
	StdinAsked  bool // it was named: that it cannot have the input is an error
	Prompts     bool // StdinRank's output is passed on as it comes: a prompt has no line end
	Stdout      io.Writer
	Stderr      io.Writer
	Signals     <-chan os.Signal
	Events      *event.Sink
	told        func(*event.Report)    // hears the story at the end; nil for nobody
	LocalName   string                 // this host's name in messages and HORA_HOST
	IsLocal     func(name string) bool // which names mean this machine; nil knows localhost and LocalName
}

func (s *settings) defaults() {
	if s.Grace <= 0 {
		s.Grace = 5 * time.Second
	}
	if s.Start <= 0 {
		s.Start = 30 * time.Second
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
	if s.Wait <= 0 {
		s.Wait = 10 * time.Minute
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
		Local:     local.Config{Self: s.Self, Guard: s.Guard, Temp: s.Temp, Environ: s.Environ},
		SSH:       ssh.Config{Options: s.SSH, Binary: binary, Environ: s.Environ, Start: s.Start, Silence: s.Silence},
		LocalName: s.LocalName, IsLocal: s.IsLocal,
	})
}
