// Package schedule decides who runs next and where: whole gangs, by priority, then by fair share of projects, then by
// age.
//
// It is a pure machine. Nodes, jobs and ends come in as calls with the time at which they happened, and Decide answers
// with what to start, to shrink, to grow and to preempt; Why answers why a job waits. It knows no network, no clock and
// no file, starts no goroutine, and gives equal answers to equal histories. A Machine belongs to one goroutine.
package schedule

import (
	"math"
	"slices"
	"time"
)

// Ask is what a job needs, all at once. It is comparable: jobs with equal asks wait in one line.
type Ask struct {
	NP      int           // processes, a slot each; with Nodes it is Nodes × PerNode
	Min     int           // elastic jobs run with as few as this; 0 for the others
	Nodes   int           // so many different nodes with PerNode processes each; 0 where the spread does not matter
	PerNode int           //
	Whole   bool          // nodes that nobody else uses
	Node    string        // this node and no other; "" for any
	For     int64         // nodes that were made for this job, the asking one, and no others; 0 for those of everybody
	Memory  int64         // bytes a process; 0 when nobody said
	GPUs    int           // a process
	Limit   time.Duration // the job is ended after this; 0 without a limit
}

// Job is one that waits or runs.
type Job struct {
	ID          int64
	Pool        string
	Project     string
	Priority    int // higher first
	Queued      time.Time
	Preemptible bool // it may be drained for one of a higher priority, and queues again
	Ask         Ask
}

// Node is a machine of a pool and what it has in all.
type Node struct {
	Name, Pool string
	Slots      int
	Memory     int64 // 0 where nobody counts it
	GPUs       int
	Closed     bool  // it is away for now: what runs there may end; nothing starts
	For        int64 // the job that it was made for; 0 for everybody's
	Alone      bool  // an elastic job with a part here has all of it here
}

// Share is a part of a gang: so many processes on a node.
type Share struct {
	Node  string `json:"node"`
	Slots int    `json:"slots"`
}

// Quota bounds a project. The zero value bounds nothing.
type Quota struct {
	Slots int     // the project's own; 0 without a bound
	Max   int     // with what it borrows while nobody else wants it; 0 borrows without a bound, Slots borrows nothing
	Share float64 // weight of its fair share; 0 is 1
}

// Placement gives a job its slots.
type Placement struct {
	ID     int64
	Shares []Share
	Behind int64 // the head whose start it does not delay, where it was back-filled; else 0
}

// Promise is when the first of those that wait will start at the latest.
type Promise struct {
	Pool   string
	ID     int64
	At     time.Time // zero when jobs without a time limit are in the way, or nodes must come first
	Shares []Share
}

// Decision is what to do now. The machine has already noted all of it.
type Decision struct {
	Start    []Placement
	Shrink   []Placement // what is left to elastic jobs, from their next commit on
	Grow     []Placement // what elastic jobs have from their next commit on
	Preempt  []int64     // to be drained; call Ended and then Submit when they are gone
	Promises []Promise   // at most one a pool
}

// Empty says that there is nothing to do.
func (d *Decision) Empty() bool {
	return len(d.Start)+len(d.Shrink)+len(d.Grow)+len(d.Preempt) == 0
}

// Machine holds nodes, the queue and what runs.
type Machine struct {
	halfLife time.Duration
	nodes    []Node
	free     []room // of each node
	byName   map[string]int
	pools    map[string]*pool
	jobs     map[int64]*entry
	running  map[int64]*running
	quotas   map[string]Quota
	projects map[string]*project
	on       map[string]map[int64]*running // what runs on each node
	avoiding map[int64]*running            // those that avoid nodes
	owned    map[int64]map[string]bool     // the nodes that were made for a job
	version  uint64                        // goes up with all that changes what fits
	round    uint64                        // goes up with each decision
	decided  time.Time                     // when the last one was
	first    uint64                        // its first round
	undone   map[int64]bool                // whose start it has taken back
	unfilled map[int64]int                 // how often those that were behind another head
	told     []told                        // its orders to give way, so far
	looked   int                           // at nodes and parts of jobs, so far: what tests hold it to
}

