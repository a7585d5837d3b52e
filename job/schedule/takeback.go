package schedule

import "slices"

// A decision walks along one pool after the other. One of its starts may be in the way of somebody in a later pool who
// is more important. Nothing has happened yet, so nobody starts to be drained at once: the start is taken back, and all
// is walked along again. It is taken back once: what starts again then stands, and a decision comes to an end.

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

// unfill takes those back that were started behind another head than the one there is now, which they may delay.
func (w *pass) unfill() {
	for _, p := range slices.Clone(w.d.Start) {
		r := w.running[p.ID]
		if w.pool.blocked && w.touches(r) && !w.stands(r) && p.Behind != 0 && p.Behind != w.pool.promise.ID {
			w.takeBack(r)
		}
	}
}

// startSmaller lets a job that begins begin with what it would shrink to.
func (w *pass) startSmaller(r *running) {
	at := slices.IndexFunc(w.d.Start, func(p Placement) bool { return p.ID == r.ID })
	w.d.Start[at].Shares = r.target
	w.resize(r, r.target, w.now)
	w.freed = true
}
