// Package elastic decides what a join, a leave, a failure or a loss means for a job, in two machines. Machine is the
// membership: who takes part, under which epoch, at which rank. Roster is the supply of workers: which of them is
// started on which slot of which host, after which pause, and when the job has to be given up.
//
// Both are pure: what happened goes in, what follows comes out. They never open a connection, read a clock, draw a
// random number, start a process or run a goroutine; package rendezvous serves Machine to workers, and package launch
// carries out what Roster orders.
package elastic

import (
	"cmp"
	"fmt"
	"slices"
	"sort"

	"hora/event"
)

// Policy says what becomes of the job when a worker is lost.
type Policy uint8

// The policies.
const (
	Stop     Policy = iota // the first loss ends the job
	Replace                // a replacement takes the lost worker's rank; the epoch waits for it
	Continue               // survivors go on as a smaller world; newcomers join the next epoch
)

// String names the policy as --on-loss does.
func (p Policy) String() string {
	switch p {
	case Stop:
		return "stop"
	case Replace:
		return "replace"
	case Continue:
		return "continue"
	}
	return fmt.Sprintf("policy %d", uint8(p))
}

// Config is fixed for a job's life.
type Config struct {
	Size   int // members of the first epoch, and of every epoch under Stop and Replace
	Min    int // the smallest world Continue opens; 0 means 1
	Max    int // the largest world Continue opens; 0 means Size
	OnLoss Policy
	// Resets is how often the job may begin anew, 0 is no limit: an epoch after the first counts, unless it only takes
	// the successors of lost workers in.
	Resets int
}

// Worker identifies one process that joins; the caller counts upwards, so that a smaller Worker is an older one.
type Worker uint64

// Place is a member's position in an epoch.
type Place struct {
	Worker                     Worker
	Rank, LocalRank, LocalSize int
	CrossRank, CrossSize       int
	Host                       string
}

// Machine is a job's membership. The zero value is not usable; New makes one. It is not safe for concurrent use.
type Machine struct {
	cfg     Config
	epoch   uint64
	open    bool // the epoch's members are at work; false while gathering
	over    string
	members []Place               // of the present epoch, by rank; kept after it ends, until the next opens
	ranks   []int                 // that they were started with, or were given
	known   map[Worker]*candidate // workers that joined and neither left nor were lost
	taken   map[int]Worker        // rank asked for -> who asked, among candidates
	waiting int                   // candidates that wait for the next epoch to open
	behind  int                   // members of the present epoch that are alive and have not joined again
	// places of the open epoch whose worker left on purpose; it may come back for the next
	gone   map[int]bool
	ended  map[int]bool   // ranks whose process has finished: they do not come back
	absent map[int]bool   // see Absent
	coming map[start]bool // workers that are on their way; whether each is one more
	held   []string       // hosts of newcomers of whom members hear when the others have come
	wish   bool           // the last epoch was ended by a member that asked for a new one, and lost nobody
	resets int
	done   map[int]bool // places of the open epoch that have done their work
}

type candidate struct {
	worker  Worker
	host    string
	rank    int  // asked for, later its own; -1 leaves the choice to the machine
	place   int  // index into members, -1 for a newcomer
	waiting bool // has joined and waits for an epoch
	start   start
	more    bool // see Coming
	told    bool // the Coming of it has come
}

// New returns a machine that gathers its first epoch.
func New(cfg Config) *Machine {
	cfg.Size = max(cfg.Size, 1)
	cfg.Min = max(cfg.Min, 1)
	if cfg.Max == 0 {
		cfg.Max = cfg.Size
	}
	return &Machine{
		cfg: cfg, known: map[Worker]*candidate{}, taken: map[int]Worker{}, gone: map[int]bool{},
		ended: map[int]bool{}, absent: map[int]bool{}, coming: map[start]bool{}, done: map[int]bool{},
	}
}

// Epoch returns the number of the last epoch opened; 0 before the first.
func (m *Machine) Epoch() uint64 { return m.epoch }

// Members returns the places of the last epoch opened, by rank. The caller must not change them.
func (m *Machine) Members() []Place { return m.members }

// Open says whether the members of the last epoch are at work.
func (m *Machine) Open() bool { return m.open }