type pool struct {
	name    string
	lines   map[line][]*entry // equal jobs of a project, oldest first
	promise Promise
	blocked bool      // promise is that of a job that waits
	seen    uint64    // the round in which promise was made; 0 where it is to be made anew
	within  int64     // the last one of those, where it is within its project's quota; else 0
	spare   int       // nodes that may come
	all     int       // nodes that it may have in all
	like    Node      // what each of them is
	stalled time.Time // none of them comes before this
	failed  string    // why the last one was not made
	awaits  string    // which may come that it does not make, and why it makes none meanwhile
	turns   []turn
	byAsk   map[Ask]*turns // those of a decision, and memory for the next
	claims  remembered[[]claim]
	fresh   remembered[[]Wanted]
	shape   uint64 // goes up with its nodes, and with those that may come
	judged  verdicts
}

// line is where equal jobs of a project wait.
type line struct {
	project  string
	priority int
	ask      Ask
}

type entry struct {
	Job
	held bool // room is being made for it
	owns bool // others have given way to it in its project's quota: it keeps that until it starts, or lacks room too
}

type running struct {
	Job
	shares  []Share // what it holds: released at the end, or when it has shrunk
	target  []Share // what it was told to have; equal to shares but while it shrinks
	started time.Time
	round   uint64          // in which it was started
	leaving bool            // it was told to drain
	stays   bool            // on its first node, until Spreads
	avoids  map[string]bool // nodes on which its part has ended
}

// far is when a job without a time limit ends.
var far = time.Unix(1<<40, 0)

func (r *running) ends() time.Time {
	if r.Ask.Limit <= 0 {
		return far
	}
	return r.started.Add(r.Ask.Limit)
}

// ends is when a job ends that starts at some time.
func (e *entry) ends(at time.Time) time.Time {
	if e.Ask.Limit <= 0 {
		return far
	}
	return at.Add(e.Ask.Limit)
}

func slots(shares []Share) int {
	n := 0
	for _, s := range shares {
		n += s.Slots
	}
	return n
}

// project is what a project has used, decayed.
type project struct {
	used float64 // slot-seconds at the time at
	at   time.Time
	runs int // slots it holds

	waits  map[holder]bool // where jobs of it wait
	keeper *keeper         // for whom it keeps quota
	known  uint64          // in which decision that was found; 0 where it is to be found anew
}

// DefaultHalfLife is after how long use counts half.
const DefaultHalfLife = 24 * time.Hour

// lookahead is how long what runs counts as having run already, so that one decision does not give all slots to one
// project.
const lookahead = 60.0

// New makes a machine without nodes. A half-life of 0 is DefaultHalfLife.
func New(halfLife time.Duration) *Machine {
	if halfLife <= 0 {
		halfLife = DefaultHalfLife
	}
	return &Machine{
		halfLife: halfLife, round: 1, byName: map[string]int{}, pools: map[string]*pool{}, jobs: map[int64]*entry{},
		running: map[int64]*running{}, quotas: map[string]Quota{}, projects: map[string]*project{},
		on: map[string]map[int64]*running{}, avoiding: map[int64]*running{}, owned: map[int64]map[string]bool{},
	}
}

func (m *Machine) pool(name string) *pool {
	p := m.pools[name]
	if p == nil {
		p = &pool{name: name, lines: map[line][]*entry{}, byAsk: map[Ask]*turns{}}
		m.pools[name] = p
	}
	return p
}

func (m *Machine) project(name string) *project {
	p := m.projects[name]
	if p == nil {
		p = &project{}
		m.projects[name] = p
	}
	return p
}

// charge brings a project's use up to now. A clock that jumps back charges nothing.
func (m *Machine) charge(p *project, now time.Time) {
	if dt := now.Sub(p.at).Seconds(); dt > 0 && !p.at.IsZero() {
		decay := math.Exp2(-dt / m.halfLife.Seconds())
		whole := m.halfLife.Seconds() / math.Ln2
		p.used = p.used*decay + float64(p.runs)*whole*(1-decay)
	}
	if now.After(p.at) {
		p.at = now
	}
}

// weigh answers what a project has had, for its weight: who has less comes first.
func (m *Machine) weigh(p *project, q Quota, now time.Time) float64 {
	m.charge(p, now)
	weight := q.Share
	if weight <= 0 {
		weight = 1
	}
	return (p.used + float64(p.runs)*lookahead) / weight
}

// Used reports what a project has used, in slot-seconds, decayed.
func (m *Machine) Used(name string, now time.Time) float64 {
	p := m.project(name)
	m.charge(p, now)
	return p.used
}

