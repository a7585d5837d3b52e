package schedule_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"hora/job/schedule"
)

// made is a pool of made nodes as its server tends it: it makes what is wanted, and ends idle nodes for jobs that run
// on nodes of their own.
type made struct {
	*schedule.Machine
	now   time.Time
	most  int
	nodes map[string]schedule.Node
	runs  map[int64][]schedule.Share
	count int
}

func newMade(most int) *made {
	p := &made{
		Machine: schedule.New(0), now: time.Unix(1000, 0), most: most,
		nodes: map[string]schedule.Node{}, runs: map[int64][]schedule.Share{},
	}
	p.spare()
	return p
}

func (p *made) spare() { p.SetSpare("two", p.most-len(p.nodes), p.most, schedule.Node{Slots: 2}) }

func (p *made) make(owner int64) {
	p.count++
	n := schedule.Node{Name: string(rune('a' + p.count)), Pool: "two", Slots: 2, For: owner}
	p.nodes[n.Name] = n
	p.SetNode(n)
	p.spare()
}

func (p *made) end(name string) {
	delete(p.nodes, name)
	p.RemoveNode(name)
	p.spare()
}

func (p *made) job(id int64, priority int, a schedule.Ask) schedule.Job {
	return schedule.Job{ID: id, Pool: "two", Priority: priority, Queued: p.now, Ask: a}
}

func (p *made) ended(id int64) {
	p.Ended(id, p.now)
	delete(p.runs, id)
}

// decide takes a decision, and then tends the pool.
func (p *made) decide() schedule.Decision {
	d := p.Decide(p.now)
	for _, s := range d.Start {
		p.runs[s.ID] = s.Shares
	}
	idle := func() (all []string) {
		for name, n := range p.nodes {
			used := slices.ContainsFunc(slices.Collect(func(yield func([]schedule.Share) bool) {
				for _, shares := range p.runs {
					if !yield(shares) {
						return
					}
				}
			}), func(all []schedule.Share) bool {
				return slices.ContainsFunc(all, func(s schedule.Share) bool { return s.Node == name })
			})
			if !used && n.For == 0 {
				all = append(all, name)
			}
		}
		slices.Sort(all)
		return all
	}
	for _, w := range p.WantsFresh("two", p.most-len(p.nodes)+len(idle()), 0) {
		for range w.Nodes {
			if len(p.nodes) == p.most {
				p.end(idle()[0])
			}
			p.make(w.ID)
		}
	}
	for range min(p.Wants("two"), p.most-len(p.nodes)) {
		p.make(0)
	}
	return d
}

// TestRoomForMoreNodesThanThereAre: a job needs more nodes than its pool has now, and one of them is taken by a job
// that gives way. It does so, and what is free meanwhile is nobody else's.
func TestRoomForMoreNodesThanThereAre(t *testing.T) {
	p := newMade(2)
	low := p.job(1, 10, schedule.Ask{NP: 1})
	low.Preemptible = true
	p.Submit(low)
	p.decide()
	if p.decide(); len(p.runs[1]) != 1 {
		t.Fatalf("the first job has %+v", p.runs[1])
	}
	p.Submit(p.job(2, 90, schedule.Ask{NP: 4}))
	p.Submit(p.job(3, 10, schedule.Ask{NP: 1}))
	d := p.decide()
	if !slices.Equal(d.Preempt, []int64{1}) || len(d.Start) != 0 {
		t.Fatalf("decided %+v", d)
	}
	if r, _ := p.Why(2, p.now); r.Code != schedule.CodeRoom || !strings.Contains(r.Text, "job 1 is being drained") {
		t.Errorf("it waits because %+v", r)
	}
	p.ended(1)
	p.Submit(low)
	p.decide()
	if r, _ := p.Why(3, p.now); r.Code != schedule.CodeTurn {
		t.Errorf("the one behind it waits because %+v", r)
	}
	if p.decide(); len(p.runs[2]) != 2 || len(p.runs) != 1 {
		t.Errorf("%+v run, on %+v", p.runs, p.nodes)
	}
}

