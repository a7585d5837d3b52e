package simtest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"hora/collective"
	"hora/tensor"
	"hora/transport"
	"hora/transport/mem"
)

// sums runs allreduces of n float32 until one fails or all have run.
func sums(r *Rank, n, times int) error {
	x := make([]byte, 4*n)
	v := View(x, tensor.Float32)
	for range times {
		call := &collective.Call{Kind: collective.Allreduce, Type: tensor.Float32, Send: v, Recv: v}
		if err := r.Do(call, 7, noDeadline); err != nil {
			return err
		}
	}
	return nil
}

// TestLosses kills, cuts and breaks links at random messages: every other rank gets
// an error that names the lost rank, within the peer timeout of fake time.
func TestLosses(t *testing.T) {
	s := seed(t)
	rng := rand.New(rand.NewPCG(s, 2))
	for i := range 60 {
		ranks := 2 + rng.IntN(7)
		layout := []string{"own", "own", "block", "round", "ragged"}[rng.IntN(5)]
		victim, other := rng.IntN(ranks), rng.IntN(ranks-1)
		if other >= victim {
			other++
		}
		at := 1 + rng.IntN(6)
		script := []string{
			fmt.Sprintf("kill %d at %d", victim, at),
			fmt.Sprintf("cut %d>%d at %d", victim, other, at),
			fmt.Sprintf("drop %d>%d at %d", victim, other, at),
		}[rng.IntN(3)]
		t.Run(fmt.Sprintf("%d/%s/%d/%s", i, layout, ranks, script), func(t *testing.T) { lose(t, ranks, layout, script, victim) })
	}
}

func lose(t *testing.T, ranks int, layout, script string, victim int) {
	faults, err := mem.ParseScript(script)
	if err != nil {
		t.Fatal(err)
	}
	if faults.String() == "" {
		t.Fatal("the script lost its text")
	}
	w := World{Ranks: ranks, Mem: mem.Config{Hosts: Hosts(layout, ranks, 2), Script: faults}}
	took := make([]time.Duration, ranks)
	errs := Run(t, w, func(r *Rank) error {
		start := time.Now()
		err := sums(r, 100, 40)
		took[r.Rank] = time.Since(start)
		return err
	})
	none := true
	for _, err := range errs {
		none = none && err == nil
	}
	if none {
		return // the script named a link that no message took
	}
	for r, err := range errs {
		if r == victim {
			continue
		}
		if !blames(errs, r, victim) {
			t.Errorf("rank %d got %v, want the loss of rank %d", r, err, victim)
		}
		if took[r] > 11*time.Second {
			t.Errorf("rank %d noticed after %v", r, took[r])
		}
	}
}

// blames says whether rank r lost the victim, or a rank that had lost it and left before r
// had heard: here every rank closes its links as soon as it fails.
func blames(errs []error, r, victim int) bool {
	for range errs {
		var lost *transport.PeerLostError
		if !errors.As(errs[r], &lost) {
			return false
		}
		if lost.Rank == victim {
			return true
		}
		if !lost.Left() {
			return false
		}
		r = lost.Rank
	}
	return false
}

// TestMismatch gives one rank another call: every rank gets a mismatch, explains it,
// and the next operation works.
func TestMismatch(t *testing.T) {
	s := seed(t)
	rng := rand.New(rand.NewPCG(s, 3))
	for range 60 {
		ranks := 2 + rng.IntN(7)
		layout := []string{"own", "one", "block", "round", "ragged"}[rng.IntN(5)]
		odd := rng.IntN(ranks)
		kinds := []collective.Kind{
			collective.Allreduce, collective.Broadcast, collective.Allgather,
			collective.Alltoall, collective.Barrier, collective.Gather, collective.Scatter, collective.Reduce,
		}
		good, bad := kinds[rng.IntN(len(kinds))], kinds[rng.IntN(len(kinds))]
		n := []int{1, 100, 5000}[rng.IntN(3)]
		name := fmt.Sprintf("%s of %d on %s/%d, rank %d: %s", good, n, layout, ranks, odd, bad)
		w := World{Ranks: ranks, Mem: mem.Config{Hosts: Hosts(layout, ranks, 2)}}
		errs := Run(t, w, func(r *Rank) error {
			kind, print := good, uint64(1)
			if r.Rank == odd {
				kind, print = bad, 2
			}
			var wrong *transport.MismatchError
			if err := r.Do(plain(kind, n, r.Size), print, noDeadline); !errors.As(err, &wrong) {
				return fmt.Errorf("want a mismatch, got %w", err)
			}
			texts, err := r.Mesh.Explain([]byte(kind.String()))
			if err != nil {
				return err
			}
			for i, text := range texts {
				want := good
				if i == odd {
					want = bad
				}
				if string(text) != want.String() {
					return fmt.Errorf("rank %d explained %q, want %q", i, text, want)
				}
			}
			return sums(r, 10, 3)
		})
		for r, err := range errs {
			if err != nil {
				t.Fatalf("%s: rank %d: %v", name, r, err)
			}
		}
	}
}

