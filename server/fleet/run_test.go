package fleet

import (
	"errors"
	"testing"
	"time"

	"hora/job/schedule"
	"hora/server/backend"
	"hora/server/client"
	"hora/server/node"
)

// TestWhatOtherNodesHaveInTheEnd: of one that is away it is said that it could not be had; one that is lost is not
// waited for.
func TestWhatOtherNodesHaveInTheEnd(t *testing.T) {
	f := New(Config{Here: &node.Local{}, Patience: time.Hour, Beat: time.Hour})
	defer f.Close()
	w := &backend.Ref{Job: 1, Attempt: 1, Pool: "p", Nodes: []string{"first", "far"}}
	if all, err := f.runOf(keyOf(w)).rest(t.Context(), w); err != nil || len(all) != 0 {
		t.Errorf("of a node that is lost there is %+v, %v", all, err)
	}
	f.Expect(schedule.Node{Name: "far", Pool: "p"})
	all, err := f.runOf(keyOf(w)).rest(t.Context(), w)
	if err != nil || len(all) != 2 || all[0].Missing == nil || all[1].Missing == nil {
		t.Fatalf("of a node that is away there is %+v, %v", all, err)
	}
	reports, files := all[0], all[1]
	is := reports.Missing
	if reports.From != "far" || !is.Reports || is.Late || !errors.Is(is.Err, errAway) {
		t.Errorf("of what its ranks reported it is said %+v", is)
	}
	if files.From != "far" || files.Missing.Reports || !errors.Is(files.Missing.Err, errAway) {
		t.Errorf("of its files it is said %+v", files.Missing)
	}
}

// TestWhatAGangLeavesIsToldOf: with the Start after which it holds nothing there any more, or takes part there anew;
// and again until it is taken. Nothing is known of a gang that is over.
func TestWhatAGangLeavesIsToldOf(t *testing.T) {
	f := New(Config{Here: &node.Local{}, Patience: time.Hour, Beat: time.Hour})
	defer f.Close()
	f.Expect(schedule.Node{Name: "far", Pool: "p"})
	g := backend.Gang{Job: 1, Attempt: 1, Document: client.Document{Pool: "p"}}
	r := f.runOf(key{1, 1})
	told := make(chan string, 100)
	fails := 1
	r.take = func(all []backend.Record) error {
		for _, one := range all {
			told <- one.From
		}
		if fails--; fails >= 0 {
			return errors.New("the disk is full")
		}
		return nil
	}
	declare := func(far client.Share) {
		now := g
		far.Node = "far"
		now.Shares = []client.Share{{Node: "first", Slots: 1}, far}
		r.declare(&now)
	}
	for _, c := range []struct {
		what  string
		far   client.Share
		tells int
	}{
		{"it begins", client.Share{Slots: 2}, 0},
		{"it is to give all away", client.Share{Held: 2}, 0},
		{"it has, which is not taken at once", client.Share{}, 2},
		{"it says so again", client.Share{}, 0},
		{"it is back", client.Share{Slots: 1}, 0},
		{"it takes part anew", client.Share{Slots: 1, Coming: 1}, 1},
	} {
		declare(c.far)
		for range c.tells {
			select {
			case is := <-told:
				if is != "far" {
					t.Errorf("%s: it is told of %q", c.what, is)
				}
			case <-time.After(time.Minute):
				t.Fatalf("%s: nothing is told", c.what)
			}
		}
		r.mu.Lock()
		r.closed = true // what has been begun goes on
		r.mu.Unlock()
		r.wg.Wait()
		if n := len(told); n != 0 {
			t.Errorf("%s: %d more are told of", c.what, n)
		}
		r.mu.Lock()
		r.closed = false
		r.mu.Unlock()
	}
	if err := f.Kill(g.Ref(), backend.Over); err != nil || len(f.runs) != 0 {
		t.Errorf("it is over, and %d runs are known: %v", len(f.runs), err)
	}
}
