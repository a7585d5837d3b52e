package hub

import (
	"context"
	"slices"
	"strconv"
	"strings"

	"hora/internal/wire"
	"hora/launch/machine"
	"hora/launch/protocol"
	"hora/launch/reach"
)

// Look has nothing to find out: agents have said what there is to know. An heir hears here which agents there were:
// what comes new must be called otherwise.
func (h *Hub) Look(_ context.Context, hosts []string) {
	if !h.cfg.Heir {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, host := range hosts {
		name, n := machineOf(host)
		if h.numbers[name] = max(h.numbers[name], n); !slices.Contains(h.machines, name) {
			h.machines = append(h.machines, name)
		}
	}
}

// machineOf returns of what machine an agent is, and the how manieth there.
func machineOf(host string) (name string, n int) {
	if at := strings.LastIndexByte(host, '#'); at > 0 {
		if n, err := strconv.Atoi(host[at+1:]); err == nil {
			return host[:at], n
		}
	}
	return host, 1
}

// Looking returns nothing.
func (h *Hub) Looking() []string { return nil }

func (h *Hub) guest(name string) *guest {
	h.mu.Lock()
	defer h.mu.Unlock()
	if i := slices.IndexFunc(h.guests, func(g *guest) bool { return g.name == name }); i >= 0 {
		return h.guests[i]
	}
	return nil
}

// Called returns the machine's name.
func (h *Hub) Called(host string) string {
	if g := h.guest(host); g != nil {
		return g.machine
	}
	name, _ := machineOf(host)
	return name
}

// devices lists what the agents of a machine may use: the first of each in the order of their coming, so that a local
// rank is the place of its own device, then the second of each; nil where none says.
func (h *Hub) devices(name string) []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	var ids []string
	for i, more := 0, true; more; i++ {
		more = false
		for _, g := range h.guests {
			if g.machine != name || i >= len(g.hello.Devices) {
				continue
			}
			more = true
			if id := g.hello.Devices[i]; !slices.Contains(ids, id) {
				ids = append(ids, id)
			}
		}
	}
	return ids
}

// Refuse refuses an input: it cannot follow the agents.
func (h *Hub) Refuse(j *reach.Job) error {
	if j.Input >= 0 {
		return protocol.Fault(protocol.ExitUsage, "--stdin %d: the ranks run where agents have come from, and this machine's input stays here: leave the flag away", j.Input)
	}
	return nil
}

// Door returns the loopback's address where all agents are on this machine.
func (h *Hub) Door(hosts []string) string {
	for _, name := range hosts {
		if g := h.guest(name); g == nil || g.hello.ID != h.cfg.ID {
			return ""
		}
	}
	return machine.Loopback()
}

// Last has agents that are taken from now on wait for another hub when this one dies. Those of a killed one may come
// back until an heir takes others; who has come by then and was not awaited is dismissed.
func (h *Hub) Last(l reach.Last) {
	h.mu.Lock()
	h.last = &l
	var late []*guest
	if h.returned != nil && !l.Resume {
		h.returned = nil
		h.tellComing()
		h.guests = slices.DeleteFunc(h.guests, func(g *guest) bool {
			is := g.hello.Back.Planned && g.opened.CompareAndSwap(false, true)
			if is {
				late = append(late, g)
			}
			return is
		})
	}
	h.mu.Unlock()
	for _, g := range late {
		h.readers.Go(func() { g.dismiss(protocol.ExitHost, goneOn) })
	}
}

// returning returns what is closed when an agent comes, and whether those of a killed hub still may.
func (h *Hub) returning() (came <-chan struct{}, may bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.came, h.returned != nil && !h.over
}

// Open takes an agent for a job, which may have to come back first.
func (h *Hub) Open(host string, _ *reach.Input) (reach.Way, error) {
	h.mu.Lock()
	last := h.last
	h.mu.Unlock()
	if last != nil && last.Resume {
		return h.awaits(host), nil
	}
	g := h.guest(host)
	if g == nil || !g.opened.CompareAndSwap(false, true) {
		return nil, protocol.Fault(protocol.ExitHost, "lost host %s: its agent has ended before the job began: start it again", host)
	}
	if last != nil {
		b := wire.AppendI64(nil, last.Wait.Milliseconds())
		_, _ = g.Write(wire.AppendMessage(nil, protocol.CmdLast, b)) // its end is heard of otherwise
	}
	return g, nil
}

// Cores leaves the choice to the agents.
func (h *Hub) Cores(hosts []string, _ machine.Bind) []string {
	return slices.Repeat([]string{"chosen there"}, len(hosts))
}

// Begun has nothing to start.
func (h *Hub) Begun(func(string)) {}
