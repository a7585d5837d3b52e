package rendezvous

import (
	"context"
	"fmt"
	"math/bits"
	"slices"
	"strconv"
	"strings"
	"time"

	"hora/elastic"
	"hora/event"
	"hora/internal/wire"
)

// desk is what the owner goroutine of a Server holds: the membership machine, who speaks for which worker, the
// members' addresses and the key-value store. Nothing of it is locked.
type desk struct {
	s       *Server
	machine *elastic.Machine
	workers map[elastic.Worker]*conn
	last    elastic.Worker
	started map[int]*conn   // by the rank the launcher gave; the latest connection of each
	asks    map[int]ask     // of those that have none yet
	members []elastic.Place // of the last epoch that has been announced; the machine may be ahead
	byRank  []*conn         // of the present epoch
	encoded [][]byte        // each member of the present epoch, as bytes
	cross   [][]int         // local rank -> ranks, in cross rank order
	local   map[string][]int
	store   map[string][]byte
	waits   map[string][]wait // who waits for a key
	reports map[int]string    // ranks whose end was reported while their connection was still open
	// By the rank the launcher gave: members lost by their connection, whose end is yet to be reported.
	unsaid map[int]place

	sessions map[string]*conn         // by what clients call themselves
	held     map[int]received         // by rank: a Join that is quicker than the report of its predecessor's end
	ghosts   map[elastic.Worker]*conn // workers of a coordinator before this one, from its journal
	news     []Notice                 // what the present epoch's members were told, with a Journal
	waiting  time.Time                // since when somebody waits for an epoch; zero: nobody does
	beside   bool                     // they wait beside an open one
}

// place is a member's in an epoch.
type place struct {
	epoch uint64
	rank  int
	host  string
}

type wait struct {
	c  *conn
	id uint64
}

// own runs the owner goroutine.
func (s *Server) own(ctx context.Context) {
	defer s.wg.Done()
	d := &desk{
		s: s, workers: map[elastic.Worker]*conn{}, started: map[int]*conn{}, asks: map[int]ask{},
		store: map[string][]byte{}, waits: map[string][]wait{}, reports: map[int]string{},
		sessions: map[string]*conn{}, ghosts: map[elastic.Worker]*conn{}, held: map[int]received{},
		unsaid: map[int]place{},
		machine: elastic.New(elastic.Config{
			Size: s.cfg.Size, Min: s.cfg.Min, Max: s.cfg.Max, OnLoss: s.cfg.OnLoss, Resets: s.cfg.Resets,
		}),
	}
	if d.replay(); s.cfg.OnLived != nil {
		s.cfg.OnLived()
	}
	period := max(s.cfg.Silence/10, time.Millisecond)
	tick := time.NewTicker(period)
	defer tick.Stop()
	before := time.Now()
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.closed:
			return
		case e := <-s.events:
			d.handle(e)
		case <-tick.C:
			now := time.Now()
			// A coordinator that was stopped itself has heard nobody, and blames nobody for it.
			d.watch(now.Sub(before) > 3*period)
			d.tellWait(now)
			before = now
		}
	}
}

// handle writes an event down, where a coordinator may have to be started again, and acts on it.
func (d *desk) handle(e any) {
	if replaced(e) {
		return
	}
	d.note(e)
	d.act(e)
	if j := d.s.cfg.Journal; j != nil && j.broken != nil && !j.told {
		j.told = true
		if d.s.cfg.OnFault != nil {
			d.s.cfg.OnFault(fmt.Errorf("keep the coordinator's state: %w: it cannot be started again if it is killed", j.broken))
		}
	}
}

