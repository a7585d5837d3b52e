package engine

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"hora/collective"
	"hora/tensor"
	"hora/transport/mem"
)

// cluster is the groups of n ranks in this process.
type cluster struct {
	t      testing.TB
	mem    *mem.Cluster
	groups []*Group
}

// newCluster makes one host for all ranks, or one each.
func newCluster(t testing.TB, n int, oneHost bool, cfg Config) *cluster {
	t.Helper()
	mc := mem.Config{PeerTimeout: 5 * time.Second}
	if oneHost {
		mc.Hosts = make([]int, n)
	}
	m, err := mem.New(n, mc)
	if err != nil {
		t.Fatal(err)
	}
	c := &cluster{t: t, mem: m}
	for r := range n {
		g, err := New(m.Mesh(r), cfg)
		if err != nil {
			t.Fatal(err)
		}
		c.groups = append(c.groups, g)
	}
	t.Cleanup(func() {
		for _, g := range c.groups {
			g.Close()
		}
		m.Close()
	})
	return c
}

// each runs f on every rank and returns the ranks' errors.
func (c *cluster) each(f func(rank int, g *Group) error) []error {
	errs := make([]error, len(c.groups))
	var wg sync.WaitGroup
	for r, g := range c.groups {
		wg.Go(func() { errs[r] = f(r, g) })
	}
	wg.Wait()
	return errs
}

// must fails the test for any error.
func (c *cluster) must(errs []error) {
	c.t.Helper()
	for r, err := range errs {
		if err != nil {
			c.t.Errorf("rank %d: %v", r, err)
		}
	}
}

func sum(x []float32, name string) Request {
	v := tensor.Of(x)
	counted := strings.Contains(name, ".noname.") // as front ends name calls that have none
	return Request{
		Call: collective.Call{Kind: collective.Allreduce, Op: tensor.Sum, Type: v.Type, Send: v, Recv: v},
		Name: name, Counted: counted,
	}
}

func hosts(t *testing.T, f func(t *testing.T, oneHost bool)) {
	t.Run("host", func(t *testing.T) { f(t, true) })
	t.Run("net", func(t *testing.T) { f(t, false) })
}

func TestOrdered(t *testing.T) {
	hosts(t, func(t *testing.T, one bool) {
		c := newCluster(t, 3, one, Config{})
		c.must(c.each(func(rank int, g *Group) error {
			for i := range 200 {
				x := []float32{float32(rank), float32(i)}
				r := sum(x, "x")
				if i%3 == 0 {
					var tk [1]Ticket
					if err := g.Submit([]Request{r}, tk[:]); err != nil {
						return err
					}
					if done, err := g.Wait(tk[0], -1); !done || err != nil {
						return fmt.Errorf("wait: %v %w", done, err)
					}
				} else if _, _, err := g.Run(&r, -1); err != nil {
					return err
				}
				if x[0] != 3 || x[1] != float32(3*i) {
					return fmt.Errorf("operation %d gave %v", i, x)
				}
			}
			return nil
		}))
	})
}

func TestBudget(t *testing.T) {
	c := newCluster(t, 2, true, Config{})
	late := make(chan struct{})
	c.must(c.each(func(rank int, g *Group) error {
		x := []float32{1}
		r := sum(x, "late")
		if rank == 1 {
			<-late
			_, _, err := g.Run(&r, -1)
			return err
		}
		tk, done, err := g.Run(&r, 5*time.Millisecond)
		if done || err != nil {
			return fmt.Errorf("done %v without the other rank: %v", done, err)
		}
		if done, err := g.Wait(tk, time.Millisecond); done || err != nil {
			return fmt.Errorf("wait: done %v: %v", done, err)
		}
		close(late)
		if done, err := g.Wait(tk, -1); !done || err != nil {
			return fmt.Errorf("wait: done %v: %v", done, err)
		}
		if x[0] != 2 {
			return fmt.Errorf("got %v", x)
		}
		return nil
	}))
}

func TestMismatch(t *testing.T) {
	base := func(rank int) Request {
		return Request{Call: collective.Call{
			Kind: collective.Allreduce, Op: tensor.Sum, Type: tensor.Float32,
			Send: tensor.Of(make([]float32, 6)), Recv: tensor.Of(make([]float32, 6)),
		}, Name: "grad.w", Shape: []int{2, 3}}
	}
	for _, test := range []struct {
		name   string
		change func(r *Request)
		begins string
		also   []string
	}{
		{"type", func(r *Request) {
			r.Type = tensor.Int32
			r.Send = tensor.Of(make([]int32, 6))
			r.Recv = r.Send
		}, "Mismatched data types:", []string{"float32 on ranks 0, 2", "int32 on rank 1", "grad.w"}},
		{"operation", func(r *Request) { r.Kind = collective.Broadcast }, "Mismatched operations:", []string{"broadcast on rank 1"}},
		{"shape", func(r *Request) { r.Shape = []int{3, 2} }, "Mismatched ALLREDUCE tensor shapes:", []string{"[2, 3] on ranks 0, 2", "[3, 2] on rank 1"}},
		{"count", func(r *Request) {
			r.Shape = []int{7}
			r.Send = tensor.Of(make([]float32, 7))
			r.Recv = r.Send
		}, "Mismatched ALLREDUCE tensor shapes:", []string{"[7] on rank 1"}},
		{"scale", func(r *Request) { r.Post = 0.5 }, "Mismatched prescale and/or postscale factors:", []string{"postscaled by 0.5 on rank 1"}},
		{"operator", func(r *Request) { r.Op = tensor.Max }, "Mismatched reduction operation:", []string{"max on rank 1"}},
		{"device", func(r *Request) { r.Device = 2 }, "Mismatched ALLREDUCE CPU/GPU device selection:", []string{"rank 1"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			for _, named := range []bool{false, true} {
				hosts(t, func(t *testing.T, one bool) {
					c := newCluster(t, 3, one, Config{Named: named})
					errs := c.each(func(rank int, g *Group) error {
						r := base(rank)
						if rank == 1 {
							test.change(&r)
						}
						_, _, err := g.Run(&r, -1)
						return err
					})
					for r, err := range errs {
						var wrong *MismatchError
						if !errors.As(err, &wrong) {
							t.Fatalf("rank %d: %v", r, err)
						}
						if err.Error() != errs[0].Error() {
							t.Errorf("rank %d says %q, rank 0 %q", r, err, errs[0])
						}
						if !strings.HasPrefix(err.Error(), test.begins) {
							t.Errorf("%q does not begin with %q", err, test.begins)
						}
						for _, part := range test.also {
							if !strings.Contains(err.Error(), part) {
								t.Errorf("%q does not say %q", err, part)
							}
						}
					}
					c.must(c.each(func(rank int, g *Group) error {
						x := []float32{1}
						r := sum(x, "after")
						if _, _, err := g.Run(&r, -1); err != nil {
							return err
						}
						if x[0] != 3 {
							return fmt.Errorf("later operation gave %v", x)
						}
						return nil
					}))
				})
			}
		})
	}
}
