package tcp

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"hora/internal/secret"
	"hora/internal/wire"
	"hora/transport"
)

// Purposes of a connection, proved together with the secret.
const (
	purposeData    = "tcp data"
	purposeControl = "tcp control"
)

// parkTime is how long a proven connection waits for its group to open here.
const parkTime = 2 * time.Minute

// Node is one process among its job's processes: its listener, the control
// connections to its peers and the meshes of its groups.
type Node struct {
	cfg    NodeConfig
	gates  []*secret.Gate
	cert   *secret.Certificate // nil without TLS
	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup // links and the ticker

	born              time.Time    // what follows counts from here: the wall clock may jump
	lastTick, lastGap atomic.Int64 // nanoseconds; see onTime

	// mu guards all below. It is never held over I/O, nor while a mesh's mu is
	// wanted: node before mesh is never locked together.
	mu      sync.Mutex
	closed  bool
	changed chan struct{} // closed and replaced when links or losses change
	meshes  map[uint64]*Mesh
	parked  map[place]parkedConn
	early   []earlyMessage  // messages for groups that are not open yet
	kept    int             // their bytes
	missed  map[uint64]bool // groups for which something was told and could not be kept
	links   map[int]*link
	spare   []*link // second connections to one process
	dialing map[int]bool
	lost    map[int]loss
	trouble map[int]error // why the last attempt to connect to a process failed
	// underway are the connections that are being made, and since when.
	underway map[underway]time.Time
}

// place names a data connection of this process.
type place struct {
	group uint64
	rank  int // job rank of the peer
	lane  uint32
}

type parkedConn struct {
	conn  net.Conn
	peer  secret.Identity
	since time.Time
}

type earlyMessage struct {
	from int
	c    wire.Control
	at   time.Time
}

// Bounds of what proven peers can make this process keep.
const (
	maxParked     = 4096
	maxEarlyBytes = 16 << 20 // of messages: a rank may be sent 1 MiB ahead by each other one
	maxMissed     = 1024
)

// keptBytes is what a message takes that is kept.
func keptBytes(text []byte) int { return len(text) + 128 }

// errTooEarly ends a group some of whose messages were not kept.
func errTooEarly(group uint64) error {
	return fmt.Errorf("open group %d: other ranks sent this one more than can be kept for a group that it has not made yet, or %v before it; "+
		"let all ranks make the group before the first of them sends", group, parkTime)
}

// NewNode takes over the listener and starts to accept peers.
func NewNode(l *Listener, cfg NodeConfig) (*Node, error) {
	if err := cfg.setDefaults(); err != nil {
		l.Close()
		return nil, err
	}
	n := &Node{
		cfg: cfg, meshes: map[uint64]*Mesh{}, parked: map[place]parkedConn{}, links: map[int]*link{},
		dialing: map[int]bool{}, lost: map[int]loss{}, trouble: map[int]error{}, missed: map[uint64]bool{},
		underway: map[underway]time.Time{}, changed: make(chan struct{}),
	}
	n.ctx, n.cancel = context.WithCancel(context.Background())
	if cfg.TLS {
		var err error
		if n.cert, err = secret.NewCertificate(); err != nil {
			l.Close()
			return nil, err
		}
	}
	for _, ln := range l.lns {
		g, err := secret.NewGate(ln, secret.GateConfig{
			Secret: cfg.Secret, Host: cfg.Host, Accept: n.judge, Enter: n.enter,
			Where: n.where(), Strangers: cfg.Strangers,
		})
		if err != nil {
			l.Close()
			n.Close()
			return nil, err
		}
		n.gates = append(n.gates, g)
	}
	n.born = time.Now()
	n.lastGap.Store(-1 << 62)
	n.wg.Add(1)
	go n.tick()
	return n, nil
}

// where is this process's listener in what is told of strangers.
func (n *Node) where() string {
	return fmt.Sprintf("at the port of rank %d on %s", n.cfg.Rank, n.cfg.Host)
}

// identity is what this process says of itself on a connection.
func (n *Node) identity(purpose string, peer int, group uint64, lane uint32) secret.Identity {
	id := secret.Identity{
		Purpose: purpose, Job: n.cfg.Job, Epoch: n.cfg.Epoch, Group: group,
		Rank: n.cfg.Rank, Peer: peer, Lane: lane, Host: n.cfg.Host,
	}
	if n.cert != nil {
		id.Cert = n.cert.Hash
	}
	return id
}

