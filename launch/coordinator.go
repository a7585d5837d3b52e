package launch

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"hora/elastic"
	"hora/elastic/rendezvous"
	"hora/event"
	"hora/internal/secret"
	"hora/internal/wire"
	"hora/launch/machine"
	"hora/launch/protocol"
)

// coordinator is who serves the workers' meeting: a part of this process, or with settings.StateDir a child of it.
type coordinator interface {
	Exited(rank int, process, host, reason string)
	Drain(rank int, process, reason string)
	Halted(rank int, h rendezvous.Halt)
	Absent(rank int, is bool)
	Coming(rank int, process string, is, more bool)
	Close() error
}

// Messages between the launcher and such a child.
const (
	tellSetup  uint8 = 1 + iota // to it: JSON setup
	tellOrder                   // JSON order
	tellHalted                  // JSON holding
	tellBegin                   // all earlier orders have been told
	tellReady  uint8 = 64       // from it: JSON readiness
	tellWord   uint8 = 65       // JSON word
)

// setup is what a coordinator is made of.
type setup struct {
	Secret, Job, Host string
	Size, Min, Max    int
	Resets            int
	OnLoss            elastic.Policy
	Silence, Away     time.Duration
	Dir               string
	Fresh             bool   // the job's first
	Heard             uint64 // words that the launcher has heard of those before it
}

// order is what the launcher says; N counts those that change the job's course.
type order = rendezvous.Order

// holding says what holds a rank's process.
type holding struct {
	Rank int
	Halt rendezvous.Halt
}

// readiness is a coordinator's first message.
type readiness struct {
	Orders uint64 // that it knows of
	Fault  string // why it cannot begin
}

// word is one call of a rendezvous.Config's functions; N counts those that a coordinator which lives through the
// journal again repeats.
type word struct {
	N        uint64
	Kind     string
	Epoch    uint64              `json:",omitempty"`
	Members  []elastic.Place     `json:",omitempty"`
	Started  int                 `json:",omitempty"`
	Process  string              `json:",omitempty"`
	Rank     int                 `json:",omitempty"`
	Host     string              `json:",omitempty"`
	Reason   string              `json:",omitempty"`
	Silent   bool                `json:",omitempty"`
	Recovery rendezvous.Recovery `json:",omitzero"`
	Progress event.Work          `json:",omitzero"`
	Refused  secret.Refused      `json:",omitzero"`
	Wait     rendezvous.Wait     `json:",omitzero"`
}

func (w *word) process() rendezvous.Process {
	return rendezvous.Process{Rank: w.Started, Name: w.Process}
}

// speak calls what a word stands for.
func (w *word) speak(cfg *rendezvous.Config) {
	switch w.Kind {
	case "open":
		cfg.OnOpen(w.Epoch, w.Members)
	case "lost":
		cfg.OnLost(w.Epoch, w.Rank, w.Host, w.Reason)
	case "cause":
		cfg.OnCause(w.Epoch, w.Rank, w.Host, w.Reason)
	case "recovered":
		cfg.OnRecovered(w.Rank, w.Recovery)
	case "complete":
		cfg.OnComplete(w.Epoch)
	case "drain":
		cfg.OnDrain(w.process(), w.Rank, w.Host, w.Reason)
	case "severed":
		cfg.OnSevered(w.process(), time.Now(), w.Reason, w.Silent)
	case "member":
		cfg.OnMember(w.process())
	case "wait":
		cfg.OnWait(w.Wait)
	case "progress":
		if cfg.OnProgress != nil {
			cfg.OnProgress(event.Progress{Rank: w.Rank, Host: w.Host, Work: w.Progress})
		}
	case "refused":
		cfg.Strangers.Add(w.Refused)
	case "lived":
		if cfg.OnLived != nil {
			cfg.OnLived()
		}
	case "fault":
		cfg.OnFault(fmt.Errorf("%s", w.Reason))
	}
}

