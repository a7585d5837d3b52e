//go:build linux

package simtest

import (
	"math/rand/v2"
	"testing"
	"time"

	"hora/collective"
	"hora/tensor"
)

// TestTheRootOfABroadcastWrites: from a size on the root of a broadcast in registered memory writes a share of it
// into the receivers' memory. Every rank gets all of it, from every root, at sizes that shares do not divide, and
// where one receiver's memory is private and so nobody writes there.
func TestTheRootOfABroadcastWrites(t *testing.T) {
	for _, ranks := range []int{2, 3} {
		w, err := openReal(ranks, "one")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := w.close(); err != nil {
				t.Error(err)
			}
		})
		if err := each(ranks, func(r int) (err error) {
			w.ranks[r].Comm, err = collective.New(w.meshes[r], collective.Config{Table: "broadcast:0-=twoshot+direct"})
			return err
		}); err != nil {
			t.Fatal(err)
		}
		rng, number := rand.New(rand.NewPCG(7, uint64(ranks))), uint64(0)
		for _, n := range []int{(256 << 10) - 1, (256 << 10) + 65, 777_777} {
			for root := range ranks {
				for private := range 2 {
					s := &Step{Kind: collective.Broadcast, Type: tensor.Uint8, Root: root, Block: n, Registered: true}
					s.Fill(rng, ranks)
					number++
					err := each(ranks, func(r int) error {
						w.used[r] = 0
						call, in, out := s.Call(w.ranks[r])
						if private == 1 && r == (root+1)%ranks {
							out = make([]byte, len(out))
							call.Recv = View(out, s.Type)
						}
						clear(out[:len(out)*min(1, (r-root)*(r-root))]) // the root's out is what it sends
						err := w.ranks[r].Do(call, number, time.Now().Add(time.Minute))
						if way := w.ranks[r].Comm.Memory(); err == nil && way != "direct" {
							t.Errorf("%s: rank %d went by %s", s, r, way)
						}
						return s.Done(w.ranks[r], in, out, err)
					})
					if err == nil {
						err = s.Verify()
					}
					if err != nil {
						t.Fatalf("%d ranks: %s: %v", ranks, s, err)
					}
				}
			}
		}
	}
}
