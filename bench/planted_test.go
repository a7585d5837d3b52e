package bench

import (
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"hora"
)

var faults = []string{"nothing", "divisor", "swap"}

// TestPeersSeeWhatIsPlanted: each competitor's program calls wrong what its operation has not
// done, divided or exchanged.
func TestPeersSeeWhatIsPlanted(t *testing.T) {
	if testing.Short() {
		t.Skip("takes long")
	}
	dir := t.TempDir()
	sources, err := peerSources.ReadDir("peers")
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range sources {
		text, err := peerSources.ReadFile("peers/" + s.Name())
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, s.Name()), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	r := &runner{cfg: Config{Cores: []int{0, 1}, Say: t.Logf}, programs: map[string]string{}}
	for _, peer := range []string{"openmpi", "gloo", "roofline"} {
		p := peerPrograms[peer]
		r.programs[peer] = filepath.Join(dir, peer)
		// Not optimised: gloo's headers take the compiler long, and nothing is timed here.
		args := append([]string{"-DPLANTED", "-O0"}, slices.DeleteFunc(slices.Clone(p.compiler[1:]),
			func(a string) bool { return !strings.HasPrefix(a, "-std") })...)
		args = append(append(args, "-o", r.programs[peer], filepath.Join(dir, p.source)), p.libs...)
		if out, err := exec.CommandContext(t.Context(), p.compiler[0], args...).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v; make deps installs %s\n%s", peer, err, p.packages, out)
		}
	}
	for _, c := range []struct{ which, ops string }{
		{"openmpi", "allreduce reduce broadcast allgather reducescatter alltoall"},
		{"gloo-ring", "allreduce"},
		{"gloo-default", "reduce broadcast allgather reducescatter alltoall"},
		{"gloo_spin-ring", "allreduce"},
		{"roofline", "allreduce"},
	} {
		for op := range strings.FieldsSeq(c.ops) {
			for _, fault := range append([]string{""}, faults...) {
				if fault == "" && op != "allreduce" {
					continue
				}
				r.cfg.Environ = append(os.Environ(), "PLANTED="+fault)
				got, err := r.peer(t.Context(), c.which, op, "shm", 2, []int{64 << 10})
				switch {
				case fault == "" && (err != nil || len(got) != 1):
					t.Fatalf("%s of %s with nothing planted: %v, %v", op, c.which, got, err)
				case fault != "" && (err == nil || !strings.Contains(err.Error(), "the result is wrong")):
					t.Errorf("%s of %s went unseen in %s: %v, %v", fault, op, c.which, got, err)
				}
			}
		}
	}
}

// TestRanksSeeWhatIsPlanted: so do hora's own ranks, in the first turns, in the last and, as
// these faults are everywhere, in those between.
func TestRanksSeeWhatIsPlanted(t *testing.T) {
	const ranks = 2
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := ln.Addr().String()
	ln.Close()
	secret := hora.NewSecret()
	var wg sync.WaitGroup
	for rank := range ranks {
		wg.Go(func() {
			w, err := hora.Join(t.Context(), hora.Config{
				Rank: rank, Size: ranks, Addr: addr, Serve: true,
				Secret: secret, Links: "shm",
			})
			if err != nil {
				t.Error(err)
				return
			}
			defer w.Close()
			for _, op := range []string{"allreduce", "reduce", "broadcast", "allgather", "reducescatter", "alltoall", "named", "plan", "ordered", "waiting", "memory"} {
				for _, fault := range append([]string{""}, faults...) {
					if err := planted(t.Context(), w, op, fault, t); err != nil {
						t.Errorf("%s of %s: %v", fault, op, err)
						return
					}
				}
			}
		})
	}
	wg.Wait()
}

// planted runs op with a fault in some turns; the ranks find by an allreduce of their own
// whether one of them saw it.
func planted(ctx context.Context, w *hora.World, op, fault string, t *testing.T) error {
	m, err := newMeasurement(ctx, w, RankJob{Op: op, Link: "shm"}, 64<<10)
	if err != nil {
		return err
	}
	const calls = 5
	for turn := -2; turn < calls; turn++ {
		if err := m.begin(turn); err != nil {
			return err
		}
		if fault != "nothing" {
			if err := m.call(); err != nil {
				return err
			}
		}
		spoil(m, fault)
		saw := []float32{0}
		if !m.verify(turn, calls) {
			saw[0] = 1
		}
		if err := hora.Allreduce(ctx, w.Group(), saw, hora.Sum); err != nil {
			return err
		}
		if (saw[0] > 0) != (fault != "") {
			t.Errorf("turn %d of %s with %q planted: %v ranks saw something", turn, op, fault, saw[0])
		}
	}
	return nil
}

func spoil(m *measurement, fault string) {
	x := m.out
	switch m.op {
	case "allreduce", "broadcast", "named", "plan", "ordered", "waiting", "memory":
		x = m.in
	case "reducescatter":
		x = x[:m.share]
	}
	switch fault {
	case "divisor":
		for i := range x {
			x[i] /= 2
		}
	case "swap":
		half := len(x) / 2
		for i := range half {
			x[i], x[half+i] = x[half+i], x[i]
		}
	}
}

// TestARankThatIsWrong says so in its line.
func TestARankThatIsWrong(t *testing.T) {
	w, err := hora.Join(t.Context(), hora.Config{Size: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	for _, wrong := range []bool{false, true} {
		m, err := newMeasurement(t.Context(), w, RankJob{Op: "allgather"}, 4<<20)
		if err != nil {
			t.Fatal(err)
		}
		if wrong {
			m.call = func() error { return nil }
		}
		var out strings.Builder
		if err := m.run(&out); err != nil || strings.HasSuffix(out.String(), " wrong\n") != wrong {
			t.Errorf("%v, %q", err, out.String())
		}
	}
}
