package schedule

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Reason is why a job waits: a word for programs and a sentence for people.
type Reason struct {
	Code string `json:"code"`
	Text string `json:"text"`
	// Place is the job's place in the queue of its pool, from 1; 0 for what never runs there.
	Place int `json:"place,omitempty"`
	// Start is when it starts at the latest, where that is known.
	Start time.Time `json:"start,omitzero"`
}

// The codes of reasons.
const (
	CodeSlots = "slots" // not enough is free at once
	CodeTurn  = "turn"  // others are before it
	CodeRoom  = "room"  // others give way to it
	CodeQuota = "quota" // its project has what it may have
	CodeNever = "never" // no node of the pool can have it
	CodeNodes = "nodes" // the pool has no node now
	CodeNext  = "next"  // it starts with the next decision
)

// Why says why a job waits; false when it does not wait.
func (m *Machine) Why(id int64, now time.Time) (Reason, bool) {
	e := m.jobs[id]
	if e == nil {
		return Reason{}, false
	}
	p := m.pools[e.Pool]
	head := m.jobs[p.promise.ID]
	if !p.blocked { // or it has ended since the last decision
		head = nil
	}
	if r, never := m.never(e); never {
		if r.Code == CodeNodes && head == e {
			m.before(e, &r, now)
		}
		return r, true
	}
	place := m.place(e, now)
	where := fmt.Sprintf("%s in pool %s", ordinal(place), e.Pool)
	if text := m.stopped(e, now); text != "" {
		r := Reason{Code: CodeQuota, Place: place, Text: where + ": " + text}
		if head == e {
			r.Start = p.promise.At
		}
		return r, true
	}
	_, fits := m.fit(m.free, e.Pool, e.Ask)
	switch {
	case head == e && e.held:
		text := fmt.Sprintf("%s: needs %s, and %s", where, needs(e.Ask), m.makingWay(e.Pool))
		return Reason{Code: CodeRoom, Place: place, Start: p.promise.At, Text: text}, true
	case head == e || !fits:
		r := Reason{Code: CodeSlots, Place: place}
		if head == e {
			r.Start = p.promise.At
		}
		free := m.available(e, m.totalFree(e.Pool, e.Ask.For))
		r.Text = fmt.Sprintf("%s: needs %s, %s%s", where, needs(e.Ask), free, m.until(e, head == e, place, now))
		return r, true
	case head != nil:
		text := fmt.Sprintf("%s: what is free is kept for job %d, which needs %s", where, head.ID, needs(head.Ask))
		if !p.promise.At.IsZero() {
			text += " and starts in " + about(p.promise.At.Sub(now)) + " at the latest"
		}
		return Reason{Code: CodeTurn, Place: place, Text: text}, true
	}
	code, text := m.undecided(e, place, now) // it has come since the last decision, and maybe others have
	return Reason{Code: code, Place: place, Text: where + ": " + text}, true
}

// stopped says what its project's quota has against a job now; "" for nothing.
func (m *Machine) stopped(e *entry, now time.Time) string {
	q, need := m.quotas[e.Project], e.Ask.need()
	most, _ := m.quotaOf(e, now)
	switch {
	case need <= most:
		return ""
	case !m.lends(e.Project, need):
		text := fmt.Sprintf("project %s has %d of the %s it may have, and this job needs %s",
			e.Project, m.project(e.Project).runs, count(q.Max, "slot"), count(need, "slot"))
		if names := m.givers(func(r *running) bool { return r.Project == e.Project }); names != "" {
			return text + "; " + names
		}
		return text + ": it starts when another job of the project ends"
	}
	kept, n := m.keptFrom(e)
	return fmt.Sprintf("project %s may have %s, and keeps %d of them for %s: this job needs %s beside that",
		e.Project, count(q.Max, "slot"), n, kept, count(need, "slot"))
}

// keptFrom names those for whom a project keeps quota from a job, and how many slots.
func (m *Machine) keptFrom(e *entry) (who string, n int) {
	all := m.headsOver(e)
	if k := m.keeperOver(e); k != nil && !slices.Contains(all, k.e) && m.pools[e.Pool].promise.ID != e.ID {
		all = append(all, k.e)
	}
	slices.SortFunc(all, moreImportant)
	var names []string
	for _, one := range all {
		names = append(names, fmt.Sprint("job ", one.ID))
		n += one.Ask.need()
	}
	return strings.Join(names, " and "), n
}

// before adds to why the head waits for nodes what must come first.
func (m *Machine) before(e *entry, r *Reason, now time.Time) {
	switch {
	case e.held:
		r.Code = CodeRoom
		r.Text += "; " + m.makingWay(e.Pool)
	default:
		r.Text += m.until(e, true, 1, now)
	}
}