// SetUsed restores what Used reported.
func (m *Machine) SetUsed(name string, slotSeconds float64, at time.Time) {
	p := m.project(name)
	p.used, p.at = slotSeconds, at
}

// SetQuota bounds a project.
func (m *Machine) SetQuota(project string, q Quota) {
	m.quotas[project] = q
	m.project(project).changed()
	m.version++
}

// SetNode adds a node, or changes one that is there.
func (m *Machine) SetNode(n Node) {
	p := m.pool(n.Pool)
	i, known := m.byName[n.Name]
	if !known {
		i = len(m.nodes)
		m.nodes, m.free = append(m.nodes, n), append(m.free, room{})
		m.byName[n.Name] = i
	}
	was := m.nodes[i]
	if was.Closed = n.Closed; !known || was != n {
		p.shape++
		m.pool(was.Pool).shape++
	}
	m.own(m.nodes[i].For, n.Name, false)
	m.own(n.For, n.Name, true)
	m.nodes[i] = n
	m.count(i)
}

// Away reports whether a node is closed for now.
func (m *Machine) Away(node string) bool {
	i, known := m.byName[node]
	return known && m.nodes[i].Closed
}

// own notes whose a node is that was made for one job.
func (m *Machine) own(owner int64, node string, is bool) {
	switch {
	case owner == 0:
	case is && m.owned[owner] == nil:
		m.owned[owner] = map[string]bool{node: true}
	case is:
		m.owned[owner][node] = true
	default:
		if delete(m.owned[owner], node); len(m.owned[owner]) == 0 {
			delete(m.owned, owner)
		}
	}
}

// count says anew what is free on a node.
func (m *Machine) count(i int) {
	m.version++
	n := m.nodes[i]
	m.free[i] = n.all()
	m.free[i].closed = n.Closed
	for _, r := range m.on[n.Name] {
		for _, s := range r.shares {
			if m.looked++; s.Node == n.Name {
				m.take(m.free, r.Ask, []Share{s})
			}
		}
	}
}

// hold notes what a running job has from now on.
func (m *Machine) hold(r *running, shares []Share) {
	m.version++
	m.give(m.free, r.Ask, r.shares)
	for _, s := range r.shares {
		if delete(m.on[s.Node], r.ID); len(m.on[s.Node]) == 0 {
			delete(m.on, s.Node)
		}
	}
	r.shares, r.target = shares, shares
	for _, s := range shares {
		if m.on[s.Node] == nil {
			m.on[s.Node] = map[int64]*running{}
		}
		m.on[s.Node][r.ID] = r
	}
	m.take(m.free, r.Ask, shares)
}

// RemoveNode forgets a node. The jobs that have a part there are told of by the caller: they end.
func (m *Machine) RemoveNode(name string) {
	i, known := m.byName[name]
	if !known {
		return
	}
	m.version++
	m.pool(m.nodes[i].Pool).shape++
	m.own(m.nodes[i].For, name, false)
	m.nodes, m.free = slices.Delete(m.nodes, i, i+1), slices.Delete(m.free, i, i+1)
	delete(m.byName, name)
	for _, r := range m.avoiding {
		delete(r.avoids, name) // what comes under its name is another
	}
	for j := i; j < len(m.nodes); j++ {
		m.byName[m.nodes[j].Name] = j
	}
}

// Submit lets a job wait. One that is known already stays as it is.
func (m *Machine) Submit(j Job) {
	if m.jobs[j.ID] != nil || m.running[j.ID] != nil {
		return
	}
	if j.Ask.Nodes > 0 {
		j.Ask.NP = j.Ask.Nodes * max(j.Ask.PerNode, 1)
		j.Ask.PerNode = max(j.Ask.PerNode, 1)
	}
	m.version++
	e := &entry{Job: j}
	m.jobs[j.ID] = e
	p, l := m.pool(j.Pool), lineOf(&j)
	at, _ := slices.BinarySearchFunc(p.lines[l], e, older)
	p.lines[l] = slices.Insert(p.lines[l], at, e)
	m.project(j.Project).waitsIn(holder{p, l}, true)
}

func lineOf(j *Job) line { return line{j.Project, j.Priority, j.Ask} }