// judge accepts peers of this job and epoch that mean this rank.
func (n *Node) judge(peer secret.Identity) (secret.Identity, error) {
	me := n.identity(peer.Purpose, peer.Rank, peer.Group, peer.Lane)
	if peer.Purpose != purposeData && peer.Purpose != purposeControl {
		return me, fmt.Errorf("rank %d takes no connection for %q", n.cfg.Rank, peer.Purpose)
	}
	if peer.Rank < 0 || peer.Rank == n.cfg.Rank {
		return me, fmt.Errorf("rank %d is not a peer's rank", peer.Rank)
	}
	if peer.Peer != n.cfg.Rank {
		return me, fmt.Errorf("this is rank %d, rank %d was meant", n.cfg.Rank, peer.Peer)
	}
	if err := secret.Match(me, peer); err != nil {
		return me, err
	}
	n.begin(byPeer(peer), false) // it counts the connection as soon as it has read the answer
	return me, nil
}

// enter gets the connections that the gates have let through.
func (n *Node) enter(ctx context.Context, conn net.Conn, peer secret.Identity) {
	defer n.end(byPeer(peer))
	if n.cert != nil {
		t, err := n.startTLS(ctx, conn, peer.Cert, false)
		if err != nil {
			n.cfg.Strangers.Refuse(fmt.Sprintf("%s, of rank %d on %s", n.where(), peer.Rank, peer.Host), err)
			return
		}
		conn = t
	}
	if peer.Purpose == purposeControl {
		n.addLink(conn, peer.Rank, peer.Host)
		return
	}
	at := place{peer.Group, peer.Rank, peer.Lane}
	n.mu.Lock()
	m := n.meshes[peer.Group]
	var drop net.Conn
	if n.closed || m == nil && len(n.parked) >= maxParked {
		drop = conn
	} else if m == nil {
		drop = n.parked[at].conn // the newer one counts
		n.parked[at] = parkedConn{conn, peer, time.Now()}
	}
	n.mu.Unlock()
	if drop != nil {
		drop.Close()
	}
	if m != nil {
		m.connected(peer.Rank, peer.Lane, conn)
	}
}

// addLink starts the goroutines of a control connection.
func (n *Node) addLink(conn net.Conn, rank int, host string) {
	l := n.newLink(conn, rank, host)
	n.mu.Lock()
	_, gone := n.lost[rank]
	if n.closed || gone {
		n.mu.Unlock()
		conn.Close()
		return
	}
	if n.links[rank] == nil {
		n.links[rank] = l
	} else {
		n.spare = append(n.spare, l)
	}
	n.wg.Add(2)
	n.wake()
	n.mu.Unlock()
	go func() { defer n.wg.Done(); l.write() }()
	go func() { defer n.wg.Done(); l.read() }()
}

// wake tells waiters that links or losses changed; mu is held.
func (n *Node) wake() {
	close(n.changed)
	n.changed = make(chan struct{})
}

// lose records that a process cannot be reached any more and tells the meshes.
func (n *Node) lose(rank int, why loss) {
	why.at = time.Now()
	n.mu.Lock()
	if _, known := n.lost[rank]; known || n.closed {
		n.mu.Unlock()
		return
	}
	n.lost[rank] = why
	if l := n.links[rank]; l != nil {
		l.end()
	}
	meshes := n.open()
	n.wake()
	n.mu.Unlock()
	for _, m := range meshes {
		m.peerLost(rank, why)
	}
}

// open lists the meshes; mu is held.
func (n *Node) open() []*Mesh {
	list := make([]*Mesh, 0, len(n.meshes))
	for _, m := range n.meshes {
		list = append(list, m)
	}
	return list
}

// dispatch hands a message to its mesh, or keeps it until that opens.
func (n *Node) dispatch(l *link, c wire.Control) {
	n.mu.Lock()
	m := n.meshes[c.Group]
	if m != nil && m.behind {
		m = nil // what came before goes first
	}
	switch {
	case m != nil || n.closed:
	case n.kept+keptBytes(c.Text) <= maxEarlyBytes:
		c.Text = append([]byte(nil), c.Text...)
		n.early = append(n.early, earlyMessage{l.rank, c, time.Now()})
		n.kept += keptBytes(c.Text)
	default:
		n.miss(c)
	}
	n.mu.Unlock()
	if m != nil {
		m.heard(l.rank, c)
	}
}

