// Package protocol is what the launcher and an agent say to each other: the messages, and the writer that queues them.
package protocol

import (
	"encoding/json"
	"fmt"
	"io"
	"sync"

	"hora/internal/wire"
	"hora/launch/machine"
)

// They speak over the agent's standard input and output. The pipe, or the ssh
// connection behind it, is the proof of who speaks.

// Version changes with any change of what follows.
const Version = "7"

// Messages of the launcher.
const (
	CmdPlan     uint8 = 1 + iota // JSON Plan: start these workers
	CmdSignal                    // rank (-1 = all), signal: to the workers' process groups
	CmdStop                      // milliseconds of grace: TERM, then KILL
	CmdWindDown                  // milliseconds of grace: KILL after it; the workers have had a signal already
	CmdPing
	CmdProbe  // JSON list of addresses: which can be reached
	CmdSecret // the job's secret, before the plan
	CmdStart  // JSON Worker: start this one of the plan's ranks again
	CmdDoing  // what do the workers do
	CmdCall   // bytes of the call that all workers get, in order
	CmdOver   // exit code, text: the job has ended; to agents that came by themselves
	CmdHeard  // number: what the agent has said up to that message is dealt with; to agents that outlive a launcher
	CmdLeave  // no other launcher will come; to such agents
	CmdLast   // milliseconds: so long another launcher is awaited; to agents that came by themselves, before the plan
)

// Messages of an agent.
const (
	SayHello   uint8 = 64 + iota // JSON Greeting
	SayStarted                   // rank, pid
	SayOutput                    // rank, stream, bytes
	SayExited                    // rank, code, signal, flags, HORA_PROCESS
	SayFailed                    // exit code, text: a worker could not be started
	SayWarning                   // text
	SayPong
	SayDone // nothing of the job is left on the host
	SayProbed
	SayHalted // rank, Halt: what holds its process, or that it runs again
	SayNotice // text: the host is about to go
	SayServed // rank 0's port is used
	SayDoing  // JSON list of Doing
	SayResult // rank, whether that is all, how many bytes were before, what it has left; before SayExited
	SayBack   // JSON Back: to each launcher, before all else
	SayOrphan // whoever started the agent has ended: its workers end too
)

const (
	Limit = 64 << 20
	Chunk = 32 << 10  // bytes of output per message
	Part  = 256 << 10 // bytes of a call or a result per message
)

// Plan is what one host is to do.
type Plan struct {
	Job     string       `json:"job"`
	Host    string       `json:"host"`
	Dir     string       `json:"dir"`
	Command []string     `json:"command"`
	Itself  bool         `json:"itself"`  // Command is arguments of the agent's own program
	Environ []string     `json:"environ"` // for all workers of the host
	Workers []Worker     `json:"workers"`
	Bind    machine.Bind `json:"bind"`
	Addr    string       `json:"addr"` // of the coordinator, as this host reaches it
	// Silence is how many milliseconds without a ping pass until one looks whether the launcher's host is there; 0
	// never looks.
	Silence int64  `json:"silence"`
	Hold    bool   `json:"hold"`     // stay when no worker is left: others may follow
	LogDir  string `json:"log_dir"`  // "" or where to leave a last word
	DrainOn string `json:"drain_on"` // see Spec
	First   int    `json:"first"`    // workers of other host names on the same machine that come before
	Total   int    `json:"total"`    // workers of all host names on the same machine
	Own     bool   `json:"own"`      // workers start in the agent's folder, with its environment below Environ
	Grace   int64  `json:"grace"`    // milliseconds between TERM and KILL where the launcher is gone; 0 is the agent's own
	Name    string `json:"name"`     // what the launcher calls the agent; no other is called so
	Call    int64  `json:"call"`     // bytes of the call, which come before the workers start; -1 where there is none
	Results bool   `json:"results"`  // what workers leave is passed on
	Apart   bool   `json:"apart"`    // whether anybody is at rank 0's MASTER_PORT is asked
}

// Worker is one process of a plan.
type Worker struct {
	Rank int      `json:"rank"`
	Slot int      `json:"slot"` // on its host: which share of the cores it gets
	Env  []string `json:"env"`  // over the plan's
	// which of all that are started as the rank; "" leaves that to the agent
	Process string `json:"process,omitempty"`
}

// Greeting is an agent's first message.
type Greeting struct {
	Version string   `json:"version"`
	Addrs   []string `json:"addrs"`  // of its network interfaces, "eth0 10.0.0.1"
	Port    int      `json:"port"`   // where it listens until the plan comes, for others to try
	Master  int      `json:"master"` // a port for rank 0's server, if that runs here
	// Of one that has come by itself:
	Name    string   `json:"name,omitempty"`    // its machine's
	ID      string   `json:"id,omitempty"`      // equal for agents of one machine
	Slots   int      `json:"slots,omitempty"`   // how many workers it takes
	Devices []string `json:"devices,omitempty"` // that it may use
	Node    string   `json:"node,omitempty"`    // what its machine is called, where it knows better; no other machine is
	Back    *Back    `json:"back,omitempty"`
}