// Over returns the reason why no further epoch opens, or "".
func (m *Machine) Over() string { return m.over }

// Waiting counts the workers that wait for an epoch to open.
func (m *Machine) Waiting() int { return m.waiting }

// Missing lists up to limit ranks that the gathering epoch still waits for, and how many there are in all. Under
// Continue nobody in particular is missing, and ranks is empty.
func (m *Machine) Missing(limit int) (ranks []int, n int) {
	n = m.need() - m.waiting
	if m.open || n <= 0 || m.cfg.OnLoss == Continue && m.epoch > 0 {
		return nil, max(n, 0)
	}
	for r := 0; r < m.cfg.Size && len(ranks) < min(limit, n); r++ {
		if w, ok := m.taken[r]; !m.ended[r] && !m.lacks(r) && (!ok || !m.known[w].waiting) {
			ranks = append(ranks, r)
		}
	}
	return ranks, n
}

// need returns how many waiting workers open the next epoch.
func (m *Machine) need() int {
	switch {
	case m.cfg.OnLoss == Stop:
		return m.cfg.Size
	case m.cfg.OnLoss == Replace:
		return m.cfg.Size - len(m.ended)
	}
	least := max(m.cfg.Min-len(m.ended), 1) // who has finished is not waited for
	if m.epoch > 0 {
		return least
	}
	living := 0
	for r := range m.cfg.Size {
		if !m.ended[r] && !m.lacks(r) {
			living++
		}
	}
	return max(living, least)
}

// lacks says whether the first epoch opens without a rank: nobody is started as it any more.
func (m *Machine) lacks(rank int) bool {
	return m.absent[rank] && m.epoch == 0 && m.cfg.OnLoss == Continue
}

// Step takes one event and returns what follows from it, in order.
func (m *Machine) Step(e Event) []Action {
	switch e := e.(type) {
	case Join:
		return m.join(e)
	case Leave:
		return m.leave(e)
	case Lost:
		return m.lost(e)
	case Drain:
		return m.drain(e)
	case Done:
		return m.complete(e)
	case Finished:
		return m.finished(e)
	case Absent:
		m.absent[e.Rank] = e.Is
		return m.tryOpen()
	case Coming:
		return m.expect(e)
	case End:
		return m.wind(e)
	}
	return nil
}

func (m *Machine) join(e Join) []Action {
	if m.over != "" {
		return []Action{Refuse{Worker: e.Worker, Reason: m.over, Final: true}}
	}
	c := m.known[e.Worker]
	from := start{e.Rank, e.Process}
	if m.cfg.OnLoss == Continue && m.epoch > 0 {
		e.Rank = -1 // ranks have moved since the newcomer was started
	}
	if c == nil {
		if r := m.refusal(e); r != nil {
			return []Action{r}
		}
		c = &candidate{worker: e.Worker, host: e.Host, rank: e.Rank, place: -1, start: from}
		c.more, c.told = m.arrive(from)
		m.known[e.Worker] = c
		if e.Rank >= 0 {
			m.taken[e.Rank] = e.Worker
			delete(m.ended, e.Rank)
		}
	}
	if c.waiting {
		return nil
	}
	var acts []Action
	switch {
	case m.open && c.place >= 0: // a member that joins again has left the epoch: it is over for all
		acts = m.end(-1, "", fmt.Sprintf("rank %d asked for a new epoch", c.place))
	case m.open && !m.hasLeft(c.rank) && (m.cfg.OnLoss != Continue || len(m.members)-len(m.gone) < m.cfg.Max):
		m.held = append(m.held, e.Host)
	}
	c.waiting = true
	m.waiting++
	acts = append(acts, m.tellHeld()...)
	if c.place >= 0 {
		m.behind--
	}
	if m.cfg.OnLoss == Stop && len(m.ended) > 0 {
		return append(acts, m.unequal()...)
	}
	return append(acts, m.tryOpen()...)
}

// tellHeld tells the members of newcomers once all that are on their way have come.
func (m *Machine) tellHeld() []Action {
	if !m.open || len(m.held) == 0 || len(m.coming) > 0 {
		return nil
	}
	host := m.held[0]
	m.held = nil
	if m.waiting == 0 {
		return nil // they have ended again
	}
	return []Action{Changed{Epoch: m.epoch, Host: host}}
}

