package hub

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"hora/launch/protocol"
	"hora/launch/reach"
)

// awaited is the way to an agent that comes back from a hub that was killed. Until it has greeted there is nothing to
// write to, and when it is given up before, nobody takes it any more.
type awaited struct {
	hub  *Hub
	name string
	gone chan struct{} // closed when it is given up

	mu    sync.Mutex // guards what follows; held for field access only
	its   *guest     // once it is there
	given bool       // up
}

func (h *Hub) awaits(name string) *awaited {
	return &awaited{hub: h, name: name, gone: make(chan struct{})}
}

// backWithin is how long agents may take to find another hub: each tries it several times a second.
const backWithin = 5 * time.Second

var errNotBack = errors.New("it has not come back")

// guest returns the agent, nil while it is not there.
func (a *awaited) guest() *guest {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.its
}

// meet takes it, unless it has been given up.
func (a *awaited) meet(g *guest) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.given {
		a.its = g
	}
	return !a.given
}

// Greet waits until it is there.
func (a *awaited) Greet() (*reach.Host, error) {
	end := time.NewTimer(backWithin)
	defer end.Stop()
	for {
		came, may := a.hub.returning()
		if g := a.hub.guest(a.name); may && g != nil && g.opened.CompareAndSwap(false, true) {
			if !a.meet(g) {
				g.Kill()
				return nil, errNotBack
			}
			return g.Greet()
		}
		if !may {
			return nil, errNotBack
		}
		select {
		case <-came:
		case <-end.C:
			return nil, errNotBack
		case <-a.gone:
			return nil, errNotBack
		}
	}
}

// Read reads what the agent says.
func (a *awaited) Read(p []byte) (int, error) { return a.guest().Read(p) }

func (a *awaited) Write(p []byte) (int, error) {
	g := a.guest()
	if g == nil {
		return 0, io.ErrClosedPipe
	}
	return g.Write(p)
}

// Back returns what the agent has said of what it has been told.
func (a *awaited) Back() *protocol.Back { return a.guest().Back() }

// Finish leaves the connection open, as that to any agent.
func (a *awaited) Finish() error { return nil }

// Kill cuts the connection, or ends waiting for it.
func (a *awaited) Kill() {
	a.mu.Lock()
	g := a.its
	if g == nil && !a.given {
		a.given = true
		close(a.gone)
	}
	a.mu.Unlock()
	if g != nil {
		g.Kill()
	}
}

// Abandon does the same.
func (a *awaited) Abandon() { a.Kill() }

// End says why nothing can be read any more.
func (a *awaited) End(err error) *reach.Lost {
	if g := a.guest(); g != nil {
		return g.End(err)
	}
	machine, _ := machineOf(a.name)
	text := "its agent has not come back to the hub that has taken the job over: look whether that machine is up"
	return &reach.Lost{Text: text, Fault: protocol.Fault(protocol.ExitHost, "lost host %s: %s", machine, text)}
}

// Close leaves the rest to the hub's end.
func (a *awaited) Close() {}

// Doing returns nothing: nobody knows what an agent that is not there does.
func (a *awaited) Doing() (verb, share string) { return "", "" }

// Doors returns by which addresses it reaches this machine.
func (a *awaited) Doors(port int, interfaces []string) []string {
	return a.guest().Doors(port, interfaces)
}

// Stands returns by which addresses others reach it.
func (a *awaited) Stands(interfaces []string) []string { return a.guest().Stands(interfaces) }

// Dig fails, as for any agent.
func (a *awaited) Dig(ctx context.Context, port, at int) (string, error) {
	return a.guest().Dig(ctx, port, at)
}

// Master returns the port that the agent has claimed.
func (a *awaited) Master() (int, error) { return a.guest().Master() }

// Environ returns what workers there inherit; while what the killed hub had told an agent is lived through nobody uses
// it.
func (a *awaited) Environ(all []string) []string {
	if g := a.guest(); g != nil {
		return g.Environ(all)
	}
	return all
}