func (d *desk) act(e any) {
	switch e := e.(type) {
	case connected:
		d.greet(e)
	case received:
		if d.s.cfg.Journal == nil || !d.repeated(e.c, &e.req) {
			d.request(e.c, &e.req)
		}
	case doomed:
		d.doom(e.c, e.reason)
	case unheld:
		if h, ok := d.held[e.c.hello.Rank]; ok && h.c.worker == e.c.worker {
			d.letIn(e.c.hello.Rank)
		}
	case gone:
		d.gone(e.c, e.reason)
	case late:
		d.sever(e.c, e.reason)
	case exited:
		d.exited(e)
	case absent:
		d.do(d.machine.Step(elastic.Absent{Rank: e.rank, Is: e.is}))
	case coming:
		d.do(d.machine.Step(elastic.Coming{Rank: e.rank, Process: e.process, Is: e.is, More: e.more}))
		if e.is && e.more && d.machine.Open() {
			n := Notice{Kind: NoticeComing, Epoch: d.machine.Epoch(), Rank: -1}
			d.remember(n)
			d.tell(n)
		}
	case halted:
		d.halted(e)
	case drained:
		d.drained(e)
	}
}

// ask is why a process that has not connected yet is to leave.
type ask struct {
	process string // see Hello; "" is whichever comes
	reason  string
}

// of says whether it is meant for a process.
func (a ask) of(process string) bool { return a.process == "" || process == "" || a.process == process }

// drained asks a worker to leave, or all of them, or takes that back.
func (d *desk) drained(e drained) {
	asked := ask{e.process, e.reason}
	if c := d.started[e.rank]; e.rank >= 0 && (c == nil || !asked.of(c.hello.Process)) {
		delete(d.asks, e.rank)
		if e.reason != "" {
			d.asks[e.rank] = asked // its process has yet to connect, or has ended
		}
	}
	for rank, c := range d.started {
		if (e.rank < 0 || rank == e.rank && asked.of(c.hello.Process)) && !c.gone && !c.left {
			c.stays = c.asked != "" && e.reason == ""
			c.asked = e.reason
			d.askToLeave(c)
			if e.reason != "" && c.joinID != 0 && !d.machine.Open() {
				// It leaves at once: the next epoch must not open with it meanwhile.
				d.do(d.machine.Step(elastic.Leave{Worker: c.worker}))
			}
			if e.reason != "" && e.rank >= 0 && d.machine.Open() && d.member(c) {
				n := Notice{Kind: NoticeGoing, Epoch: d.machine.Epoch(), Rank: c.rank, Host: c.member.Host}
				d.remember(n)
				d.tell(n)
			}
		}
	}
	if e.rank < 0 { // they hear it after that
		d.do(d.machine.Step(elastic.End{Reason: e.reason}))
	}
}

// member says whether a connection speaks for a member of the present epoch.
func (d *desk) member(c *conn) bool {
	return c.rank >= 0 && c.rank < len(d.byRank) && d.byRank[c.rank] == c
}