// away says for which nodes a job waits that are away.
func (m *Machine) away(e *entry) (Reason, bool) {
	v := m.empty()
	var names []string
	for i, n := range m.nodes {
		v[i].closed = n.Closed
		if n.Closed && n.Pool == e.Pool && n.For == e.Ask.For && (e.Ask.Node == "" || e.Ask.Node == n.Name) {
			names = append(names, n.Name)
		}
	}
	if len(names) == 0 {
		return Reason{}, false
	}
	if _, ok := m.fit(v, e.Pool, e.Ask); ok {
		return Reason{}, false
	}
	slices.Sort(names)
	switch {
	case e.Ask.Node != "":
		return Reason{Code: CodeNodes, Text: fmt.Sprintf("node %s is away: it starts when that is back", e.Ask.Node)}, true
	case len(names) == 1:
		return Reason{Code: CodeNodes, Text: fmt.Sprintf("it needs %s, and node %s of pool %s is away: it starts when that is back", needs(e.Ask), names[0], e.Pool)}, true
	}
	return Reason{Code: CodeNodes, Text: fmt.Sprintf("it needs %s, and %s of pool %s are away, %s among them: it starts when enough are back", needs(e.Ask), count(len(names), "node"), e.Pool, names[0])}, true
}

// never finds what no node of the pool can have.
func (m *Machine) never(e *entry) (Reason, bool) {
	a := e.Ask
	if q := m.quotas[e.Project]; q.Slots > 0 && q.Max > 0 && a.need() > q.Max {
		return Reason{Code: CodeNever, Text: fmt.Sprintf("project %s may have %s at most, and this job needs %s: ask for fewer, or have the quota raised with hora quota %s --slots %d --max %d",
			e.Project, count(q.Max, "slot"), count(a.need(), "slot"), e.Project, q.Slots, a.need())}, true
	}
	if m.ever(e.Pool, a) {
		return m.away(e)
	}
	if a.For != 0 {
		return m.neverFresh(e), true
	}
	p := m.pool(e.Pool)
	if p.spare > 0 && m.could(e.Pool, a, p.spare) {
		if p.awaits != "" {
			return Reason{Code: CodeNodes, Text: fmt.Sprintf("pool %s makes no node for it now: it needs %s; %s", e.Pool, needs(a), p.awaits)}, true
		}
		return Reason{Code: CodeNodes, Text: fmt.Sprintf("pool %s gets another node for it: it needs %s, and the pool may have %s more%s", e.Pool, needs(a), count(p.spare, "node"), p.makes())}, true
	}
	if n := m.others(e.Pool, 0); n > 0 && m.could(e.Pool, a, p.spare+n) {
		return Reason{Code: CodeNodes, Text: fmt.Sprintf("pool %s gets a node for it when one ends that was made for another job alone: it needs %s", e.Pool, needs(a))}, true
	}
	var nodes []Node
	for _, n := range m.nodes {
		if n.Pool == e.Pool {
			nodes = append(nodes, n)
		}
	}
	for range p.spare { // what may come counts
		nodes = append(nodes, p.like)
	}
	if len(nodes) == 0 {
		return Reason{Code: CodeNodes, Text: fmt.Sprintf("pool %s has no node: it starts when one comes that holds %s", e.Pool, needs(a))}, true
	}
	most, total := Node{}, 0
	named := a.Node == ""
	for _, n := range nodes {
		most.Slots, most.GPUs, most.Memory = max(most.Slots, n.Slots), max(most.GPUs, n.GPUs),
			max(most.Memory, n.Memory)
		total += n.Slots
		named = named || n.Name == a.Node
	}
	r := Reason{Code: CodeNever}
	switch {
	case !named:
		r.Text = fmt.Sprintf("no node of pool %s is called %s: name one that is there, or leave --node out", e.Pool, a.Node)
	case a.GPUs > 0 && most.GPUs == 0:
		r.Text = fmt.Sprintf("no node of pool %s will ever have a GPU: submit it to a pool that has, or without --gpus-per-rank", e.Pool)
	case a.GPUs > most.GPUs:
		r.Text = fmt.Sprintf("no node of pool %s will ever have %s for one process: the largest has %d", e.Pool, count(a.GPUs, "GPU"), most.GPUs)
	case a.Memory > 0 && most.Memory > 0 && a.Memory > most.Memory:
		r.Text = fmt.Sprintf("no node of pool %s will ever have %s for one process: the largest has %s; ask for less with --memory", e.Pool, size(a.Memory), size(most.Memory))
	default:
		r.Text = fmt.Sprintf("pool %s will never hold it: it needs %s, and the pool has %s on %s in all: ask for fewer, or add nodes", e.Pool, needs(a), count(total, "slot"), count(len(nodes), "node"))
	}
	return r, true
}

// place counts who is before a job in its pool, but for those that never start there.
func (m *Machine) place(e *entry, now time.Time) int {
	n, may := 1, verdictsAtOnce
	p, mine := m.pools[e.Pool], &turn{line: lineOf(&e.Job), e: e}
	m.rank(mine, now)
	for l, jobs := range p.lines {
		t, before := &turn{line: l, e: jobs[0]}, 0
		if l != mine.line {
			m.rank(t, now)
		}
		switch {
		case l == mine.line || t.level(mine): // by age
			before, _ = slices.BinarySearchFunc(jobs, e, older)
		case t.before(mine):
			before = len(jobs)
		}
		if before > 0 && (l == mine.line || !m.hopeless(l, p, &may)) {
			n += before
		}
	}
	return n
}

