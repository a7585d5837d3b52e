package collective

import (
	"fmt"
	"runtime"
	"time"
	"unsafe"

	"hora/internal/kernel"
	"hora/tensor"
	"hora/transport"
)

// Config holds the knobs of a Comm. The zero value is right.
type Config struct {
	// Table overrides parts of the selection table; ParseTable states the grammar.
	// It must be the same on all ranks.
	Table string
	// Segment is the most bytes that one message of a segmented algorithm carries;
	// 0 means 256 KiB. Small tests set a few bytes to reach every multi-segment path.
	Segment int
	// Part is the most bytes that one step of a pipelined shared-memory algorithm
	// puts into a rank's part; 0 means the Board's own part size.
	Part int
	// Stream is the size of a gathered result from which on it is written past the cache,
	// most of which would leave it again before anybody reads it; 0 means 16 MiB.
	Stream int
	// Tune measures segment and part sizes for about 50 ms in New; rank 0 decides.
	// It is a collective operation: all ranks must set it alike.
	Tune bool
}

const (
	defaultSegment = 256 << 10
	defaultStream  = 16 << 20
)

// A Comm runs the operations of one group, one at a time, for one rank. It is used
// by one goroutine at a time and owns its scratch memory, which grows to the largest
// operation once and is then reused.
type Comm struct {
	mesh  transport.Mesh
	board *transport.Board // nil when this rank is alone on its host
	topo  topology

	menuAll   menu // for all ranks
	menuCross menu // for one rank a host
	menuBoard menu // for the ranks of my host

	segment int // bytes of one message of a segmented algorithm
	part    int // bytes of a part that one shared-memory step fills
	stream  int // bytes of a gathered result that is written past the cache
	// leastShard is the least number of bytes worth a shard of their own. It decides
	// the order of additions, so tuning never changes it.
	leastShard int
	first      uint64 // number of the first operation after New
	seats      int    // ranks on my board, 0 without one
	seat       int
	filled     [2]int // bytes that I put into each of my slots and have not claimed again

	all   peers // every rank
	cross peers // the ranks on other hosts that own the same shard; empty when I own none
	heads peers // one rank a host, for rooted operations; rewritten by each

	op      operation
	work    arena            // holds the working copy of an operation
	spare   arena            // holds what a message brought until it is added
	srcs    []unsafe.Pointer // where each seat's elements lie
	dsts    []unsafe.Pointer // where each seat wants results
	begin   []int            // per seat or rank: its block's first element
	count   []int            // and its length
	other   []int            // begins of a second cut of the same tensor
	length  []int            // and its lengths
	headers []header
	peeking peeking
	paces   *paces
	planned [plannedCalls]plannedCall
}

// operation is what the header phase leaves for Run.
type operation struct {
	stamp  transport.Stamp
	open   bool // Begin was called and Run has not finished
	posted bool // my header is out
	met    int  // seats [0, met) have been seen to arrive
	plan   plan
	ready  ready
	parity int    // of my slot
	phase  uint32 // steps that I have posted
	// lastPhase is, of a peeked operation, the phase after which nobody reads others' memory.
	lastPhase uint32
	timed     *pace // where to note how long it takes, since when, and what asking the system had taken before
	began     time.Time
	asked     time.Duration
	inline    [transport.InlineBytes]byte
}

// New makes a Comm over the group's links.
func New(m transport.Mesh, cfg Config) (*Comm, error) {
	t, err := ParseTable(cfg.Table)
	if err != nil {
		return nil, err
	}
	c := &Comm{mesh: m, board: m.Board(), segment: cfg.Segment, first: 1}
	c.topo = readTopology(m)
	n := m.Size()
	c.menuAll, c.menuCross = t.menu(n), t.menu(len(c.topo.hosts))
	if c.segment <= 0 {
		c.segment = defaultSegment
	}
	if c.stream = cfg.Stream; c.stream <= 0 {
		c.stream = defaultStream
	}
	c.leastShard = min(4096, c.segment)
	c.srcs = make([]unsafe.Pointer, n)
	c.dsts = make([]unsafe.Pointer, n)
	c.begin, c.count = make([]int, n), make([]int, n)
	c.other, c.length = make([]int, n), make([]int, n)
	c.all = c.topo.everyone(m)
	c.cross = c.topo.shardPeers(m)
	c.heads = c.topo.headPeers(m)
	if c.board != nil {
		c.seats, c.seat = c.board.Seats(), c.board.Seat()
		c.headers = make([]header, c.seats)
		c.menuBoard = t.menu(c.seats)
		c.part = c.board.PartBytes()
		if cfg.Part > 0 && cfg.Part < c.part {
			c.part = max(cfg.Part, minPart*c.seats)
		}
	}
	if cfg.Tune {
		if err := c.tune(); err != nil {
			return nil, fmt.Errorf("tune collectives: %w", err)
		}
	}
	return c, nil
}

