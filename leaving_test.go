package hora_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"hora"
	"hora/elastic"
)

// enrolled are two ranks of an elastic job in their first epoch, joined over links.
func enrolled(t *testing.T, links string) ([2]*hora.Membership, [2]*hora.World) {
	t.Helper()
	job := elasticWorld(t, 2, elastic.Continue)
	var members [2]*hora.Membership
	var worlds [2]*hora.World
	faults := make(chan error, 2)
	for r := range members {
		cfg := job(r)
		cfg.Links = links
		m, err := hora.Enroll(cfg)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { m.Close() })
		members[r] = m
		go func() {
			w, err := m.Join(t.Context())
			worlds[r] = w
			faults <- err
		}()
	}
	for range members {
		if err := <-faults; err != nil {
			t.Fatal(err)
		}
	}
	return members, worlds
}

// TestWhatALeaverTookPartInEnds: a rank does its part of a step, commits and leaves while the other has not come so
// far. That one gets the step, which the leaver's commit holds; only what comes later ends with the loss.
func TestWhatALeaverTookPartInEnds(t *testing.T) {
	for _, links := range []string{"tcp", "shm"} {
		t.Run(links, func(t *testing.T) {
			for range 100 {
				leavesAtOnce(t, links)
			}
		})
	}
}

func leavesAtOnce(t *testing.T, links string) {
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	members, worlds := enrolled(t, links)
	mine, theirs := []float32{7}, []float32{0}
	left := make(chan error, 1)
	go func() {
		err := hora.Allreduce(ctx, worlds[1].Group(), mine, hora.Sum)
		left <- errors.Join(err, members[1].Leave(ctx, "spot notice"))
	}()
	if err := hora.Allreduce(ctx, worlds[0].Group(), theirs, hora.Sum); err != nil || theirs[0] != 7 {
		t.Errorf("the step that rank 1 has committed: %v, %v", theirs[0], err)
	}
	var peer *hora.PeerLostError
	began := time.Now()
	err := hora.Allreduce(ctx, worlds[0].Group(), theirs, hora.Sum)
	if !errors.As(err, &peer) || peer.Rank != 1 {
		t.Errorf("the next step ends with %v", err)
	}
	if d := time.Since(began); d > 3*time.Second {
		t.Errorf("it took %v to end", d)
	}
	if err := <-left; err != nil {
		t.Error(err)
	}
	if err := errors.Join(members[0].Close(), members[1].Close()); err != nil {
		t.Error(err)
	}
}
