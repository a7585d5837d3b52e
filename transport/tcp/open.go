package tcp

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"hora/internal/wire"
	"hora/transport"
)

// fullSize is the greatest group in which every pair has a control connection. In
// larger ones messages to all travel along the edges of eager.
const fullSize = 64

// Open joins the group on this node and returns when the connections to its usual
// partners are there. The error names the ranks that did not come before ctx ended.
func (n *Node) Open(ctx context.Context, cfg MeshConfig) (*Mesh, error) {
	if err := cfg.setDefaults(); err != nil {
		return nil, err
	}
	if job := cfg.Peers[cfg.Rank].Rank; job != n.cfg.Rank {
		return nil, fmt.Errorf("open group %d: its rank %d is rank %d of the job, this process is rank %d", cfg.Group, cfg.Rank, job, n.cfg.Rank)
	}
	cfg.Peers = slices.Clone(cfg.Peers)
	size := len(cfg.Peers)
	m := &Mesh{
		n: n, cfg: cfg, byJob: make(map[int]int, size), stride: cfg.Lanes + 1,
		news: make(chan struct{}, 1), pairPeer: -1, pairSeen: make([]uint64, 2*size), asks: map[ask]*inquiry{},
		dialing: map[int]bool{}, wanting: -1, lost: map[int]loss{}, parted: make([]bool, size),
	}
	m.own = make([]*lane, size*m.stride)
	m.ready = make([]*lane, size*m.stride)
	m.taken = make([]bool, size*m.stride)
	index := map[string]int{}
	for r, p := range cfg.Peers {
		if other, twice := m.byJob[p.Rank]; twice {
			return nil, fmt.Errorf("open group %d: ranks %d and %d are both rank %d of the job", cfg.Group, other, r, p.Rank)
		}
		m.byJob[p.Rank] = r
		id := p.host()
		if _, known := index[id]; !known {
			index[id] = len(index)
		}
		m.hosts = append(m.hosts, index[id])
	}
	m.ctx, m.cancel = context.WithCancel(n.ctx)
	if err := n.add(m); err != nil {
		m.cancel()
		return nil, err
	}
	for {
		early, err := n.before(m)
		for _, e := range early {
			m.heard(e.from, e.c)
		}
		if err != nil {
			m.Fail(err)
		}
		if len(early) == 0 {
			break
		}
	}
	for r := range cfg.Peers {
		if m.ahead(r) && m.dials(r) {
			m.dial(r * m.stride)
		}
	}
	if err := m.await(ctx); err != nil {
		m.Fail(err)
		m.Close()
		return nil, err
	}
	return m, nil
}

// add makes the mesh known to the node and gives it the connections that came before it opened.
func (n *Node) add(m *Mesh) error {
	n.mu.Lock()
	if n.closed {
		n.mu.Unlock()
		return transport.ErrClosed
	}
	if n.meshes[m.cfg.Group] != nil {
		n.mu.Unlock()
		return fmt.Errorf("open group %d: it is open", m.cfg.Group)
	}
	n.meshes[m.cfg.Group], m.behind = m, true
	type waiting struct {
		at place
		p  parkedConn
	}
	var conns []waiting
	for at, p := range n.parked {
		if at.group == m.cfg.Group {
			conns = append(conns, waiting{at, p})
			delete(n.parked, at)
		}
	}
	lost := map[int]loss{}
	for _, p := range m.cfg.Peers {
		if why, gone := n.lost[p.Rank]; gone {
			lost[p.Rank] = why
		}
	}
	n.mu.Unlock()
	m.dialNear()
	for _, w := range conns {
		m.connected(w.at.rank, w.at.lane, w.p.conn)
	}
	for job, why := range lost {
		m.peerLost(job, why)
	}
	return nil
}

// dialNear makes the control connections that are this side's to make.
func (m *Mesh) dialNear() {
	m.n.mu.Lock()
	defer m.n.mu.Unlock()
	for r, p := range m.cfg.Peers {
		if m.near(r) && m.dials(r) && m.n.links[p.Rank] == nil {
			m.n.dialControl(p)
		}
	}
}

// near reports the ranks with which this one keeps a control connection.
func (m *Mesh) near(r int) bool {
	return r != m.cfg.Rank && (m.Size() <= m.cfg.full || eager(m.cfg.Rank, r, m.Size()))
}

