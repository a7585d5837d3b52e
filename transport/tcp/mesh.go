package tcp

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"hora/internal/wire"
	"hora/transport"
)

// remembered is how many operations back a rank still knows its stamps.
const remembered = 64

// Bits of Mesh.alarm: why a wait must look further than its sockets.
const (
	alarmFailed   = 1 << iota // failed is set
	alarmMismatch             // somebody explains the present operation
	alarmLost                 // some rank was lost: perhaps the one waited for
)

// Mesh is this process's place in one group.
//
// The goroutine that drives it owns own, tx, rx, polls and blocked; it is
// alone in a verb, which verbs being odd says to others. Everything else that
// several goroutines touch is atomic or guarded by mu.
type Mesh struct {
	n      *Node
	cfg    MeshConfig
	hosts  []int
	byJob  map[int]int // job rank → group rank
	behind bool        // what came before it opened is still being handed over; guarded by the node's mu
	late   bool        // the context of Open has ended: no data connection is begun; guarded by the node's mu
	stride int         // connections per pair: Lanes, and one for pair operations

	own   []*lane // lanes that the driver has taken, by peer*stride+lane
	tx    [maxLanes]sending
	rx    [maxLanes]receiving
	polls [2 * maxLanes]unix.PollFd
	// blocked is the lane on which receiving has just failed.
	blocked *lane

	verbs    atomic.Uint64 // entries and exits of verbs; odd: in one
	alarm    atomic.Uint32
	sent     counter
	received counter

	news chan struct{} // something changed for Open, Explain or a wait for a lane

	// mu guards all below. It is held for moments only: never over I/O, and no other
	// lock is taken under it.
	mu       sync.Mutex
	stamp    transport.Stamp
	deadline time.Time
	began    time.Time
	pairPeer int // counterpart of the present pair operation, or -1
	pairRole uint8
	pairSeen []uint64 // last pair operation by peer*2 + (0 sender, 1 receiver)
	history  [remembered]transport.Stamp
	asks     map[ask]*inquiry
	ready    []*lane // connected lanes, by peer*stride+lane
	taken    []bool
	dialing  map[int]bool
	wanting  int // index of the lane the driver waits for, or -1
	lost     map[int]loss
	parted   []bool // ranks that have made this group and left it
	failed   error
	doomed   *time.Timer // will fail the mesh when the grace for others' losses ends
	doomFor  error
	onFail   []func(error)
	onTell   func(from int, msg []byte)
	told     []told // before listening
	bridges  []*bridge
	closing  bool
	opened   bool // Open has returned

	listening bool // OnTell was called
	toldBytes int

	lastVerbs uint64         // the ticker's: verbs at its last visit
	idleTicks int            // the ticker's: visits in a row outside of any verb
	wg        sync.WaitGroup // dialling
	pumps     sync.WaitGroup // bridges
	ctx       context.Context
	cancel    context.CancelFunc
	closeOnce sync.Once
}

// counter is one direction's traffic.
type counter struct{ bytes, messages atomic.Uint64 }

func (c *counter) add(n int) {
	c.bytes.Add(uint64(n))
	c.messages.Add(1)
}

// Rank is this process's place in the group.
func (m *Mesh) Rank() int { return m.cfg.Rank }

// Size is the number of ranks.
func (m *Mesh) Size() int { return len(m.cfg.Peers) }

// Hosts numbers the ranks' hosts by first appearance.
func (m *Mesh) Hosts() []int { return m.hosts }

// HostName is the host of a rank.
func (m *Mesh) HostName(rank int) string { return m.cfg.Peers[rank].Host }

// Board is nil: there is no shared memory here.
func (m *Mesh) Board() *transport.Board { return nil }

// Counters are what went over TCP, payload only.
func (m *Mesh) Counters() transport.Counters {
	return transport.Counters{TCP: transport.Traffic{
		BytesSent: m.sent.bytes.Load(), MessagesSent: m.sent.messages.Load(),
		BytesReceived: m.received.bytes.Load(), MessagesReceived: m.received.messages.Load(),
	}}
}

