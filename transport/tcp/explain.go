package tcp

import (
	"time"

	"hora/internal/wire"
	"hora/transport"
)

// ask names an operation that failed to match; peer is -1 unless it is one of a pair.
type ask struct {
	seq  uint64
	peer int
}

// inquiry is what is known about it, by rank.
type inquiry struct {
	texts  [][]byte
	came   []bool // has said something: a description, or that it is past the operation
	theirs transport.Stamp
	first  int // who came first, for the error
}

// maxAsks bounds the operations that peers may have explained.
const maxAsks = 32

// about returns the inquiry for an operation, nil if there are too many or it is
// too far away; mu is held.
func (m *Mesh) about(a ask) *inquiry {
	if q := m.asks[a]; q != nil {
		return q
	}
	now := m.stamp.Seq
	if a.peer < 0 && now&transport.PairSeq == 0 {
		if a.seq > now+remembered || a.seq+remembered < now {
			return nil
		}
	}
	if len(m.asks) >= maxAsks {
		for old := range m.asks { // the oldest of its kind is the least wanted
			if old.peer >= 0 == (a.peer >= 0) && old.seq < a.seq {
				delete(m.asks, old)
				break
			}
		}
		if len(m.asks) >= maxAsks {
			return nil
		}
	}
	q := &inquiry{texts: make([][]byte, m.Size()), came: make([]bool, m.Size()), first: -1}
	m.asks[a] = q
	return q
}

// present is the operation that this rank is in; mu is held.
func (m *Mesh) present() ask {
	if m.stamp.Seq&transport.PairSeq != 0 {
		return ask{m.stamp.Seq, m.pairPeer}
	}
	return ask{m.stamp.Seq, -1}
}

// reconsider, at the start of a group operation, forgets what is long past and
// rings the alarm if somebody has explained this operation already. It returns the
// operations, and who asks, that others explain while this rank, which had all that it
// needed, has gone on: they wait for its word. mu is held.
func (m *Mesh) reconsider() (missed []ask) {
	for a, q := range m.asks {
		switch {
		case a.peer >= 0:
		case a.seq+remembered < m.stamp.Seq:
			delete(m.asks, a)
		case a.seq < m.stamp.Seq && q.first >= 0 && !q.came[m.cfg.Rank]:
			q.came[m.cfg.Rank] = true
			for r, text := range q.texts {
				if text != nil {
					missed = append(missed, ask{a.seq, r})
				}
			}
		}
	}
	if q := m.asks[m.present()]; q != nil && q.first >= 0 {
		m.alarm.Or(alarmMismatch)
	}
	return missed
}

// mismatch is the error for the present operation; mu is held.
func (m *Mesh) mismatch() error {
	e := &transport.MismatchError{Rank: -1, Mine: m.stamp}
	if q := m.asks[m.present()]; q != nil && q.first >= 0 {
		e.Rank, e.Theirs = q.first, q.theirs
	}
	return e
}

// Explain tells the other ranks that the present operation failed to match, and
// returns everybody's description.
func (m *Mesh) Explain(mine []byte) ([][]byte, error) {
	mine = append([]byte{}, mine[:min(len(mine), transport.MaxDescription)]...)
	me := m.cfg.Rank
	m.mu.Lock()
	a := m.present()
	c := wire.Control{
		Kind: wire.ControlExplain, Group: m.cfg.Group, Origin: me, To: a.peer, Lost: -1,
		Seq: m.stamp.Seq, Print: m.stamp.Print, Role: m.pairRole, Text: mine,
	}
	q := m.about(a)
	if q == nil { // peers have filled the table with other operations
		clear(m.asks)
		q = m.about(a)
	}
	q.texts[me], q.came[me] = mine, true
	m.mu.Unlock()

	// The others need ours even if theirs are all here.
	say := func() {
		if a.peer >= 0 {
			m.tell(a.peer, c)
		} else {
			m.broadcast(c)
		}
	}
	say()
	pause := min(time.Second, m.n.cfg.PeerTimeout/4)
	end := time.Now().Add(m.n.cfg.PeerTimeout)
	again := time.NewTimer(pause)
	defer again.Stop()
	for {
		m.mu.Lock()
		open := 0
		for r := range m.Size() {
			_, gone := m.lost[r]
			if !q.came[r] && !gone && (a.peer < 0 || r == a.peer) {
				open++
			}
		}
		failed := m.failed
		if open == 0 || failed != nil || time.Now().After(end) {
			texts := append([][]byte(nil), q.texts...)
			m.mu.Unlock()
			if failed != nil && open > 0 {
				return texts, failed
			}
			return texts, nil
		}
		m.mu.Unlock()
		select {
		case <-m.news:
		case <-again.C:
			say()
			again.Reset(pause)
		}
	}
}

// heard handles a control message that came from a process of the job.
func (m *Mesh) heard(job int, c wire.Control) {
	from, ours := m.byJob[job]
	if !ours || c.Origin >= m.Size() || c.To >= m.Size() || c.Lost >= m.Size() || c.Origin == m.cfg.Rank {
		return
	}
	if c.Origin != from && m.Size() <= m.cfg.full {
		return // in a small group everybody speaks for itself
	}
	if c.To >= 0 && c.To != m.cfg.Rank {
		return
	}
	switch c.Kind {
	case wire.ControlProbe:
		m.heardProbe(c)
	case wire.ControlExplain:
		if m.heardExplain(c) && c.To < 0 {
			m.relay(from, c)
		}
	case wire.ControlPast:
		m.heardPast(c)
	case wire.ControlPoison:
		m.heardPoison(from, c)
	case wire.ControlBye:
		m.mu.Lock()
		m.parted[c.Origin] = true
		m.mu.Unlock()
		m.loseRank(c.Origin, loss{reason: transport.ReasonLeft, grace: lingerTime})
	case wire.ControlWant:
		if int(c.Seq) < m.stride && c.Seq < maxLanes+1 && m.dials(from) {
			m.dial(from*m.stride + int(c.Seq))
		}
	case wire.ControlTell:
		m.hearTold(c.Origin, c.Text)
	}
}

