package collective

import (
	"errors"
	"math"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"hora/tensor"
	"hora/transport"
	"hora/transport/mem"
)

// together runs f on every rank of a cluster on fake time.
func together(t *testing.T, n int, cfg mem.Config, f func(rank int, c *Comm) error) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		cluster, err := mem.New(n, cfg)
		if err != nil {
			t.Fatal(err)
		}
		defer cluster.Close()
		var all sync.WaitGroup
		for r := range n {
			all.Go(func() {
				c, err := New(cluster.Mesh(r), Config{Segment: 64})
				if err == nil {
					err = f(r, c)
				}
				if err != nil {
					t.Errorf("rank %d: %v", r, err)
				}
			})
		}
		all.Wait()
	})
}

func TestRefusals(t *testing.T) {
	x := make([]float32, 8)
	v := tensor.Of(x)
	half := v.Slice(0, 4)
	for says, call := range map[string]*Call{
		"there is no such operation": {Kind: 99},
		"is not an element type":     {Kind: Allreduce},
		"root 7 is not a rank":       {Kind: Broadcast, Type: tensor.Float32, Root: 7, Recv: v},
		"peer 0 is not another rank": {Kind: SendTo, Type: tensor.Float32, Send: v},
		"a view holds float32":       {Kind: Allreduce, Type: tensor.Int32, Send: v, Recv: v},
		"has no memory": {
			Kind: Allreduce, Type: tensor.Float32,
			Send: tensor.View{Count: 2, Type: tensor.Float32}, Recv: v,
		},
		"a view of -1 elements":               {Kind: Allreduce, Type: tensor.Float32, Send: tensor.View{Count: -1}, Recv: v},
		"recv holds 4 elements, 8 are needed": {Kind: Allreduce, Type: tensor.Float32, Send: v, Recv: half},
		"bitwise operators":                   {Kind: Allreduce, Op: tensor.And, Type: tensor.Float32, Send: v, Recv: v},
		"adasum is an allreduce":              {Kind: ReduceScatter, Op: tensor.Adasum, Type: tensor.Float32, Send: v, Recv: half},
		"starts ascend": {
			Kind: Allreduce, Op: tensor.Adasum, Type: tensor.Float32, Send: v,
			Recv: v, Starts: []int{0, 9},
		},
		"1 counts for 2 ranks":        {Kind: Allgather, Type: tensor.Float32, Send: half, Recv: v, RecvCounts: []int{8}},
		"count -1 for rank 1":         {Kind: Allgather, Type: tensor.Float32, Send: half, Recv: v, RecvCounts: []int{4, -1}},
		"its count says 3":            {Kind: Allgather, Type: tensor.Float32, Send: half, Recv: v, RecvCounts: []int{3, 5}},
		"give counts for both":        {Kind: Alltoall, Type: tensor.Float32, Send: v, Recv: v, SendCounts: []int{4, 4}},
		"do not divide among 2 ranks": {Kind: Alltoall, Type: tensor.Float32, Send: v.Slice(0, 3), Recv: v.Slice(0, 3)},
	} {
		together(t, 2, mem.Config{}, func(rank int, c *Comm) error {
			if rank != 0 {
				return nil
			}
			err := c.Run(transport.Stamp{Seq: 1}, call, time.Time{})
			if err == nil || !strings.Contains(err.Error(), says) {
				t.Errorf("got %v, want an error with %q", err, says)
			}
			return nil
		})
	}
}

// TestArrive waits in pieces: false while a rank on the host is missing, true after,
// and Run continues.
func TestArrive(t *testing.T) {
	for _, n := range []int{1, 100, 5000} {
		together(t, 3, mem.Config{Hosts: []int{0, 0, 0}}, func(rank int, c *Comm) error {
			x := make([]float32, n)
			x[n-1] = 1
			call := &Call{Kind: Allreduce, Type: tensor.Float32, Send: tensor.Of(x), Recv: tensor.Of(x)}
			s := transport.Stamp{Seq: 1, Print: 5}
			if rank == 2 {
				<-time.After(time.Second)
			} else {
				start := time.Now()
				ok, err := c.Arrive(s, call, 100*time.Millisecond)
				if ok || err != nil {
					t.Errorf("arrived %v, %v before rank 2 came", ok, err)
				}
				if took := time.Since(start); took < 100*time.Millisecond || took > 200*time.Millisecond {
					t.Errorf("a budget of 100ms took %v", took)
				}
				if ok, err = c.Arrive(s, call, 2*time.Second); !ok || err != nil {
					t.Errorf("arrived %v, %v", ok, err)
				}
			}
			if err := c.Run(s, call, time.Time{}); err != nil {
				return err
			}
			if x[n-1] != 3 {
				t.Errorf("sum is %v", x[n-1])
			}
			return nil
		})
	}
}

// TestPairs sends both ways between pairs while the group works.
func TestPairs(t *testing.T) {
	together(t, 4, mem.Config{Hosts: []int{0, 0, 1, 1}}, func(rank int, c *Comm) error {
		x := []int64{int64(rank)}
		y := []int64{-1}
		peer := rank ^ 1
		for i := range 10 {
			pair := transport.Stamp{Seq: transport.PairSeq | uint64(i+1), Print: 4}
			out := &Call{Kind: SendTo, Type: tensor.Int64, Peer: peer, Send: tensor.Of(x)}
			in := &Call{Kind: RecvFrom, Type: tensor.Int64, Peer: peer, Recv: tensor.Of(y)}
			if err := errors.Join(c.Run(pair, out, time.Time{}), c.Run(pair, in, time.Time{})); err != nil {
				return err
			}
			if y[0] != int64(peer) {
				t.Errorf("rank %d received %d", rank, y[0])
			}
			sum := []int64{1}
			call := &Call{Kind: Allreduce, Type: tensor.Int64, Send: tensor.Of(sum), Recv: tensor.Of(sum)}
			if err := c.Run(transport.Stamp{Seq: uint64(i + 1)}, call, time.Time{}); err != nil {
				return err
			}
			if sum[0] != 4 {
				t.Errorf("sum is %d", sum[0])
			}
		}
		return nil
	})
}

