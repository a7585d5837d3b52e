package plan

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

// tables are the permutations of one pass that its owner uses at present.
type table struct {
	begin, end int64
	to         []uint32
}

// window is the present window of a lane's last pass, resolved to rows of the lane.
type window struct {
	plan       *Plan
	lane       int
	begin, end int64
	from       int64    // what src counts from
	src        []uint32 // of row i of the lane: src[i-begin] + from
	kept       [passes - 1][]table
	spare      [][]uint32
	last       []uint32
}

// source is the row of the lane that stands at place i; i lies in the window.
func (w *window) source(i int64) int64 {
	if w.plan.order.Window == 0 {
		return i
	}
	return w.from + int64(w.src[i-w.begin])
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
	n := int(w.end - w.begin)
	w.last = grow(w.last, n)
	Permute(w.last, p.passKey(w.lane, passes-1, w.begin))
	w.src = grow(w.src, n)
	w.from = p.low(w.lane, w.begin)
	for pass := passes - 2; pass >= 0; pass-- {
		from, _ := p.bounds(w.lane, pass, w.lowest(pass), rows)
		w.drop(pass, from)
	}
	for k, to := range w.last {
		at := w.begin + int64(to)
		for pass := passes - 2; pass >= 0; pass-- {
			t := w.table(pass, at, rows)
			at = t.begin + int64(t.to[at-t.begin])
		}
		w.src[k] = uint32(at - w.from)
	}
}

// lowest is the first place of a pass that the present window may come from.
func (w *window) lowest(pass int) int64 {
	i := w.begin
	for q := passes - 2; q > pass; q-- {
		i, _ = w.plan.bounds(w.lane, q, i, w.plan.lanes[w.lane].rows())
	}
	return i
}

// table is the pass's permutation that holds place at.
func (w *window) table(pass int, at, rows int64) *table {
	kept := w.kept[pass]
	for i := range kept {
		if t := &kept[i]; at >= t.begin && at < t.end {
			return t
		}
	}
	t := table{}
	t.begin, t.end = w.plan.bounds(w.lane, pass, at, rows)
	if n := len(w.spare); n > 0 {
		t.to, w.spare = w.spare[n-1], w.spare[:n-1]
	}
	t.to = grow(t.to, int(t.end-t.begin))
	Permute(t.to, w.plan.passKey(w.lane, pass, t.begin))
	w.kept[pass] = append(kept, t)
	return &w.kept[pass][len(kept)]
}

// drop forgets a pass's tables before row from: nothing asks for them again.
func (w *window) drop(pass int, from int64) {
	kept := w.kept[pass][:0]
	for _, t := range w.kept[pass] {
		if t.end <= from {
			w.spare = append(w.spare, t.to)
		} else {
			kept = append(kept, t)
		}
	}
	w.kept[pass] = kept
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