func (m *Machine) totalFree(pool string, owner int64) int {
	n := 0
	for i := range m.nodes {
		if m.nodes[i].Pool == pool && m.nodes[i].For == owner && !m.nodes[i].Closed {
			n += max(m.free[i].slots, 0)
		}
	}
	return n
}

// available says what is free and why that is not enough.
func (m *Machine) available(e *entry, free int) string {
	a := e.Ask
	min := a.NP
	if a.Min > 0 {
		min = a.Min
	}
	is := "are"
	if free == 1 {
		is = "is"
	}
	switch {
	case free == 0:
		return "none is free"
	case free < min:
		return fmt.Sprintf("%d %s free", free, is)
	case a.Whole && a.Nodes == 0:
		return fmt.Sprintf("%d %s free, beside other jobs", free, is)
	case a.Nodes > 1:
		return fmt.Sprintf("%d %s free, but not %d on each of %d nodes", free, is, a.PerNode, a.Nodes)
	case a.Nodes == 1:
		return fmt.Sprintf("%d %s free, but not %d on one node", free, is, a.PerNode)
	case a.Node != "":
		return fmt.Sprintf("and node %s has not got them free", a.Node)
	case a.GPUs > 0:
		return fmt.Sprintf("%d %s free, but not with %s each", free, is, count(a.GPUs, "GPU"))
	case a.Memory > 0:
		return fmt.Sprintf("%d %s free, but not with %s each", free, is, size(a.Memory))
	}
	return fmt.Sprintf("%d %s free", free, is)
}

// makingWay names those of a pool who give way.
func (m *Machine) makingWay(pool string) string {
	if names := m.givers(func(r *running) bool { return r.Pool == pool }); names != "" {
		return names
	}
	return "room is being made"
}

// givers names those of some who give way; "" where nobody does.
func (m *Machine) givers(of func(*running) bool) string {
	var names []string
	for _, r := range m.running {
		switch {
		case !of(r):
		case r.leaving:
			names = append(names, fmt.Sprintf("job %d is being drained", r.ID))
		case slots(r.target) < slots(r.shares):
			names = append(names, fmt.Sprintf("job %d gives %d away at its next commit", r.ID, slots(r.shares)-slots(r.target)))
		}
	}
	slices.Sort(names)
	return strings.Join(names, ", ")
}

// needs says what an ask is in words.
func needs(a Ask) string {
	text := count(a.NP, "slot")
	switch {
	case a.Whole && a.Nodes > 0:
		text = count(a.Nodes, "whole node")
	case a.Nodes > 1:
		text = fmt.Sprintf("%s on each of %d nodes", count(a.PerNode, "slot"), a.Nodes)
	case a.Nodes == 1:
		text = count(a.PerNode, "slot") + " on one node"
	case a.Min > 0 && a.Min < a.NP:
		text = fmt.Sprintf("%d to %d slots", a.Min, a.NP)
	}
	if a.GPUs > 0 {
		text += " with " + count(a.GPUs, "GPU") + " each"
	}
	if a.Memory > 0 {
		text += " with " + size(a.Memory) + " each"
	}
	if a.Whole && a.Nodes == 0 {
		text += " where nothing else runs"
	}
	if a.NP > 1 {
		text += " at once"
	}
	return text
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

func size(n int64) string {
	for _, u := range []struct {
		unit string
		of   int64
	}{{"EiB", 1 << 60}, {"PiB", 1 << 50}, {"TiB", 1 << 40}, {"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}} {
		if n >= u.of {
			return fmt.Sprintf("%.4g %s", float64(n)/float64(u.of), u.unit)
		}
	}
	return count(int(n), "byte")
}

// about rounds a time to what a person wants to hear.
func about(d time.Duration) string {
	switch {
	case d < time.Second:
		return "a moment"
	case d < 90*time.Second:
		return fmt.Sprintf("about %d s", int(d.Round(time.Second).Seconds()))
	case d < 90*time.Minute:
		return fmt.Sprintf("about %d min", int(d.Round(time.Minute).Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("about %d h", int(d.Round(time.Hour).Hours()))
	}
	return fmt.Sprintf("about %d days", int(d.Hours()/24))
}

func ordinal(n int) string {
	words := []string{"first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth"}
	if n >= 1 && n <= len(words) {
		return words[n-1]
	}
	suffix := "th"
	if n%100 < 11 || n%100 > 13 {
		switch n % 10 {
		case 1:
			suffix = "st"
		case 2:
			suffix = "nd"
		case 3:
			suffix = "rd"
		}
	}
	return fmt.Sprintf("%d%s", n, suffix)
}
