package hub

import (
	"context"
	"slices"

	"hora/launch/machine"
	"hora/launch/protocol"
	"hora/launch/reach"
)

// Look has nothing to find out: agents have said what there is to know.
func (h *Hub) Look(context.Context, []string) {}

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
	return host
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

// Open takes an agent for a job.
func (h *Hub) Open(host string, _ *reach.Input) (reach.Way, error) {
	g := h.guest(host)
	if g == nil || !g.opened.CompareAndSwap(false, true) {
		return nil, protocol.Fault(protocol.ExitHost, "lost host %s: its agent has ended before the job began: start it again", host)
	}
	return g, nil
}

// Cores leaves the choice to the agents.
func (h *Hub) Cores(hosts []string, _ machine.Bind) []string {
	return slices.Repeat([]string{"chosen there"}, len(hosts))
}

// Begun has nothing to start.
func (h *Hub) Begun(func(string)) {}
