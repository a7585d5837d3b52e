package event

import (
	"fmt"
	"strings"
	"time"
)

// Started says that a worker's process runs.
type Started struct {
	Rank int    `json:"rank"`
	Host string `json:"host"`
	Pid  int    `json:"pid"`
}

func (e *Started) String() string {
	return fmt.Sprintf("rank %d started on %s as pid %d", e.Rank, e.Host, e.Pid)
}

// Exited says that a worker's process has ended.
type Exited struct {
	Rank  int    `json:"rank"`
	Host  string `json:"host"`
	Cause string `json:"cause"`
}

func (e *Exited) String() string { return fmt.Sprintf("rank %d on %s: %s", e.Rank, e.Host, e.Cause) }

// Opened says that an epoch has opened: the ranks of Admitted that follow take part in it.
type Opened struct {
	Epoch uint64 `json:"epoch"`
	Size  int    `json:"size"`
	Hosts []Host `json:"hosts,omitempty"` // how many of its ranks each has
}

func (e *Opened) String() string { return fmt.Sprintf("epoch %d has %d ranks", e.Epoch, e.Size) }

// Admitted says that a worker has become a member of the present epoch.
type Admitted struct {
	Rank int `json:"rank"`
}

func (e *Admitted) String() string { return fmt.Sprintf("rank %d has joined", e.Rank) }

// Restarted says that a failed worker is started again.
type Restarted struct {
	Rank  int           `json:"rank"`
	Host  string        `json:"host"`
	Cause string        `json:"cause"`
	Left  int           `json:"restarts_left"`
	In    time.Duration `json:"in_ns"`
	Same  bool          `json:"same,omitempty"` // it failed like the process before it, whose words have been told
}

func (e *Restarted) String() string {
	cause := e.Cause
	if e.Same {
		cause = "it failed in the same way"
	}
	return fmt.Sprintf("rank %d on %s: %s: starting it again, %s left", e.Rank, e.Host, cause, Counted(e.Left, "restart"))
}

// Shrunk says that a failed worker is not replaced and the others go on.
type Shrunk struct {
	Rank  int    `json:"rank"`
	Host  string `json:"host"`
	Cause string `json:"cause"`
	Left  int    `json:"workers_left"`
}

func (e *Shrunk) String() string {
	others := fmt.Sprintf("the other %d go on", e.Left)
	if e.Left == 1 {
		others = "the other goes on"
	}
	return fmt.Sprintf("rank %d on %s: %s: %s", e.Rank, e.Host, e.Cause, others)
}

// Moved says that a rank whose host is gone, or about to go, starts on another.
type Moved struct {
	Rank  int    `json:"rank"`
	From  string `json:"from"`
	To    string `json:"to"`
	Cause string `json:"cause"`
}

func (e *Moved) String() string {
	return fmt.Sprintf("rank %d on %s: %s: starting it on %s", e.Rank, e.From, e.Cause, e.To)
}

// Parked says that a rank waits for a slot, since a host is tried again later.
type Parked struct {
	Rank  int           `json:"rank"`
	Host  string        `json:"host"`
	Cause string        `json:"cause"`
	Limit time.Duration `json:"limit_ns"`
}

func (e *Parked) String() string {
	return fmt.Sprintf("rank %d on %s: %s: no other slot is free: waiting up to %v for a host to come back", e.Rank, e.Host, e.Cause, e.Limit)
}

// Grown says that a worker joins a running job.
type Grown struct {
	Rank int    `json:"rank"`
	Host string `json:"host"`
}

func (e *Grown) String() string { return fmt.Sprintf("a new worker starts on %s", e.Host) }

// Held says that somebody holds a rank's process, by a debugger for one, and that the others wait for it; or without a
// Why that it runs again.
type Held struct {
	Rank int    `json:"rank"`
	Host string `json:"host"`
	Why  string `json:"why,omitempty"`
}

func (e *Held) String() string {
	if e.Why == "" {
		return fmt.Sprintf("rank %d on %s goes on", e.Rank, e.Host)
	}
	return fmt.Sprintf("rank %d on %s: %s: the others wait for it", e.Rank, e.Host, e.Why)
}