// Coordinate runs the child's side: it serves a job's meeting on door until in ends.
func Coordinate(in io.Reader, out io.Writer, door *os.File) error {
	kind, body, err := wire.ReadMessage(in, nil, protocol.Limit)
	if err != nil || kind != tellSetup {
		return fmt.Errorf("read the coordinator's task: kind %d, %w", kind, err)
	}
	var s setup
	if err := decodeJSON(body, &s); err != nil {
		return err
	}
	w := protocol.NewWriter(out, nil, false)
	defer w.Close()
	begin := make(chan struct{})
	server, journal, err := s.serve(door, w, begin)
	if err != nil {
		w.SendJSON(tellReady, readiness{Fault: err.Error()})
		return nil
	}
	defer journal.Close()
	defer server.Close()
	w.SendJSON(tellReady, readiness{Orders: journal.Orders()})
	for {
		kind, body, err := wire.ReadMessage(in, nil, protocol.Limit)
		if err != nil {
			return nil // the launcher has ended
		}
		switch kind {
		case tellBegin:
			close(begin)
		case tellHalted:
			var h holding
			if decodeJSON(body, &h) != nil {
				return nil
			}
			server.Halted(h.Rank, h.Halt)
		case tellOrder:
			var o order
			if decodeJSON(body, &o) != nil {
				return nil
			}
			server.Order(o)
		}
	}
}

func (s *setup) serve(door *os.File, w *protocol.Writer, begin <-chan struct{}) (*rendezvous.Server,
	*rendezvous.Journal, error,
) {
	b, err := hex.DecodeString(s.Secret)
	if err != nil || len(b) != len(secret.Secret{}) {
		return nil, nil, fmt.Errorf("read the coordinator's secret: %d bytes, %v", len(b), err)
	}
	ln, err := net.FileListener(door)
	if err != nil {
		return nil, nil, fmt.Errorf("listen for workers: %w", err)
	}
	journal, err := rendezvous.OpenJournal(s.Dir, s.Job, s.Fresh)
	for end := time.Now().Add(lockWait); !s.Fresh && errors.Is(err, rendezvous.ErrInUse) && time.Now().Before(end); {
		time.Sleep(lockPause) // a killed launcher's coordinator is about to end
		journal, err = rendezvous.OpenJournal(s.Dir, s.Job, s.Fresh)
	}
	if err != nil {
		ln.Close()
		return nil, nil, err
	}
	n := uint64(0) // only the coordinator's goroutine counts
	say := func(e word) {
		if n++; n > s.Heard {
			e.N = n
			w.SendJSON(tellWord, e)
		}
	}
	server := rendezvous.Serve(context.Background(), ln, rendezvous.Config{
		Secret: secret.Secret(b), Job: s.Job, Host: s.Host, Size: s.Size, Min: s.Min, Max: s.Max, OnLoss: s.OnLoss,
		Resets: s.Resets, Silence: s.Silence,
		Away: s.Away, OnLived: func() { w.SendJSON(tellWord, word{Kind: "lived"}) }, Reported: true, Journal: journal,
		Begin: begin,
		OnOpen: func(epoch uint64, members []elastic.Place) {
			say(word{Kind: "open", Epoch: epoch, Members: slices.Clone(members)})
		},
		OnLost: func(epoch uint64, rank int, host, reason string) {
			say(word{Kind: "lost", Epoch: epoch, Rank: rank, Host: host, Reason: reason})
		},
		OnCause: func(epoch uint64, rank int, host, reason string) {
			say(word{Kind: "cause", Epoch: epoch, Rank: rank, Host: host, Reason: reason})
		},
		OnComplete: func(epoch uint64) { say(word{Kind: "complete", Epoch: epoch}) },
		OnDrain: func(p rendezvous.Process, rank int, host, reason string) {
			say(word{Kind: "drain", Started: p.Rank, Process: p.Name, Rank: rank, Host: host, Reason: reason})
		},
		OnSevered: func(p rendezvous.Process, _ time.Time, reason string, silent bool) {
			say(word{Kind: "severed", Started: p.Rank, Process: p.Name, Reason: reason, Silent: silent})
		},
		OnMember: func(p rendezvous.Process) { say(word{Kind: "member", Started: p.Rank, Process: p.Name}) },
		OnRecovered: func(rank int, r rendezvous.Recovery) {
			say(word{Kind: "recovered", Rank: rank, Recovery: r})
		},
		// What follows is not repeated.
		OnProgress: func(p event.Progress) {
			w.SendJSON(tellWord, word{Kind: "progress", Rank: p.Rank, Host: p.Host, Progress: p.Work})
		},
		Strangers: secret.NewStrangers(func(r secret.Refused) { w.SendJSON(tellWord, word{Kind: "refused", Refused: r}) }),
		OnWait:    func(v rendezvous.Wait) { w.SendJSON(tellWord, word{Kind: "wait", Wait: v}) },
		OnFault:   func(err error) { w.SendJSON(tellWord, word{Kind: "fault", Reason: err.Error()}) },
	})
	return server, journal, nil
}

