// Package plan is the order of a dataset's rows: a function of the data's shape, a seed
// and an epoch, and of nothing else. The number of ranks and the batch size only say
// who takes which part of it, so both may change between any two steps.
//
// Rows lie in blocks. The blocks of an epoch are shuffled and dealt to lanes; a lane's
// rows are shuffled by three passes of windows, each shifted by a third of a window
// against the one before; positions of the epoch's order go round the lanes. So a
// position stands for one row and each row has one position, and whoever walks the
// order holds three windows of each lane that he reads, and no more.
//
// The package is pure: no files, clock, locks or goroutines. A Plan may be read by
// several at once, a Walker has one owner.
package plan

import (
	"fmt"
	"slices"
	"sort"
)

// MaxLanes bounds Order.Lanes, MaxWindow is the widest window.
const (
	MaxLanes  = 1024
	MaxWindow = 1 << 30
)

// Order is what an epoch's order depends on beside the blocks. Window 0 keeps the order
// of the files; then there is one lane.
type Order struct {
	Seed   uint64
	Epoch  uint64
	Lanes  int
	Window int // rows
}

// Plan is one epoch's order.
type Plan struct {
	order    Order
	rows     int64
	lanes    []lane
	segments []segment
}

// lane is a sequence of whole blocks.
type lane struct {
	blocks []int   // indices into what New was given, in the order of the epoch
	starts []int64 // where each begins in the lane; one more for the end
	shift  uint    // row >> shift finds the first candidate in near
	near   []int32
}

// segment is a stretch of positions over which the same lanes have rows left.
type segment struct {
	begin int64 // position
	round int64 // rows of each of its lanes that lie before it
	lanes []int32
}

// New makes the order of an epoch over blocks of so many rows each.
func New(blocks []int, o Order) (*Plan, error) {
	if o.Lanes < 1 || o.Lanes > MaxLanes {
		return nil, fmt.Errorf("plan epoch: %d lanes; use 1 to %d", o.Lanes, MaxLanes)
	}
	if o.Window < 0 || o.Window > MaxWindow {
		return nil, fmt.Errorf("plan epoch: a window of %d rows; use 0 (no shuffling) to %d", o.Window, MaxWindow)
	}
	if o.Window == 0 {
		o.Lanes = 1
	}
	p := &Plan{order: o}
	for i, n := range blocks {
		if n < 0 || int64(n) >= 1<<31 {
			return nil, fmt.Errorf("plan epoch: block %d has %d rows; a block has 0 to 2³¹-1", i, n)
		}
		p.rows += int64(n)
	}
	tooLong := func(rows int64) error {
		return fmt.Errorf("plan epoch: a lane has %d rows, more than 2³²; use more lanes", rows)
	}
	if mean := p.rows / int64(o.Lanes); o.Window > 0 && mean >= 1<<32 {
		return nil, tooLong(mean)
	}
	p.deal(blocks)
	for i := range p.lanes {
		if o.Window > 0 && p.lanes[i].rows() >= 1<<32 {
			return nil, tooLong(p.lanes[i].rows())
		}
	}
	p.segment()
	return p, nil
}

// deal gives each block, in the epoch's order, to the lane that has fewest rows.
func (p *Plan) deal(blocks []int) {
	order := make([]uint32, len(blocks))
	if p.order.Window == 0 {
		for i := range order {
			order[i] = uint32(i)
		}
	} else {
		Permute(order, key(p.order.Seed, p.order.Epoch, blocksKey))
	}
	p.lanes = make([]lane, p.order.Lanes)
	heap, counts := newHeap(p.order.Lanes), make([]int, p.order.Lanes)
	lanes := make([]uint16, len(order)) // of each block, in the epoch's order
	for i, b := range order {
		if blocks[b] == 0 {
			continue
		}
		ln := heap.lane()
		lanes[i] = uint16(ln)
		counts[ln]++
		heap.add(blocks[b])
	}
	for i, n := range counts {
		if n > 0 {
			p.lanes[i] = lane{blocks: make([]int, 0, n), starts: make([]int64, 1, n+1)}
		}
	}
	for i, b := range order {
		if n := blocks[b]; n > 0 {
			l := &p.lanes[lanes[i]]
			l.blocks = append(l.blocks, int(b))
			l.starts = append(l.starts, l.starts[len(l.starts)-1]+int64(n))
		}
	}
	for i := range p.lanes {
		p.lanes[i].index()
	}
}