// Begin starts an operation.
func (m *Mesh) Begin(s transport.Stamp, deadline time.Time) {
	m.mu.Lock()
	m.stamp, m.deadline = s, deadline
	m.pairPeer, m.pairRole = -1, wire.RoleGroup
	if !deadline.IsZero() {
		m.began = time.Now()
	}
	m.alarm.And(^uint32(alarmMismatch))
	var missed []ask
	if s.Seq&transport.PairSeq == 0 {
		m.history[s.Seq%remembered] = s
		if len(m.asks) > 0 {
			missed = m.reconsider()
		}
	}
	m.mu.Unlock()
	for _, a := range missed {
		m.tell(a.peer, m.past(a.seq, m.history[a.seq%remembered].Print))
	}
}

// Fail ends every present and later wait here with err and tells the other ranks
// that this one has given up.
func (m *Mesh) Fail(err error) {
	if err == nil {
		err = errors.New("fail mesh: no reason given")
	}
	if m.fail(err) {
		m.poison(err)
	}
}

// fail makes err final; false: there was an error before.
func (m *Mesh) fail(err error) bool {
	m.mu.Lock()
	if m.failed != nil {
		m.mu.Unlock()
		return false
	}
	m.failed = err
	m.alarm.Or(alarmFailed)
	if m.doomed != nil {
		m.doomed.Stop()
	}
	tell := m.onFail
	m.onFail = nil
	m.mu.Unlock()
	m.notify()
	for _, f := range tell {
		f(err)
	}
	return true
}

// doom fails the mesh a little later: the loss of a rank ends the group, but who
// waits for another rank may still get what that one has sent or will send.
func (m *Mesh) doom(err error, after time.Duration) {
	m.mu.Lock()
	if m.failed == nil && m.doomed == nil && !m.closing {
		m.doomFor = err
		m.doomed = time.AfterFunc(after, func() { m.Fail(err) })
	}
	m.mu.Unlock()
}

// OnFail has f called once when the mesh fails, or now if it has.
func (m *Mesh) OnFail(f func(error)) {
	m.mu.Lock()
	err := m.failed
	if err == nil {
		m.onFail = append(m.onFail, f)
	}
	m.mu.Unlock()
	if err != nil {
		f(err)
	}
}

// poison tells the other ranks why this one has given up.
func (m *Mesh) poison(err error) {
	c := wire.Control{Kind: wire.ControlPoison, Group: m.cfg.Group, Origin: m.cfg.Rank, To: -1, Lost: -1}
	text := err.Error()
	var lost *transport.PeerLostError
	var late *transport.DeadlineError
	switch {
	case errors.As(err, &lost):
		c.Lost, text = lost.Rank, lost.Reason
	case errors.As(err, &late):
		text = transport.ReasonLate(late)
	case errors.Is(err, transport.ErrClosed):
		text = transport.ReasonLeft // in the middle of something
	}
	c.Text = []byte(text[:min(len(text), 1024)])
	m.broadcast(c)
}

// thirdPartyGrace is how long a rank goes on after another than the one it waits
// for was lost.
const thirdPartyGrace = 250 * time.Millisecond

// peerLost is what the node reports of a process.
func (m *Mesh) peerLost(job int, why loss) {
	r, ours := m.byJob[job]
	if !ours || r == m.cfg.Rank {
		return
	}
	m.loseRank(r, why)
}

func (m *Mesh) loseRank(r int, why loss) {
	m.mu.Lock()
	if _, known := m.lost[r]; known {
		m.mu.Unlock()
		return
	}
	if why.at.IsZero() {
		why.at = time.Now()
	}
	m.lost[r] = why
	m.alarm.Or(alarmLost)
	m.mu.Unlock()
	m.notify()
	if why.reason != transport.ReasonLeft {
		m.doom(lostError(r, m.HostName(r), why), why.grace+thirdPartyGrace)
	}
}

func (m *Mesh) notify() {
	select {
	case m.news <- struct{}{}:
	default:
	}
}

// enter and leave frame each verb.
func (m *Mesh) enter() { m.verbs.Add(1) }
func (m *Mesh) leave() { m.verbs.Add(1) }

// busy reports whether the driver is in a verb.
func (m *Mesh) busy() bool { return m.verbs.Load()&1 == 1 }

