package tcp

import (
	"fmt"

	"hora/internal/wire"
	"hora/transport"
)

// Tell hands a rank's engine a message over the control connection.
func (m *Mesh) Tell(to int, msg []byte) error {
	if err := m.checkRank(to); err != nil {
		return err
	}
	if len(msg) > transport.MaxTell {
		return fmt.Errorf("tell rank %d: %d bytes, at most %d", to, len(msg), transport.MaxTell)
	}
	if to == m.cfg.Rank {
		return fmt.Errorf("tell rank %d: that is this rank", to)
	}
	if !m.tell(to, wire.Control{
		Kind: wire.ControlTell, Group: m.cfg.Group, Origin: m.cfg.Rank, To: to, Lost: -1,
		Text: msg,
	}) {
		return fmt.Errorf("tell rank %d on host %s: its control connection is not there or full", to, m.HostName(to))
	}
	return nil
}

// told is what was told before anybody listened; see earliest for its bound.
type told struct {
	from int
	msg  []byte
}

// OnTell installs who hears what other ranks tell. While what came before is handed over, what
// comes is put behind it.
func (m *Mesh) OnTell(f func(from int, msg []byte)) {
	m.mu.Lock()
	for len(m.told) > 0 {
		list := m.told
		m.told = nil
		m.mu.Unlock()
		for _, t := range list {
			if f != nil {
				f(t.from, t.msg)
			}
		}
		m.mu.Lock()
	}
	m.toldBytes = 0
	m.onTell, m.listening = f, true
	m.mu.Unlock()
}

// hearTold hands on what another rank tells this one's engine, or keeps it until that listens.
func (m *Mesh) hearTold(from int, msg []byte) {
	if len(msg) > transport.MaxTell {
		return
	}
	m.mu.Lock()
	f := m.onTell
	full := false
	if !m.listening {
		if full = m.toldBytes+keptBytes(msg) > maxEarlyBytes; !full {
			m.toldBytes += keptBytes(msg)
			m.told = append(m.told, told{from, append([]byte(nil), msg...)})
		}
	}
	m.mu.Unlock()
	switch {
	case full:
		m.Fail(errTooEarly(m.cfg.Group))
	case f != nil:
		f(from, msg)
	}
}

// tell queues a control message for one rank.
func (m *Mesh) tell(to int, c wire.Control) bool {
	return m.n.tell(m.cfg.Peers[to], wire.AppendControl(nil, c))
}

// broadcast tells all ranks: directly in a small group, in a large one along the
// edges, where relay passes it on.
func (m *Mesh) broadcast(c wire.Control) { m.relay(-1, c) }

// relay passes a message to all neighbours but the one it came from. Its receivers
// relay what is new to them only, so it ends.
func (m *Mesh) relay(from int, c wire.Control) {
	if from >= 0 && m.Size() <= m.cfg.full {
		return // everybody heard it from the origin
	}
	text := wire.AppendControl(nil, c)
	for r, p := range m.cfg.Peers {
		if r != from && r != c.Origin && m.near(r) {
			m.n.tell(p, text)
		}
	}
}

// tick is the node's heartbeat: a rank that has waited long in one verb tells where
// it is, and what it waits for is asked for again.
func (m *Mesh) tick() {
	verbs := m.verbs.Load()
	waited := verbs&1 == 1 && verbs == m.lastVerbs
	idle := verbs&1 == 0 && verbs == m.lastVerbs
	m.lastVerbs = verbs
	m.mu.Lock()
	s, wanting, failed := m.stamp, m.wanting, m.failed
	a := m.present()
	var unanswered []int
	m.idleTicks++
	if !idle {
		m.idleTicks = 0
	}
	if q := m.asks[a]; q != nil && m.idleTicks >= 2 && q.texts[m.cfg.Rank] == nil {
		// This rank finished the operation before it heard that others could not.
		for r, text := range q.texts {
			if text != nil {
				unanswered = append(unanswered, r)
			}
		}
	}
	m.mu.Unlock()
	if failed != nil {
		return
	}
	for _, r := range unanswered {
		m.tell(r, m.past(s.Seq, s.Print))
	}
	if waited && wanting >= 0 {
		m.want(wanting)
	}
	if waited && s.Seq&transport.PairSeq == 0 {
		m.broadcast(wire.Control{
			Kind: wire.ControlProbe, Group: m.cfg.Group, Origin: m.cfg.Rank, To: -1, Lost: -1, Seq: s.Seq,
			Print: s.Print,
		})
	}
}
