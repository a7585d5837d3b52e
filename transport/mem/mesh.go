package mem

import (
	"errors"
	"sync"
	"time"

	"hora/transport"
)

// ErrKilled is what the verbs of a rank return that the script has killed.
var ErrKilled = errors.New("use mesh: this rank was killed")

// remembered is how many operations back a rank's stamps stay comparable.
const remembered = 64

// Mesh is one rank of a Cluster.
type Mesh struct {
	c    *Cluster
	rank int

	// mu guards all below it. It is held only while queues are touched, never while
	// another rank's is.
	mu       sync.Mutex
	cond     *sync.Cond
	alarm    *time.Timer
	inbox    map[int]*queue // by sender; group operations
	pairs    map[int]*queue // by sender; operations of a pair
	free     [][]byte
	stamp    transport.Stamp
	began    time.Time
	deadline time.Time
	ask      question // what Explain would be about
	broken   error    // sticky
	gone     bool     // killed, left or closed
	sent     int      // messages, for the script
	sentTo   map[int]int
	count    transport.Traffic
	board    *transport.Board
	onFail   []func(error)

	// histMu guards history; a leaf lock, so that others may look while they hold
	// their own mu.
	histMu  sync.Mutex
	history [remembered]transport.Stamp

	letters letterbox
}

// message is one Send. Its bytes belong to the receiver.
type message struct {
	stamp transport.Stamp
	data  []byte
	due   time.Time // zero: at once
}

// queue is a FIFO that reuses its array.
type queue struct {
	list []message
	head int
}

func (q *queue) push(m message) {
	if q.head == len(q.list) {
		q.list, q.head = q.list[:0], 0
	}
	q.list = append(q.list, m)
}

func (q *queue) front() *message {
	if q == nil || q.head == len(q.list) {
		return nil
	}
	return &q.list[q.head]
}

func newMesh(c *Cluster, rank, n int) *Mesh {
	m := &Mesh{c: c, rank: rank, inbox: map[int]*queue{}, pairs: map[int]*queue{}, sentTo: map[int]int{}}
	m.cond = sync.NewCond(&m.mu)
	m.letters.cond = sync.NewCond(&m.letters.mu)
	return m
}

// Rank, Size, Hosts, HostName, Board, Counters: see transport.Mesh.
func (m *Mesh) Rank() int                { return m.rank }
func (m *Mesh) Size() int                { return len(m.c.nodes) }
func (m *Mesh) Hosts() []int             { return m.c.host }
func (m *Mesh) HostName(rank int) string { return hostName(m.c.host[rank]) }
func (m *Mesh) Board() *transport.Board  { return m.board }

// Counters counts messages over Mem and board traffic over SHM.
func (m *Mesh) Counters() transport.Counters {
	m.mu.Lock()
	t := transport.Counters{Mem: m.count}
	m.mu.Unlock()
	if m.board != nil {
		t.SHM = m.board.Traffic()
	}
	return t
}

// Begin starts an operation.
func (m *Mesh) Begin(s transport.Stamp, deadline time.Time) {
	m.mu.Lock()
	if m.stamp != s {
		m.began = time.Time{}
	}
	m.stamp, m.deadline = s, deadline
	m.ask = question{seq: s.Seq}
	m.mu.Unlock()
	if s.Seq&transport.PairSeq == 0 {
		m.histMu.Lock()
		m.history[s.Seq%remembered] = s
		m.histMu.Unlock()
		if m.board != nil {
			m.board.Begin(s, deadline)
		}
	}
}

// came is the stamp with which this rank began group operation seq, if it did and
// that was not too long ago; passed is true when it has begun a later one.
func (m *Mesh) came(seq uint64) (s transport.Stamp, ok, passed bool) {
	m.histMu.Lock()
	defer m.histMu.Unlock()
	s = m.history[seq%remembered]
	for _, h := range m.history {
		passed = passed || h.Seq > seq
	}
	return s, s.Seq == seq && seq != 0, passed
}