// heardProbe compares where a waiting rank is with where this one is or was.
func (m *Mesh) heardProbe(c wire.Control) {
	theirs := transport.Stamp{Seq: c.Seq, Print: c.Print}
	m.mu.Lock()
	mine := m.history[c.Seq%remembered]
	clash := mine.Seq == theirs.Seq && mine.Print != theirs.Print && theirs.Seq&transport.PairSeq == 0
	if clash && m.stamp == mine {
		if q := m.about(m.present()); q != nil && q.first < 0 {
			q.first, q.theirs = c.Origin, theirs
			m.alarm.Or(alarmMismatch)
		}
	}
	here := m.stamp == mine
	m.mu.Unlock()
	if !clash || c.To >= 0 {
		return
	}
	answer := m.past(c.Seq, mine.Print)
	if here { // this rank will explain; until then the other knows at least the difference
		answer.Kind, answer.To = wire.ControlProbe, c.Origin
	}
	m.tell(c.Origin, answer)
}

func (m *Mesh) past(seq, print uint64) wire.Control {
	return wire.Control{
		Kind: wire.ControlPast, Group: m.cfg.Group, Origin: m.cfg.Rank, To: -1, Lost: -1, Seq: seq,
		Print: print,
	}
}

// heardExplain notes another rank's description; true: it was new.
func (m *Mesh) heardExplain(c wire.Control) bool {
	a := ask{c.Seq, -1}
	if c.Seq&transport.PairSeq != 0 {
		a.peer = c.Origin
	}
	m.mu.Lock()
	q := m.about(a)
	if q == nil {
		m.mu.Unlock()
		return false
	}
	fresh := q.texts[c.Origin] == nil
	if fresh {
		q.texts[c.Origin] = append([]byte{}, c.Text[:min(len(c.Text), transport.MaxDescription)]...)
		q.came[c.Origin] = true
		if q.first < 0 {
			q.first, q.theirs = c.Origin, transport.Stamp{Seq: c.Seq, Print: c.Print}
		}
	}
	var answer *wire.Control
	own := q.texts[m.cfg.Rank]
	switch {
	case a == m.present() && own == nil && (a.peer < 0 || m.busy()):
		m.alarm.Or(alarmMismatch) // this rank will come to Explain
	case own != nil && (!fresh || a != m.present()):
		// They ask again: ours was lost on the way. Answers are never answered.
		p := m.past(c.Seq, m.history[c.Seq%remembered].Print)
		p.Text = own
		answer = &p
	case own == nil && m.over(a, c.Role):
		p := m.past(c.Seq, m.history[c.Seq%remembered].Print)
		answer = &p
	}
	m.mu.Unlock()
	m.notify()
	if answer != nil {
		m.tell(c.Origin, *answer)
	}
	return fresh
}

// over reports whether this rank has left an operation behind; mu is held.
func (m *Mesh) over(a ask, role uint8) bool {
	if a.peer < 0 {
		newest := m.stamp.Seq
		if newest&transport.PairSeq != 0 {
			newest = m.newest()
			return a.seq <= newest
		}
		return a.seq < newest
	}
	mine := 1 // I receive
	if role == wire.RoleReceiver {
		mine = 0
	}
	return m.pairSeen[2*a.peer+mine] >= a.seq
}

// newest is the last group operation begun; mu is held.
func (m *Mesh) newest() uint64 {
	var n uint64
	for _, s := range m.history {
		n = max(n, s.Seq)
	}
	return n
}

func (m *Mesh) heardPast(c wire.Control) {
	m.mu.Lock()
	a := m.present()
	if m.stamp.Seq == c.Seq && (a.peer < 0 || a.peer == c.Origin) {
		if q := m.about(a); q != nil {
			q.came[c.Origin] = true
			if len(c.Text) > 0 && q.texts[c.Origin] == nil {
				q.texts[c.Origin] = append([]byte{}, c.Text[:min(len(c.Text), transport.MaxDescription)]...)
			}
			if q.texts[m.cfg.Rank] == nil && m.stamp.Print != c.Print && a.peer < 0 {
				if q.first < 0 {
					q.first, q.theirs = c.Origin, transport.Stamp{Seq: c.Seq, Print: c.Print}
				}
				q.came[c.Origin] = false // it may yet come to explain
				m.alarm.Or(alarmMismatch)
			}
		}
	}
	m.mu.Unlock()
	m.notify()
}

func (m *Mesh) heardPoison(from int, c wire.Control) {
	why := lostError(c.Origin, m.HostName(c.Origin), loss{reason: string(c.Text)})
	switch {
	case c.Lost >= 0 && c.Lost != m.cfg.Rank:
		why = lostError(c.Lost, m.HostName(c.Lost), loss{reason: string(c.Text)})
	case c.Lost >= 0 && why.Left():
		why.Reason = transport.ReasonWaitedFor(c.Lost)
	case !why.GaveUp() && !why.Left():
		why.Reason = "it gave up: " + why.Reason
	}
	m.mu.Lock()
	_, known := m.lost[c.Origin]
	if !known {
		// The origin will say nothing more, which matters to those who wait for it.
		m.lost[c.Origin] = loss{reason: why.Reason, at: time.Now(), grace: thirdPartyGrace, cause: why}
		m.alarm.Or(alarmLost)
	}
	m.mu.Unlock()
	if known {
		return
	}
	m.notify()
	m.doom(why, thirdPartyGrace)
	m.relay(from, c)
}
