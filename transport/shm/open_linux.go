package shm

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"hora/internal/secret"
	"hora/transport"
)

const (
	// redial is how long a leader's socket may refuse before it counts as out of
	// reach: its name is known only once it listens.
	redial      = time.Second
	reprove     = 3 * time.Second // how long a proof that was cut off is tried again: strangers may push it out
	redialPause = 5 * time.Millisecond
	hearWhy     = time.Second
)

// Open joins the ranks of cfg.Ranks, which all call it, in one segment. It blocks
// until all have mapped it, or until none has and all return an error: an
// *UnavailableError where they can still talk by TCP.
func Open(ctx context.Context, cfg Config) (*Link, error) {
	cfg, err := cfg.checked()
	if err != nil {
		return nil, err
	}
	if len(cfg.Ranks) > maxSeats {
		return nil, unavailable("%d ranks on one host, at most %d", len(cfg.Ranks), maxSeats)
	}
	bell, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return nil, unavailable("make a bell: %w", err)
	}
	l := newLink(cfg)
	l.bells = make([]int, len(cfg.Ranks))
	l.pidfds = make([]int, len(cfg.Ranks))
	for i := range l.bells {
		l.bells[i], l.pidfds[i] = -1, -1
	}
	l.bells[l.seat] = bell
	if l.seat == 0 {
		err = l.lead(ctx)
	} else {
		err = l.follow(ctx)
	}
	if err != nil {
		l.abandon()
		return nil, err
	}
	l.start()
	return l, nil
}

// boardConfig is what all seats must lay the board out by, and this rank's part.
func (l *Link) boardConfig() transport.BoardConfig {
	c := l.cfg
	b := transport.BoardConfig{
		Ranks: c.Ranks, Host: c.Host,
		SlotBytes: c.SlotBytes, PartBytes: c.PartBytes, Parts: c.Parts,
		Waiter: new(futex), Regions: l.regions, CPU: thisCPU, Failure: l.failure, Lost: l.lostSeat,
		Peek: l.peeker.read, Poke: l.peeker.write, Readable: l.readable, Large: l.peeker.large,
		PeerTimeout: c.PeerTimeout, Spin: c.Spin, Oversubscribed: l.oversubscribed,
	}
	if fenced() {
		b.Fence, b.Fenced = fence, true
	}
	return b
}

func (l *Link) join() join {
	c := l.cfg
	j := join{
		ranks: c.Ranks, slotBytes: c.SlotBytes, partBytes: c.PartBytes, parts: c.Parts,
		oversubscribed: c.Oversubscribed,
	}
	j.cpus, _ = affinity()
	return j
}

// lead opens the group's memory as the lowest rank.
func (l *Link) lead(ctx context.Context) error {
	joins, err := l.gather(ctx)
	var bounds []func() bool
	for _, conn := range l.conns {
		if conn != nil {
			bounds = append(bounds, bound(ctx, conn, 0))
		}
	}
	if err == nil {
		err = l.hearJoins(joins)
	}
	if err == nil {
		err = l.judge(joins)
	}
	if err == nil {
		err = l.makeSegment(joins)
	}
	if err == nil {
		err = l.handOut()
	}
	for _, inTime := range bounds {
		if !inTime() && err == nil {
			err = fmt.Errorf("open shared memory: %w", context.Cause(ctx))
		}
	}
	// One word from the leader ends it for all, good or bad.
	word := verdictOn(0, err).encode()
	for _, conn := range l.conns {
		if conn == nil {
			continue
		}
		conn.SetDeadline(time.Now().Add(proofTime))
		// Who has gone since it mapped the memory is found by the watch; to fail now
		// would leave the others in a group without this rank.
		_ = send(conn, kindGo, word)
		conn.SetDeadline(time.Time{})
	}
	return err
}

// gather collects every other rank's connection.
func (l *Link) gather(ctx context.Context) ([]join, error) {
	joins := make([]join, l.seats)
	joins[0] = l.join()
	missing := l.seats - 1
	if missing == 0 {
		return joins, nil
	}
	key := groupKey{l.cfg.Epoch, l.cfg.Group}
	err := l.cfg.Listener.take(ctx, key, func(c claim) bool {
		seat := slices.Index(l.cfg.Ranks, c.rank)
		if seat <= 0 {
			l.cfg.Log.Warn("refused a rank that is not of this host's", "rank", c.rank)
			c.drop()
			return false
		}
		if l.conns[seat] == nil {
			missing--
		} else { // it tried again
			l.conns[seat].Close()
			closeFD(l.pidfds[seat])
		}
		l.conns[seat], l.pidfds[seat] = c.conn, c.pidfd
		return missing == 0
	})
	if err != nil {
		return joins, fmt.Errorf("open shared memory: wait for rank %s on host %s: %w", l.missing(), l.cfg.Host, err)
	}
	return joins, nil
}