// plain is a call with n int32 a block and root 0.
func plain(k collective.Kind, n, ranks int) *collective.Call {
	send, recv := n, n
	switch k {
	case collective.Allgather, collective.Gather:
		recv = n * ranks
	case collective.Alltoall:
		send, recv = n*ranks, n*ranks
	case collective.Scatter:
		send = n * ranks
	}
	return &collective.Call{
		Kind: k, Type: tensor.Int32, Agree: true,
		Send: View(make([]byte, 4*send), tensor.Int32), Recv: View(make([]byte, 4*recv), tensor.Int32),
	}
}

// TestDeadline lets one rank never come: the others fail at their deadline.
func TestDeadline(t *testing.T) {
	for _, layout := range []string{"own", "one", "block"} {
		w := World{Ranks: 4, Mem: mem.Config{Hosts: Hosts(layout, 4, 2)}}
		errs := Run(t, w, func(r *Rank) error {
			if r.Rank == 3 {
				<-time.After(5 * time.Second) // synctest: no real time passes
				return nil
			}
			call := plain(collective.Allreduce, 10, r.Size)
			start := time.Now()
			err := r.Do(call, 1, start.Add(2*time.Second))
			if took := time.Since(start); took < 2*time.Second || took > 3*time.Second {
				return fmt.Errorf("the deadline of 2s ended after %v: %w", took, err)
			}
			var late *transport.DeadlineError
			var lost *transport.PeerLostError
			if !errors.As(err, &late) && !errors.As(err, &lost) {
				return fmt.Errorf("want a deadline, got %w", err)
			}
			return nil
		})
		Must(t, errs)
	}
}

// TestGarbledStamp is a mismatch at the receiver, never a wrong sum, and the
// operations after it work.
func TestGarbledStamp(t *testing.T) {
	w := World{Ranks: 4, Mem: mem.Config{Script: mem.Script{{Do: mem.Garble, From: 1, To: 0, At: 3}}}}
	found := make([]int, w.Ranks)
	errs := Run(t, w, func(r *Rank) error {
		for range 10 {
			x := []byte{byte(r.Rank + 1)}
			v := View(x, tensor.Uint8)
			err := r.Do(&collective.Call{Kind: collective.Allreduce, Type: tensor.Uint8, Send: v, Recv: v}, 1,
				noDeadline)
			var wrong *transport.MismatchError
			switch {
			case errors.As(err, &wrong):
				found[r.Rank]++
				if _, err := r.Mesh.Explain(nil); err != nil {
					return err
				}
			case err != nil:
				return err
			case x[0] != 1+2+3+4:
				return fmt.Errorf("sum is %d", x[0])
			}
		}
		return nil
	})
	Must(t, errs)
	if found[0] != 1 {
		t.Errorf("rank 0 found %d mismatches, want 1", found[0])
	}
}

// TestDelays slows links down: results stay right.
func TestDelays(t *testing.T) {
	script, err := mem.ParseScript("delay 0>1 by 5ms; delay 2>0 by 700ms at 2; delay 3>1 by 3s")
	if err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(seed(t), 4))
	steps := make([]*Step, 20)
	for i := range steps {
		steps[i] = RandomStep(rng, 4, 30)
	}
	Must(t, Run(t, World{Ranks: 4, Mem: mem.Config{Script: script}}, func(r *Rank) error {
		for i, s := range steps {
			if err := s.Run(r, uint64(i)); err != nil {
				return err
			}
		}
		return nil
	}))
	for _, s := range steps {
		if err := s.Verify(); err != nil {
			t.Error(err)
		}
	}
}
