package hub

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"hora/event"
	"hora/internal/secret"
	"hora/internal/wire"
	"hora/launch/agent"
	"hora/launch/protocol"
)

func open(t *testing.T, cfg Config) *Hub {
	t.Helper()
	cfg.Secret, cfg.Host, cfg.Listen, cfg.Silence = secret.New(), "here", "127.0.0.1:0", time.Second
	h, err := New(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.Stop)
	return h
}

// come is an agent that says who it is.
func (h *Hub) come(t *testing.T, g protocol.Greeting) net.Conn {
	t.Helper()
	conn, err := agent.Dial(t.Context(), h.Addrs(), h.cfg.Secret, g.Name, 10*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	body, _ := json.Marshal(g)
	conn.Write(wire.AppendMessage(nil, protocol.SayHello, body))
	return conn
}

func (h *Hub) list(t *testing.T) string {
	hosts, err := h.Find(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	names := make([]string, len(hosts))
	for i, host := range hosts {
		names[i] = fmt.Sprintf("%s:%d called %s", host.Name, host.Slots, h.Called(host.Name))
	}
	return strings.Join(names, ", ")
}

// until waits for the hub's agents to be these.
func (h *Hub) until(t *testing.T, want string) {
	t.Helper()
	look := time.NewTicker(5 * time.Millisecond)
	defer look.Stop()
	end := time.After(20 * time.Second)
	for h.list(t) != want {
		select {
		case <-look.C:
		case <-end:
			t.Fatalf("there are %q, want %q", h.list(t), want)
		}
	}
}

// Agents are listed by machine, those of one side by side; machines of one name are told apart; who goes before a job
// has begun is forgotten, and nobody gets its name again.
func TestMachinesAndTheirAgents(t *testing.T) {
	h := open(t, Config{Wanted: 5})
	v := protocol.Version
	h.come(t, protocol.Greeting{Version: v, Name: "a", ID: "1"})
	h.until(t, "a:1 called a")
	h.come(t, protocol.Greeting{Version: v, Name: "b", ID: "2", Slots: 2})
	h.until(t, "a:1 called a, b:2 called b")
	second := h.come(t, protocol.Greeting{Version: v, Name: "a", ID: "1"})
	h.until(t, "a:1 called a, a#2:1 called a, b:2 called b")
	h.come(t, protocol.Greeting{Version: v, Name: "a", ID: "3"})
	h.until(t, "a:1 called a, a#2:1 called a, b:2 called b, a-2:1 called a-2")
	second.Close()
	h.until(t, "a:1 called a, b:2 called b, a-2:1 called a-2")
	h.come(t, protocol.Greeting{Version: v, Name: "a", ID: "1"})
	h.until(t, "a:1 called a, a#3:1 called a, b:2 called b, a-2:1 called a-2")
	if hosts, err := h.Gather(t.Context(), 5, 5, 10*time.Second, nil); err != nil || len(hosts) != 4 {
		t.Errorf("%v, %v", hosts, err)
	}
}

// When the job has ended its agents hear how, and who comes later hears that.
func TestTheEndIsFinal(t *testing.T) {
	h := open(t, Config{Wanted: 1})
	conn := h.come(t, protocol.Greeting{Version: protocol.Version, Name: "a", ID: "1"})
	h.until(t, "a:1 called a")
	over := make(chan struct{})
	go func() {
		defer close(over)
		h.Over(7, "rank 1 on a: exit code 7")
	}()
	kind, body, err := wire.ReadMessage(conn, nil, protocol.Limit)
	d := wire.NewDecoder(body)
	if code, text := d.Int(0, 255), d.String(1000); err != nil || kind != protocol.CmdOver || code != 7 || text != "rank 1 on a: exit code 7" {
		t.Errorf("%v, kind %d: %d %q", err, kind, code, text)
	}
	conn.Close()
	<-over
	_, err = agent.Dial(t.Context(), h.Addrs(), h.cfg.Secret, "late", 10*time.Second)
	var refused *secret.RefusedError
	if !errors.As(err, &refused) || refused.Reason != protocol.JobOver {
		t.Errorf("a late agent hears %v", err)
	}
}

// An agent of another version is told so.
func TestAnAgentOfAnotherVersion(t *testing.T) {
	h := open(t, Config{Wanted: 1})
	conn := h.come(t, protocol.Greeting{Version: "0", Name: "a", ID: "1"})
	kind, body, err := wire.ReadMessage(conn, nil, protocol.Limit)
	if err != nil || kind != protocol.CmdOver || !strings.Contains(string(body), `speaks version "`+protocol.Version+`" and this one "0"`) {
		t.Errorf("%v, kind %d: %q", err, kind, body)
	}
	if h.list(t) != "" {
		t.Errorf("there are %q", h.list(t))
	}
}

// The first address that answers is taken; one that nobody is at holds nobody up.
func TestTheFirstAddressThatAnswers(t *testing.T) {
	h := open(t, Config{Wanted: 1})
	dead, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer dead.Close() // accepts, and says nothing
	conn, err := agent.Dial(t.Context(), slices.Concat([]string{dead.Addr().String()}, h.Addrs()), h.cfg.Secret, "a",
		20*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	conn.Close()
	_, err = agent.Dial(t.Context(), h.Addrs(), secret.New(), "a", 20*time.Second)
	if !errors.Is(err, secret.ErrProof) {
		t.Errorf("with another secret: %v", err)
	}
}

// Of a machine's devices the first of each agent come first, so that a local rank is the place of its own.
func TestDevicesInTheOrderOfLocalRanks(t *testing.T) {
	h := open(t, Config{Wanted: 4})
	for i, devices := range [][]string{{"4", "5"}, {"0", "1"}, {"1", "2", "3"}, nil} {
		g := protocol.Greeting{Version: protocol.Version, Name: "a", ID: "1", Devices: devices}
		if i == 3 {
			g.Name, g.ID = "b", "2"
		}
		h.come(t, g)
		h.awaitCount(t, i+1)
	}
	if a, b := h.devices("a"), h.devices("b"); !slices.Equal(a, []string{"4", "0", "1", "5", "2", "3"}) || b != nil {
		t.Errorf("a has %v, b %v", a, b)
	}
}

// awaitCount waits for so many agents.
func (h *Hub) awaitCount(t *testing.T, n int) {
	t.Helper()
	look := time.NewTicker(5 * time.Millisecond)
	defer look.Stop()
	end := time.After(20 * time.Second)
	for {
		if hosts, err := h.Find(t.Context()); err == nil && len(hosts) == n {
			return
		}
		select {
		case <-look.C:
		case <-end:
			t.Fatalf("there are %s, not %d", h.list(t), n)
		}
	}
}

// tap keeps what passes.
type tap struct {
	mu   sync.Mutex
	seen bytes.Buffer
}

func (p *tap) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.seen.Write(b)
}

func (p *tap) has(text string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return bytes.Contains(p.seen.Bytes(), []byte(text))
}

// Who sees the packets between an agent and its hub reads neither what they say nor the secret.
func TestNobodyOnTheWayReads(t *testing.T) {
	h := open(t, Config{Wanted: 1})
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	seen := &tap{}
	go func() {
		from, err := ln.Accept()
		if err != nil {
			return
		}
		to, err := net.Dial("tcp", h.Addrs()[0])
		if err != nil {
			from.Close()
			return
		}
		go func() {
			_, _ = io.Copy(io.MultiWriter(to, seen), from)
			to.Close()
		}()
		_, _ = io.Copy(io.MultiWriter(from, seen), to)
		from.Close()
	}()
	conn, err := agent.Dial(t.Context(), []string{ln.Addr().String()}, h.cfg.Secret, "a", 10*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	body, _ := json.Marshal(protocol.Greeting{Version: protocol.Version, Name: "said-on-the-way", ID: "1"})
	conn.Write(wire.AppendMessage(nil, protocol.SayHello, body))
	h.until(t, "said-on-the-way:1 called said-on-the-way")
	h.Over(3, "told-on-the-way")
	for _, text := range []string{"said-on-the-way", "told-on-the-way", h.cfg.Secret.Hex()} {
		if seen.has(text) {
			t.Errorf("%q can be read", text)
		}
	}
	if !seen.has("agent") { // of the card, which is in clear
		t.Error("nothing was seen at all")
	}
}

// TestLimits: an agent's machine is called as it says, no more of its slots are listed than there may be, and all that
// it has is listed again when there may; machines without a word in it have none.
func TestLimits(t *testing.T) {
	var mu sync.Mutex
	limits := map[string]int{"a": 1, "b": 3}
	h := open(t, Config{Wanted: 4, Limits: func() (map[string]int, error) {
		mu.Lock()
		defer mu.Unlock()
		if limits == nil {
			return nil, errors.New("no limits")
		}
		return maps.Clone(limits), nil
	}})
	set := func(to map[string]int) {
		mu.Lock()
		defer mu.Unlock()
		limits = to
	}
	v := protocol.Version
	h.come(t, protocol.Greeting{Version: v, Name: "host", ID: "1", Node: "a", Slots: 4})
	h.until(t, "a:1 called a")
	leaves := h.come(t, protocol.Greeting{Version: v, Name: "host", ID: "1", Node: "b", Slots: 2})
	h.until(t, "a:1 called a, b:2 called b")
	h.come(t, protocol.Greeting{Version: v, Name: "host", ID: "1", Node: "b", Slots: 2})
	h.until(t, "a:1 called a, b:2 called b, b#2:1 called b")
	leaves.Write(wire.AppendMessage(nil, protocol.SayDone, nil)) // and awaits the job's end
	h.until(t, "a:1 called a, b#2:2 called b")
	h.come(t, protocol.Greeting{Version: v, Name: "host", ID: "1", Node: "c", Slots: 4})
	set(map[string]int{"c": 3, "a": 4})
	h.until(t, "a:4 called a, c:3 called c")
	set(map[string]int{})
	h.until(t, "")
	set(nil)
	if _, err := h.Find(t.Context()); err == nil {
		t.Error("limits that cannot be read are none")
	}
}

// words keeps what is told.
type words chan string

func (words) Operation(*event.Operation) {}
func (w words) Event(e event.Event)      { w <- e.String() }

// Fewer than all are enough when nobody else has come for a while.
func TestFewerAreEnoughAfterAWhile(t *testing.T) {
	sink, told := &event.Sink{}, make(words, 100)
	defer sink.Add(told)()
	h := open(t, Config{Wanted: 3, Events: sink})
	h.come(t, protocol.Greeting{Version: protocol.Version, Name: "a", ID: "1"})
	h.until(t, "a:1 called a")
	hosts, err := h.Gather(t.Context(), 3, 1, 30*time.Second, nil)
	if err != nil || len(hosts) != 1 {
		t.Errorf("%v, %v", hosts, err)
	}
	_, err = h.Gather(t.Context(), 3, 2, 10*time.Millisecond, nil)
	if err == nil || err.Error() != "1 of 3 workers has come in 10ms: start more agents, lower -np, or raise --start-timeout" {
		t.Errorf("%v", err)
	}
	if first, second := <-told, <-told; !strings.HasPrefix(first, "agents are awaited at 127.0.0.1:") || second != "an agent has come from a: 1 of 3 workers" {
		t.Errorf("told %q, %q", first, second)
	}
}

// TestAwaitedAgentsAreToldOfAsProgress: what is said while a job waits reads as a wait, with how long it may last.
func TestAwaitedAgentsAreToldOfAsProgress(t *testing.T) {
	t.Parallel()
	sink, told := &event.Sink{}, make(words, 100)
	defer sink.Add(told)()
	h := open(t, Config{Wanted: 2, Events: sink})
	<-told // where agents are awaited
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	ended := make(chan error, 1)
	go func() {
		_, err := h.Gather(ctx, 2, 2, 10*time.Minute, nil)
		ended <- err
	}()
	want := regexp.MustCompile(`^waiting: 0 of 2 workers have come; \d+s so far, at most 10m0s \(--start-timeout\)$`)
	if got := <-told; !want.MatchString(got) {
		t.Errorf("told %q", got)
	}
	stop()
	if err := <-ended; err == nil {
		t.Error("a hub that was stopped has found all agents")
	}
}

// FuzzGuest gives a job anything that a proven agent may say: it is passed on in whole messages, up to the farewell.
func FuzzGuest(f *testing.F) {
	f.Add(wire.AppendMessage(wire.AppendMessage(nil, protocol.SayPong, nil), protocol.SayDone, []byte("x")))
	f.Add([]byte{1, 2, 3})
	f.Fuzz(func(t *testing.T, text []byte) {
		ours, theirs := net.Pipe()
		h := &Hub{changed: make(chan struct{}, 1), news: make(chan struct{}, 1)}
		g := &guest{
			hub: h, conn: ours, messages: make(chan []byte, 16), ended: make(chan struct{}),
			cut: make(chan struct{}),
		}
		g.opened.Store(true)
		h.readers.Add(1)
		go g.pump()
		go func() {
			theirs.Write(text)
			theirs.Close()
		}()
		got, err := io.ReadAll(g)
		if len(got) > len(text) || string(got) != string(text[:len(got)]) {
			t.Errorf("%q became %q (%v)", text, got, err)
		}
		g.Kill()
		h.readers.Wait()
	})
}
