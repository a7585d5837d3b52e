package schedule

import "slices"

// A decision walks along one pool after the other. One of its starts may be in the way of somebody in a later pool who
// is more important. Nothing has happened yet, so nobody starts to be drained at once: the start is taken back, and all
// is walked along again. It is taken back once: what starts again then stands, and a decision comes to an end. Nor has
// anybody given way yet: what was ordered for a head is ordered anew for the one that the next walk finds.

// begins says whether a job starts in this very decision.
func (w *pass) begins(r *running) bool { return r.round >= w.first }

// stands says whether a job begins that cannot be told otherwise any more.
func (w *pass) stands(r *running) bool { return w.begins(r) && w.undone[r.ID] }

// takeBack lets a job that begins wait again.
func (w *pass) takeBack(r *running) {
	if w.undone == nil {
		w.undone = map[int64]bool{}
	}
	w.undone[r.ID] = true
	w.d.Start = slices.DeleteFunc(w.d.Start, func(p Placement) bool { return p.ID == r.ID })
	w.Ended(r.ID, w.now)
	w.Submit(r.Job)
	w.pools[r.Pool].seen = 0
	w.freed, w.ended = true, w.ended || w.touches(r)
}

// mostFills is how often one decision starts a job behind heads, before it lets it wait for the next.
const mostFills = 3

// unfill takes those back that were started behind another head than the one there is now, which they may delay. Where
// they do not, the next walk starts them behind this one.
func (w *pass) unfill() {
	for _, p := range slices.Clone(w.d.Start) {
		r := w.running[p.ID]
		if w.pool.blocked && w.touches(r) && p.Behind != 0 && p.Behind != w.pool.promise.ID {
			disturbs := w.undone[r.ID]
			w.takeBack(r)
			if w.unfilled == nil {
				w.unfilled = map[int64]int{}
			}
			w.unfilled[r.ID]++
			w.undone[r.ID] = disturbs || w.unfilled[r.ID] >= mostFills
		}
	}
}

// told is an order to give way that a decision has given.
type told struct {
	r    *running
	pool *pool   // for whose head; nil where it was for quota
	was  []Share // its target before
}

func (w *pass) tell(r *running, h *wish, was []Share) {
	o := told{r: r, was: was}
	if h.head {
		o.pool = w.pool
	}
	w.told = append(w.told, o)
}

// recall takes back what this decision ordered for the head of the pool when it walked along it last: another may be
// the head now, or the same one may need less. Who has been told more since, for quota, is left as it is.
func (w *pass) recall() {
	var stand []told
	for _, o := range slices.Backward(w.told) {
		r := o.r
		switch {
		case o.pool != w.pool, slices.ContainsFunc(stand, func(s told) bool { return s.r == r }):
			stand = append(stand, o)
			continue
		case r.leaving:
			w.d.Preempt = slices.DeleteFunc(w.d.Preempt, func(id int64) bool { return id == r.ID })
		default:
			w.d.Shrink = slices.DeleteFunc(w.d.Shrink, func(p Placement) bool {
				return p.ID == r.ID && slots(p.Shares) == slots(r.target)
			})
		}
		r.leaving, r.target = false, o.was
	}
	slices.Reverse(stand)
	w.told = stand
}

// startSmaller lets a job that begins begin with what it would shrink to.
func (w *pass) startSmaller(r *running) {
	at := slices.IndexFunc(w.d.Start, func(p Placement) bool { return p.ID == r.ID })
	w.d.Start[at].Shares = r.target
	w.resize(r, r.target, w.now)
	w.freed = true
}