// TestScales multiplies before and after, on every layout.
func TestScales(t *testing.T) {
	for _, hosts := range [][]int{{0, 1, 2, 3}, {0, 0, 0, 0}, {0, 0, 1, 1}} {
		for _, n := range []int{3, 3000, 50000} {
			together(t, 4, mem.Config{Hosts: hosts}, func(rank int, c *Comm) error {
				x, y := make([]float32, n), make([]float32, n)
				for i := range x {
					x[i] = float32(rank + i%7)
				}
				call := &Call{
					Kind: Allreduce, Op: tensor.Average, Type: tensor.Float32, Pre: 2, Post: 8,
					Send: tensor.Of(x), Recv: tensor.Of(y),
				}
				if err := c.Run(transport.Stamp{Seq: 1}, call, time.Time{}); err != nil {
					return err
				}
				for i := range y {
					if want := float32(2 * (6 + 4*(i%7)) / 4 * 8); i%7%2 == 0 && y[i] != want {
						t.Fatalf("hosts %v: element %d is %v, want %v", hosts, i, y[i], want)
					}
				}
				return nil
			})
		}
	}
}

// TestTune leaves all ranks with one choice, and operations after it work.
func TestTune(t *testing.T) {
	for _, hosts := range [][]int{{0}, {0, 1, 2}, {0, 0, 0}, {0, 0, 1}} {
		type choice struct {
			segment int
			first   uint64
		}
		chosen := make([]choice, len(hosts))
		synctest.Test(t, func(t *testing.T) {
			cluster, err := mem.New(len(hosts), mem.Config{Hosts: hosts})
			if err != nil {
				t.Fatal(err)
			}
			defer cluster.Close()
			var all sync.WaitGroup
			for r := range hosts {
				all.Go(func() {
					c, err := New(cluster.Mesh(r), Config{Tune: true})
					if err != nil {
						t.Error(err)
						return
					}
					chosen[r] = choice{c.segment, c.First()}
					x := []float32{1}
					call := &Call{Kind: Allreduce, Type: tensor.Float32, Send: tensor.Of(x), Recv: tensor.Of(x)}
					if err := c.Run(transport.Stamp{Seq: c.First()}, call, time.Time{}); err != nil ||
						x[0] != float32(len(hosts)) {
						t.Errorf("sum is %v, %v", x[0], err)
					}
				})
			}
			all.Wait()
		})
		for r, c := range chosen {
			if c != chosen[0] {
				t.Errorf("rank %d chose %+v, rank 0 %+v", r, c, chosen[0])
			}
		}
	}
}

// adasumOf is the combination of two gradients, plainly.
func adasumOf(a, b []float64) []float64 {
	var dot, aa, bb float64
	for i := range a {
		dot, aa, bb = dot+a[i]*b[i], aa+a[i]*a[i], bb+b[i]*b[i]
	}
	out := make([]float64, len(a))
	for i := range a {
		out[i] = a[i]*(1-dot/(2*aa)) + b[i]*(1-dot/(2*bb))
	}
	return out
}

func TestAdasum(t *testing.T) {
	const n = 100
	gradient := func(rank int) []float64 {
		g := make([]float64, n)
		for i := range g {
			g[i] = math.Sin(float64(i*(rank+1))) + 0.1
		}
		return g
	}
	for _, hosts := range [][]int{{0}, {0, 1}, {0, 1, 2}, {0, 0, 0, 0}, {0, 0, 1, 1, 2, 2}} {
		size := len(hosts)
		starts := []int{0, 30, 30, 99}
		parts := make([][]float64, size)
		for r := range parts {
			parts[r] = gradient(r)
		}
		want := make([]float64, 0, n)
		for i, from := range starts {
			end := n
			if i+1 < len(starts) {
				end = starts[i+1]
			}
			if end > from {
				want = append(want, adasumTree(parts, from, end)...)
			}
		}
		together(t, size, mem.Config{Hosts: hosts}, func(rank int, c *Comm) error {
			x := gradient(rank)
			call := &Call{
				Kind: Allreduce, Op: tensor.Adasum, Type: tensor.Float64, Starts: starts,
				Send: tensor.Of(x), Recv: tensor.Of(x),
			}
			if err := c.Run(transport.Stamp{Seq: 1}, call, time.Time{}); err != nil {
				return err
			}
			for i := range x {
				if math.Abs(x[i]-want[i]) > 1e-12 {
					t.Fatalf("%d ranks: element %d is %v, want %v", size, i, x[i], want[i])
				}
			}
			return nil
		})
	}
}

// adasumTree folds the ranks too many, then combines neighbours.
func adasumTree(parts [][]float64, from, end int) []float64 {
	var level [][]float64
	rest := len(parts) - floorPow2(len(parts))
	for r := 0; r < len(parts); r++ {
		own := parts[r][from:end]
		if r < 2*rest {
			own = adasumOf(own, parts[r+1][from:end])
			r++
		}
		level = append(level, own)
	}
	for len(level) > 1 {
		var next [][]float64
		for i := 0; i < len(level); i += 2 {
			next = append(next, adasumOf(level[i], level[i+1]))
		}
		level = next
	}
	return level[0]
}