// A coordinator whose launcher was killed ends by itself: how long another waits for that, and how often it looks.
const (
	lockWait  = 10 * time.Second
	lockPause = 10 * time.Millisecond
)

// vainStarts is how many coordinators in a row may end before they serve, until the job is given up.
const vainStarts = 3

// kept is a coordinator that is a child of this process, started again when it is killed.
type kept struct {
	argv      []string
	environ   []string
	door      *os.File // where it listens; the port stays ours while there is none
	cfg       rendezvous.Config
	setup     setup
	restarted func(why string) // it is started again
	lost      func(why error)  // it cannot be
	done      chan struct{}    // closed when the reading goroutine has ended
	ledger    *ledger          // keeps the orders; nil where nobody adopts the job
	past      *pastOrders      // while the ledger is lived through: there is no child yet

	mu      sync.Mutex // guards what follows; held for appends and field access only
	process *os.Process
	writer  *protocol.Writer
	orders  []order // all numbered ones, of all launchers of the job
	halts   map[int]rendezvous.Halt
	open    bool // the present child is ready for orders
	closed  bool
}

// startKept starts the first child and waits until it serves.
func startKept(k *kept, ln *net.TCPListener) (*kept, error) {
	defer ln.Close()
	door, err := ln.File()
	if err != nil {
		return nil, fault(ExitSystem, "listen for workers: %v", err)
	}
	if err := os.MkdirAll(k.setup.Dir, 0o700); err != nil {
		door.Close()
		return nil, fault(ExitUsage, "keep the coordinator's state: %v: give --coordinator-state a directory that you may write to", err)
	}
	if k.setup.Dir, err = filepath.Abs(k.setup.Dir); err != nil {
		door.Close()
		return nil, fault(ExitSystem, "keep the coordinator's state: %v", err)
	}
	k.door, k.done = door, make(chan struct{})
	out, err := k.start()
	if err != nil {
		door.Close()
		return nil, err
	}
	first := make(chan error, 1)
	go k.run(out, first)
	if err := <-first; err != nil {
		k.Close()
		return nil, err
	}
	return k, nil
}

// start starts a child and tells it its task.
func (k *kept) start() (out *os.File, err error) {
	inR, inW, err := os.Pipe()
	if err != nil {
		return nil, fault(ExitSystem, "open pipe to the coordinator: %v: raise the limit with ulimit -n", err)
	}
	defer inR.Close()
	outR, outW, err := os.Pipe()
	if err != nil {
		inW.Close()
		return nil, fault(ExitSystem, "open pipe to the coordinator: %v: raise the limit with ulimit -n", err)
	}
	defer outW.Close()
	p, err := os.StartProcess(k.argv[0], k.argv, &os.ProcAttr{
		Env:   k.environ,
		Files: []*os.File{inR, outW, os.Stderr, k.door}, Sys: machine.Detached(),
	})
	if err != nil {
		inW.Close()
		outR.Close()
		return nil, fault(ExitSystem, "start the coordinator %s: %v", k.argv[0], err)
	}
	w := protocol.NewWriter(inW, inW, false)
	w.SendJSON(tellSetup, k.setup)
	k.mu.Lock()
	k.process, k.writer = p, w
	closed := k.closed
	k.mu.Unlock()
	if closed {
		w.Finish()
	}
	return outR, nil
}