// ahead reports the ranks to which a data connection is made when the group opens.
func (m *Mesh) ahead(r int) bool {
	return r != m.cfg.Rank && eager(m.cfg.Rank, r, m.Size()) && (m.cfg.Lazy == nil || !m.cfg.Lazy(r))
}

// dials reports whether connections to r are this side's to make: of two ranks the
// lower one dials, so that no pair is connected twice.
func (m *Mesh) dials(r int) bool { return m.n.cfg.Rank < m.cfg.Peers[r].Rank }

// await returns when all partners are connected. When ctx has ended, what is there counts, and what is on its way is
// waited for within a bound: the other end may have it, and with it the group.
func (m *Mesh) await(ctx context.Context) error {
	again := time.NewTicker(time.Second)
	defer again.Stop()
	ended, late := ctx.Done(), false
	var enough <-chan time.Time
	for {
		m.n.mu.Lock()
		changed := m.n.changed
		m.late = late
		coming := m.coming()
		var missing []int
		for r, p := range m.cfg.Peers {
			if m.near(r) && m.n.links[p.Rank] == nil {
				missing = append(missing, r)
			}
		}
		m.n.mu.Unlock()
		m.mu.Lock()
		for r := range m.cfg.Peers {
			if m.ahead(r) && m.ready[r*m.stride] == nil && !slices.Contains(missing, r) {
				missing = append(missing, r)
			}
		}
		err := m.failed
		for r, why := range m.lost {
			if err == nil && !m.hasBeen(r, why, slices.Contains(missing, r)) {
				err = m.lostBy(r, why)
			}
		}
		m.mu.Unlock()
		if err != nil {
			return fmt.Errorf("open group %d: %w", m.cfg.Group, err)
		}
		if len(missing) == 0 {
			m.mu.Lock()
			m.opened = true
			m.mu.Unlock()
			if late {
				m.n.mu.Lock()
				m.late = false
				m.n.mu.Unlock()
			}
			return nil
		}
		if late && !onlyComing(missing, coming) {
			return m.missing(missing, context.Cause(ctx))
		}
		if !late && ctx.Err() != nil {
			ended, late, enough = nil, true, time.After(lingerTime)
			continue
		}
		select {
		case <-again.C:
			m.dialNear() // an attempt may have been given up
		case <-ended:
		case <-enough:
			return m.missing(missing, context.Cause(ctx))
		case <-m.news:
		case <-changed:
		}
	}
}

// hasBeen reports of a rank that cannot be reached any more whether it has made this group before it left: its good-bye
// to the group says so. To others the group has it, so it has it here; whoever waits for it will hear that it has left.
// Its connection, if absent, may be between the acceptor and the mesh. mu is held.
func (m *Mesh) hasBeen(r int, why loss, absent bool) bool {
	return m.parted[r] && why.reason == transport.ReasonLeft && (!absent || time.Since(why.at) < lingerTime)
}

func (m *Mesh) missing(ranks []int, cause error) error {
	slices.Sort(ranks)
	var who []string
	for i, r := range ranks {
		if i == 8 {
			who = append(who, fmt.Sprintf("and %d more", len(ranks)-i))
			break
		}
		p := m.cfg.Peers[r]
		how := "did not connect to " + m.n.cfg.Host
		if m.dials(r) {
			how = fmt.Sprintf("could not be reached from %s at %s", m.n.cfg.Host, strings.Join(p.Addrs, ", "))
			m.n.mu.Lock()
			if err := m.n.trouble[p.Rank]; err != nil && ctxError(err) == nil {
				how += fmt.Sprintf(" (%v)", err)
			}
			m.n.mu.Unlock()
		}
		who = append(who, fmt.Sprintf("rank %d on host %s %s", r, p.Host, how))
	}
	if errors.Is(cause, context.DeadlineExceeded) {
		return fmt.Errorf("open group %d: %s in time; check that the hosts may reach each other (firewall, interface)", m.cfg.Group, strings.Join(who, "; "))
	}
	return fmt.Errorf("open group %d: %s: %w", m.cfg.Group, strings.Join(who, "; "), cause)
}

