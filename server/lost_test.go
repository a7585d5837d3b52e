package server_test

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"hora/job"
	"hora/server/backend"
	"hora/server/client"
)

// TestALostAttemptIsWrittenDownAgain: what its other nodes have comes a moment later. Nobody else would try again:
// until then the job runs, with its slots, and then it queues with what was there.
func TestALostAttemptIsWrittenDownAgain(t *testing.T) {
	t.Parallel() // it waits, most of the time
	c := newCluster(t, map[string]int{"far": 1, "near": 1})
	s := newSite(t, c)
	id := s.submit(2, 0)
	g := c.gang(id, 1)
	tries := 0
	var before job.State
	open := func(context.Context) (io.ReadCloser, error) {
		c.mu.Lock()
		tries++
		now := tries
		c.mu.Unlock()
		if now < 3 {
			return nil, errors.New("the link broke")
		}
		before = s.job(id).State
		return io.NopCloser(strings.NewReader("weights")), nil
	}
	c.with(func() {
		second := g.is.Shares[1].Node
		g.left = []backend.Record{
			{At: time.Now(), From: second, Report: reportOf(1, 9, 0.125)},
			{At: time.Now(), From: second, Artifact: &backend.Artifact{Path: "model", Open: open}},
		}
		g.lost = true
	})
	again := c.gang(id, 2)
	if before != job.Running {
		t.Errorf("while the other node did not answer it was %s", before)
	}
	if len(again.is.Outputs) != 1 || again.is.Outputs[0].Path != "model" {
		t.Errorf("it starts again with %+v", again.is.Outputs)
	}
	j := s.job(id)
	if len(j.Attempts) != 2 || j.Attempts[0].Outcome != client.Lost || j.Attempts[0].Text != "its pods were evicted" {
		t.Errorf("its attempts are %+v", j.Attempts)
	}
	all, err := s.client.Metrics(t.Context(), id, "loss", 10)
	if err != nil || len(all) != 1 || all[0].Count != 1 || all[0].Last != 0.125 {
		t.Errorf("the other node's numbers are %+v, %v", all, err)
	}
	if c.mu.Lock(); tries != 3 {
		t.Errorf("the other node was asked %d times", tries)
	}
	c.mu.Unlock()
}