func (d *desk) request(c *conn, r *request) {
	switch r.kind {
	case kindJoin:
		d.join(c, r)
	case kindMembers:
		d.list(c, r)
	case kindPut:
		d.set(r.key, slices.Clone(r.value))
		d.send(c, number(r.id, 0))
	case kindAdd:
		d.add(c, r)
	case kindGet:
		if v, ok := d.store[r.key]; ok {
			d.send(c, value(r.id, true, v))
			return
		}
		d.waits[r.key] = append(d.waits[r.key], wait{c, r.id})
		if c.gets == nil {
			c.gets = map[uint64]string{}
		}
		c.gets[r.id] = r.key
	case kindLookup:
		v, ok := d.store[r.key]
		d.send(c, value(r.id, ok, v))
	case kindDelete:
		_, ok := d.store[r.key]
		delete(d.store, r.key)
		n := int64(0)
		if ok {
			n = 1
		}
		d.result(c, r.id, n)
	case kindCancel:
		d.cancel(c, r.id)
	case kindFinish:
		if c.doneID != 0 || c.rank < 0 || c.rank >= len(d.byRank) || d.byRank[c.rank] != c {
			d.send(c, number(r.id, 0)) // its epoch is over
			return
		}
		if d.machine.Over() == elastic.HasFinished {
			d.send(c, number(r.id, 1)) // a second piece of work
			return
		}
		if !d.machine.Open() {
			d.send(c, number(r.id, 0)) // a loss came first
			return
		}
		c.doneID = r.id
		d.do(d.machine.Step(elastic.Done{Worker: c.worker}))
	case kindRecovered:
		if d.s.cfg.OnRecovered != nil && d.workers[c.worker] == c {
			d.s.cfg.OnRecovered(c.rank, r.recovery)
		}
	case kindProgress:
		if d.s.cfg.OnProgress != nil && c.rank >= 0 && !c.gone {
			d.s.cfg.OnProgress(event.Progress{Rank: c.rank, Host: c.member.Host, Work: r.progress})
		}
	case kindDrain:
		rank := c.rank
		c.left, c.rank = true, -1
		if d.s.cfg.OnDrain != nil && d.workers[c.worker] == c {
			d.s.cfg.OnDrain(c.hello.process(), rank, c.member.Host, r.reason)
		}
		d.do(d.machine.Step(elastic.Drain{Worker: c.worker, Reason: r.reason}))
		d.send(c, number(r.id, 0))
	case kindLeave:
		c.left = true
		c.rank = -1
		d.do(d.machine.Step(elastic.Leave{Worker: c.worker}))
		d.send(c, number(r.id, 0))
	}
}

func (d *desk) join(c *conn, r *request) {
	if c.joinID != 0 {
		d.send(c, failure(r.id, false, "this worker already waits to join"))
		return
	}
	if d.early(c, r) {
		return
	}
	if c.asked != "" {
		// It has not read that yet, or was asking just then: the next epoch must not open with it, to end as it leaves.
		d.send(c, failure(r.id, false, "this worker was asked to leave: "+c.asked))
		return
	}
	c.member, c.joinID, c.lastJoin, c.joined, c.left = r.member, r.id, r.id, true, false
	rank := r.member.Rank
	if rank < 0 {
		rank = c.hello.Rank
	}
	d.do(d.machine.Step(elastic.Join{
		Worker: c.worker, Rank: rank, Size: c.hello.Size, Host: r.member.Host, Process: c.hello.Process,
	}))
}

// do carries out what the machine decided.
func (d *desk) do(acts []elastic.Action) {
	for _, a := range acts {
		switch a := a.(type) {
		case elastic.Open:
			d.open(a)
		case elastic.Refuse:
			if c := d.workers[a.Worker]; c != nil && c.joinID != 0 {
				d.send(c, failure(c.joinID, a.Final, a.Reason))
				c.joinID, c.joined = 0, false
			}
		case elastic.Complete:
			d.answerDone(1)
			if d.s.cfg.OnComplete != nil {
				d.s.cfg.OnComplete(a.Epoch)
			}
		case elastic.Ended:
			d.answerDone(0)
			n := Notice{Kind: NoticeLost, Epoch: a.Epoch, Rank: a.Rank, Host: a.Host, Reason: a.Reason}
			if a.Parted {
				n.Kind = NoticeParted
			}
			d.remember(n)
			d.tell(n)
			if d.s.cfg.OnLost != nil {
				d.s.cfg.OnLost(a.Epoch, a.Rank, a.Host, a.Reason)
			}
		case elastic.Left:
			d.tellNear(Notice{Kind: NoticeLeft, Epoch: a.Epoch, Rank: a.Rank, Host: a.Host})
		case elastic.Changed:
			n := Notice{Kind: NoticeChanged, Epoch: a.Epoch, Rank: -1, Host: a.Host, Reason: "a newcomer waits"}
			d.remember(n)
			d.tell(n)
		}
	}
}

// answerDone answers everybody who waits in Finish.
func (d *desk) answerDone(n int64) {
	for _, c := range d.byRank {
		if c != nil && c.doneID != 0 {
			d.send(c, number(c.doneID, n))
			c.doneID = 0
		}
	}
}