// ctxError is err if it only says that time was up.
func ctxError(err error) error {
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// dial connects the lane with that index in a goroutine of the mesh, unless that is
// going on. It is until the connection has its place: a second one would be kept by one
// end and refused by the other.
func (m *Mesh) dial(index int) {
	m.mu.Lock()
	if m.closing || m.dialing[index] || m.ready[index] != nil {
		m.mu.Unlock()
		return
	}
	m.dialing[index] = true
	opened := m.opened
	m.wg.Add(1)
	m.mu.Unlock()
	go func() {
		defer m.wg.Done()
		ctx := m.ctx
		if opened {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, max(onDemandTime, m.n.cfg.PeerTimeout))
			defer cancel()
		}
		p := m.cfg.Peers[index/m.stride]
		conn, err := m.n.dial(ctx, p, purposeData, m.cfg.Group, uint32(index%m.stride), max(0, m.cfg.SocketBytes))
		defer func() {
			m.mu.Lock()
			delete(m.dialing, index)
			m.mu.Unlock()
		}()
		if err == nil {
			m.connected(p.Rank, uint32(index%m.stride), conn)
			m.n.end(dataTo(m.cfg.Group, p.Rank, uint32(index%m.stride)))
			return
		}
		if ctx.Err() == nil || !errors.Is(ctx.Err(), context.Canceled) {
			m.n.cfg.Log.Warn("connect data", "error", err)
			m.loseRank(index/m.stride, loss{reason: err.Error()})
		}
	}()
}

// connected takes a proven data connection.
func (m *Mesh) connected(job int, laneNo uint32, conn net.Conn) {
	r, ours := m.byJob[job]
	if !ours || int(laneNo) >= m.stride {
		m.n.cfg.Log.Warn("refused connection", "peer", job, "group", m.cfg.Group, "lane", laneNo,
			"error", "the group has no such rank or connection here; set the number of connections alike on all ranks")
		conn.Close()
		return
	}
	fd, b, err := m.socket(conn)
	if err != nil {
		m.n.cfg.Log.Warn("take connection", "peer", job, "error", err)
		return
	}
	index := r*m.stride + int(laneNo)
	l := &lane{fd: fd, pair: int(laneNo) == m.cfg.Lanes}
	m.mu.Lock()
	old := m.ready[index]
	switch {
	case m.closing || m.taken[index]:
		old = l
	default: // an older one that nobody has used was given up by the dialler
		m.ready[index] = l
	}
	if b != nil {
		m.bridges = append(m.bridges, b)
	}
	m.mu.Unlock()
	if old != nil {
		unix.Close(old.fd)
	}
	m.notify()
}

// lane is the i-th connection to a peer for the present operation.
func (m *Mesh) lane(peer, i int) (*lane, error) {
	if m.stamp.Seq&transport.PairSeq != 0 {
		i = m.cfg.Lanes
	}
	index := peer*m.stride + i
	if l := m.own[index]; l != nil {
		return l, nil
	}
	return m.need(index)
}

// need waits until a connection that is made on demand is there.
func (m *Mesh) need(index int) (*lane, error) {
	peer := index / m.stride
	m.mu.Lock()
	m.wanting = index
	m.mu.Unlock()
	defer func() {
		m.mu.Lock()
		m.wanting = -1
		m.mu.Unlock()
	}()
	slice := time.NewTimer(0)
	defer slice.Stop()
	asked := false
	for {
		m.mu.Lock()
		l := m.ready[index]
		if l != nil {
			m.taken[index] = true
			m.own[index] = l
		}
		m.mu.Unlock()
		if l != nil {
			return l, nil
		}
		if m.alarm.Load() != 0 {
			if err := m.verdict(peer, -1); err != nil {
				return nil, err
			}
		}
		if err := m.checkDeadline(peer, -1); err != nil {
			return nil, err
		}
		if !asked {
			asked = true
			m.want(index)
		}
		select {
		case <-m.news:
		case <-slice.C:
			slice.Reset(pollSlice)
		}
	}
}

// want has the lane with that index connected: by this side or, on request, by the
// other. The ticker repeats it.
func (m *Mesh) want(index int) {
	peer := index / m.stride
	if m.dials(peer) {
		m.dial(index)
		return
	}
	m.tell(peer, wire.Control{
		Kind: wire.ControlWant, Group: m.cfg.Group, Origin: m.cfg.Rank, To: peer, Lost: -1,
		Seq: uint64(index % m.stride),
	})
}