func (l *Link) hearJoins(joins []join) error {
	for seat := 1; seat < l.seats; seat++ {
		m, err := receive(l.conns[seat])
		if err != nil {
			return fmt.Errorf("open shared memory: hear from rank %d: %w", l.cfg.Ranks[seat], err)
		}
		l.bells[seat] = m.takeFD(0)
		m.closeFDs()
		joins[seat], err = decodeJoin(m.payload)
		if err == nil && (m.kind != kindJoin || l.bells[seat] < 0) {
			err = fmt.Errorf("kind %d", m.kind)
		}
		if err != nil {
			return fmt.Errorf("open shared memory: rank %d sent something else: %w", l.cfg.Ranks[seat], err)
		}
	}
	return nil
}

func (l *Link) missing() string {
	var out []int
	for seat := 1; seat < l.seats; seat++ {
		if l.conns[seat] == nil {
			out = append(out, l.cfg.Ranks[seat])
		}
	}
	return fmt.Sprint(out)
}

// judge refuses ranks that were configured otherwise.
func (l *Link) judge(joins []join) error {
	mine := joins[0]
	for seat, j := range joins {
		rank := l.cfg.Ranks[seat]
		if !slices.Equal(j.ranks, mine.ranks) {
			return unavailable("rank %d counts %v on this host, rank %d counts %v", l.cfg.Rank, mine.ranks, rank, j.ranks)
		}
		if j.slotBytes != mine.slotBytes || j.partBytes != mine.partBytes || j.parts != mine.parts {
			return unavailable("rank %d wants slots of %d and %d parts of %d bytes, rank %d %d and %d of %d; configure all ranks alike",
				l.cfg.Rank, mine.slotBytes, mine.parts, mine.partBytes, rank, j.slotBytes, j.parts, j.partBytes)
		}
	}
	return nil
}

// makeSegment makes and maps the memory and lays the board out.
func (l *Link) makeSegment(joins []join) error {
	l.oversubscribed = crowded(joins)
	cfg := l.boardConfig()
	size := segmentBytes(l.seats, cfg)
	fd, err := newMemory("hora", size, transport.BoardHotSize(l.seats, cfg))
	if err != nil {
		return &UnavailableError{err}
	}
	l.memfd = fd
	if p, err := unix.PidfdOpen(unix.Getpid(), 0); err == nil {
		l.pidfds[0] = p
	}
	return l.mapBoard(size)
}

func (l *Link) mapBoard(size int) error {
	cfg := l.boardConfig()
	seg, err := mapSegment(l.memfd, size, l.seats, cfg)
	if err != nil {
		return &UnavailableError{err}
	}
	l.segment = seg
	if l.board, err = transport.NewBoard(seg.board, l.seats, l.seat, cfg); err != nil {
		return &UnavailableError{err}
	}
	return nil
}

// handOut passes the segment to everybody and hears from all that they mapped it.
func (l *Link) handOut() error {
	lay := layout{bytes: uint64(len(l.segment.mem)), oversubscribed: l.oversubscribed}
	fds := append([]int{l.memfd}, l.bells...)
	for _, p := range l.pidfds {
		lay.processes = append(lay.processes, p >= 0)
		if p >= 0 {
			fds = append(fds, p)
		}
	}
	for seat := 1; seat < l.seats; seat++ {
		if err := send(l.conns[seat], kindSegment, lay.encode(), fds...); err != nil {
			return unavailable("hand memory to rank %d: %w", l.cfg.Ranks[seat], err)
		}
	}
	for seat := 1; seat < l.seats; seat++ {
		m, err := receive(l.conns[seat])
		m.closeFDs()
		if err != nil {
			return unavailable("hear from rank %d: %w", l.cfg.Ranks[seat], err)
		}
		v, err := decodeVerdict(m.payload)
		if err == nil && m.kind == kindMapped && v.why != "" {
			err = errors.New(v.why)
		}
		if err != nil || m.kind != kindMapped {
			return unavailable("rank %d did not map it: %w", l.cfg.Ranks[seat], err)
		}
	}
	return nil
}

// follow opens the group's memory as any other rank.
func (l *Link) follow(ctx context.Context) error {
	conn, err := l.dial(ctx)
	if err != nil {
		return err
	}
	l.conns[0] = conn
	// The leader's context ends at about the same time, and it knows who was missing.
	inTime := bound(ctx, conn, hearWhy)
	defer inTime()
	if err := send(conn, kindJoin, l.join().encode(), l.bells[l.seat]); err != nil {
		return unavailable("join rank %d: %w", l.cfg.Ranks[0], err)
	}
	m, err := receive(conn)
	if err != nil {
		return unavailable("hear from rank %d: %w", l.cfg.Ranks[0], err)
	}
	if m.kind != kindGo {
		mapErr := l.takeSegment(&m)
		m.closeFDs()
		if err := send(conn, kindMapped, verdictOn(0, mapErr).encode()); err != nil {
			return unavailable("answer rank %d: %w", l.cfg.Ranks[0], err)
		}
		if m, err = receive(conn); err != nil {
			return unavailable("hear from rank %d: %w", l.cfg.Ranks[0], err)
		}
	}
	m.closeFDs()
	v, err := decodeVerdict(m.payload)
	if err == nil && v.final {
		return fmt.Errorf("rank %d could not: %s", l.cfg.Ranks[0], v.why)
	}
	if err == nil && v.why != "" {
		err = errors.New(v.why)
	}
	if err == nil && (m.kind != kindGo || l.board == nil) {
		err = errors.New("it sent something else")
	}
	if err != nil {
		return unavailable("rank %d says: %w", l.cfg.Ranks[0], err)
	}
	// The leader's word stands even when ctx has ended since: the others have this link, and one of
	// them may have left already, which is why ctx ended.
	return nil
}

