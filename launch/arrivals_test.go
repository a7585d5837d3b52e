package launch

import (
	"slices"
	"strings"
	"testing"
	"time"

	"hora/elastic/rendezvous"
	"hora/event"
	"hora/internal/secret"
	"hora/launch/reach"
)

// heardOf collects what a job tells.
type heardOf struct{ texts []string }

func (h *heardOf) Operation(*event.Operation) {}
func (h *heardOf) Event(e event.Event) {
	if d, is := e.(*event.Delay); is {
		h.texts = append(h.texts, d.String())
	}
}

// TestAWaitAfterAnEpochIsToldAndEnds: who is awaited is named, with what its process does; a member that does not join
// again is ended before those that wait for it give up.
func TestAWaitAfterAnEpochIsToldAndEnds(t *testing.T) {
	end := make(chan struct{})
	defer close(end)
	j := discovering(t, secret.New(), end)
	j.spec.ElasticTimeout = 100 * time.Second
	h := &heardOf{}
	j.spec.Place.Events.Add(h)
	j.meeting.server, j.record.ledger = noCoordinator{}, &ledger{}
	j.record.ledger.lives.Store(true)
	j.launched(t, &head{Hosts: []Host{{Name: "a", Slots: 2}}})
	j.record.ledger = nil
	j.links.all[0].host, j.crew.alive[0] = &reach.Host{}, true
	for _, c := range []struct {
		wait rendezvous.Wait
		want string // "" is nothing
	}{
		{rendezvous.Wait{Epoch: 3, For: 20 * time.Second, Joined: 2, Behind: []int{0}}, ""},
		{
			rendezvous.Wait{Epoch: 3, For: 31 * time.Second, Joined: 2, Behind: []int{0}},
			"2 workers wait for rank 0 on a (its process runs) to join again after epoch 3; 31s so far, at most 1m40s",
		},
		{rendezvous.Wait{Epoch: 3, For: 40 * time.Second, Joined: 2, Behind: []int{0}}, ""},
		{
			rendezvous.Wait{Epoch: 3, For: 30 * time.Second, Joined: 1, Beside: true},
			"1 worker waits for the members of epoch 3 at their next commit; 30s so far, at most 30m0s",
		},
		{rendezvous.Wait{}, ""},
		{
			rendezvous.Wait{Epoch: 4, For: 35 * time.Second, Joined: 1, Coming: []int{0}},
			"1 worker waits for rank 0 on a (its process runs) to join; 35s so far, at most 1m0s",
		},
		{rendezvous.Wait{}, ""},
		{rendezvous.Wait{Epoch: 4, For: 35 * time.Second, Joined: 1, More: 1}, ""}, // the roster's to tell
	} {
		h.texts = nil
		j.meeting.waits.Store(&c.wait)
		j.arrivals.await()
		if got := strings.Join(h.texts, "\n"); got != c.want || j.crew.condemn[0] != "" {
			t.Errorf("%+v: told %q, want %q; ended: %q", c.wait, got, c.want, j.crew.condemn[0])
		}
	}
	j.meeting.waits.Store(&rendezvous.Wait{Epoch: 4, For: 100 * time.Second, Joined: 1, Behind: []int{0}})
	j.arrivals.await()
	if why := j.crew.condemn[0]; why != "has not joined again in 1m40s after epoch 4 (--elastic-timeout): its process runs" {
		t.Errorf("it is ended: %q", why)
	}
	if j.arrivals.hear([]byte(`[{"Rank":0,"Text":"its process is in a debugger"}]`)); !slices.Equal(
		j.arrivals.described([]int{0}), []string{"rank 0 on a (its process is in a debugger)"}) {
		t.Errorf("it does %q", j.arrivals.described([]int{0}))
	}
}
