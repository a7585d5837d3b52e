package tcp

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"hora/transport"
)

// In a group too large for a control connection per pair, news travels along the
// edges of the schedules and still reaches everybody.
func TestLargeGroupRelaysNews(t *testing.T) {
	const n = 23
	w := newWorld(t, n, nil)
	meshes := w.open(1, func(c *MeshConfig) { c.full = 8 })
	w.nodes[0].mu.Lock()
	links := len(w.nodes[0].links)
	w.nodes[0].mu.Unlock()
	if links > 14 {
		t.Errorf("rank 0 has %d control connections in a group of %d", links, n)
	}
	must(t, each(meshes, func(m *Mesh) error { return ring(m, 1, 100) }))
	// A mismatch that one pair sees is explained by all.
	begun := time.Now()
	must(t, each(meshes, func(m *Mesh) error {
		print := uint64(1)
		if m.Rank() == n/2 {
			print = 2
		}
		m.Begin(transport.Stamp{Seq: 2, Print: print}, time.Time{})
		var err error
		for err == nil {
			r, l := (m.Rank()+1)%n, (m.Rank()+n-1)%n
			err = m.Exchange(r, make([]byte, 8), l, make([]byte, 8))
		}
		var mismatch *transport.MismatchError
		if !errors.As(err, &mismatch) {
			return err
		}
		texts, err := m.Explain([]byte(fmt.Sprint(m.Rank())))
		for r, text := range texts {
			if string(text) != fmt.Sprint(r) {
				return fmt.Errorf("knows %q of rank %d, %v", text, r, err)
			}
		}
		return err
	}))
	t.Logf("explained in %v", time.Since(begun))
	must(t, each(meshes, func(m *Mesh) error { return ring(m, 3, 100) }))
	// Two ranks that share no edge are connected on demand.
	far := 11 // not a sum or difference of one power of two
	must(t, each([]*Mesh{meshes[0], meshes[far]}, func(m *Mesh) error {
		m.Begin(transport.Stamp{Seq: transport.PairSeq | 1, Print: 1}, time.Time{})
		if m.Rank() == 0 {
			return m.Recv(far, make([]byte, 100))
		}
		return m.Send(0, make([]byte, 100))
	}))
	// One that gives up ends the wait of everybody.
	errs := each(meshes, func(m *Mesh) error {
		if m.Rank() == 5 {
			m.Fail(errors.New("the disk is full"))
			return nil
		}
		return ring(m, 4, 100)
	})
	for r, err := range errs {
		var lost *transport.PeerLostError
		if err != nil && (!errors.As(err, &lost) || lost.Rank != 5) {
			t.Errorf("rank %d: %v", r, err)
		}
	}
	for r, m := range meshes {
		end := time.Now().Add(5 * time.Second)
		for ring(m, 5, 4) == nil {
			if time.Now().After(end) {
				t.Fatalf("rank %d goes on", r)
			}
		}
	}
}
