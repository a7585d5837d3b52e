// Package hub reaches agents that come by themselves: each dials in, proves the job's secret and says which machine it
// is on. To a job it is a reach whose hosts are these agents, and to one whose workers come and go the discovery that
// finds them. Agents of one machine are called alike, so that their ranks are local to each other, side by side, and
// share its cores and devices. It knows nothing of who starts agents.
//
// Goroutines: those of the gate, on which first words are awaited, and one a connection that reads it. Stop joins them.
package hub

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"hora/elastic"
	"hora/event"
	"hora/internal/secret"
	"hora/internal/wire"
	"hora/launch/agent"
	"hora/launch/machine"
	"hora/launch/protocol"
	"hora/launch/reach"
)

// Config is what a hub is made of.
type Config struct {
	Secret     secret.Secret
	Host       string   // this machine's name
	ID         string   // equal to those of agents on this machine; "" is this machine's own
	Listen     string   // "host:port"; "" is a free port at all addresses
	Interfaces []string // only addresses of these are told; none is all
	Silence    time.Duration
	Events     *event.Sink
	SecretFile string // told with the addresses
	Wanted     int    // how many workers the job waits for
	// Limits says how many slots of each machine may be used now, by its name; those that it does not name have none.
	// It is asked whenever agents are listed; nil is no limit.
	Limits func() (map[string]int, error)
	Mine   []string // variables of the hub alone, which workers do not get: agents have their own
	Heir   bool     // agents of a hub that was killed come back
}

// The limits of what an agent says before it is one, and of its time to do so.
const (
	maxHello  = 1 << 20
	helloWait = 10 * time.Second
	maxSlots  = 1 << 12
)

// Hub awaits agents. It is a launch.Reach.
type Hub struct {
	cfg     Config
	gate    *secret.Gate
	refused *secret.Strangers
	cert    *secret.Certificate
	changed chan struct{} // has a token when agents have come or gone
	news    chan struct{} // the same, for Gather
	readers sync.WaitGroup

	mu       sync.Mutex // guards what follows; never held over I/O
	guests   []*guest   // in the order of their coming
	machines []string   // names, in the order in which their first agents came
	byID     map[string]string
	numbers  map[string]int // agents that ever came, by machine
	came     chan struct{}  // closed, and made anew, when one has come
	over     bool
	last     *reach.Last     // agents wait for another hub; nil: they do not
	returned map[string]bool // agents that have come back from a killed hub, by name; nil: none may any more
}

// New opens the port and says where it is.
func New(ctx context.Context, cfg Config) (*Hub, error) {
	at := cfg.Listen
	if at == "" {
		at = ":0"
	}
	if cfg.ID == "" {
		cfg.ID = machine.HostID()
	}
	ln, err := machine.Listen(ctx, at)
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, protocol.Fault(protocol.ExitSystem, "listen for agents at %s: it is in use: choose another --listen, or none", at)
	case err != nil:
		return nil, protocol.Fault(protocol.ExitUsage, "listen for agents at %s: %v: give --listen an address of this machine, as 10.0.0.5:7070 or :7070", at, err)
	}
	h := &Hub{
		cfg: cfg, changed: make(chan struct{}, 1), news: make(chan struct{}, 1), byID: map[string]string{},
		numbers: map[string]int{}, came: make(chan struct{}),
		refused: secret.NewStrangers(func(r secret.Refused) {
			cfg.Events.Emit(&event.Warning{Text: r.String() + "; strangers are kept out, and nothing is lost by it"})
		}),
	}
	if cfg.Heir {
		h.returned = map[string]bool{}
	}
	if h.cert, err = secret.NewCertificate(); err != nil {
		ln.Close()
		return nil, err
	}
	h.gate, err = secret.NewGate(ln, secret.GateConfig{
		Secret: cfg.Secret, Host: cfg.Host, Accept: h.accept, Enter: h.enter, Where: "at the hub's port", Strangers: h.refused,
		Unproven: secret.Room(cfg.Wanted),
	})
	if err != nil {
		return nil, err
	}
	cfg.Events.Emit(&event.Listening{Port: h.Port(), Addrs: h.Addrs(), SecretFile: cfg.SecretFile})
	return h, nil
}

// Port returns where it listens.
func (h *Hub) Port() int { return h.gate.Addr().(*net.TCPAddr).Port }

// Addr returns what it listens at.
func (h *Hub) Addr() string { return h.gate.Addr().String() }

// Addrs lists every "ip:port" by which agents may reach it, likeliest first.
func (h *Hub) Addrs() []string {
	if ip := h.gate.Addr().(*net.TCPAddr).IP; !ip.IsUnspecified() {
		return machine.WithPort([]string{ip.String()}, h.Port())
	}
	own := machine.OwnAddresses(h.cfg.Interfaces)
	if len(h.cfg.Interfaces) == 0 {
		own = append(own, machine.Loopback())
	}
	return machine.WithPort(own, h.Port())
}

