package server

import (
	"errors"
	"strings"
	"testing"
	"time"

	"hora/server/backend"
	"hora/server/client"
	"hora/server/store"
)

// TestWhatAnotherNodesRanksSaidComesAgain: it is asked for until it is there; what never comes is told in the job's
// story, at once where all the time there is was given to it.
func TestWhatAnotherNodesRanksSaidComesAgain(t *testing.T) {
	st, err := store.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	said := &backend.Report{Rank: 1, Step: 2, Metrics: map[string]backend.Value{"loss": 0.5}}
	said.Tags = map[string]string{"by": "1"}
	for _, c := range []struct {
		fails       int
		late        bool
		tries, kept int
		told        string
	}{
		{2, false, 3, 1, ""},
		{1000, false, fetchTries + 1, 0, "what ranks reported on node far is not all there: the link broke"},
		{1000, true, 1, 0, "what ranks reported on node far is not all there: the link broke"},
	} {
		f := &follower{Server: &Server{store: st}, missed: map[string]int{}}
		f.ctx, f.attempt = t.Context(), client.Attempt{Number: 1}
		b, tries := &batch{}, 0
		for again := true; again; tries++ {
			r := &backend.Record{At: time.Now(), From: "far", Report: said}
			if tries < c.fails {
				r.Report, r.Missing = nil, &backend.Missing{Reports: true, Late: c.late, Err: errors.New("the link broke")}
			}
			b = &batch{}
			f.sort(b, r)
			again = f.elsewhere(b) != nil
		}
		var told []string
		for _, h := range b.happened {
			told = append(told, h.Text)
		}
		if tries != c.tries || len(b.points) != c.kept || len(b.tags) != c.kept || strings.Join(told, "") != c.told {
			t.Errorf("%+v: %d tries, %d kept, %q", c, tries, len(b.points), told)
		}
	}
}
