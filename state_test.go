package hora_test

import (
	"context"
	"errors"
	"net"
	"slices"
	"strconv"
	"strings"
	"testing"

	"hora"
	"hora/elastic"
	"hora/elastic/rendezvous"
	"hora/internal/jobtest"
)

// elasticWorld serves a coordinator with a policy in this process and returns what its
// ranks join with.
func elasticWorld(t *testing.T, n int, policy elastic.Policy) func(rank int) hora.Config {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	secret := hora.NewSecret()
	s := rendezvous.Serve(context.Background(), ln,
		rendezvous.Config{Secret: secret, Job: "test", Size: n, Max: n + 1, OnLoss: policy})
	t.Cleanup(func() { s.Close() })
	return func(rank int) hora.Config {
		return hora.Config{Rank: rank, Size: n, Addr: ln.Addr().String(), Secret: secret, Job: "test"}
	}
}

// TestCommitAndRestore: values go back to the last commit, all or none.
func TestCommitAndRestore(t *testing.T) {
	s := hora.NewState()
	x, n, text, broken := []float32{1, 2}, 3, "a", false
	hora.Track(s, "x", x)
	s.Int("n", &n)
	s.Custom("text", func() ([]byte, error) {
		if broken {
			return nil, errors.New("disk full")
		}
		return []byte(text), nil
	}, func(b []byte) error { text = string(b); return nil })
	if err := s.Commit(); err != nil || s.Commits() != 1 {
		t.Fatal(err, s.Commits())
	}
	x[0], n, text = 9, 9, "z"
	broken = true
	if err := s.Commit(); err == nil || !strings.Contains(err.Error(), `commit state "text": disk full`) || s.Commits() != 1 {
		t.Errorf("a commit that fails says %v", err)
	}
	if err := s.Restore(); err != nil || x[0] != 1 || n != 3 || text != "a" {
		t.Errorf("restored %v %d %q, %v", x, n, text, err)
	}
}

func TestCommitOfMemoryAllocatesNothing(t *testing.T) {
	s := hora.NewState()
	step := 0
	hora.Track(s, "x", make([]float32, 50_000))
	s.Int("step", &step)
	if n := testing.AllocsPerRun(100, func() {
		if s.Commit() != nil {
			t.Fail()
		}
	}); n != 0 {
		t.Errorf("%v allocations per commit", n)
	}
}

func BenchmarkCommit(b *testing.B) {
	s := hora.NewState()
	hora.Track(s, "x", make([]float32, 50_000))
	b.SetBytes(200_000)
	for b.Loop() {
		if err := s.Commit(); err != nil {
			b.Fatal(err)
		}
	}
}

// TestSyncTakesTheMostCommits: who has committed most gives to the others; nobody else
// does.
func TestSyncTakesTheMostCommits(t *testing.T) {
	at := elasticWorld(t, 3, elastic.Stop)
	jobtest.Ranks(t, 3, func(rank int) error {
		ctx := context.Background()
		w, err := hora.Join(ctx, at(rank))
		if err != nil {
			return err
		}
		defer w.Leave(ctx)
		s := hora.NewState()
		x, text := []int64{int64(rank)}, strings.Repeat("r", rank+1)
		hora.Track(s, "x", x)
		s.Custom("text", func() ([]byte, error) { return []byte(text), nil },
			func(b []byte) error { text = string(b); return nil })
		for range []int{1, 4, 4}[rank] {
			if err := s.Commit(); err != nil {
				return err
			}
		}
		if err := s.Sync(ctx, w); err != nil {
			return err
		}
		if x[0] != 1 || text != "rr" || s.Commits() != 4 {
			t.Errorf("rank %d has %v %q after %d commits", rank, x, text, s.Commits())
		}
		return nil
	})
}

