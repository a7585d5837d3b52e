package engine

import (
	"strings"
	"testing"
	"time"

	"hora/transport/mem"
)

// TestFirstWordsOfOneWhoIsFirst: what a rank does whose engine is there before another's is not
// lost, whatever it begins with: messages, names, a mismatch, a farewell.
func TestFirstWordsOfOneWhoIsFirst(t *testing.T) {
	hosts(t, func(t *testing.T, one bool) {
		mc := mem.Config{PeerTimeout: 5 * time.Second}
		if one {
			mc.Hosts = make([]int, 2)
		}
		pair := func(cfg Config, first, second func(g *Group) error) [2]error {
			return oneAfterTheOther(t, mc, cfg, first, second)
		}
		run := func(rs ...Request) func(*Group) error {
			return func(g *Group) error {
				for _, r := range rs {
					r.Timeout = 10 * time.Second
					if _, _, err := g.Run(&r, -1); err != nil {
						return err
					}
				}
				return nil
			}
		}
		in := make([]int32, 2)
		var sends, receives []Request
		for i := range 100 {
			sends, receives = append(sends, send(1, 7, []int32{int32(i), 5})), append(receives, receive(AnyRank, 7, in))
		}
		for r, err := range pair(Config{}, run(sends...), run(receives...)) {
			if err != nil || in[0] != 99 || in[1] != 5 {
				t.Errorf("rank %d: messages came as %v: %v", r, in, err)
			}
		}
		long := make([]int32, 200_000)
		for _, bye := range []bool{false, true} { // what was sent is not overtaken by its sender's farewell
			leave := func(g *Group) error {
				err := run(send(1, 1, long))(g)
				if err == nil && bye {
					err = g.Farewell(300 * time.Millisecond)
				}
				return err
			}
			for r, err := range pair(Config{}, leave, run(receive(0, 1, make([]int32, len(long))))) {
				if err != nil {
					t.Errorf("rank %d: a long message, farewell %v: %v", r, bye, err)
				}
			}
		}
		a, b := []float32{1}, []float32{2}
		for r, err := range pair(Config{Named: true}, run(sum(a, "a")), run(sum(b, "a"))) {
			if err != nil || a[0] != 3 || b[0] != 3 {
				t.Errorf("rank %d: a named sum gave %v %v: %v", r, a, b, err)
			}
		}
		for r, err := range pair(Config{}, run(sum(a, "a")), run(sum(make([]float32, 3), "b"))) {
			if err == nil || !strings.Contains(err.Error(), "Mismatched") {
				t.Errorf("rank %d of other calls: %v", r, err)
			}
		}
		for _, named := range []bool{false, true} { // one leaves at once
			err := pair(Config{Named: named}, run(), run(sum(a, "a")))[1]
			if err == nil || !strings.Contains(err.Error(), "left") {
				t.Errorf("named %v: the other had left: %v", named, err)
			}
		}
	})
}

// oneAfterTheOther makes the group of rank 0, which does first, and a moment later that of rank 1.
func oneAfterTheOther(t *testing.T, mc mem.Config, cfg Config, first, second func(g *Group) error) (err [2]error) {
	m, e := mem.New(2, mc)
	if e != nil {
		t.Fatal(e)
	}
	defer m.Close()
	began, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		g, e := New(m.Mesh(0), cfg)
		if e != nil {
			err[0] = e
			close(began)
			return
		}
		defer g.Close()
		time.AfterFunc(20*time.Millisecond, func() { close(began) }) // first has begun, or is over
		err[0] = first(g)
	}()
	<-began
	g, e := New(m.Mesh(1), cfg)
	if e != nil {
		t.Fatal(e)
	}
	defer g.Close()
	err[1] = second(g)
	if err[1] != nil {
		g.Close()
	}
	<-done
	return err
}
