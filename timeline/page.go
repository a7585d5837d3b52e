package timeline

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"time"

	"hora/event"
)

// page turns operations into the text of the file. Only the Writer's goroutine uses it.
type page struct {
	cfg   *Config
	file  file
	start time.Time
	size  int64 // of the file without its end
	text  []byte
	fault error // why nothing is written any more

	tensors map[key]*tensor
	parts   map[string]string // by name: what an operation is made of
	waiting []*tensor         // whose first operation waits for ranks
	pids    int
	missed  uint64
}

// key tells tensors apart.
type key struct{ group, name string }

// tensor is what the file calls a process.
type tensor struct {
	pid  int    // 0 until its first operation
	tail string // `,"pid":7}`
	last int64  // where its newest operation ended, in nanoseconds

	dims  int // what args was made of
	shape [event.MaxDims]int
	dtype string
	args  string

	begun bool // its first operation is written
	ready []mark
	held  []record // its operations until then
	until time.Time
}

// mark is when a rank was ready, in nanoseconds from the file's start.
type mark struct {
	rank int
	at   int64
}

// tail ends the file after each write.
const tail = "\n]\n"

// chunk is how much text goes to the disk at once: what the nearer caches hold.
const chunk = 128 << 10

// mostHeld is how many operations of one tensor wait for ranks.
const mostHeld = 64

func (p *page) init(f file, start time.Time, cfg *Config) {
	p.file, p.start, p.cfg = f, start, cfg
	p.tensors, p.parts = map[key]*tensor{}, map[string]string{}
	p.text = append(make([]byte, 0, chunk+chunk/8), `[`...)
	p.text = append(p.text, "\n"+`{"name":"process_name","ph":"M","pid":0,"args":{"start_time_since_epoch_in_micros":`...)
	p.text = strconv.AppendInt(p.text, start.UnixMicro(), 10)
	p.text = append(p.text, "}},\n"+`{"name":"process_sort_index","ph":"M","pid":0,"args":{"sort_index":0}}`...)
}

// add takes what was heard.
func (p *page) add(h *heard) {
	p.missed += h.missed
	if p.fault != nil {
		return
	}
	for _, n := range h.parts {
		p.parts[n[0]] = n[1]
	}
	for i := range h.ready {
		p.mark(&h.ready[i])
	}
	for i := range h.ops {
		p.operation(&h.ops[i])
		if len(p.text) < chunk {
			continue
		}
		if p.keep(p.flush()); p.fault != nil {
			return
		}
	}
	for _, at := range h.cycles {
		p.open(`i","name":"CYCLE_START`, at)
		p.text = append(p.text, `,"s":"g"}`...)
	}
}

// tensor finds or makes the entry of a name.
func (p *page) tensor(k key) *tensor {
	t := p.tensors[k]
	if t == nil {
		t = new(tensor)
		p.tensors[k] = t
	}
	return t
}

// mark notes that a rank was ready for the first time. What it says from before the file
// is no news.
func (p *page) mark(r *event.Ready) {
	at := r.At.Sub(p.start).Nanoseconds()
	t := p.tensor(key{r.Group, r.Name})
	if at < 0 || t.begun || slices.ContainsFunc(t.ready, func(m mark) bool { return m.rank == r.Rank }) {
		return
	}
	t.ready = append(t.ready, mark{r.Rank, at})
}

// operation writes one operation, or holds it until the tensor's first one can be.
func (p *page) operation(r *record) {
	name := r.Name
	if name == "" {
		name = r.Kind
	}
	t := p.tensor(key{r.Group, name})
	if t.pid == 0 {
		p.introduce(t, r.Group, name)
	}
	switch {
	case t.begun:
		p.write(t, r, nil)
		return
	case len(t.held) == 0:
		if r.Agreed == 0 || r.Size < 2 || r.Err != nil { // nobody will say when he was ready
			p.first(t, r)
			return
		}
		t.until = time.Now().Add(p.cfg.Patience)
		p.waiting = append(p.waiting, t)
	case len(t.held) >= mostHeld:
		t.until = time.Time{}
	}
	t.held = append(t.held, *r)
}

// introduce gives t a process of its own in the file.
func (p *page) introduce(t *tensor, group, name string) {
	p.pids++
	t.pid = p.pids
	t.tail = `,"pid":` + strconv.Itoa(t.pid) + `}`
	head := "," + "\n" + `{"name":"process_name","ph":"M","pid":` + strconv.Itoa(t.pid) + `,"args":{"name":`
	p.text = append(p.text, head...)
	p.text = appendQuoted(p.text, label(group, name))
	p.text = append(p.text, "}},\n"+`{"name":"process_sort_index","ph":"M","pid":`...)
	p.text = strconv.AppendInt(p.text, int64(t.pid), 10)
	p.text = append(p.text, `,"args":{"sort_index":`...)
	p.text = strconv.AppendInt(p.text, int64(t.pid), 10)
	p.text = append(p.text, "}}"...)
	if parts := p.parts[name]; parts != "" {
		p.text = append(p.text, ",\n"+`{"name":"process_labels","ph":"M","pid":`...)
		p.text = strconv.AppendInt(p.text, int64(t.pid), 10)
		p.text = append(p.text, `,"args":{"labels":`...)
		p.text = appendQuoted(p.text, parts)
		p.text = append(p.text, "}}"...)
	}
}

// settle writes tensors whose ranks have all been heard of or waited for long enough.
func (p *page) settle(now time.Time, all bool) {
	p.waiting = slices.DeleteFunc(p.waiting, func(t *tensor) bool {
		r := &t.held[0]
		if !all && len(t.ready) < r.Size-1 && now.Before(t.until) {
			return false
		}
		p.first(t, r)
		for i := range t.held[1:] {
			p.write(t, &t.held[1+i], nil)
		}
		t.held, t.ready = nil, nil
		return true
	})
}