// TestHalfASyncIsTakenBack ends the epoch for a newcomer between two values of the only
// rank that holds a commit. The newcomer goes back to its first ones: with nobody else
// left they are what the job begins again with.
func TestHalfASyncIsTakenBack(t *testing.T) {
	at := elasticWorld(t, 2, elastic.Stop)
	jobtest.Ranks(t, 2, func(rank int) error {
		ctx := context.Background()
		w, err := hora.Join(ctx, at(rank))
		if err != nil {
			return err
		}
		defer w.Close()
		s := hora.NewState()
		x, text, step := []int64{10 * int64(1-rank)}, "first", 10*(1-rank)
		hora.Track(s, "x", x)
		s.Custom("text", func() ([]byte, error) { return []byte(text), nil }, func(b []byte) error {
			if text = string(b); text == "tenth" {
				return w.Close() // as a loss would, before the step has come
			}
			return nil
		})
		s.Int("step", &step)
		if rank == 0 {
			text = "tenth"
			if err := s.Commit(); err != nil {
				return err
			}
			s.Sync(ctx, w) // it may or may not have the newcomer's last word
			return nil
		}
		err = s.Sync(ctx, w)
		if err == nil || x[0] != 10 || text != "tenth" || step != 0 {
			t.Errorf("the sync was to break before the step: %v with %v %q %d", err, x, text, step)
		}
		if err := s.Restore(); err != nil || x[0] != 0 || text != "first" || step != 0 {
			t.Errorf("went back to %v %q %d, %v", x, text, step, err)
		}
		return nil
	})
}

// TestStatesMustAgree: another length on one rank is a sentence on all.
func TestStatesMustAgree(t *testing.T) {
	at := elasticWorld(t, 2, elastic.Replace)
	jobtest.Ranks(t, 2, func(rank int) error {
		s := hora.NewState()
		hora.Track(s, "weights", make([]float32, 4+rank))
		err := hora.RunElastic(context.Background(), at(rank), s, func(context.Context, *hora.World) error {
			t.Error("the training began")
			return nil
		})
		if err == nil || !strings.Contains(err.Error(), `rank 0 registered "weights" of 16 bytes, rank 1 "weights" of 20 bytes; register the same`) {
			t.Errorf("rank %d: %v", rank, err)
		}
		return nil
	})
	s := hora.NewState()
	hora.Track(s, "x", []int32{1})
	hora.Track(s, "x", []int32{1})
	if err := hora.RunElastic(context.Background(), hora.Config{}, s, nil); err == nil ||
		!strings.Contains(err.Error(), `register state "x": the name is there already`) {
		t.Errorf("a name given twice: %v", err)
	}
}

// TestElasticWorldOfOne runs without any coordinator.
func TestElasticWorldOfOne(t *testing.T) {
	s := hora.NewState()
	calls := 0
	err := hora.RunElastic(context.Background(), hora.Config{}, s, func(_ context.Context, w *hora.World) error {
		calls++
		return s.Commit()
	})
	if err != nil || calls != 1 || s.Commits() != 2 {
		t.Errorf("%v after %d calls and %d commits", err, calls, s.Commits())
	}
	if err := hora.RunElastic(context.Background(), hora.Config{}, s,
		func(context.Context, *hora.World) error { return errors.New("mine") }); err == nil || err.Error() != "mine" {
		t.Errorf("the user's error became %v", err)
	}
}

// TestNewcomersJoinAtACommit: under continue a third worker joins two that train, gets
// their state, and all end together with nothing lost.
func TestNewcomersJoinAtACommit(t *testing.T) {
	at := elasticWorld(t, 2, elastic.Continue)
	begun := make(chan struct{})
	sizes := make([][]int, 3)
	jobtest.Ranks(t, 3, func(rank int) error {
		if rank == 2 {
			<-begun
		}
		cfg := at(rank)
		cfg.Size = 3
		s := hora.NewState()
		sum := []int64{0}
		hora.Track(s, "sum", sum)
		err := hora.RunElastic(context.Background(), cfg, s, func(ctx context.Context, w *hora.World) error {
			sizes[rank] = append(sizes[rank], w.Size())
			for n := 0; w.Size() == 2 || n < 10; n++ {
				one := []int64{1}
				if err := hora.Allreduce(ctx, w.Group(), one, hora.Max); err != nil {
					return err
				}
				sum[0]++
				if err := s.Commit(); err != nil {
					return err
				}
				if rank == 0 && w.Size() == 2 && n == 5 {
					close(begun)
				}
			}
			all, err := hora.Allgather(ctx, w.Group(), sum)
			if err == nil && (all[0] != all[1] || all[0] != all[2] || all[0] < 16) {
				err = errors.New("sums " + strconv.Itoa(int(all[0])) + " …")
			}
			return err
		})
		return err
	})
	if !slices.Equal(sizes[0], []int{2, 3}) || !slices.Equal(sizes[1], []int{2, 3}) ||
		!slices.Equal(sizes[2], []int{3}) {
		t.Errorf("the ranks saw worlds of %v", sizes)
	}
}
