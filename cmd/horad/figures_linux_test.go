package main

import (
	"context"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"hora/job"
	"hora/server/client"
)

// beat is how often a stream to a follower says that it lives: who has missed something hears of it then.
const beat = 15 * time.Second

// TestFigures measures what docs and bench/results tell, a tenth or less of it in the ordinary run, and holds it to
// nothing but that all is there: speed is no matter for a machine that does other things.
func TestFigures(t *testing.T) {
	submits, trues, firsts := 400, 40, 30
	if os.Getenv("HORA_SOAK") == "1" {
		submits, trues, firsts = 8000, 10_000, 30
	}
	s := newSite(t, 8)
	ctx := context.Background()
	var took []time.Duration
	for range firsts {
		begin := time.Now()
		j := s.submit(shell(1, "echo first"))
		if _, err := s.client.Follow(ctx, j.ID, client.Following{
			Rank: 0, Line: func(client.Line) { took = append(took, time.Since(begin)) },
		}); err != nil {
			t.Fatal(err)
		}
		if all := time.Since(begin); all > beat*2/3 {
			t.Errorf("a follower heard of job %d's end after %v: it had missed it until its stream said that it lives", j.ID, all)
		}
	}
	slices.Sort(took)
	t.Logf("submit to first line, warm slot: median %v of %d, most %v", took[len(took)/2], len(took), took[len(took)-1])

	s.coldFirsts(firsts/5, took[len(took)/2])

	begin := time.Now()
	var ids []int64
	for range trues {
		ids = append(ids, s.submit(shell(1, "true")).ID)
	}
	for _, id := range ids {
		s.until(id, in(job.Finished))
	}
	t.Logf("%d jobs of true on 8 slots: %.1f jobs/s", trues, float64(trues)/time.Since(begin).Seconds())

	held := shell(1, "true")
	held.Held = true
	var one []time.Duration
	for range 50 {
		begin := time.Now()
		s.submit(held)
		one = append(one, time.Since(begin))
	}
	slices.Sort(one)
	begin = time.Now()
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			for range submits / 16 {
				if _, err := s.client.Submit(ctx, held, client.Key()); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	t.Logf("submits acknowledged: %.0f/s from 16 clients; one client p50 %v", float64(submits/16*16)/time.Since(begin).Seconds(), one[25])
	a, err := s.client.About(ctx)
	if want := 50 + submits/16*16; err != nil || a.Paused != want {
		t.Errorf("%d jobs are there of %d: %v", a.Paused, want, err)
	}
	begin = time.Now()
	s.kill()
	s.up()
	if a, err = s.client.About(ctx); err != nil {
		t.Fatal(err)
	}
	t.Logf("restart with %d jobs that wait: %v", a.Paused, time.Since(begin))
}

// coldFirsts measures the same where a node is made for each job.
func (s *site) coldFirsts(jobs int, warm time.Duration) {
	s.t.Helper()
	if r := s.hora("pool", "add", "cold", "--provider", "local", "--max", "2", "--node", "cores=1", "--idle", "1m"); r.code != 0 {
		s.t.Fatalf("hora pool add: %+v", r)
	}
	var cold []time.Duration
	for range jobs {
		d := shell(1, "echo first")
		d.Pool, d.Fresh = "cold", true
		begin := time.Now()
		j := s.submit(d)
		if _, err := s.client.Follow(context.Background(), j.ID, client.Following{
			Rank: 0, Line: func(client.Line) { cold = append(cold, time.Since(begin)) },
		}); err != nil {
			s.t.Fatal(err)
		}
	}
	slices.Sort(cold)
	s.t.Logf("submit to first line, node made for it: median %v of %d, most %v", cold[len(cold)/2], len(cold), cold[len(cold)-1])
	if more := cold[len(cold)/2] - warm; more > 3*time.Second {
		s.t.Errorf("a node that is made for a job costs it %v: 1 s is promised", more)
	}
}