// run hears one child after another. first gets nil when the first one serves, or what keeps it from that.
func (k *kept) run(out *os.File, first chan error) {
	defer close(k.done)
	vain := 0
	served := false // somebody may have worked with it
	for {
		vain++
		why := k.hear(out, func() {
			vain = 0
			if !served {
				served = true
				first <- nil
			}
		})
		out.Close()
		k.mu.Lock()
		k.open = false
		p, w, closed := k.process, k.writer, k.closed
		k.mu.Unlock()
		_ = p.Kill() // it has closed its output, and most likely ended
		state, err := p.Wait()
		w.Close()
		if closed {
			return
		}
		if why == nil {
			why = fmt.Errorf("the coordinator ended (%v)", state)
			if err != nil {
				why = fmt.Errorf("the coordinator ended: %w", err)
			}
		}
		if !served {
			first <- why
			return
		}
		if vain >= vainStarts {
			k.lost(fmt.Errorf("%w, as did %d in a row before they served", why, vain))
			return
		}
		k.setup.Fresh = false
		if out, err = k.start(); err != nil {
			k.lost(err)
			return
		}
		k.restarted(why.Error())
	}
}

// hear hears a child until its output ends; an error is its own word why it does not serve.
func (k *kept) hear(out io.Reader, serves func()) error {
	for {
		kind, body, err := wire.ReadMessage(out, nil, protocol.Limit)
		if err != nil {
			return nil
		}
		switch kind {
		case tellReady:
			var r readiness
			if decodeJSON(body, &r) != nil {
				continue
			}
			if r.Fault != "" {
				return fault(ExitSystem, "%s", r.Fault)
			}
			k.repeat(r.Orders)
			serves()
		case tellWord:
			var w word
			if json.Unmarshal(body, &w) != nil || w.N > 0 && w.N <= k.setup.Heard {
				continue
			}
			k.setup.Heard = max(k.setup.Heard, w.N)
			w.speak(&k.cfg)
		}
	}
}

// repeat tells a child the orders that it does not know of.
func (k *kept) repeat(known uint64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, o := range k.orders {
		if o.N > known {
			k.writer.SendJSON(tellOrder, o)
		}
	}
	k.writer.Send(tellBegin, nil)
	for rank, h := range k.halts {
		k.writer.SendJSON(tellHalted, holding{rank, h})
	}
	k.open = true
}

func (k *kept) order(o order) {
	if k.past != nil {
		k.past.order(o)
		return
	}
	o.N = uint64(len(k.orders) + 1) // nobody else appends to them
	k.ledger.order(o)
	k.mu.Lock()
	defer k.mu.Unlock()
	k.orders = append(k.orders, o)
	if k.open {
		k.writer.SendJSON(tellOrder, o)
	}
}

func (k *kept) Exited(rank int, process, host, reason string) {
	k.order(order{Kind: rendezvous.OrderExited, Rank: rank, Process: process, Host: host, Reason: reason})
}

func (k *kept) Drain(rank int, process, reason string) {
	k.order(order{Kind: rendezvous.OrderDrain, Rank: rank, Process: process, Reason: reason})
}

func (k *kept) Absent(rank int, is bool) {
	k.order(order{Kind: rendezvous.OrderAbsent, Rank: rank, Is: is})
}

func (k *kept) Coming(rank int, process string, is, more bool) {
	k.order(order{Kind: rendezvous.OrderComing, Rank: rank, Process: process, Is: is, More: more})
}

func (k *kept) Halted(rank int, h rendezvous.Halt) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.halts == nil {
		k.halts = map[int]rendezvous.Halt{}
	}
	k.halts[rank] = h
	if k.open {
		k.writer.SendJSON(tellHalted, holding{rank, h})
	}
}

// Close ends the child and joins what hears it.
func (k *kept) Close() error {
	k.mu.Lock()
	k.closed = true
	w := k.writer
	k.mu.Unlock()
	w.Finish() // the end of its input ends it
	<-k.done
	k.door.Close()
	return nil
}