// unequal ends a job under Stop in which some ranks have finished while others wait for an epoch that cannot come.
func (m *Machine) unequal() []Action {
	first := m.cfg.Size
	for r := range m.ended {
		first = min(first, r)
	}
	m.over = fmt.Sprintf("rank %d has finished without joining: let every rank join as often as the others", first)
	if m.epoch > 0 {
		m.over = fmt.Sprintf("rank %d has finished while others wait for a new epoch: let every rank join as often as the others", first)
	}
	return m.refuseWaiting()
}

// refusal says why a worker that was never seen before may not take part, or is nil.
func (m *Machine) refusal(e Join) Action {
	no := func(format string, a ...any) Action {
		return Refuse{Worker: e.Worker, Reason: fmt.Sprintf(format, a...), Final: true}
	}
	limit := max(m.cfg.Size, m.cfg.Max)
	switch {
	case e.Rank >= limit:
		return no("rank %d does not exist in a job of %d ranks: start it with a rank from 0 to %d", e.Rank, m.cfg.Size, m.cfg.Size-1)
	case e.Size > 0 && e.Size != m.cfg.Size && m.cfg.OnLoss != Continue:
		return no("this worker was started for %d ranks and the job has %d: start all workers with the same size", e.Size, m.cfg.Size)
	case e.Rank >= 0:
		if w, ok := m.taken[e.Rank]; ok {
			return no("rank %d is already taken by a worker on %s: give every worker a rank of its own", e.Rank, m.known[w].host)
		}
	}
	if m.open && m.cfg.OnLoss != Continue && !m.hasLeft(e.Rank) {
		return no("the job already runs with its %d ranks: a further worker has no place in it", m.cfg.Size)
	}
	return nil
}

func (m *Machine) leave(e Leave) []Action {
	c := m.known[e.Worker]
	if c == nil {
		return nil
	}
	m.forget(c)
	if c.place < 0 || !m.open {
		return m.tryOpen()
	}
	m.gone[c.place] = true
	acts := []Action{Left{Epoch: m.epoch, Rank: c.place, Host: c.host}}
	if len(m.done) > 0 && m.allDone() {
		return append(acts, m.finish()...)
	}
	for _, o := range m.known {
		if o.place >= 0 {
			return acts
		}
	}
	m.open = false // everybody has left: the next Join begins a new epoch
	return append(acts, m.tryOpen()...)
}

// drain takes a loss that costs the worker nothing.
func (m *Machine) drain(e Drain) []Action {
	acts := m.lost(Lost{Worker: e.Worker, Reason: "left the job: " + e.Reason})
	for i, a := range acts {
		if end, ok := a.(Ended); ok {
			end.Parted = true
			acts[i] = end
		}
	}
	return acts
}

func (m *Machine) complete(e Done) []Action {
	c := m.known[e.Worker]
	if c == nil || !m.open || c.place < 0 {
		return nil
	}
	m.done[c.place] = true
	if !m.allDone() {
		return nil
	}
	return m.finish()
}

func (m *Machine) allDone() bool {
	for r := range m.members {
		if !m.done[r] && !m.gone[r] {
			return false
		}
	}
	return true
}

// HasFinished is why nobody may join any more when all the work is done.
const HasFinished = "the job has finished"

func (m *Machine) finish() []Action {
	m.over = HasFinished
	m.open = false
	return append([]Action{Complete{Epoch: m.epoch}}, m.refuseWaiting()...)
}

func (m *Machine) finished(e Finished) []Action {
	if e.Rank < 0 || m.over != "" {
		return nil
	}
	if w, ok := m.taken[e.Rank]; ok && m.cfg.OnLoss == Replace && m.known[w] != nil {
		return nil // another has its rank already
	}
	m.ended[e.Rank] = true
	if m.cfg.OnLoss == Stop && m.waiting > 0 {
		return m.unequal()
	}
	return m.tryOpen()
}