func (l *Link) takeSegment(m *message) error {
	if m.kind != kindSegment {
		return fmt.Errorf("expected memory, got a message of kind %d", m.kind)
	}
	lay, err := decodeLayout(m.payload)
	if err != nil {
		return err
	}
	if len(lay.processes) != l.seats || lay.bytes > maxBuffer {
		return errors.New("layout makes no sense")
	}
	l.oversubscribed = lay.oversubscribed
	l.memfd = m.takeFD(0)
	next := 1
	for seat := range l.seats {
		if seat != l.seat { // its own it has
			l.bells[seat] = m.takeFD(next)
		}
		next++
	}
	for seat, comes := range lay.processes {
		if comes {
			l.pidfds[seat] = m.takeFD(next)
			next++
		}
	}
	if l.memfd < 0 || slices.Contains(l.bells, -1) {
		return errors.New("descriptors are missing")
	}
	return l.mapBoard(int(lay.bytes))
}

// dial connects to the leader and proves the secret both ways.
func (l *Link) dial(ctx context.Context) (*net.UnixConn, error) {
	leader := l.cfg.Ranks[0]
	var d net.Dialer
	begun := time.Now()
	until := begun.Add(redial)
	for {
		c, err := d.DialContext(ctx, "unix", l.cfg.Leader)
		if err == nil {
			conn := c.(*net.UnixConn)
			if err = l.proveTo(ctx, conn); err == nil {
				return conn, nil
			}
			conn.Close()
			err = fmt.Errorf("open shared memory: rank %d on this host: %w", leader, err)
			if !secret.CutOff(err) || time.Since(begun) > reprove || !l.pauseOr(ctx, 10*redialPause) {
				return nil, err
			}
			continue
		}
		transient := errors.Is(err, unix.EAGAIN) || time.Now().Before(until)
		if ctx.Err() != nil || !transient {
			return nil, unavailable("connect to rank %d: %w", leader, err)
		}
		if !l.pauseOr(ctx, redialPause) {
			return nil, unavailable("connect to rank %d: %w", leader, context.Cause(ctx))
		}
	}
}

func (l *Link) pauseOr(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

func (l *Link) proveTo(ctx context.Context, conn *net.UnixConn) error {
	pidfd, err := credentials(conn)
	if err != nil {
		return err
	}
	closeFD(pidfd) // the leader sends its own
	until := time.Now().Add(proofTime)
	if d, ok := ctx.Deadline(); ok && d.Before(until) {
		until = d
	}
	c := l.cfg
	me := secret.Identity{
		Purpose: purpose, Job: c.Job, Epoch: c.Epoch, Group: c.Group,
		Rank: c.Rank, Peer: secret.Anyone, Host: c.Host,
	}
	_, err = secret.Client(conn, c.Secret, me, until)
	return err
}

// bound ends what is said on conn slack after ctx ends. The result takes that back
// and reports whether it was in time; once it has returned, conn's deadline is the
// caller's again.
func bound(ctx context.Context, conn *net.UnixConn, slack time.Duration) (inTime func() bool) {
	set := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		conn.SetDeadline(time.Now().Add(slack))
		close(set)
	})
	return sync.OnceValue(func() bool {
		if stop() {
			return true
		}
		<-set // or it would cut off what is said from now on
		return false
	})
}

// affinity is the set of processors this process may run on, a bit each.
func affinity() ([]byte, error) {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		return nil, err
	}
	out := make([]byte, 128)
	last := 0
	for cpu := range len(out) * 8 {
		if set.IsSet(cpu) {
			out[cpu/8] |= 1 << (cpu % 8)
			last = cpu/8 + 1
		}
	}
	return out[:last], nil
}

// crowded reports whether ranks must share processors: somebody was told so, there
// are fewer processors than ranks, or two ranks are bound to the same one.
func crowded(joins []join) bool {
	var all [maxCPUs]byte
	var alone [maxCPUs]byte // processors that some rank has as its only one
	known := true
	for _, j := range joins {
		if j.oversubscribed {
			return true
		}
		known = known && len(j.cpus) > 0
		one, count := -1, 0
		for i, bits := range j.cpus {
			all[i] |= bits
			for bit := range 8 {
				if bits>>bit&1 != 0 {
					one, count = i*8+bit, count+1
				}
			}
		}
		if count == 1 {
			if alone[one/8]>>(one%8)&1 != 0 {
				return true
			}
			alone[one/8] |= 1 << (one % 8)
		}
	}
	count := 0
	for _, bits := range all {
		for ; bits != 0; bits &= bits - 1 {
			count++
		}
	}
	return known && count < len(joins)
}
