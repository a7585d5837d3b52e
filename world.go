package hora

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"hora/elastic/rendezvous"
	"hora/event"
	"hora/transport"
	"hora/transport/shm"
	"hora/transport/tcp"
)

// World is this process's membership of a job. Its methods may be called from any
// goroutine.
type World struct {
	cfg     settings
	number  uint64 // epoch
	members []rendezvous.Member
	group   *Group
	clock   event.Epoch
	socket  string                  // of memory, when peers must be able to work it out
	member  *Membership             // owns client and server, and outlives this world; nil for a world of its own
	abort   context.CancelCauseFunc // ends joining when a rank is lost meanwhile; nil without member

	knots     *knots    // nil where nobody says what threads do
	recording recording // of a world without member, which has its own

	server   *rendezvous.Server // in the process that serves
	client   *rendezvous.Client
	memory   *shm.Listener
	listener *tcp.Listener // until node takes it over

	mu       sync.Mutex // guards the rest; never held over I/O
	node     *tcp.Node
	groups   map[*Group]struct{}
	made     map[string]uint64 // groups made of each set of ranks, name and kind
	ended    error             // why the world is over; nil while it lasts
	closed   bool
	broken   chan struct{} // closed when the coordinator says that the epoch is over
	held     held          // who is, of a world without member, which has its own
	absent   map[int]error // ranks that are lost or have left, and how
	openings map[*opening]struct{}
	losses   map[int]*loss      // what the coordinator says, or is asked, about lost ranks
	gone     transport.Counters // of closed groups
	apart    error              // ranks have made different numbers of calls
}

func newWorld(cfg settings) *World {
	w := &World{
		cfg: cfg, clock: event.NewEpoch(), groups: map[*Group]struct{}{}, made: map[string]uint64{},
		losses: map[int]*loss{}, absent: map[int]error{},
		openings: map[*opening]struct{}{}, broken: make(chan struct{}),
	}
	w.knots = newKnots(w)
	return w
}

func (w *World) everyone() []int {
	all := make([]int, w.cfg.Size)
	for i := range all {
		all[i] = i
	}
	return all
}

// Group returns the group of all ranks, with operations in the caller's order.
func (w *World) Group() *Group { return w.group }

// Rank returns this process's place among all.
func (w *World) Rank() int { return w.cfg.Rank }

// Size returns the number of processes.
func (w *World) Size() int { return w.cfg.Size }

// sameHost reports ranks that count as one host for local and cross ranks.
func (w *World) sameHost(a, b int) bool {
	return w.members[a].Host == w.members[b].Host && w.members[a].HostID == w.members[b].HostID
}

// place finds a rank's place by the members' hosts.
func (w *World) place(rank int) (localRank, localSize int) {
	for r := range w.members {
		if w.sameHost(r, rank) {
			if r < rank {
				localRank++
			}
			localSize++
		}
	}
	return localRank, localSize
}

// LocalRank returns this process's place among those of its host.
func (w *World) LocalRank() int {
	if w.cfg.LocalSize > 0 {
		return w.cfg.LocalRank
	}
	r, _ := w.place(w.cfg.Rank)
	return r
}

// LocalSize returns the number of processes on this host.
func (w *World) LocalSize() int {
	if w.cfg.LocalSize > 0 {
		return w.cfg.LocalSize
	}
	_, n := w.place(w.cfg.Rank)
	return n
}

// cross finds this host's place among those that have a rank of this LocalRank.
func (w *World) cross() (rank, size int) {
	mine, _ := w.place(w.cfg.Rank)
	for r := range w.members {
		if l, _ := w.place(r); l == mine {
			if r < w.cfg.Rank {
				rank++
			}
			size++
		}
	}
	return rank, size
}

// CrossRank returns this host's place among those that have this LocalRank.
func (w *World) CrossRank() int {
	if w.cfg.CrossSize > 0 {
		return w.cfg.CrossRank
	}
	r, _ := w.cross()
	return r
}