// TestNoStreamKeepsItsNodes: small jobs come without end, and one that needs more nodes than there are, or nodes of its
// own, begins all the same, and within a few of them.
func TestNoStreamKeepsItsNodes(t *testing.T) {
	for what, big := range map[string]schedule.Ask{"more nodes": {NP: 4}, "nodes of its own": {NP: 3, For: 1000}} {
		p := newMade(2)
		next, many := int64(0), 6
		stream := func() {
			for range many {
				next++
				p.Submit(p.job(next, 10, schedule.Ask{NP: 1}))
			}
			p.decide()
		}
		if what == "more nodes" { // one is there, and enough for all that come
			many = 1
			stream()
		}
		stream()
		p.Submit(p.job(1000, 90, big))
		for range 8 {
			for id := range p.runs {
				if p.ended(id); len(p.runs) > 0 {
					break // one at a time
				}
			}
			p.now = p.now.Add(time.Second)
			if stream(); p.runs[1000] != nil {
				break
			}
		}
		if len(p.runs[1000]) != 2 {
			t.Errorf("%s: it has %+v after %d others, and the pool %+v", what, p.runs[1000], next, p.nodes)
		}
	}
}

// TestNodesThatDoNotCome: a pool that cannot make nodes now keeps nothing free for who needs them.
func TestNodesThatDoNotCome(t *testing.T) {
	p := newMade(2)
	p.make(0)
	p.Submit(p.job(1, 90, schedule.Ask{NP: 4}))
	p.Submit(p.job(2, 10, schedule.Ask{NP: 1}))
	p.Submit(p.job(3, 10, schedule.Ask{NP: 1}))
	if d := p.Decide(p.now); len(d.Start) != 0 || p.Wants("two") != 1 {
		t.Errorf("decided %+v, and %d nodes are wanted", d, p.Wants("two"))
	}
	p.Stall("two", p.now.Add(time.Minute), "no quota")
	if d := p.Decide(p.now); len(d.Start) != 2 {
		t.Errorf("decided %+v while none is made", d)
	}
}

// TestGangOfItsOwnBeforeLess: nodes are not made for a less important job while a gang waits for more of them.
func TestGangOfItsOwnBeforeLess(t *testing.T) {
	p := newMade(3)
	p.make(1)
	p.make(0)
	p.Started(p.job(1, 10, schedule.Ask{NP: 1, For: 1}), []schedule.Share{{Node: "b", Slots: 1}}, p.now, p.now)
	p.Started(p.job(2, 10, schedule.Ask{NP: 1}), []schedule.Share{{Node: "c", Slots: 1}}, p.now, p.now)
	p.Submit(p.job(3, 10, schedule.Ask{NP: 1, For: 3}))
	p.Submit(p.job(4, 90, schedule.Ask{NP: 6, For: 4}))
	if got := p.WantsFresh("two", 1, 0); len(got) != 0 {
		t.Errorf("wanted %+v", got)
	}
	p.Withdraw(4)
	if got := p.WantsFresh("two", 1, 0); !slices.Equal(got, []schedule.Wanted{{ID: 3, Nodes: 1}}) {
		t.Errorf("wanted %+v where nobody waits before it", got)
	}
}

// TestNodesForTheMoreImportant: a node that may be made is the more important job's, whether that runs on nodes of its
// own or on everybody's, and nobody takes what a gang of everybody's waits for.
func TestNodesForTheMoreImportant(t *testing.T) {
	for _, of := range []struct{ everybody, own, first int }{{90, 10, 1}, {10, 90, 2}, {50, 50, 1}} {
		p := newMade(1)
		p.Submit(p.job(1, of.everybody, schedule.Ask{NP: 1}))
		p.Submit(p.job(2, of.own, schedule.Ask{NP: 1, For: 2}))
		p.decide()
		p.decide()
		if len(p.runs) != 1 || len(p.runs[int64(of.first)]) != 1 {
			t.Errorf("priorities %+v: these run: %+v", of, p.runs)
		}
	}
	p := newMade(3)
	p.make(0)
	p.Started(p.job(1, 10, schedule.Ask{NP: 1}), []schedule.Share{{Node: "b", Slots: 2}}, p.now, p.now)
	p.Submit(p.job(2, 90, schedule.Ask{NP: 6}))
	p.Submit(p.job(3, 50, schedule.Ask{NP: 1, For: 3}))
	if got := p.WantsFresh("two", 2, 0); len(got) != 0 {
		t.Errorf("wanted %+v while a gang waits for all three", got)
	}
	p.Withdraw(2)
	if got := p.WantsFresh("two", 2, 0); !slices.Equal(got, []schedule.Wanted{{ID: 3, Nodes: 1}}) {
		t.Errorf("wanted %+v", got)
	}
	if got := p.WantsFresh("two", 2, 2); len(got) != 0 {
		t.Errorf("wanted %+v where two of everybody's are coming", got)
	}
}