// Send queues a copy of p at the receiver.
func (m *Mesh) Send(to int, p []byte) error {
	m.mu.Lock()
	m.pair(m.rank, to)
	if err := m.stuck(to); err != nil {
		m.mu.Unlock()
		return err
	}
	m.sent++
	m.sentTo[to]++
	m.count.MessagesSent++
	m.count.BytesSent += uint64(len(p))
	msg := message{stamp: m.stamp}
	act := m.c.cfg.Script.next(m.rank, to, m.sent, m.sentTo[to])
	m.mu.Unlock()

	peer := m.c.nodes[to]
	switch act.do {
	case Kill:
		m.c.Kill(m.rank)
		return ErrKilled
	case Leave:
		_ = m.Close()
		return transport.ErrClosed
	case Cut:
		m.c.cutOff(m.rank)
		return nil
	case Drop:
		m.c.lose(m.rank, "connection reset")
		m.c.wakeAll()
		return nil
	case Garble:
		msg.stamp.Print = ^msg.stamp.Print
	case Delay:
		msg.due = time.Now().Add(act.by)
	}
	peer.mu.Lock()
	msg.data = append(peer.buffer(len(p)), p...)
	q := peer.from(m.rank, msg.stamp.Seq)
	q.push(msg)
	peer.mu.Unlock()
	peer.cond.Broadcast()
	return nil
}

// Recv waits for a message of this operation.
func (m *Mesh) Recv(from int, p []byte) error {
	err := m.recv(from, p)
	var late *transport.DeadlineError
	if err != nil && errors.As(err, &late) {
		m.Fail(err)
	}
	return err
}

func (m *Mesh) recv(from int, p []byte) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.pair(from, m.rank)
	q := m.from(from, m.stamp.Seq)
	for waited := false; ; waited = true {
		msg := q.front()
		for msg != nil && msg.stamp.Seq < m.stamp.Seq {
			m.take(q)
			msg = q.front()
		}
		if msg != nil && (msg.due.IsZero() || !time.Now().Before(msg.due)) {
			if msg.stamp != m.stamp || len(msg.data) != len(p) {
				return &transport.MismatchError{Rank: from, Mine: m.stamp, Theirs: msg.stamp}
			}
			copy(p, msg.data)
			m.count.MessagesReceived++
			m.count.BytesReceived += uint64(len(p))
			m.take(q)
			return nil
		}
		sender := from
		if msg != nil {
			sender = m.rank // what it has sent will come even if it has left
		}
		if err := m.stuck(sender); err != nil {
			return err
		}
		if err := m.overdue(from, waited); err != nil {
			return err
		}
		m.sleep(msg)
	}
}

// Exchange sends, which never blocks here, and receives.
func (m *Mesh) Exchange(to int, out []byte, from int, in []byte) error {
	if to >= 0 {
		if err := m.Send(to, out); err != nil {
			return err
		}
	}
	if from >= 0 {
		return m.Recv(from, in)
	}
	return nil
}

// pair notes which pair's operation this is. Called with mu.
func (m *Mesh) pair(from, to int) {
	if m.stamp.Seq&transport.PairSeq != 0 {
		m.ask = question{seq: m.stamp.Seq, lo: from, hi: to}
	}
}

func (m *Mesh) from(rank int, seq uint64) *queue {
	box := m.inbox
	if seq&transport.PairSeq != 0 {
		box = m.pairs
	}
	q := box[rank]
	if q == nil {
		q = &queue{}
		box[rank] = q
	}
	return q
}

// take removes the front message and keeps its memory for the next.
func (m *Mesh) take(q *queue) {
	m.free = append(m.free, q.list[q.head].data[:0])
	q.list[q.head] = message{}
	q.head++
}

// buffer is empty memory for n bytes. Called with mu.
func (m *Mesh) buffer(n int) []byte {
	for i := len(m.free) - 1; i >= 0; i-- {
		if b := m.free[i]; cap(b) >= n {
			last := len(m.free) - 1
			m.free[i] = m.free[last]
			m.free = m.free[:last]
			return b
		}
	}
	if len(m.free) > 64 {
		m.free = m.free[:0]
	}
	return make([]byte, 0, n)
}

// stuck is why a verb that needs that peer must fail now: this rank is done, some
// rank is lost, or the operation is being explained. Called with mu.
func (m *Mesh) stuck(peer int) error {
	if m.broken != nil {
		return m.broken
	}
	c := m.c
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.lost != nil && c.lost.Rank == m.rank:
		m.broken = &transport.PeerLostError{Rank: peer, Host: hostName(c.host[peer]), Reason: "closed the connection: it holds this rank for lost"}
	case c.lost != nil:
		m.broken = c.lost
	case c.left[peer]:
		m.broken = &transport.PeerLostError{Rank: peer, Host: hostName(c.host[peer]), Reason: transport.ReasonLeft}
	default:
		return m.explained()
	}
	return m.broken
}