// miss notes that a message was not kept. Engines do not repeat what they tell, so the group
// must not go on as if nothing had been. mu is held.
func (n *Node) miss(c wire.Control) {
	if c.Kind == wire.ControlTell && len(n.missed) < maxMissed {
		n.missed[c.Group] = true
	}
}

// before takes out what came for a group before it opened; when nothing is left, what comes goes
// to its mesh.
func (n *Node) before(m *Mesh) (list []earlyMessage, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	kept := n.early[:0]
	for _, e := range n.early {
		if e.c.Group == m.cfg.Group {
			list = append(list, e)
			n.kept -= keptBytes(e.c.Text)
		} else {
			kept = append(kept, e)
		}
	}
	clear(n.early[len(kept):])
	n.early = kept
	m.behind = len(list) > 0
	if n.missed[m.cfg.Group] {
		delete(n.missed, m.cfg.Group)
		err = errTooEarly(m.cfg.Group)
	}
	return list, err
}

// tell queues a message for a process; false: it is not connected (a connection is
// being made then) or does not keep up.
func (n *Node) tell(p Peer, m []byte) bool {
	n.mu.Lock()
	l := n.links[p.Rank]
	_, gone := n.lost[p.Rank]
	if l == nil && !gone {
		n.dialControl(p)
	}
	n.mu.Unlock()
	return l != nil && l.send(m)
}

// onTime reports whether this process itself has been running of late.
func (n *Node) onTime() bool {
	now, beat := int64(time.Since(n.born)), int64(n.cfg.Heartbeat)
	return now-n.lastTick.Load() < 2*beat && now-n.lastGap.Load() > 3*beat
}

// tick sends heartbeats, lets meshes repeat what they wait for, and forgets what
// nobody came for.
func (n *Node) tick() {
	defer n.wg.Done()
	t := time.NewTicker(n.cfg.Heartbeat)
	defer t.Stop()
	beat := wire.AppendControl(nil, wire.Control{Kind: wire.ControlHeartbeat})
	for {
		select {
		case <-n.ctx.Done():
			return
		case <-t.C:
		}
		now := time.Now()
		if at := int64(now.Sub(n.born)); at-n.lastTick.Swap(at) > 2*int64(n.cfg.Heartbeat) {
			n.lastGap.Store(at)
		}
		n.mu.Lock()
		for _, l := range n.links {
			l.send(beat)
		}
		for _, l := range n.spare {
			l.send(beat)
		}
		stale := n.sweep(now)
		meshes := n.open()
		n.mu.Unlock()
		for _, c := range stale {
			c.Close()
		}
		for _, m := range meshes {
			m.tick()
		}
	}
}

// sweep takes out what was kept for groups that never opened; mu is held.
func (n *Node) sweep(now time.Time) []net.Conn {
	var stale []net.Conn
	for at, p := range n.parked {
		if now.Sub(p.since) > parkTime {
			stale = append(stale, p.conn)
			delete(n.parked, at)
		}
	}
	kept := n.early[:0]
	for _, e := range n.early {
		if now.Sub(e.at) <= parkTime {
			kept = append(kept, e)
		} else {
			n.kept -= keptBytes(e.c.Text)
			n.miss(e.c)
		}
	}
	clear(n.early[len(kept):])
	n.early = kept
	for c, since := range n.underway {
		if now.Sub(since) > parkTime { // it broke off between the proof and its place
			delete(n.underway, c)
		}
	}
	return stale
}

// Close tells the peers that this process leaves, closes its meshes and joins all
// goroutines. It is idempotent.
func (n *Node) Close() error {
	n.mu.Lock()
	meshes := n.open()
	n.mu.Unlock()
	var all []error
	for _, m := range meshes {
		all = append(all, m.Close())
	}
	n.mu.Lock()
	first := !n.closed
	n.closed = true
	links := n.spare
	for _, l := range n.links {
		links = append(links, l)
	}
	parked := n.parked
	n.parked, n.early, n.spare = nil, nil, nil
	n.mu.Unlock()
	if first {
		bye := wire.AppendControl(nil, wire.Control{Kind: wire.ControlLeave})
		for _, l := range links {
			l.send(bye)
			l.end()
		}
		for _, p := range parked {
			p.conn.Close()
		}
	}
	n.cancel()
	for _, g := range n.gates {
		if err := g.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
			all = append(all, err)
		}
	}
	n.wg.Wait()
	return errors.Join(all...)
}

func lostError(rank int, host string, why loss) *transport.PeerLostError {
	return &transport.PeerLostError{Rank: rank, Host: host, Reason: why.reason}
}