// accept judges who has proved the secret.
func (h *Hub) accept(peer secret.Identity) (secret.Identity, error) {
	me := secret.Identity{
		Purpose: agent.Purpose, Rank: secret.Anyone, Peer: secret.Anyone, Host: h.cfg.Host,
		Cert: h.cert.Hash,
	}
	if err := secret.Match(me, peer); err != nil {
		return me, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.over {
		return me, errors.New(protocol.JobOver)
	}
	return me, nil
}

// enter takes an agent in: its first message is its greeting.
func (h *Hub) enter(ctx context.Context, bare net.Conn, peer secret.Identity) {
	machine.Lively(bare, 2*h.cfg.Silence)
	conn, err := h.cert.Seal(ctx, bare, peer, false)
	if err != nil {
		return // it dialled another address too, or has ended
	}
	defer context.AfterFunc(ctx, func() { _ = conn.SetReadDeadline(time.Now()) })()
	_ = conn.SetReadDeadline(time.Now().Add(helloWait))
	kind, body, err := wire.ReadMessage(conn, nil, maxHello)
	var g protocol.Greeting
	if err != nil || kind != protocol.SayHello || json.Unmarshal(body, &g) != nil {
		conn.Close() // it dialled another address too, or has ended
		return
	}
	if g.Version != protocol.Version {
		dismiss(conn, protocol.ExitHost, fmt.Sprintf("the hub's hora speaks version %q and this one %q: install the same hora on both", protocol.Version, g.Version))
		conn.Close()
		return
	}
	_ = conn.SetReadDeadline(time.Time{})
	if g.Back == nil {
		g.Back = &protocol.Back{From: 1}
	}
	g.Slots = min(max(g.Slots, 1), maxSlots)
	gu := &guest{
		hub: h, conn: conn, hello: g, messages: make(chan []byte, 16), ended: make(chan struct{}),
		cut: make(chan struct{}), done: g.Back.Done, retired: g.Back.Done,
	}
	if code, why := h.register(gu); why != "" {
		dismiss(conn, code, why)
		conn.Close()
		return
	}
	go gu.pump()
}

// goneOn is what an agent hears that comes back when nobody awaits it: its work is others' by then.
const goneOn = "the hub has gone on without this agent, which it had lost"

// register gives an agent its names, or says how it is dismissed.
func (h *Hub) register(g *guest) (code int, why string) {
	h.mu.Lock()
	if back := g.hello.Back; back.Planned && (h.over || h.returned == nil || h.returned[back.Name]) {
		h.mu.Unlock()
		return protocol.ExitHost, goneOn
	}
	if h.over {
		h.mu.Unlock()
		return 0, protocol.JobOver
	}
	key := g.hello.ID
	if key == "" {
		key = "agent of " + g.hello.Name
	}
	if g.hello.Node != "" {
		key = "node " + g.hello.Node
	}
	back := g.hello.Back
	name := h.byID[key]
	if back.Planned {
		h.returned[back.Name] = true
		name = back.Host
		h.byID[key] = name
		if !slices.Contains(h.machines, name) {
			h.machines = append(h.machines, name)
		}
	}
	if name == "" {
		name = event.OneLine(cmp.Or(g.hello.Node, g.hello.Name))
		if name == "" {
			name = "host"
		}
		for n, base := 2, name; slices.Contains(h.machines, name); n++ {
			name = fmt.Sprintf("%s-%d", base, n) // another machine has that name
		}
		h.byID[key] = name
		h.machines = append(h.machines, name)
	}
	if g.machine, g.name = name, back.Name; !back.Planned {
		h.numbers[name]++
		g.name = agentName(name, h.numbers[name])
	}
	h.guests = append(h.guests, g)
	h.tellComing()
	count := 0
	for _, o := range h.guests {
		count += o.hello.Slots
	}
	h.readers.Add(1)
	h.mu.Unlock()
	if back.Planned {
		h.wake()
		return 0, ""
	}
	h.cfg.Events.Emit(&event.Registered{Host: name, Slots: g.hello.Slots, Count: count, Wanted: h.cfg.Wanted})
	h.wake()
	return 0, ""
}

// tellComing wakes who awaits an agent. The caller has the lock.
func (h *Hub) tellComing() {
	close(h.came)
	h.came = make(chan struct{})
}

// agentName returns what the how manieth agent of a machine is called.
func agentName(machine string, n int) string {
	if n == 1 {
		return machine
	}
	return fmt.Sprintf("%s#%d", machine, n)
}

// leave forgets an agent.
func (h *Hub) leave(g *guest) {
	h.mu.Lock()
	h.guests = slices.DeleteFunc(h.guests, func(o *guest) bool { return o == g })
	h.mu.Unlock()
	h.wake()
}

// retire lists an agent no more that takes no workers any more.
func (h *Hub) retire(g *guest) {
	h.mu.Lock()
	g.retired = true
	h.mu.Unlock()
	h.wake()
}

func (h *Hub) wake() {
	for _, c := range []chan struct{}{h.changed, h.news} {
		select {
		case c <- struct{}{}:
		default:
		}
	}
}

// Changed has a token when agents have come or gone since it was last taken.
func (h *Hub) Changed() <-chan struct{} { return h.changed }

// Find lists the agents at hand, those of one machine side by side, first the machine whose agent came first, with as
// many slots as may be used.
func (h *Hub) Find(context.Context) ([]elastic.Host, error) {
	var limits map[string]int
	if h.cfg.Limits != nil {
		var err error
		if limits, err = h.cfg.Limits(); err != nil {
			return nil, err
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	var hosts []elastic.Host
	for _, name := range h.machines {
		left := limits[name]
		for _, g := range h.guests {
			n := g.hello.Slots
			if h.cfg.Limits != nil {
				n = min(n, left)
			}
			if g.machine == name && n > 0 && !g.retired {
				hosts = append(hosts, elastic.Host{Name: g.name, Slots: n})
				left -= n
			}
		}
	}
	return hosts, nil
}

// quiet is how long no agent must have come before fewer than all are enough.
const quiet = 2 * time.Second

// Gather waits until agents for want workers have come, or for least and nobody more for a while.
func (h *Hub) Gather(ctx context.Context, want, least int, limit time.Duration,
	signals <-chan os.Signal,
) ([]elastic.Host, error) {
	began := time.Now()
	end := time.NewTimer(limit)
	defer end.Stop()
	calm := time.NewTimer(quiet)
	defer calm.Stop()
	word, pause := time.NewTimer(quiet), quiet
	defer word.Stop()
	for {
		hosts, err := h.Find(ctx)
		if errors.Is(err, elastic.ErrEnd) {
			return nil, protocol.Fault(1, "the job was told to end before it had begun")
		}
		n := 0
		for _, host := range hosts {
			n += host.Slots
		}
		if n >= want {
			return hosts, nil
		}
		select {
		case <-h.news:
			calm.Reset(quiet)
		case <-calm.C:
			if n >= least {
				return hosts, nil
			}
		case <-word.C:
			pause = min(2*pause, 30*time.Second)
			word.Reset(pause)
			h.cfg.Events.Emit(&event.Delay{Text: "waiting: " + come(n, want), Over: time.Since(began), Limit: limit, Flag: "--start-timeout"})
		case <-end.C:
			return nil, protocol.Fault(protocol.ExitTimeout, "%s in %v: start more agents, lower -np, or raise --start-timeout", come(n, want), limit)
		case s := <-signals:
			sig, _ := s.(syscall.Signal)
			switch sig {
			case syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT:
				return nil, protocol.Fault(protocol.ExitSignal+int(sig), "stopped by %s while agents were awaited", protocol.SignalName(sig))
			}
		case <-ctx.Done():
			return nil, protocol.Fault(1, "stopped while agents were awaited")
		}
	}
}

func come(n, want int) string {
	have := "have"
	if n == 1 || want == 1 {
		have = "has"
	}
	return fmt.Sprintf("%d of %s %s come", n, event.Counted(want, "worker"), have)
}

// Over tells all agents how the job has ended, and refuses who comes from now on.
func (h *Hub) Over(code int, text string) {
	h.mu.Lock()
	h.over = true
	guests := slices.Clone(h.guests)
	h.mu.Unlock()
	var told sync.WaitGroup
	for _, g := range guests {
		told.Go(func() { g.dismiss(code, text) })
	}
	told.Wait()
}

// Close does nothing: agents hear of the job's outcome, and newcomers are refused, until Stop.
func (h *Hub) Close() {}

// Stop ends all connections and joins what reads them.
func (h *Hub) Stop() {
	h.mu.Lock()
	h.over = true
	guests := slices.Clone(h.guests)
	h.mu.Unlock()
	h.gate.Close()
	for _, g := range guests {
		g.Kill()
	}
	h.readers.Wait()
	h.refused.Close()
}

// dismiss writes how a job has ended to an agent.
func dismiss(conn net.Conn, code int, text string) {
	_ = conn.SetWriteDeadline(time.Now().Add(time.Second))
	b := wire.AppendString(wire.AppendI64(nil, int64(code)), text)
	_, _ = conn.Write(wire.AppendMessage(nil, protocol.CmdOver, b)) // one that is gone needs no word
}
