package server

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"hora/job"
	"hora/job/schedule"
	"hora/server/backend"
	"hora/server/client"
)

// capacity is a back end that has nodes and starts nothing.
type capacity struct {
	backend.Backend
	nodes []schedule.Node
	asked int
}

func (c *capacity) Capacity() ([]schedule.Node, <-chan struct{}) {
	c.asked++
	return c.nodes, nil
}

// poolOf is a server with one pool of such nodes.
func poolOf(nodes ...schedule.Node) (*Server, *capacity, *pool) {
	b := &capacity{nodes: nodes}
	p := newPool(&client.Pool{
		Name: "p", Provider: "local", Min: len(nodes), Max: len(nodes), Idle: 3600, Node: client.NodeSize{Cores: 8},
	})
	s := &Server{
		back: b, machine: schedule.New(0), pools: map[string]*pool{"p": p}, nodes: map[string]schedule.Node{},
		live: map[int64]*live{}, now: time.Now,
	}
	s.count()
	return s, b, p
}

// runs lets an attempt of a job have slots on nodes.
func (s *Server) runs(id int64, nodes ...string) *live {
	l := &live{attempt: &client.Attempt{Number: 1}}
	l.job.ID = id
	s.live[id] = l
	var all []client.Share
	for _, n := range nodes {
		all = append(all, client.Share{Node: n, Slots: 1})
	}
	s.reshare(l, all)
	return l
}

// TestLooksOfALargePool: with a thousand nodes and five thousand jobs on them, what is done each second and when a job
// ends looks at what has changed, and not at all jobs for each node.
func TestLooksOfALargePool(t *testing.T) {
	const nodes, jobs = 1000, 5000
	name := func(i int) string { return fmt.Sprint("p-", i%nodes) }
	var there []schedule.Node
	for i := range nodes {
		there = append(there, schedule.Node{Name: name(i), Pool: "p", Slots: 8})
	}
	s, b, p := poolOf(there...)
	for id := range jobs {
		s.runs(int64(id), name(id), name(id+1))
	}
	ends := func(id int64) {
		s.live[id].attempt = nil
		s.seat(s.live[id])
		delete(s.live, id)
	}
	for _, c := range []struct {
		what string
		most int
		do   func()
	}{
		{"a hundred seconds in which nothing happens", 0, func() {
			for range 100 {
				s.tend(p)
			}
		}},
		{"a job that ends", 4 + 2*9, func() { ends(7) }},
		{"whether it had neighbours", 0, func() {
			if !s.neighbours(s.live[8], s.live[8].attempt) {
				t.Error("a job with nine others on its nodes has no neighbour")
			}
		}},
		{"all jobs of a node end", 10 * (4 + 2*9), func() {
			for id := range int64(jobs) {
				if s.live[id] != nil && (name(int(id)) == name(20) || name(int(id)+1) == name(20)) {
					ends(id)
				}
			}
			if len(p.idle) != 1 || p.idle[name(20)].IsZero() {
				t.Errorf("%v are idle", p.idle)
			}
		}},
		{"a hundred seconds with an idle node", 100, func() {
			p.Min--
			for range 100 {
				s.tend(p)
			}
		}},
		{"a node that is away", nodes + 10, func() {
			there[20].Closed = true
			s.count()
		}},
	} {
		before := s.parts.looked
		c.do()
		n := s.parts.looked - before
		t.Logf("%s: %d looks", c.what, n)
		if n > c.most {
			t.Errorf("%s: %d looks, and not at most %d", c.what, n, c.most)
		}
	}
	if b.asked != 2 {
		t.Errorf("all nodes were asked for %d times, and they have changed twice", b.asked)
	}
}

// TestPartsAreWhatTheJobsHave: whatever happens, what is kept by node is what one sees who looks at all jobs and nodes.
func TestPartsAreWhatTheJobsHave(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	r := rand.New(rand.NewPCG(seed, 1))
	s, b, p := poolOf()
	ids := int64(0)
	some := func() string { return fmt.Sprintf("p-%d%s", r.IntN(6), []string{"", "-job3"}[r.IntN(2)]) }
	for step := range 2000 {
		var one *live
		for _, l := range s.live {
			one = l
			break
		}
		switch do := r.IntN(5); {
		case do == 0:
			ids++
			s.runs(ids, some(), some())
		case do == 1 && one != nil:
			one.attempt = nil
			s.seat(one)
			delete(s.live, one.job.ID)
		case do == 2 && one != nil:
			s.reshare(one, []client.Share{{Node: some(), Slots: r.IntN(2)}, {Node: some(), Held: r.IntN(2)}})
		case do == 3:
			b.nodes = nil
			had := map[string]bool{}
			for range r.IntN(8) {
				n := schedule.Node{Name: some(), Pool: "p", Slots: 4, Closed: r.IntN(3) == 0}
				if r.IntN(8) == 0 {
					n.Pool = "elsewhere"
				}
				if !had[n.Name] {
					had[n.Name] = true
					b.nodes = append(b.nodes, n)
				}
			}
			s.count()
		}
		there, idle, fresh := 0, 0, 0
		for _, n := range b.nodes {
			busy := false
			for _, l := range s.live {
				for _, x := range l.attempt.Shares {
					busy = busy || x.Node == n.Name && backend.Holds(x)
				}
			}
			if busy != s.busy(n.Name) {
				t.Fatalf("seed %d, step %d: node %s is busy: %t, and that is not so", seed, step, n.Name, s.busy(n.Name))
			}
			if n.Pool != "p" {
				continue
			}
			there++
			switch {
			case madeFor(n.Name) != 0:
				fresh++
			case !busy:
				if idle++; p.idle[n.Name].IsZero() {
					t.Fatalf("seed %d, step %d: %s is idle, and %v are known", seed, step, n.Name, p.idle)
				}
			}
		}
		if len(p.there) != there || len(p.idle) != idle || len(p.fresh) != fresh {
			t.Fatalf("seed %d, step %d: %d nodes, %d idle, %d for one job; known are %v, %v, %v", seed, step, there, idle, fresh, p.there, p.idle, p.fresh)
		}
	}
}

// TestWhoHasAPartInItThatMemoryRanOut: a job that ran out of memory beside others comes back, also where the kernel has
// ended those first; one that was alone, or whose neighbour had left long before, has failed.
func TestWhoHasAPartInItThatMemoryRanOut(t *testing.T) {
	for _, c := range []struct {
		what   string
		others string // the neighbour's node
		left   time.Duration
		then   job.State
	}{
		{"the neighbour runs", "p-1", 0, job.Queued},
		{"the neighbour has just ended", "p-1", time.Second, job.Queued},
		{"the neighbour ended long before", "p-1", time.Hour, job.Failed},
		{"a job of another node has just ended", "p-2", time.Second, job.Failed},
	} {
		s, _, _ := poolOf(schedule.Node{Name: "p-1", Pool: "p", Slots: 2}, schedule.Node{Name: "p-2", Pool: "p", Slots: 2})
		now := time.Unix(1e9, 0)
		s.now = func() time.Time { return now }
		greedy, other := s.runs(1, "p-1"), s.runs(2, c.others)
		if c.left > 0 {
			other.attempt = nil
			s.seat(other)
			now = now.Add(c.left)
		}
		end := &client.Attempt{
			Number: 1, Outcome: client.OutOfMemory, Code: 137, Shares: greedy.attempt.Shares, Ended: now,
		}
		if j := s.next(greedy, end); j.State != c.then {
			t.Errorf("%s: the job is %s, and not %s", c.what, j.State, c.then)
		}
	}
}
