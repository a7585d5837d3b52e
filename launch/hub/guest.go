package hub

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"hora/internal/wire"
	"hora/launch/environ"
	"hora/launch/machine"
	"hora/launch/protocol"
	"hora/launch/reach"
)

// guest is one agent that has come, and the way to it.
type guest struct {
	hub      *Hub
	conn     net.Conn
	hello    protocol.Greeting
	name     string      // that no other agent has or had
	machine  string      // by which users know its machine
	retired  bool        // nothing is left of it but that it awaits the job's end; the hub's lock guards it
	opened   atomic.Bool // a job has taken it
	messages chan []byte
	ended    chan struct{} // closed when nothing comes any more
	err      error         // why, once that is so
	cut      chan struct{} // closed when nobody reads any more
	once     sync.Once     // for that
	// Of the reader:
	rest []byte // of a message
	done bool   // the agent has said that nothing is left
}

// pump reads what the agent says. One that goes before a job has taken it is forgotten.
func (g *guest) pump() {
	defer g.hub.readers.Done()
	rd := bufio.NewReaderSize(g.conn, 64<<10)
	for {
		kind, body, err := wire.ReadMessage(rd, nil, protocol.Limit)
		if err != nil {
			g.err = err
			g.conn.Close()
			close(g.ended)
			if !g.opened.Load() {
				g.hub.leave(g)
			}
			return
		}
		if kind == protocol.SayDone {
			g.hub.retire(g)
		}
		// Before a job has taken it there is room for a warning, and it says no more.
		select {
		case g.messages <- wire.AppendMessage(make([]byte, 0, wire.MessageHeaderBytes+len(body)), kind, body):
		case <-g.cut:
		}
	}
}

// Back returns what the agent has said of what it has been told.
func (g *guest) Back() *protocol.Back { return g.hello.Back }

// Greet says what the agent has said when it came.
func (g *guest) Greet() (*reach.Host, error) {
	h := &reach.Host{
		Machine: g.hello.ID, Addrs: g.hello.Addrs, Port: g.hello.Port, Silence: g.hub.cfg.Silence,
		Devices: g.hub.devices(g.machine),
		Knows:   true, Own: true,
	}
	return h, nil
}

// Read ends after the agent's farewell: what it says then is the hub's alone.
func (g *guest) Read(p []byte) (int, error) {
	for len(g.rest) == 0 {
		if g.done {
			return 0, io.EOF
		}
		select {
		case g.rest = <-g.messages:
		case <-g.ended:
			select {
			case g.rest = <-g.messages: // what came before the end
			default:
				return 0, g.err
			}
		}
		g.done = g.rest[4] == protocol.SayDone
	}
	n := copy(p, g.rest)
	g.rest = g.rest[n:]
	return n, nil
}

func (g *guest) Write(p []byte) (int, error) { return g.conn.Write(p) }

// Finish leaves the connection open: the agent hears by it how the job ends.
func (g *guest) Finish() error { return nil }

// Kill cuts the connection, which ends the agent's workers there.
func (g *guest) Kill() {
	g.once.Do(func() { close(g.cut) })
	g.conn.Close()
}

// Abandon does the same.
func (g *guest) Abandon() { g.Kill() }

// End says why nothing can be read any more.
func (g *guest) End(err error) *reach.Lost {
	if !g.done {
		g.Kill()
		time.AfterFunc(time.Second, func() { g.hub.leave(g) }) // when the job knows of it, its discovery may know too
	}
	why := "has ended"
	if !errors.Is(err, io.EOF) {
		why = fmt.Sprintf("is cut off (%v)", err)
	}
	text := fmt.Sprintf("its agent %s: look whether that machine is up, and what ended the agent there", why)
	return &reach.Lost{Text: text, Fault: protocol.Fault(protocol.ExitHost, "lost host %s: %s", g.machine, text)}
}

// Close leaves the rest to the hub's end.
func (g *guest) Close() {}

// Doing returns nothing: it is there.
func (g *guest) Doing() (verb, share string) { return "", "" }

// Doors returns this machine's addresses, or the loopback's where the agent is on it.
func (g *guest) Doors(port int, interfaces []string) []string {
	if g.hello.ID == g.hub.cfg.ID {
		return machine.WithPort([]string{machine.Loopback()}, port)
	}
	return machine.WithPort(machine.OwnAddresses(interfaces), port)
}

// Stands returns the agent's addresses, and nothing where it is on this machine.
func (g *guest) Stands(interfaces []string) []string {
	if g.hello.ID == g.hub.cfg.ID {
		return nil
	}
	return machine.WithPort(machine.Pick(g.hello.Addrs, interfaces), g.hello.Port)
}

// Dig fails: nobody but the agent itself knows how it came.
func (g *guest) Dig(_ context.Context, _, _ int) (string, error) {
	return "", errors.New("an agent that has come by itself has no other way")
}

// Master returns the port that the agent has claimed.
func (g *guest) Master() (int, error) { return g.hello.Master, nil }

// Environ returns what the launcher's workers on other hosts inherit too, and all devices that the agents of the
// machine may use: programs choose among them by local rank. What is the hub's alone they do not get.
func (g *guest) Environ(all []string) []string {
	mine := func(kv string) bool { return slices.Contains(g.hub.cfg.Mine, kv) }
	env := slices.DeleteFunc(environ.Inherited(all, false), mine)
	if ids := g.hub.devices(g.machine); len(ids) > 0 {
		env = environ.Merge(env, []string{environ.VisibleDevices + "=" + strings.Join(ids, ",")})
	}
	return env
}

// dismiss tells the agent how the job has ended, and waits a little for its end.
func (g *guest) dismiss(code int, text string) {
	dismiss(g.conn, code, text)
	select {
	case <-g.ended:
	case <-time.After(time.Second):
	}
	g.Kill()
}