// Host is a host and how many workers it takes.
type Host struct {
	Name  string `json:"name"`
	Slots int    `json:"slots"`
}

// Hosts is news of a discovery.
type Hosts struct {
	Hosts []Host `json:"hosts"`
}

func (e *Hosts) String() string {
	names := make([]string, len(e.Hosts))
	for i, h := range e.Hosts {
		names[i] = fmt.Sprintf("%s:%d", h.Name, h.Slots)
	}
	return "hosts at hand: " + strings.Join(names, ",")
}

// Banned says that a host, or one slot of it, is not used for a while, because of what happened there.
type Banned struct {
	Host  string        `json:"host"`
	Slot  int           `json:"slot"` // -1: the whole host
	Cause string        `json:"cause"`
	For   time.Duration `json:"for_ns"` // 0 is for good
}

func (e *Banned) String() string {
	name := e.Host
	if e.Slot >= 0 {
		name = fmt.Sprintf("slot %d of %s", e.Slot, e.Host)
	}
	then := "it is not used any more"
	if e.For > 0 {
		then = fmt.Sprintf("it is tried again in %v", e.For.Round(time.Second/10))
	}
	return fmt.Sprintf("%s: %s: %s", name, e.Cause, then)
}

// Work is what a worker has done since it first told.
type Work struct {
	Elapsed    time.Duration `json:"elapsed_ns"`
	Operations int64         `json:"operations"` // collectives that have ended
	Bytes      int64         `json:"bytes"`      // of their tensors
	Inside     time.Duration `json:"inside_ns"`  // spent in them, waiting for others included: who comes last spends least
}

// Progress is what a rank has done so far.
type Progress struct {
	Rank int    `json:"rank"`
	Host string `json:"host"`
	Work
}

func (e *Progress) String() string {
	return fmt.Sprintf("rank %d on %s: %d operations, %d bytes", e.Rank, e.Host, e.Operations, e.Bytes)
}

// Delay tells what a job waits for, when that takes long.
type Delay struct {
	Text  string        `json:"text"`
	Over  time.Duration `json:"over_ns,omitempty"`  // so long already
	Limit time.Duration `json:"limit_ns,omitempty"` // it is not waited for longer; 0 where nothing ends it, or something else does
	Flag  string        `json:"flag,omitempty"`     // of hora run, that sets the limit
}

func (e *Delay) String() string {
	text, over := e.Text, e.Over.Round(time.Second)
	switch {
	case e.Limit > 0:
		text += fmt.Sprintf("; %v so far, at most %v", over, e.Limit)
	case e.Over > 0:
		text += fmt.Sprintf("; %v so far", over)
	}
	if e.Flag != "" {
		text += " (" + e.Flag + ")"
	}
	return text
}

// Warning is what somebody should know although the job goes on.
type Warning struct {
	Host string `json:"host,omitempty"` // where that is so; empty when it is of no host in particular
	Text string `json:"text"`
}

func (e *Warning) String() string { return e.Text }

// Note tells what the launcher does, for --verbose.
type Note struct {
	Text string `json:"text"`
}

func (e *Note) String() string { return e.Text }

// Counted is "1 rank", "2 ranks".
func Counted(n int, one string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %ss", n, one)
}

// Listening says where a hub awaits agents.
type Listening struct {
	Port       int      `json:"port"`
	Addrs      []string `json:"addrs"`                 // every "ip:port" by which agents may reach it, likeliest first
	SecretFile string   `json:"secret_file,omitempty"` // where the secret lies that they have to prove
}

func (e *Listening) String() string {
	return fmt.Sprintf("agents are awaited at %s", strings.Join(e.Addrs, ", "))
}

// Registered is an agent that has come to a hub.
type Registered struct {
	Host   string `json:"host"`
	Slots  int    `json:"slots"`  // of this agent
	Count  int    `json:"count"`  // of workers that all agents together take
	Wanted int    `json:"wanted"` // how many the job waits for
}

func (e *Registered) String() string {
	return fmt.Sprintf("an agent has come from %s: %d of %d workers", e.Host, e.Count, e.Wanted)
}