// verdict is why a wait for the ranks to and from (either may be -1) must end now.
func (m *Mesh) verdict(to, from int) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.failed != nil {
		return m.failed
	}
	if m.alarm.Load()&alarmMismatch != 0 {
		return m.mismatch()
	}
	for _, r := range [2]int{from, to} {
		if r < 0 {
			continue
		}
		why, gone := m.lost[r]
		if !gone {
			continue
		}
		if m.ready[r*m.stride] == nil || time.Since(why.at) >= why.grace {
			return m.lostBy(r, why)
		}
	}
	return nil
}

// lostBy is the error for the loss of rank r. A rank that gave up because of
// another is lost because of that one.
func (m *Mesh) lostBy(r int, why loss) error {
	if why.cause != nil {
		return why.cause
	}
	return lostError(r, m.HostName(r), why)
}

// Close leaves the group: it tells the peers, lets what was sent arrive, and joins
// the mesh's goroutines. It is idempotent and ends a verb that is going on.
func (m *Mesh) Close() error {
	m.closeOnce.Do(m.close)
	return nil
}

func (m *Mesh) close() {
	m.mu.Lock()
	m.closing = true
	m.onFail = nil // leaving is no failure
	healthy := m.failed == nil && m.doomed == nil
	m.mu.Unlock()
	m.fail(transport.ErrClosed)
	m.cancel()
	for m.busy() { // its wait ends within a poll's slice
		time.Sleep(time.Millisecond)
	}
	m.n.mu.Lock()
	if m.n.meshes[m.cfg.Group] == m {
		delete(m.n.meshes, m.cfg.Group)
	}
	m.n.mu.Unlock()
	if healthy {
		m.broadcast(wire.Control{Kind: wire.ControlBye, Group: m.cfg.Group, Origin: m.cfg.Rank, To: -1, Lost: -1})
	}
	m.wg.Wait() // nobody adds a lane any more
	m.mu.Lock()
	lanes, bridges := m.ready, m.bridges
	m.ready = make([]*lane, len(lanes))
	m.mu.Unlock()
	hangUp(lanes, healthy)
	for _, b := range bridges {
		b.finish()
	}
	m.pumps.Wait()
}

// lingerTime bounds how long Close waits for what was sent to arrive.
const lingerTime = time.Second

// hangUp closes connections; in order means with a last frame, so that the peers
// know that this rank has left, and after all that was sent has arrived.
func hangUp(lanes []*lane, inOrder bool) {
	if inOrder {
		end := time.Now().Add(lingerTime)
		for _, l := range lanes {
			if l != nil {
				l.sayBye(end)
			}
		}
		for _, l := range lanes {
			// A peer that hangs up has what it wanted.
			for l != nil && unsent(l.fd) > 0 && !hungUp(l.fd) && time.Now().Before(end) {
				time.Sleep(time.Millisecond)
			}
		}
	}
	for _, l := range lanes {
		if l != nil {
			unix.Close(l.fd)
			l.fd = -1
		}
	}
}

// hungUp reports a connection that the peer has ended.
func hungUp(fd int) bool {
	p := []unix.PollFd{{Fd: int32(fd), Events: 0}}
	return pollWait(p, 0) > 0 && p[0].Revents&(unix.POLLHUP|unix.POLLERR) != 0
}

func (l *lane) sayBye(end time.Time) {
	for said := false; ; {
		if _, err := l.flush(); err == nil {
			if said {
				unix.Shutdown(l.fd, unix.SHUT_WR)
				return
			}
			wire.Header{Kind: wire.FrameBye}.Put(l.out[:])
			l.lo, l.hi, said = 0, wire.HeaderBytes, true
			continue
		} else if err != errAgain {
			return
		}
		left := time.Until(end)
		if left <= 0 {
			return
		}
		pollWait([]unix.PollFd{{Fd: int32(l.fd), Events: unix.POLLOUT}}, min(left, 50*time.Millisecond))
	}
}

func (m *Mesh) checkRank(r int) error {
	if r < 0 || r >= len(m.cfg.Peers) {
		return fmt.Errorf("use mesh: there is no rank %d in a group of %d", r, len(m.cfg.Peers))
	}
	return nil
}

var (
	_ transport.Mesh            = (*Mesh)(nil)
	_ transport.FailureNotifier = (*Mesh)(nil)
)