// tell sends a notice to every member of the present epoch that is still there.
func (d *desk) tell(n Notice) {
	m := n.message()
	for _, c := range d.byRank {
		if c != nil && !c.gone && !c.left && (c.rank != n.Rank || n.Rank < 0) {
			d.send(c, m)
		}
	}
}

// tellNear sends a notice to those who were told of the rank it concerns: everybody leaves in the end, and telling all
// of each would cost the square of the world's size.
func (d *desk) tellNear(n Notice) {
	m := n.message()
	for _, r := range d.wanted(&d.members[n.Rank], len(d.members)) {
		if c := d.byRank[r]; r != n.Rank && c != nil && !c.gone && !c.left {
			d.send(c, m)
		}
	}
}

func (d *desk) send(c *conn, m []byte) {
	if c.gone || c.out == nil {
		return
	}
	if !c.out.put(m) {
		c.hangUp() // its reader then reports it gone
		return
	}
	d.s.sentBytes.Add(int64(len(m)))
}

func (d *desk) open(a elastic.Open) {
	n := len(a.Members)
	clear(d.reports)
	d.news = nil
	d.members = a.Members
	d.byRank = make([]*conn, n)
	d.encoded = make([][]byte, n)
	d.local = map[string][]int{}
	d.cross = nil
	for i := range a.Members {
		p := &a.Members[i]
		c := d.workers[p.Worker]
		d.byRank[i] = c
		m := c.member
		m.Rank, m.LocalRank, m.LocalSize, m.CrossRank, m.CrossSize, m.Host = i, p.LocalRank, p.LocalSize, p.CrossRank,
			p.CrossSize, p.Host
		d.encoded[i] = appendMember(nil, &m)
		d.local[p.Host] = append(d.local[p.Host], i)
		for len(d.cross) <= p.LocalRank {
			d.cross = append(d.cross, nil)
		}
		d.cross[p.LocalRank] = append(d.cross[p.LocalRank], i)
	}
	if d.s.cfg.OnOpen != nil {
		d.s.cfg.OnOpen(a.Epoch, a.Members)
	}
	for i, c := range d.byRank {
		c.rank = i
		if d.s.cfg.OnMember != nil && c.hello.Rank >= 0 {
			d.s.cfg.OnMember(c.hello.process())
		}
		id := c.joinID
		c.joinID = 0
		want := d.wanted(&a.Members[i], n)
		d.send(c, message(kindEpoch, 48+len(want)*len(d.encoded[i])*5/4, func(b []byte) []byte {
			b = wire.AppendU64(b, id)
			b = wire.AppendU64(b, a.Epoch)
			b = wire.AppendI64(b, int64(i))
			b = wire.AppendI64(b, int64(n))
			return d.appendMembers(b, want)
		}))
	}
	for _, c := range d.byRank {
		if c.halt.Excused() {
			d.tellHalt(c)
		}
	}
}

func (d *desk) appendMembers(b []byte, ranks []int) []byte {
	b = wire.AppendU32(b, uint32(len(ranks)))
	for _, r := range ranks {
		b = append(b, d.encoded[r]...)
	}
	return b
}

// wanted lists whom a member hears of at once: everybody in a small world, else those that schedules of logarithmic
// depth and rings reach, over all ranks and over the ranks of its column of hosts, and its own host's.
func (d *desk) wanted(p *elastic.Place, n int) []int {
	if n <= FullMembership {
		all := make([]int, n)
		for i := range all {
			all[i] = i
		}
		return all
	}
	want := append(make([]int, 0, 4*bits.Len(uint(n))+p.LocalSize), d.local[p.Host]...)
	reach := func(at int, line []int) {
		for step := 1; step < len(line); step <<= 1 {
			want = append(want, line[(at+step)%len(line)], line[(at-step+len(line))%len(line)])
		}
	}
	reach(p.CrossRank, d.cross[p.LocalRank])
	for step := 1; step < n; step <<= 1 {
		want = append(want, (p.Rank+step)%n, (p.Rank-step+n)%n)
	}
	want = append(want, 0)
	slices.Sort(want)
	return slices.Compact(want)
}

