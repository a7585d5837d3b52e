// Package reach is the seam between a job and its hosts: how the agent on a host comes to be and is heard. A job knows
// the two interfaces here and nothing of what stands behind them: a process of this machine, ssh, or an agent that has
// dialled in by itself.
//
// It starts no goroutine and decides nothing about jobs.
package reach

import (
	"context"
	"io"
	"os"
	"time"

	"hora/internal/secret"
	"hora/launch/machine"
	"hora/launch/protocol"
)

// Reach makes agents be on the hosts of one job. Its methods are called by the job's owner alone, but for Look and
// Looking.
type Reach interface {
	// Look finds out what is to be known of some hosts before an agent is there. It may take as long as a name server
	// does.
	Look(ctx context.Context, hosts []string)
	// Looking lists the hosts that Look has not done with.
	Looking() []string
	// Called is by what name users and workers know a host. Hosts that are called alike are one: their ranks are local
	// to each other.
	Called(host string) string
	// Refuse says what of a job cannot be on these hosts, before anything of it is started.
	Refuse(j *Job) error
	// Door is at what address of this machine the job must listen for these hosts to come to it: "" is all of them,
	// another is one that they all share with this machine alone.
	Door(hosts []string) string
	// Open begins to reach a host. An error, a *protocol.Error, ends the job where it has not begun.
	Open(host string, in *Input) (Way, error)
	// Cores says for each rank, by its host, to which cores it would be bound.
	Cores(hosts []string, bind machine.Bind) []string
	// Begun is called when all agents have been told what to start.
	Begun(warn func(text string))
	// Close gives back what is held for the whole job, after all ways are closed.
	Close()
}

// Job is what Refuse looks at.
type Job struct {
	Hosts []string // of each rank
	GPUs  int      // for each rank; 0 asks for none
	Input int      // the rank that is to have the standard input by name; -1 is none
}

// Lasting is a Reach whose agents can wait out the death of this process, if it is told so before any is opened.
type Lasting interface {
	Last(l Last)
}

// Last says how: another process takes over by what lies in a folder.
type Last struct {
	Dir    string
	Secret secret.Secret
	Wait   time.Duration // how long agents wait for somebody
	Resume bool          // they are there already
}

// Returned is a way to such an agent. What the agent said of itself is known once it has greeted.
type Returned interface {
	Back() *protocol.Back
}

// Input is the standard input that a host's rank is to have, where its agent can be handed one; nil is none.
type Input struct {
	File *os.File
	Rank int
}

// Way leads to the agent of one host: first its greeting, then messages in both directions, until it ends. Greet, Read
// and End are called by one goroutine, in this order; all else by others meanwhile.
type Way interface {
	// Greet waits for the agent and returns what it says of its host. It is called once, before anything is read or
	// written.
	Greet() (*Host, error)
	io.Reader
	io.Writer
	// Finish says that nothing more will be written: the agent ends when it has done with what it was told.
	Finish() error
	// Kill cuts the way at once.
	Kill()
	// Abandon gives up an agent that has not said that it is done, when the job is over. One that ends by itself is
	// left to.
	Abandon()
	// End waits, when nothing can be read any more, until the way is gone, and says why that is.
	End(err error) *Lost
	// Close gives back what is held for it, after End.
	Close()

	// Doing is what the way is busy with before the agent has answered, "copying hora to" and "1 of 2 MB"; "" is
	// nothing that is known.
	Doing() (verb, share string)
	// Doors lists the addresses by which the host may reach a port of this machine, likeliest first, among those of
	// some interfaces of this machine; no names are all.
	Doors(port int, interfaces []string) []string
	// Stands lists the addresses by which other hosts may reach rank 0's server there, each with a port at which
	// somebody listens now, likeliest first, among those of some interfaces; none stands for those by which the others
	// reach this machine. It is called after Greet.
	Stands(interfaces []string) []string
	// Dig makes a way for the host to a port of this machine that it reaches by none of the addresses: from a port of
	// the host itself, at, or from any that is free there where at is 0. Another call fills the way of the one before.
	// It is refused where it would lead to this process alone, and not to the ranks that the host must reach.
	Dig(ctx context.Context, port, at int) (addr string, err error)
	// Master chooses a port of the host for rank 0's server, which stays the job's while the way is open.
	Master() (port int, err error)
	// Environ is what workers there inherit of this process's environment.
	Environ(environ []string) []string
}

// Host is what is known of a host once its agent has answered.
type Host struct {
	Machine string        // equal for two hosts that are one machine; "" is like none
	Addrs   []string      // of its interfaces, "eth0 10.0.0.1"
	Port    int           // where somebody listens there, for others to try; 0 is the job's own port
	Digs    string        // what Dig makes a way with, for sentences; "" where it fails
	Silence time.Duration // how long it may be silent until it counts as lost; 0 where its end is always seen
	Devices []string      // to deal from; nil where they are counted from 0
	Knows   bool          // its agent knows the job's secret, which is not told it then
	Own     bool          // its workers start in the agent's own folder and environment
}

// Lost says why a way is gone.
type Lost struct {
	Text  string          // without the host's name
	Fault *protocol.Error // what it means where the agent had not answered yet
}
