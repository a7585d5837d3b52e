package plan

import "slices"

// passes is how often a lane's rows are shuffled by windows.
const passes = 3

// bounds is the window of a pass that holds the lane's row i. A pass cuts a lane into
// windows: shift rows, then order.Window each, then the rest. Passes are a third of a
// window apart, and lanes begin evenly spread, lest all open new blocks at one time.
func (p *Plan) bounds(lane, pass int, i, rows int64) (begin, end int64) {
	w := int64(p.order.Window)
	shift := (w*int64(pass)/passes + w*int64(lane)/int64(len(p.lanes))) % w
	begin = (i-shift+w)/w*w - w + shift // i - shift + w ≥ 0
	return max(begin, 0), min(begin+w, rows)
}

// table is a pass's permutation of the windows in use, which lie one after the other:
// place i of the lane comes from place to[i-begin].
type table struct {
	begin, end int64
	to         []uint32
}

// window is the present window of a lane's last pass, resolved to rows of the lane.
type window struct {
	plan       *Plan
	lane       int
	begin, end int64
	src        []uint32 // of row i of the lane: src[i-begin]
	tables     [passes - 1]table
}

// source is the row of the lane that stands at place i; i lies in the window.
func (w *window) source(i int64) int64 {
	if w.plan.order.Window == 0 {
		return i
	}
	return int64(w.src[i-w.begin])
}

// low is the first of the lane's rows that places from i on may hold, high the end of
// those that places before end may.
func (p *Plan) low(lane int, i int64) int64 {
	rows := p.lanes[lane].rows()
	for pass := passes - 1; pass >= 0 && p.order.Window > 0 && i < rows; pass-- {
		i, _ = p.bounds(lane, pass, i, rows)
	}
	return i
}

func (p *Plan) high(lane int, end int64) int64 {
	rows := p.lanes[lane].rows()
	for pass := passes - 1; pass >= 0 && p.order.Window > 0 && end > 0; pass-- {
		_, end = p.bounds(lane, pass, end-1, rows)
	}
	return end
}

// enter makes the window that holds place i the present one.
func (w *window) enter(i int64) {
	p := w.plan
	rows := p.lanes[w.lane].rows()
	if p.order.Window == 0 {
		w.begin, w.end = 0, rows
		return
	}
	w.begin, w.end = p.bounds(w.lane, passes-1, i, rows)
	w.src = grow(w.src, int(w.end-w.begin))
	w.permute(w.src, passes-1, w.begin)
	begin, end := w.begin, w.end
	for pass := passes - 2; pass >= 0; pass-- {
		begin, end = w.cover(pass, begin, end, rows)
		t := &w.tables[pass]
		to, first := t.to, uint32(t.begin)
		for k, at := range w.src {
			w.src[k] = to[at-first]
		}
	}
}

// cover makes a pass's table hold the windows of the places from begin to end, and
// answers where the first begins and the last ends.
func (w *window) cover(pass int, begin, end, rows int64) (int64, int64) {
	p, t := w.plan, &w.tables[pass]
	begin, _ = p.bounds(w.lane, pass, begin, rows)
	_, end = p.bounds(w.lane, pass, end-1, rows)
	if begin < t.begin || begin >= t.end { // nothing of it is of use
		t.to, t.end = t.to[:0], begin
	} else {
		t.to = t.to[:copy(t.to, t.to[begin-t.begin:])]
	}
	t.begin = begin
	for t.end < end {
		from, to := p.bounds(w.lane, pass, t.end, rows)
		n := len(t.to)
		t.to = slices.Grow(t.to, int(to-from))[:n+int(to-from)]
		w.permute(t.to[n:], pass, from)
		t.end = to
	}
	return begin, end
}

// permute fills to with a window's places, which begin at begin, in their order.
func (w *window) permute(to []uint32, pass int, begin int64) {
	permute(to, w.plan.passKey(w.lane, pass, begin), uint32(begin))
}

func (p *Plan) passKey(lane, pass int, begin int64) uint64 {
	return key(p.order.Seed, p.order.Epoch, passKey, uint64(lane), uint64(pass), uint64(begin))
}

func grow(s []uint32, n int) []uint32 {
	if cap(s) < n {
		return make([]uint32, n)
	}
	return s[:n]
}