func (d *desk) list(c *conn, r *request) {
	for _, k := range r.ranks {
		if k >= len(d.encoded) {
			d.send(c, failure(r.id, true, fmt.Sprintf("rank %d is not a member of epoch %d, which has %d ranks", k, d.machine.Epoch(), len(d.encoded))))
			return
		}
	}
	d.send(c, message(kindList, 256*len(r.ranks), func(b []byte) []byte {
		return d.appendMembers(wire.AppendU64(b, r.id), r.ranks)
	}))
}

func (d *desk) set(key string, v []byte) {
	d.store[key] = v
	for _, w := range d.waits[key] {
		delete(w.c.gets, w.id)
		d.send(w.c, value(w.id, true, v))
	}
	delete(d.waits, key)
}

func (d *desk) add(c *conn, r *request) {
	n := int64(0)
	if v, ok := d.store[r.key]; ok {
		var err error
		if n, err = strconv.ParseInt(string(v), 10, 64); err != nil {
			d.send(c, failure(r.id, true, fmt.Sprintf("key %q holds no number to add to", r.key)))
			return
		}
	}
	n += r.delta
	d.set(r.key, strconv.AppendInt(nil, n, 10))
	d.result(c, r.id, n)
}

// cancel withdraws a waiting request, and answers with what it waited for.
func (d *desk) cancel(c *conn, id uint64) {
	if key, ok := c.gets[id]; ok {
		d.unwait(c, id, key)
		d.send(c, failure(id, false, fmt.Sprintf("nobody has put key %q", key)))
		return
	}
	if c.joinID == id && id != 0 {
		reason := d.missing()
		c.joinID, c.joined = 0, false
		d.do(d.machine.Step(elastic.Leave{Worker: c.worker}))
		d.send(c, failure(id, false, reason))
		return
	}
	if c.doneID == id && id != 0 {
		c.doneID = 0
		d.send(c, failure(id, false, "not every rank has finished"))
	}
}

// missing says whom the next epoch waits for.
func (d *desk) missing() string {
	ranks, n := d.machine.Missing(8)
	have := d.machine.Waiting()
	behind, coming := d.machine.Awaited()
	switch {
	case len(ranks) > 0:
	case d.machine.Open() && len(coming) == 0:
		return fmt.Sprintf("the members of epoch %d have not come to the commit after which they take newcomers in", d.machine.Epoch())
	case len(behind) > 0:
		return fmt.Sprintf("rank %s was in epoch %d and has not joined again", listed(behind), d.machine.Epoch())
	case len(coming) > 0:
		return fmt.Sprintf("rank %s was started and has not joined", listed(coming))
	}
	if len(ranks) == 0 {
		workers, are := "workers have", "are"
		if have == 1 {
			workers = "worker has"
		}
		if n == 1 {
			are = "is"
		}
		return fmt.Sprintf("%d %s joined and %d more %s needed", have, workers, n, are)
	}
	more := ""
	if n > len(ranks) {
		more = fmt.Sprintf(" and %d more", n-len(ranks))
	}
	return fmt.Sprintf("%d of %d ranks have joined, missing: %s%s", have, have+n, listed(ranks), more)
}

func listed(ranks []int) string {
	texts := make([]string, len(ranks))
	for i, r := range ranks {
		texts[i] = strconv.Itoa(r)
	}
	return strings.Join(texts, ", ")
}

func (d *desk) unwait(c *conn, id uint64, key string) {
	delete(c.gets, id)
	ws := slices.DeleteFunc(d.waits[key], func(w wait) bool { return w.c == c && w.id == id })
	if len(ws) == 0 {
		delete(d.waits, key)
	} else {
		d.waits[key] = ws
	}
}