// Parts of keys.
const (
	blocksKey = iota
	passKey
	stepKey
)

func (l *lane) rows() int64 {
	if len(l.starts) == 0 {
		return 0
	}
	return l.starts[len(l.starts)-1]
}

// index makes finding a row's block one look and, where blocks are alike, at most one
// step: near[row>>shift] is the block of the first row with that quotient.
func (l *lane) index() {
	if len(l.blocks) == 0 {
		return
	}
	mean := l.rows() / int64(len(l.blocks))
	for int64(2)<<l.shift <= mean {
		l.shift++
	}
	l.near = make([]int32, l.rows()>>l.shift+1)
	i := 0
	for b, end := range l.starts[1:] {
		for after := int((end + 1<<l.shift - 1) >> l.shift); i < after; i++ { // those that begin before the block's end
			l.near[i] = int32(b)
		}
	}
	for ; i < len(l.near); i++ {
		l.near[i] = int32(len(l.blocks) - 1)
	}
}

// find answers which of the lane's blocks holds its row i, and the row in it.
func (l *lane) find(i int64) (n int32, row int64) {
	n = l.near[i>>l.shift]
	for l.starts[n+1] <= i {
		n++
	}
	return n, i - l.starts[n]
}

// segment finds from which position on fewer lanes have rows left.
func (p *Plan) segment() {
	ends := make([]int64, 0, len(p.lanes))
	for i := range p.lanes {
		ends = append(ends, p.lanes[i].rows())
	}
	slices.Sort(ends)
	var begin, round int64
	for _, end := range slices.Compact(ends) {
		if end == 0 {
			continue
		}
		s := segment{begin: begin, round: round}
		for i := range p.lanes {
			if p.lanes[i].rows() > round {
				s.lanes = append(s.lanes, int32(i))
			}
		}
		p.segments = append(p.segments, s)
		begin += (end - round) * int64(len(s.lanes))
		round = end
	}
}

// Rows is how many rows an epoch has.
func (p *Plan) Rows() int64 { return p.rows }

// Lanes is how many lanes there are, Blocks which blocks a lane has in its order.
func (p *Plan) Lanes() int            { return len(p.lanes) }
func (p *Plan) Blocks(lane int) []int { return p.lanes[lane].blocks }
func (p *Plan) LaneRows(ln int) int64 { return p.lanes[ln].rows() }
func (p *Plan) at(pos int64) *segment { return &p.segments[p.segmentOf(pos)] }
func (p *Plan) segmentOf(pos int64) int {
	return sort.Search(len(p.segments), func(i int) bool { return p.segments[i].begin > pos }) - 1
}

// before fills counts with the rows of each lane that lie before a position.
func (p *Plan) before(pos int64, counts []int64) {
	if pos >= p.rows {
		for i := range p.lanes {
			counts[i] = p.lanes[i].rows()
		}
		return
	}
	s := p.at(pos)
	for i := range p.lanes {
		counts[i] = min(p.lanes[i].rows(), s.round)
	}
	full, some := (pos-s.begin)/int64(len(s.lanes)), int((pos-s.begin)%int64(len(s.lanes)))
	for j, l := range s.lanes {
		counts[l] = s.round + full
		if j < some {
			counts[l]++
		}
	}
}

// At is the row at a position: its block, and its place in it. It costs as much as
// three windows; a Walker takes a few nanoseconds a row.
func (p *Plan) At(pos int64) (block int, row int64) {
	if pos < 0 || pos >= p.rows {
		panic(fmt.Sprintf("plan: position %d of %d", pos, p.rows))
	}
	s := p.at(pos)
	n := pos - s.begin
	ln := int(s.lanes[n%int64(len(s.lanes))])
	w := window{plan: p, lane: ln}
	w.enter(s.round + n/int64(len(s.lanes)))
	i := w.source(s.round + n/int64(len(s.lanes)))
	l := &p.lanes[ln]
	b, row := l.find(i)
	return l.blocks[b], row
}