// explained is a mismatch if some rank explains this rank's operation. Called with
// both mutexes.
func (m *Mesh) explained() error {
	a := m.c.explain[m.ask]
	if a == nil || a.given[m.rank] {
		return nil
	}
	return &transport.MismatchError{Rank: a.from, Mine: m.stamp, Theirs: transport.Stamp{Seq: m.stamp.Seq}}
}

// overdue checks the clock of a wait: the deadline, and after the probe time whether
// some rank came to this operation with something else. Called with mu.
func (m *Mesh) overdue(from int, waited bool) error {
	now := time.Now()
	if m.began.IsZero() {
		m.began = now
	}
	if !m.deadline.IsZero() && !now.Before(m.deadline) {
		m.broken = &transport.DeadlineError{Rank: from, Seq: m.stamp.Seq, After: now.Sub(m.began)}
		return m.broken
	}
	if !waited || m.stamp.Seq&transport.PairSeq != 0 || now.Sub(m.began) < m.c.cfg.Probe {
		return nil
	}
	for r, peer := range m.c.nodes {
		if s, ok, _ := peer.came(m.stamp.Seq); ok && s != m.stamp {
			return &transport.MismatchError{Rank: r, Mine: m.stamp, Theirs: s}
		}
	}
	return nil
}

// sleep waits for a message or a failure, at most until the next thing that the
// clock could bring. Called with mu.
func (m *Mesh) sleep(next *message) {
	now := time.Now()
	wait := m.c.cfg.Probe
	if d := m.deadline.Sub(now); !m.deadline.IsZero() && d < wait {
		wait = d
	}
	if next != nil {
		wait = min(wait, next.due.Sub(now))
	}
	if m.alarm == nil {
		m.alarm = time.AfterFunc(max(wait, 1), m.wake)
	} else {
		m.alarm.Reset(max(wait, 1))
	}
	m.cond.Wait()
	m.alarm.Stop()
}

// wake makes this rank's waits look again.
func (m *Mesh) wake() {
	m.mu.Lock()
	defer m.mu.Unlock() // whoever was about to wait is waiting now
	m.cond.Broadcast()
}

// Fail ends every wait here with err, and on the other ranks with an error that says
// the same of this rank.
func (m *Mesh) Fail(err error) {
	m.mu.Lock()
	if m.broken == nil {
		m.broken = err
	}
	m.mu.Unlock()
	var lost *transport.PeerLostError
	var late *transport.DeadlineError
	switch {
	case errors.As(err, &lost):
		m.c.lose(lost.Rank, lost.Reason)
	case errors.As(err, &late):
		m.c.lose(m.rank, transport.ReasonLate(late))
	default:
		m.c.lose(m.rank, "ended the group: "+err.Error())
	}
	if m.board != nil {
		m.board.Fail(err)
	}
	m.c.wakeAll()
}

// OnFail has f called once when this mesh has failed, at once if it already has.
func (m *Mesh) OnFail(f func(error)) {
	m.mu.Lock()
	m.onFail = append(m.onFail, f)
	m.mu.Unlock()
	m.notify()
}

// notify tells the listeners of a failure, if there is one.
func (m *Mesh) notify() {
	m.mu.Lock()
	err := m.broken
	if err == nil {
		m.c.mu.Lock()
		if m.c.lost != nil {
			err = m.c.lost
		}
		m.c.mu.Unlock()
	}
	var list []func(error)
	if err != nil {
		list, m.onFail = m.onFail, nil
	}
	m.mu.Unlock()
	if err != nil && m.board != nil && !errors.Is(err, transport.ErrClosed) {
		m.board.Fail(err)
	}
	for _, f := range list {
		f(err)
	}
}

// Close leaves the group.
func (m *Mesh) Close() error {
	m.letters.close()
	m.mu.Lock()
	m.onFail = nil // leaving is no failure
	m.mu.Unlock()
	m.c.end(m.rank, transport.ReasonLeft, transport.ErrClosed)
	m.mu.Lock()
	if m.alarm != nil {
		m.alarm.Stop()
	}
	m.mu.Unlock()
	return nil
}

var (
	_ transport.Mesh            = (*Mesh)(nil)
	_ transport.FailureNotifier = (*Mesh)(nil)
)