// Back is how an agent that outlives its launcher greets each one.
type Back struct {
	Version string      `json:"version"`
	Pid     int         `json:"pid"`
	From    uint64      `json:"from"`           // number of the message that follows; the first of all is 1
	Planned bool        `json:"planned"`        // the plan has come
	Starts  map[int]int `json:"starts"`         // by rank: how many times it was told to start one
	Called  int64       `json:"called"`         // bytes of the call that have come
	Done    bool        `json:"done,omitempty"` // its SayDone, and so all that it has said, has been dealt with
	Name    string      `json:"name,omitempty"` // what an earlier launcher called its agent, of one that has come by itself,
	Host    string      `json:"host,omitempty"` // and its machine
}

// Writer queues messages and writes them from one goroutine. Output waits for room; all else never waits, so that
// the agent's owner cannot be held up by a terminal that is paused.
type Writer struct {
	w    io.Writer
	end  io.Closer     // closed after the last message; may be nil
	open chan struct{} // closed when writing may begin
	room chan struct{} // one token per output message in the queue

	mu     sync.Mutex // guards queue and closed; held for appends only
	queue  []queued
	closed bool
	wake   chan struct{}
	done   chan struct{}
	err    error // valid after done
}

type queued struct {
	b      []byte
	output bool
}

// NewWriter starts a writer; a held one writes nothing before Release.
func NewWriter(w io.Writer, end io.Closer, held bool) *Writer {
	p := &Writer{
		w: w, end: end, room: make(chan struct{}, 64), wake: make(chan struct{}, 1),
		done: make(chan struct{}), open: make(chan struct{}),
	}
	if !held {
		close(p.open)
	}
	go p.run()
	return p
}

// Release lets a held writer write; it is called once.
func (p *Writer) Release() { close(p.open) }

func (p *Writer) Send(kind uint8, body []byte) {
	b, at := wire.BeginMessage(make([]byte, 0, wire.MessageHeaderBytes+len(body)), kind)
	p.put(queued{b: wire.EndMessage(append(b, body...), at)})
}

func (p *Writer) SendJSON(kind uint8, v any) {
	body, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("launch: encode message %d: %v", kind, err)) // only plain structs are sent
	}
	p.Send(kind, body)
}

// Output queues a chunk of a worker's output and waits for room, or for the pipe's end.
func (p *Writer) Output(rank int, stream uint8, data []byte) {
	select {
	case p.room <- struct{}{}:
	case <-p.done:
		return
	}
	b, at := wire.BeginMessage(make([]byte, 0, wire.MessageHeaderBytes+13+len(data)), SayOutput)
	b = wire.AppendI64(b, int64(rank))
	b = wire.AppendU8(b, stream)
	b = wire.AppendBytes(b, data)
	p.put(queued{b: wire.EndMessage(b, at), output: true})
}

// Bulk queues a part of something large, and waits for room as Output does. It says whether the pipe is still there.
func (p *Writer) Bulk(kind uint8, body []byte) bool {
	select {
	case p.room <- struct{}{}:
	case <-p.done:
		return false
	}
	b, at := wire.BeginMessage(make([]byte, 0, wire.MessageHeaderBytes+len(body)), kind)
	p.put(queued{b: wire.EndMessage(append(b, body...), at), output: true})
	return true
}

func (p *Writer) put(q queued) {
	p.mu.Lock()
	if !p.closed {
		p.queue = append(p.queue, q)
	}
	p.mu.Unlock()
	p.signal()
}

func (p *Writer) signal() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

func (p *Writer) run() {
	defer close(p.done)
	if p.end != nil {
		defer p.end.Close()
	}
	<-p.open
	for range p.wake {
		p.mu.Lock()
		queue, closed := p.queue, p.closed
		p.queue = nil
		p.mu.Unlock()
		for _, q := range queue {
			if _, err := p.w.Write(q.b); err != nil {
				p.err = err
				return
			}
			if q.output {
				<-p.room
			}
		}
		if closed {
			return
		}
	}
}

// Finish lets the writer end after what is queued.
func (p *Writer) Finish() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.signal()
}

// Close writes what is queued and joins the writer.
func (p *Writer) Close() error {
	p.Finish()
	<-p.done
	return p.err
}

// Doing is what an agent says of one rank's process.
type Doing struct {
	Rank int
	Text string
}