// CrossSize returns the number of hosts that have this LocalRank.
func (w *World) CrossSize() int {
	if w.cfg.CrossSize > 0 {
		return w.cfg.CrossSize
	}
	_, n := w.cross()
	return n
}

// Homogeneous reports whether every host has equally many ranks.
func (w *World) Homogeneous() bool {
	_, first := w.place(0)
	for r := range w.members {
		if _, n := w.place(r); n != first {
			return false
		}
	}
	return true
}

// Host returns this host's name in messages.
func (w *World) Host() string { return w.cfg.Host }

// HostOf returns the name of the host that rank runs on.
func (w *World) HostOf(rank int) string {
	if rank < 0 || rank >= len(w.members) {
		return ""
	}
	return w.members[rank].Host
}

// Epoch returns the number of this life of the job.
func (w *World) Epoch() uint64 { return w.number }

// Clock returns what the times of events count on.
func (w *World) Clock() event.Epoch { return w.clock }

// Config returns a copy of what the world was joined with, with what was found out.
func (w *World) Config() Config { return w.cfg.config() }

// Put stores a value that every rank can Get: the job's key-value store.
func (w *World) Put(ctx context.Context, key string, value []byte) error {
	if w.client == nil {
		return errNoStore
	}
	return w.client.Put(ctx, key, value)
}

// Get waits for a value that some rank Put.
func (w *World) Get(ctx context.Context, key string) ([]byte, error) {
	if w.client == nil {
		return nil, errNoStore
	}
	return w.client.Get(ctx, key)
}

var errNoStore = errors.New("use key-value store: this world was joined without a coordinator; give Config.Addr")

// Counters returns the bytes and messages of all groups by link.
func (w *World) Counters() Counters {
	w.mu.Lock()
	sum := w.gone
	open := make([]*Group, 0, len(w.groups))
	for g := range w.groups {
		open = append(open, g)
	}
	w.mu.Unlock()
	for _, g := range open {
		sum = sum.Add(g.Counters())
	}
	return sum
}

// loss is what the coordinator knows about a lost rank.
type loss struct {
	known  chan struct{} // closed with reason
	reason string
}

// lastWord is how long operations of a lost rank's groups wait for the launcher's word
// on it, which has the exit code.
const lastWord = 300 * time.Millisecond

func (w *World) lossOf(rank int) *loss {
	w.mu.Lock()
	defer w.mu.Unlock()
	l := w.losses[rank]
	if l == nil {
		l = &loss{known: make(chan struct{})}
		w.losses[rank] = l
	}
	return l
}

// reason returns the coordinator's word on a lost rank, "" if there is none in time.
func (w *World) reason(rank int) string {
	l := w.lossOf(rank)
	t := time.NewTimer(lastWord)
	defer t.Stop()
	select {
	case <-l.known:
		return l.reason
	case <-w.broken: // it has said another rank's name, or this one's in the same breath
		select {
		case <-l.known:
			return l.reason
		default:
			return ""
		}
	case <-t.C:
		return ""
	}
}

// learn notes the coordinator's word on a lost rank. Only the client's reading goroutine
// calls it.
func (w *World) learn(rank int, reason string) {
	l := w.lossOf(rank)
	select {
	case <-l.known:
	default:
		l.reason = reason
		close(l.known)
	}
	select {
	case <-w.broken:
	default:
		close(w.broken)
	}
}

// lost ends the groups that err concerns.
func (w *World) lost(err error) {
	var peer *PeerLostError
	rank := -1
	if errors.As(err, &peer) {
		rank = peer.Rank
	}
	w.mu.Lock()
	if w.ended == nil && rank < 0 {
		w.ended = err
	}
	if w.closed {
		w.mu.Unlock()
		return
	}
	w.miss(rank, err)
	var hit []*Group
	for g := range w.groups {
		if rank < 0 || slices.Contains(g.ranks, rank) {
			hit = append(hit, g)
		}
	}
	abort := w.abort
	w.mu.Unlock()
	if abort != nil {
		abort(err)
	}
	for _, g := range hit {
		g.lost(err)
	}
}

