package launch

import (
	"encoding/json"
	"fmt"
	"io"
	"sync"

	"hora/internal/wire"
)

// What the launcher and an agent say to each other, over the agent's standard input and output. The pipe, or the ssh
// connection behind it, is the proof of who speaks.

// protocolVersion changes with any change of what follows.
const protocolVersion = "2"

// Messages of the launcher.
const (
	cmdPlan     uint8 = 1 + iota // JSON plan: start these workers
	cmdSignal                    // rank (-1 = all), signal: to the workers' process groups
	cmdStop                      // milliseconds of grace: TERM, then KILL
	cmdWindDown                  // milliseconds of grace: KILL after it; the workers have had a signal already
	cmdPing
	cmdProbe  // JSON list of addresses: which can be reached
	cmdSecret // the job's secret, before the plan
	cmdStart  // JSON worker: start this one of the plan's ranks again
	cmdDoing  // what do the workers do
)

// Messages of an agent.
const (
	sayHello   uint8 = 64 + iota // JSON greeting
	sayStarted                   // rank, pid
	sayOutput                    // rank, stream, bytes
	sayExited                    // rank, code, signal, flags
	sayFailed                    // rank, exit code, text: the worker could not be started
	sayWarning                   // text
	sayPong
	sayDone // nothing of the job is left on the host
	sayProbed
	sayHalted // rank, Halt: what holds its process, or that it runs again
	sayNotice // text: the host is about to go
	sayServed // rank 0's port is used
	sayDoing  // JSON list of doing
)

const (
	agentLimit = 64 << 20
	chunk      = 32 << 10 // bytes of output per message
)

// plan is what one host is to do.
type plan struct {
	Job     string   `json:"job"`
	Host    string   `json:"host"`
	Dir     string   `json:"dir"`
	Command []string `json:"command"`
	Itself  bool     `json:"itself"`  // Command is arguments of the agent's own program
	Environ []string `json:"environ"` // for all workers of the host
	Workers []worker `json:"workers"`
	Bind    Bind     `json:"bind"`
	Addr    string   `json:"addr"`     // of the coordinator, as this host reaches it
	Silence int64    `json:"silence"`  // milliseconds without a ping after which to look whether the launcher's host is there; 0 never looks
	Hold    bool     `json:"hold"`     // stay when no worker is left: others may follow
	LogDir  string   `json:"log_dir"`  // "" or where to leave a last word
	DrainOn string   `json:"drain_on"` // see Spec
	First   int      `json:"first"`    // workers of other host names on the same machine that come before
	Total   int      `json:"total"`    // workers of all host names on the same machine
}

// worker is one process of a plan.
type worker struct {
	Rank int      `json:"rank"`
	Slot int      `json:"slot"` // on its host: which share of the cores it gets
	Env  []string `json:"env"`  // over the plan's
}

// greeting is an agent's first message.
type greeting struct {
	Version string   `json:"version"`
	Addrs   []string `json:"addrs"`  // of its network interfaces, "eth0 10.0.0.1"
	Port    int      `json:"port"`   // where it listens until the plan comes, for others to try
	Master  int      `json:"master"` // a port for rank 0's server, if that runs here
}

// pipeWriter queues messages and writes them from one goroutine. Output waits for room; all else never waits, so that
// the agent's owner cannot be held up by a terminal that is paused.
type pipeWriter struct {
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

// newPipeWriter starts a writer; a held one writes nothing before release.
func newPipeWriter(w io.Writer, end io.Closer, held bool) *pipeWriter {
	p := &pipeWriter{w: w, end: end, room: make(chan struct{}, 64), wake: make(chan struct{}, 1), done: make(chan struct{}), open: make(chan struct{})}
	if !held {
		close(p.open)
	}
	go p.run()
	return p
}

// release lets a held writer write; it is called once.
func (p *pipeWriter) release() { close(p.open) }

func (p *pipeWriter) send(kind uint8, body []byte) {
	b, at := wire.BeginMessage(make([]byte, 0, wire.MessageHeaderBytes+len(body)), kind)
	p.put(queued{b: wire.EndMessage(append(b, body...), at)})
}

func (p *pipeWriter) sendJSON(kind uint8, v any) {
	body, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("launch: encode message %d: %v", kind, err)) // only plain structs are sent
	}
	p.send(kind, body)
}

// output queues a chunk of a worker's output and waits for room, or for the pipe's end.
func (p *pipeWriter) output(rank int, stream uint8, data []byte) {
	select {
	case p.room <- struct{}{}:
	case <-p.done:
		return
	}
	b, at := wire.BeginMessage(make([]byte, 0, wire.MessageHeaderBytes+13+len(data)), sayOutput)
	b = wire.AppendI64(b, int64(rank))
	b = wire.AppendU8(b, stream)
	b = wire.AppendBytes(b, data)
	p.put(queued{b: wire.EndMessage(b, at), output: true})
}

func (p *pipeWriter) put(q queued) {
	p.mu.Lock()
	if !p.closed {
		p.queue = append(p.queue, q)
	}
	p.mu.Unlock()
	p.signal()
}

func (p *pipeWriter) signal() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

func (p *pipeWriter) run() {
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

// finish lets the writer end after what is queued.
func (p *pipeWriter) finish() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.signal()
}

// close writes what is queued and joins the writer.
func (p *pipeWriter) close() error {
	p.finish()
	<-p.done
	return p.err
}