func (m *Machine) lost(e Lost) []Action {
	c := m.known[e.Worker]
	if c == nil {
		if e.Worker == 0 && m.over == "" && m.cfg.OnLoss == Stop {
			return m.stop(e.Rank, e.Host, e.Reason)
		}
		return nil
	}
	m.forget(c)
	rank := c.place
	if rank < 0 {
		rank = c.rank
	}
	if m.cfg.OnLoss == Stop {
		return m.stop(rank, c.host, e.Reason)
	}
	if m.open && c.place >= 0 {
		return m.end(rank, c.host, e.Reason)
	}
	return m.tryOpen()
}

// wind has no epoch follow the present one. Who waits for one is told so, whatever it has been told beside.
func (m *Machine) wind(e End) []Action {
	if m.over != "" {
		return nil
	}
	m.over = "the job is being ended: " + e.Reason
	return m.refuseWaiting()
}

// stop ends a job under Stop.
func (m *Machine) stop(rank int, host, reason string) []Action {
	if m.over != "" && !m.open {
		return nil
	}
	who := "a worker"
	if rank >= 0 {
		who = fmt.Sprintf("rank %d", rank)
	}
	m.over = fmt.Sprintf("%s on %s was lost: %s", who, host, reason)
	m.open = false
	return append([]Action{Ended{Epoch: m.epoch, Rank: rank, Host: host, Reason: reason}}, m.refuseWaiting()...)
}

// end closes the open epoch; every member is expected to join again.
func (m *Machine) end(rank int, host, reason string) []Action {
	m.open = false
	m.wish = rank < 0
	m.behind = 0
	for _, c := range m.known {
		if c.place >= 0 && !c.waiting {
			m.behind++
		}
	}
	return append([]Action{Ended{Epoch: m.epoch, Rank: rank, Host: host, Reason: reason}}, m.tryOpen()...)
}

func (m *Machine) refuseWaiting() []Action {
	var ws []Worker
	for w, c := range m.known {
		if c.waiting {
			ws = append(ws, w)
			c.waiting = false
		}
	}
	m.waiting = 0
	slices.Sort(ws)
	acts := make([]Action, 0, len(ws))
	for _, w := range ws {
		acts = append(acts, Refuse{Worker: w, Reason: m.over, Final: true})
	}
	return acts
}

func (m *Machine) forget(c *candidate) {
	delete(m.known, c.worker)
	if c.rank >= 0 && m.taken[c.rank] == c.worker {
		delete(m.taken, c.rank)
	}
	switch {
	case c.waiting:
		m.waiting--
	case c.place >= 0 && !m.open:
		m.behind--
	}
}

// tryOpen opens the next epoch when everybody it needs waits for it.
func (m *Machine) tryOpen() []Action {
	if m.open || m.over != "" || m.behind > 0 || m.waiting == 0 || m.waiting < m.need() || m.meets() {
		return nil
	}
	cs := make([]*candidate, 0, m.waiting)
	for _, c := range m.known {
		if c.waiting {
			cs = append(cs, c)
		}
	}
	m.byAge(cs)
	if m.epoch > 0 && m.cfg.OnLoss == Continue {
		cs = cs[:min(len(cs), m.cfg.Max)] // the youngest wait for a place
		asStarted(cs)
	} else {
		cs = cs[:min(len(cs), m.need())]
		m.byRank(cs)
	}
	if !m.mayReset(cs) {
		m.over = fmt.Sprintf("it has begun anew %s, which is its limit (--reset-limit): see why workers come and go, or raise it", event.Counted(m.resets, "time"))
		return m.refuseWaiting()
	}
	m.members = places(cs)
	m.epoch++
	m.open, m.wish, m.held = true, false, nil
	m.waiting -= len(cs)
	clear(m.taken)
	clear(m.gone)
	clear(m.done)
	m.settle(cs)
	return []Action{Open{Epoch: m.epoch, Members: m.members}}
}

// meets says whether members that asked for a new epoch are to meet others in it who are yet on their way.
func (m *Machine) meets() bool {
	return m.wish && m.epoch > 0 && m.cfg.OnLoss == Continue && len(m.coming) > 0 && m.waiting < m.cfg.Max
}