// How long an epoch that a rank has left on purpose goes on for what that rank took part in: at least partedGrace, in
// which others may come so far that one which has would stop; unheard for a group's good-bye; partedMost in all.
const (
	partedGrace = 100 * time.Millisecond
	unheard     = 300 * time.Millisecond
	partedMost  = time.Second
)

// parted ends the epoch that a rank has left after its commit. What it committed was done by all, so what it took
// part in ends first: who broke that off would go back to the commit before.
func (w *World) parted(n rendezvous.Notice, since time.Time) {
	if passed := time.Since(since); passed < partedGrace || passed < partedMost && w.behind(n.Rank, passed < unheard) {
		time.AfterFunc(5*time.Millisecond, func() { w.parted(n, since) })
		return
	}
	w.lost(lossError(n))
}

// behind reports that a group with that rank has not ended all that the rank took part in; fresh: its good-bye may be
// on its way.
func (w *World) behind(rank int, fresh bool) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for g := range w.groups {
		if !slices.Contains(g.ranks, rank) {
			continue
		}
		if heard, behind := g.engine.Behind(); behind || fresh && !heard {
			return true
		}
	}
	return false
}

// Finish says that this rank makes no more calls in any group, before Leave, which does it
// otherwise. It waits up to 0.3 s for the others to come so far, and gives a *MismatchError
// where ranks have made different numbers of calls. A job of several epochs, and one of which
// a group has failed, is not asked.
func (w *World) Finish() error {
	if w.member != nil {
		return nil
	}
	w.mu.Lock()
	groups := make([]*Group, 0, len(w.groups))
	for g := range w.groups {
		groups = append(groups, g)
	}
	w.mu.Unlock()
	failed := slices.ContainsFunc(groups, func(g *Group) bool { return g.engine.Silent() })
	var wg sync.WaitGroup
	for _, g := range groups {
		if failed {
			g.engine.Quietly()
		}
		wg.Go(func() { g.farewell(goodbye) })
	}
	wg.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.apart
}

// goodbye is how long a rank that leaves waits for the others to leave too.
const goodbye = 300 * time.Millisecond

// Leave ends this process's membership on purpose: others do not count it as lost. It
// closes all groups and may be called again. A *MismatchError says that ranks have made
// different numbers of calls.
func (w *World) Leave(ctx context.Context) error {
	w.mu.Lock()
	first := !w.closed
	w.mu.Unlock()
	if !first {
		return nil
	}
	apart := w.Finish()
	if w.client != nil && w.member == nil {
		// A coordinator that is gone already needs no good-bye.
		_ = w.client.Leave(ctx)
	}
	err := errors.Join(apart, w.Close())
	w.cfg.Events.Emit(&event.Left{Rank: w.cfg.Rank})
	return err
}

// Close ends the membership without a word to the coordinator, which counts this rank
// as lost; it leaks nothing and may be called again.
func (w *World) Close() error {
	w.mu.Lock()
	if w.closed {
		w.mu.Unlock()
		return nil
	}
	w.closed = true
	groups := make([]*Group, 0, len(w.groups))
	for g := range w.groups {
		groups = append(groups, g)
	}
	w.mu.Unlock()
	w.knots.close()
	faults := closeGroups(groups)
	w.recording.leave()
	if w.member == nil {
		w.cfg.refused.leave()
		w.cfg.served.leave()
	}
	w.mu.Lock()
	node := w.node
	w.mu.Unlock()
	if node != nil {
		faults = append(faults, node.Close())
	} else if w.listener != nil {
		faults = append(faults, w.listener.Close())
	}
	if w.memory != nil {
		faults = append(faults, w.memory.Close())
	}
	if w.client != nil && w.member == nil {
		faults = append(faults, w.client.Close())
	}
	if w.server != nil && w.member == nil {
		faults = append(faults, w.server.Close())
	}
	if err := errors.Join(faults...); err != nil {
		return fmt.Errorf("leave world: %w", err)
	}
	return nil
}
