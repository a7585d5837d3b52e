package hora

import "hora/elastic/rendezvous"

// held is which ranks of an epoch somebody holds on purpose, by a debugger for one: their silence is no loss.
type held struct {
	epoch uint64
	ranks map[int]bool
}

// note takes the coordinator's word in. It may come before the epoch's world is made.
func (h *held) note(n rendezvous.Notice) {
	if h.ranks == nil || h.epoch != n.Epoch {
		*h = held{n.Epoch, map[int]bool{}}
	}
	h.ranks[n.Rank] = n.Reason != ""
}

func (h *held) has(epoch uint64, rank int) bool { return h.epoch == epoch && h.ranks[rank] }

// excused says whether a silent rank is waited for.
func (w *World) excused(rank int) bool {
	if m := w.member; m != nil {
		m.mu.Lock()
		defer m.mu.Unlock()
		return m.held.has(w.number, rank)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.held.has(w.number, rank)
}