// Arrive does the header phase alone: it tells the ranks on this host that this one
// has come to the operation and waits up to budget for them. It is true when all are
// here, and always where no memory is shared. A negative budget waits without bound.
// Run continues where Arrive stopped; calling Arrive again goes on waiting.
func (c *Comm) Arrive(s transport.Stamp, call *Call, budget time.Duration) (bool, error) {
	if err := c.open(s, call, time.Time{}); err != nil {
		return false, err
	}
	if c.board == nil || call.Kind == SendTo || call.Kind == RecvFrom {
		return true, nil
	}
	here, err := c.meet(call, budget)
	if err != nil {
		err = c.fail(err)
	}
	return here, err
}

// Abandon ends an operation that Arrive has begun and Run will not finish, because the
// group has failed with err.
func (c *Comm) Abandon(err error) { _ = c.fail(err) }

// Run runs the whole operation, or what Arrive left of it, and returns when this
// rank's Recv is complete and its Send may be reused. After an error Recv is
// undefined unless the error came from the header phase or Call.Agree. A zero
// deadline means none.
func (c *Comm) Run(s transport.Stamp, call *Call, deadline time.Time) error {
	if err := c.open(s, call, deadline); err != nil {
		return err
	}
	err := c.run(call)
	if err != nil {
		err = c.fail(err)
	}
	// Until here the others read and write the call's memory through the system, also where nothing of this rank's
	// uses it any more: the collector would free it, and they would read zeros.
	runtime.KeepAlive(call)
	if err != nil {
		return err
	}
	c.op.open = false
	if c.board != nil {
		c.claimSlot()
		if c.op.timed != nil {
			c.clock()
		}
	}
	return nil
}

// open begins the operation unless Arrive has.
func (c *Comm) open(s transport.Stamp, call *Call, deadline time.Time) error {
	if c.op.open && c.op.stamp == s {
		if !deadline.IsZero() {
			c.mesh.Begin(s, deadline)
		}
		return nil
	}
	if err := c.prepare(call); err != nil {
		return err
	}
	// Field by field: a whole operation is put together in bytes and copied in words, for
	// which the processor waits until the bytes are in the cache, some 20 ns.
	o := &c.op
	o.stamp, o.open, o.posted, o.met = s, true, false, 0
	o.ready, o.parity, o.phase = inParts, int(s.Seq&1), 0
	c.mesh.Begin(s, deadline)
	return nil
}

func (c *Comm) run(call *Call) error {
	switch {
	case call.Kind == SendTo || call.Kind == RecvFrom:
		return c.sendRecv(call)
	case c.board != nil:
		if _, err := c.meet(call, -1); err != nil {
			return err
		}
	}
	if len(c.topo.hosts) > 1 && (call.Agree || call.Kind.Rooted()) {
		if err := c.all.barrier(); err != nil {
			return err
		}
	}
	switch call.Kind {
	case Allreduce:
		return c.allreduce(call)
	case Reduce:
		return c.reduce(call)
	case Broadcast:
		return c.broadcast(call)
	case Allgather:
		return c.allgather(call)
	case ReduceScatter:
		return c.reduceScatter(call)
	case Alltoall:
		return c.alltoall(call)
	case Gather:
		return c.gather(call)
	case Scatter:
		return c.scatter(call)
	default:
		return c.barrier(call)
	}
}

// First is the number that the first operation after New must have: 1, or more where
// tuning has used some.
func (c *Comm) First() uint64 { return c.first }

// Rank is this rank's number in the group.
func (c *Comm) Rank() int { return c.mesh.Rank() }

// Size is the number of ranks.
func (c *Comm) Size() int { return c.mesh.Size() }

// load copies src to dst, times the factor.
func load(dst, src unsafe.Pointer, n int, t tensor.DType, factor float64) {
	switch {
	case n == 0:
	case factor != 0 && factor != 1:
		kernel.Scale(dst, src, n, t, factor)
	case dst != src:
		kernel.Copy(dst, src, n*t.Size())
	}
}

// stow is load into shared memory that another rank has read: it asks for the lines
// ahead of writing them, which saves 10 to 15 % from 16 KiB to 1 MiB.
func stow(dst, src unsafe.Pointer, n int, t tensor.DType, factor float64) {
	switch {
	case n <= 0:
	case factor != 0 && factor != 1:
		kernel.Scale(dst, src, n, t, factor)
	default:
		kernel.CopyAhead(dst, src, n*t.Size())
	}
}

// stowAt is stow of bytes.
func stowAt(dst unsafe.Pointer, dstAt int, src unsafe.Pointer, srcAt, n int) {
	if n > 0 {
		kernel.CopyAhead(unsafe.Add(dst, dstAt), unsafe.Add(src, srcAt), n)
	}
}

// finish turns a sum into the call's result: the average and the factor after it.
func finish(p unsafe.Pointer, n int, call *Call, ranks int, t tensor.DType) {
	if n == 0 {
		return
	}
	if call.Op == tensor.Average {
		kernel.AverageScale(p, n, t, ranks)
	}
	if call.Post != 0 && call.Post != 1 {
		kernel.Scale(p, p, n, t, call.Post)
	}
}