// mayReset counts an epoch of these members, if it counts, and says whether it may be.
func (m *Machine) mayReset(cs []*candidate) bool {
	if m.epoch == 0 {
		return true
	}
	successors, more := false, false
	for _, c := range cs {
		successors = successors || c.place < 0
		more = more || c.place < 0 && c.more
	}
	if m.wish && successors && !more {
		return true
	}
	if m.cfg.Resets > 0 && m.resets >= m.cfg.Resets {
		return false
	}
	m.resets++
	return true
}

// settle gives the members of the epoch that opens their places. Ranks stay what they were, but under Continue: where
// another has finished, places move up, and the next process of a rank comes with the rank it was started with.
func (m *Machine) settle(cs []*candidate) {
	m.ranks = make([]int, len(cs))
	for i, c := range cs {
		c.waiting, c.place = false, i
		if m.cfg.OnLoss == Continue {
			c.rank = i
		}
		m.ranks[i] = c.rank
		m.taken[c.rank] = c.worker
	}
	for _, c := range m.known { // those left over
		if _, ok := m.taken[c.rank]; c.waiting && ok {
			c.rank = -1
		} else if c.waiting && c.rank >= 0 {
			m.taken[c.rank] = c.worker
		}
	}
}

// hasLeft says whether the member that has a rank has left the open epoch on purpose.
func (m *Machine) hasLeft(rank int) bool {
	for place := range m.gone {
		if m.ranks[place] == rank {
			return true
		}
	}
	return false
}

// byAge orders survivors by their former rank, then newcomers by age, replacements before others.
func (m *Machine) byAge(cs []*candidate) {
	sort.Slice(cs, func(i, j int) bool {
		a, b := cs[i], cs[j]
		if (a.place >= 0) != (b.place >= 0) {
			return a.place >= 0
		}
		if a.place != b.place {
			return a.place < b.place
		}
		if (a.rank >= 0) != (b.rank >= 0) && m.cfg.OnLoss != Continue {
			return a.rank >= 0 // a replacement was asked for
		}
		return a.worker < b.worker
	})
}

// asStarted orders the newcomers among workers that byAge has ordered by the ranks that they were started as, which is
// host by host and slot by slot, whoever of them has been quicker.
func asStarted(cs []*candidate) {
	first := slices.IndexFunc(cs, func(c *candidate) bool { return c.place < 0 })
	if first >= 0 {
		slices.SortStableFunc(cs[first:], func(a, b *candidate) int {
			return cmp.Compare(uint(a.start.rank), uint(b.start.rank)) // of whom nobody said come last, by age
		})
	}
}

// byRank orders workers by the rank they asked for and fills the gaps with those that did not ask, host by host in
// order of first appearance.
func (m *Machine) byRank(cs []*candidate) {
	sort.Slice(cs, func(i, j int) bool { return cs[i].worker < cs[j].worker })
	first := map[string]int{}
	for i, c := range cs {
		if _, ok := first[c.host]; !ok {
			first[c.host] = i
		}
	}
	var free []*candidate
	at := make(map[int]*candidate, len(cs))
	for _, c := range cs {
		if c.rank >= 0 {
			at[c.rank] = c
		} else {
			free = append(free, c)
		}
	}
	sort.SliceStable(free, func(i, j int) bool { return first[free[i].host] < first[free[j].host] })
	ranked := cs[:0:0]
	for r := 0; len(ranked) < len(cs); r++ {
		switch {
		case at[r] != nil:
			ranked = append(ranked, at[r])
		case len(free) > 0 && !m.ended[r]:
			free[0].rank = r
			ranked = append(ranked, free[0])
			free = free[1:]
		}
	}
	copy(cs, ranked)
}

// places derives local and cross ranks: ranks of one host count locally in rank order, and a cross rank is the place
// of the host among those that have that local rank.
func places(cs []*candidate) []Place {
	out := make([]Place, len(cs))
	local := map[string]int{}
	cross := map[int]int{}
	for i, c := range cs {
		l := local[c.host]
		local[c.host]++
		out[i] = Place{Worker: c.worker, Rank: i, LocalRank: l, CrossRank: cross[l], Host: c.host}
		cross[l]++
	}
	for i := range out {
		out[i].LocalSize = local[out[i].Host]
		out[i].CrossSize = cross[out[i].LocalRank]
	}
	return out
}
