package simtest

import (
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"hora/collective"
	"hora/tensor"
	"hora/transport"
	"hora/transport/mem"
)

// World is a group to simulate.
type World struct {
	Ranks int
	Mem   mem.Config
	Comm  collective.Config
}

// noDeadline is the deadline of operations that have none.
var noDeadline time.Time

// Rank is one member inside a run.
type Rank struct {
	Rank, Size int
	Mesh       *mem.Mesh
	Comm       *collective.Comm
	Registered func(n int) []byte // makes memory that all ranks of the host map
	seq        uint64
}

// Run starts f once a rank and returns what each returned, in rank order. It returns
// when all have.
func Run(t *testing.T, w World, f func(*Rank) error) []error {
	t.Helper()
	errs := make([]error, w.Ranks)
	synctest.Test(t, func(t *testing.T) {
		cluster, err := mem.New(w.Ranks, w.Mem)
		if err != nil {
			t.Fatal(err)
		}
		var all sync.WaitGroup
		for i := range w.Ranks {
			all.Go(func() {
				r := &Rank{Rank: i, Size: w.Ranks, Mesh: cluster.Mesh(i)}
				r.Registered = func(n int) []byte { return cluster.Buffer(i, n) }
				if r.Comm, errs[i] = collective.New(r.Mesh, w.Comm); errs[i] == nil {
					errs[i] = f(r)
				}
				_ = r.Mesh.Close() // as the end of a process would
			})
		}
		all.Wait()
		cluster.Close()
	})
	return errs
}

// Must fails the test at the first rank that returned an error.
func Must(t *testing.T, errs []error) {
	t.Helper()
	for r, err := range errs {
		if err != nil {
			t.Fatalf("rank %d: %v", r, err)
		}
	}
}

// Do runs one call as the rank's next operation. The fingerprint is print.
func (r *Rank) Do(call *collective.Call, print uint64, deadline time.Time) error {
	r.seq++
	return r.Comm.Run(transport.Stamp{Seq: r.seq, Print: print}, call, deadline)
}

// View is bytes seen as elements.
func View(b []byte, t tensor.DType) tensor.View {
	if len(b) == 0 {
		return tensor.View{Type: t}
	}
	return tensor.View{Ptr: pointer(b), Count: len(b) / t.Size(), Type: t}
}

// Hosts lays ranks out on hosts: "block" fills one host after the other, "round"
// deals them in turn, "own" gives each its own, "one" puts all on one, "ragged" makes
// hosts of 1, 2, 3 … ranks.
func Hosts(layout string, ranks, perHost int) []int {
	out := make([]int, ranks)
	host, left := 0, 1
	for r := range out {
		switch layout {
		case "own":
			out[r] = r
		case "one":
		case "block":
			out[r] = r / perHost
		case "round":
			out[r] = r % ((ranks + perHost - 1) / perHost)
		case "ragged":
			if left == 0 {
				host++
				left = host + 1
			}
			out[r] = host
			left--
		default:
			panic(fmt.Sprintf("simtest: no layout is called %q", layout))
		}
	}
	return out
}