// first writes a tensor's first operation, with a mark for every rank. A rank that did
// not say when it was ready was so at the latest when all had agreed, or had come.
func (p *page) first(t *tensor, r *record) {
	t.begun = true
	known := r.Agreed
	if known == 0 {
		known = r.Arrived
	}
	if known == 0 { // it failed before the ranks came together
		p.write(t, r, nil)
		return
	}
	said := t.ready
	marks := make([]mark, 0, r.Size)
	for i := range r.Size {
		m := mark{rank: i, at: known + r.base}
		if r.Ranks != nil && i < len(r.Ranks) {
			m.rank = r.Ranks[i]
		}
		if i == 0 {
			m.at = r.Submitted + r.base // the writer is the lowest rank of every group that it is in
		}
		for _, s := range said {
			if s.rank == m.rank {
				m.at = min(s.at, m.at) // clocks of hosts differ
			}
		}
		marks = append(marks, m)
	}
	slices.SortStableFunc(marks, func(a, b mark) int { return cmp.Compare(a.at, b.at) })
	p.write(t, r, marks)
}

// write writes an operation: the wait for all ranks, then what was done.
func (p *page) write(t *tensor, r *record, marks []mark) {
	v := view(r)
	agreed := r.Agreed
	if agreed == 0 {
		agreed = max(r.Arrived, r.Started, r.Submitted)
	}
	begin := r.Submitted
	if len(marks) > 0 {
		begin = min(begin, marks[0].at-r.base)
	}
	c := cursor{p: p, t: t, base: r.base, at: t.last}
	c.begin(v.negotiate, begin)
	if r.Agreed == 0 {
		if len(marks) > 0 { // this rank's
			c.ready(marks[0])
			marks = marks[1:]
		}
		c.span(queue, r.Submitted, r.Started)
	}
	for _, m := range marks {
		c.ready(m)
	}
	c.end(agreed)
	c.begin(v.name, agreed)
	if r.Agreed != 0 {
		queued := r.Packing
		if queued == 0 {
			queued = r.Started
		}
		c.span(queue, r.Agreed, queued)
		c.span(copyIn, r.Packing, r.Started)
		c.span(waitForAll, r.Started, r.Arrived)
	}
	done := r.Reduced
	if done == 0 {
		done = r.Done
	}
	if r.Arrived != 0 {
		c.span(v.work, max(r.Arrived, agreed), done)
	}
	c.span(copyOut, r.Reduced, r.Done)
	c.move(r.Done)
	p.open("E", c.at)
	p.text = append(p.text, t.tail[:len(t.tail)-1]...)
	p.args(t, r)
	t.last = c.at
}

// args ends the record of an operation's end.
func (p *page) args(t *tensor, r *record) {
	if t.args == "" || t.dims != r.Dims || t.shape != r.Shape || t.dtype != r.Type {
		t.dims, t.shape, t.dtype = r.Dims, r.Shape, r.Type
		t.args = ""
		if r.Dims > 0 || r.Kind != "barrier" {
			t.args = `"dtype":` + string(appendQuoted(nil, r.Type)) + `,"shape":"` + shapeText(r) + `"`
		}
	}
	if t.args == "" && r.Err == nil {
		p.text = append(p.text, '}')
		return
	}
	p.text = append(p.text, `,"args":{`...)
	p.text = append(p.text, t.args...)
	if r.Err != nil {
		if t.args != "" {
			p.text = append(p.text, ',')
		}
		p.text = append(p.text, `"error":`...)
		p.text = appendQuoted(p.text, r.Err.Error())
	}
	p.text = append(p.text, "}}"...)
}

// open begins a record of a phase at a time.
func (p *page) open(phase string, at int64) {
	p.text = append(p.text, ",\n"+`{"ph":"`...)
	p.text = append(p.text, phase...)
	p.text = append(p.text, `","ts":`...)
	p.text = strconv.AppendInt(p.text, at/1000, 10)
}

// finish says what is not in the file.
func (p *page) finish(at time.Duration) {
	if p.fault != nil || p.missed == 0 {
		return
	}
	text := fmt.Sprintf("%d operations are not in this file: the disk was too slow for them", p.missed)
	p.cfg.Log.Warn(fmt.Sprintf("timeline %s: %s", p.cfg.Path, text))
	p.text = append(p.text, ",\n"+`{"ph":"i","name":`...)
	p.text = appendQuoted(p.text, "hora: "+text)
	p.text = append(p.text, `,"ts":`...)
	p.text = strconv.AppendInt(p.text, at.Microseconds(), 10)
	p.text = append(p.text, `,"s":"g"}`...)
}

// flush writes the text over the file's end, with a new end, in one write.
func (p *page) flush() error {
	if p.fault != nil || len(p.text) == 0 {
		p.text = p.text[:0]
		return nil
	}
	grown := int64(len(p.text))
	p.text = append(p.text, tail...)
	_, err := p.file.WriteAt(p.text, p.size)
	p.text = p.text[:0]
	if cap(p.text) > 16<<20 {
		p.text = nil
	}
	if err == nil {
		p.size += grown
	}
	return err
}

// keep notes that nothing can be written any more, says so once, and brings the file
// back to where it was complete.
func (p *page) keep(err error) {
	if err == nil || p.fault != nil {
		return
	}
	p.fault = fmt.Errorf("write timeline: %w; the job goes on without it", err)
	p.cfg.Log.Warn(p.fault.Error())
	p.waiting = nil
	clear(p.tensors)
	// What follows may fail for the same reason, and there is nothing more to be done.
	if p.file.Truncate(p.size) == nil {
		_, _ = p.file.WriteAt([]byte(tail), p.size)
	}
}
