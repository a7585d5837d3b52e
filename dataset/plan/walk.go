package plan

import "slices"

// Run is a stretch of one lane's places.
type Run struct {
	Lane       int
	Begin, End int64
}

// Part adds to runs the stretches that a rank takes of the positions from begin to end.
// The rows of a step lie by lanes, and a rank takes the rank-th part of them: so it
// reads few lanes, the same ones in every step where the lanes divide the step.
// counts is room for 2·Lanes numbers.
func (p *Plan) Part(runs []Run, begin, end int64, rank, size int, counts []int64) []Run {
	first, after := Share(end-begin, rank, size)
	return p.Slice(runs, begin, end, first, after, counts)
}

// Slice is Part for whoever takes the rows from first to after of the step's.
func (p *Plan) Slice(runs []Run, begin, end, first, after int64, counts []int64) []Run {
	n := len(p.lanes)
	from, to := counts[:n], counts[n:2*n]
	p.before(begin, from)
	p.before(end, to)
	var at int64
	for l := range p.lanes {
		rows := to[l] - from[l]
		lo, hi := max(first, at), min(after, at+rows)
		if lo < hi {
			runs = append(runs, Run{l, from[l] + lo - at, from[l] + hi - at})
		}
		at += rows
	}
	return runs
}

// Counts is how long Part's counts must be.
func (p *Plan) Counts() int { return 2 * len(p.lanes) }

// Need is the range of a lane's blocks, as numbers into Blocks(lane), that a run takes
// rows from: blocks before first are not needed by it nor by any later run.
func (p *Plan) Need(r Run) (first, end int) {
	l := &p.lanes[r.Lane]
	a, _ := l.find(p.low(r.Lane, r.Begin))
	b, _ := l.find(p.high(r.Lane, r.End) - 1)
	return int(a), int(b) + 1
}

// Ref is a row: the number of its block in Blocks(lane), and its place in the block.
type Ref struct {
	Lane  int32
	Block int32
	Row   int32
}

// Stretch is N rows of a block that follow each other, the first of which Ref is.
type Stretch struct {
	Ref
	N int32
}

// Stretches adds the rows of a run to list, of a plan that keeps the order of the files.
func (p *Plan) Stretches(list []Stretch, r Run) []Stretch {
	l := &p.lanes[r.Lane]
	for i := r.Begin; i < r.End; {
		b, row := l.find(i)
		n := min(r.End, l.starts[b+1]) - i
		list = append(list, Stretch{Ref{int32(r.Lane), b, int32(row)}, int32(n)})
		i += n
	}
	return list
}

// Walker turns runs into rows. It keeps each lane's present window.
type Walker struct {
	plan    *Plan
	windows []window
}

// Walk makes a walker.
func (p *Plan) Walk() *Walker {
	w := &Walker{plan: p, windows: make([]window, len(p.lanes))}
	for i := range w.windows {
		w.windows[i] = window{plan: p, lane: i}
	}
	return w
}

// refs adds the lane's rows of those numbers to list. The cost of an epoch's order is this loop and the permutations.
func (l *lane) refs(list []Ref, ln int32, rows []uint32) []Ref {
	near, starts, shift := l.near, l.starts, l.shift
	list = slices.Grow(list, len(rows))
	n := len(list)
	list = list[:n+len(rows)]
	for k, at := range rows {
		i := int64(at)
		b := near[i>>(shift&63)]
		for starts[b+1] <= i {
			b++
		}
		list[n+k] = Ref{ln, b, int32(i - starts[b])}
	}
	return list
}

// Rows adds the rows of a run to refs.
func (w *Walker) Rows(refs []Ref, r Run) []Ref {
	win := &w.windows[r.Lane]
	l := &w.plan.lanes[r.Lane]
	for i := r.Begin; i < r.End; {
		if i < win.begin || i >= win.end {
			win.enter(i)
		}
		end := min(r.End, win.end)
		if w.plan.order.Window == 0 {
			for ; i < end; i++ {
				b, row := l.find(i)
				refs = append(refs, Ref{int32(r.Lane), b, int32(row)})
			}
			continue
		}
		refs = l.refs(refs, int32(r.Lane), win.src[i-win.begin:end-win.begin])
		i = end
	}
	return refs
}