func older(a, b *entry) int {
	if c := a.Queued.Compare(b.Queued); c != 0 {
		return c
	}
	switch {
	case a.ID < b.ID:
		return -1
	case a.ID > b.ID:
		return 1
	}
	return 0
}

// Withdraw takes a job out of the queue: cancelled or paused.
func (m *Machine) Withdraw(id int64) {
	e := m.jobs[id]
	if e == nil {
		return
	}
	m.version++
	delete(m.jobs, id)
	p, l := m.pools[e.Pool], lineOf(&e.Job)
	if at, found := slices.BinarySearchFunc(p.lines[l], e, older); found {
		p.lines[l] = slices.Delete(p.lines[l], at, at+1)
	}
	if len(p.lines[l]) == 0 {
		delete(p.lines, l)
	}
	m.project(e.Project).waitsIn(holder{p, l}, len(p.lines[l]) > 0)
}

// SetPriority gives a job another priority, whether it waits or runs.
func (m *Machine) SetPriority(id int64, priority int) {
	if r := m.running[id]; r != nil {
		r.Priority = priority
		m.version++
	}
	if e := m.jobs[id]; e != nil {
		j := e.Job
		j.Priority = priority
		m.Withdraw(id)
		m.Submit(j)
	}
}

// Started notes a job that runs already, as after a restart of the caller. It grows on its first node alone until
// Spreads is called.
func (m *Machine) Started(j Job, shares []Share, started, now time.Time) {
	m.Withdraw(j.ID)
	m.start(j, shares, started, now)
	m.running[j.ID].stays = true
}

// Spreads says that a job that was Started may grow onto other nodes.
func (m *Machine) Spreads(id int64) {
	if r := m.running[id]; r != nil {
		r.stays = false
	}
}

// Shrinking says that a job that was Started has been told to shrink, and to what.
func (m *Machine) Shrinking(id int64, target []Share) {
	if r := m.running[id]; r != nil {
		r.target = target
	}
}

// Lost says that a node is no more on which a job had a part, other than its first: it goes on without, until something
// comes under that name again, which may have come meanwhile.
func (m *Machine) Lost(id int64, node string, now time.Time) {
	if r := m.running[id]; r != nil {
		m.without(r, node, now)
	}
}

// Parted says that what a job had there has ended by itself: it goes on without, and does not come back to that node.
func (m *Machine) Parted(id int64, node string, now time.Time) {
	r := m.running[id]
	if r == nil {
		return
	}
	m.without(r, node, now)
	if r.avoids == nil {
		r.avoids = map[string]bool{}
	}
	r.avoids[node] = true
	m.avoiding[id] = r
}

func (m *Machine) without(r *running, node string, now time.Time) {
	without := func(all []Share) []Share {
		return slices.DeleteFunc(slices.Clone(all), func(s Share) bool { return s.Node == node })
	}
	target := without(r.target)
	m.resize(r, without(r.shares), now)
	r.target = target
}

func (m *Machine) start(j Job, shares []Share, started, now time.Time) {
	p := m.project(j.Project)
	m.charge(p, now)
	p.runs += slots(shares)
	p.changed()
	r := &running{Job: j, started: started, round: m.round}
	m.running[j.ID] = r
	m.hold(r, shares)
}

// Shrunk says that an elastic job has given away what it was told to.
func (m *Machine) Shrunk(id int64, now time.Time) {
	if r := m.running[id]; r != nil {
		m.resize(r, r.target, now)
	}
}

func (m *Machine) resize(r *running, shares []Share, now time.Time) {
	p := m.project(r.Project)
	m.charge(p, now)
	p.runs += slots(shares) - slots(r.shares)
	p.changed()
	m.hold(r, shares)
}

// Ended frees what a job had.
func (m *Machine) Ended(id int64, now time.Time) {
	r := m.running[id]
	if r == nil {
		return
	}
	p := m.project(r.Project)
	m.charge(p, now)
	p.runs -= slots(r.shares)
	p.changed()
	m.hold(r, nil)
	delete(m.running, id)
	delete(m.avoiding, id)
}

// Shares reports where a job runs.
func (m *Machine) Shares(id int64) []Share {
	if r := m.running[id]; r != nil {
		return r.shares
	}
	return nil
}

// Waiting reports how many jobs wait, Running how many run.
func (m *Machine) Waiting() int { return len(m.jobs) }

// Running reports how many jobs run.
func (m *Machine) Running() int { return len(m.running) }
