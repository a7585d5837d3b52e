package engine

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"hora/collective"
	"hora/tensor"
)

// checkApart finds what a comparison of every pair finds.
func TestOverlapsOfOneSubmission(t *testing.T) {
	rng := rand.New(rand.NewPCG(seed(t), 1))
	memory := make([]byte, 4096)
	view := func() tensor.View {
		return tensor.View{Ptr: unsafe.Pointer(&memory[rng.IntN(4000)]), Count: rng.IntN(24), Type: tensor.Uint8}
	}
	var g Group
	found := 0
	for range 20_000 {
		rs := make([]Request, 2+rng.IntN(30))
		for i := range rs {
			rs[i].Kind, rs[i].Type = collective.Allreduce, tensor.Uint8
			rs[i].Send = view()
			if rs[i].Recv = rs[i].Send; rng.IntN(2) == 0 {
				rs[i].Recv.Ptr = view().Ptr
			}
		}
		want := false
		for i := range rs {
			for j := range rs {
				if i != j && rs[i].Recv.Count > 0 {
					w := spanOf(rs[i].Recv)
					want = want || w.meets(spanOf(rs[j].Send)) && rs[j].Send.Count > 0 ||
						w.meets(spanOf(rs[j].Recv)) && rs[j].Recv.Count > 0
				}
			}
		}
		err := g.checkApart(rs)
		if (err != nil) != want {
			t.Fatalf("%d requests: %v, and comparing pairs says %v\n%v", len(rs), err, want, rs)
		}
		if want {
			found++
			if !strings.Contains(err.Error(), "overlaps that of another tensor") {
				t.Fatal(err)
			}
		}
		slices.Reverse(rs)
		if (g.checkApart(rs) != nil) != want {
			t.Fatal("another answer backwards")
		}
	}
	if found < 1000 || found > 19_000 {
		t.Fatalf("%d of 20000 overlapped; the test says little", found)
	}
}
