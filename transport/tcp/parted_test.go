package tcp

import (
	"context"
	"errors"
	"testing"
	"time"

	"hora/transport"
)

// TestASlowRankHasTheGroupThatAnotherHasLeft: ranks make a group, one leaves it at once, or its process ends,
// before a slow rank has begun to make it; the slow one's context may have ended by that. It has the group as the
// others have it, and goes on with those that are left.
func TestASlowRankHasTheGroupThatAnotherHasLeft(t *testing.T) {
	for name, leave := range map[string]func(w *world, m *Mesh){
		"group":   func(w *world, m *Mesh) { m.Close() },
		"process": func(w *world, m *Mesh) { m.Close(); w.nodes[m.Rank()].Close() },
	} {
		t.Run(name, func(t *testing.T) {
			const slow = 2 // it dials nobody: the others can make the group before it begins
			for left := range slow {
				w := newWorld(t, 3, nil)
				for _, m := range w.open(1, nil) { // all are connected
					defer m.Close()
				}
				open := func(ctx context.Context, rank int) (*Mesh, error) {
					cfg := MeshConfig{Group: 2, Rank: rank, Peers: w.peers, Oversubscribed: true}
					return w.nodes[rank].Open(ctx, cfg)
				}
				meshes := make([]*Mesh, 3)
				done := make(chan error, 2)
				for r := range slow {
					go func() {
						ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
						defer cancel()
						m, err := open(ctx, r)
						meshes[r] = m
						done <- err
					}()
				}
				for range slow {
					if err := <-done; err != nil {
						t.Fatal(err)
					}
				}
				leave(w, meshes[left])
				m, err := openWithout(t, w, open, slow, left)
				if err != nil {
					t.Fatalf("rank %d has left, rank %d says: %v", left, slow, err)
				}
				defer m.Close()
				other := 1 - left
				defer meshes[other].Close()
				pair := []*Mesh{m, meshes[other]}
				must(t, each(pair, func(m *Mesh) error {
					m.Begin(transport.Stamp{Seq: 1}, time.Now().Add(10*time.Second))
					to := slow + other - m.Rank()
					var in [1]byte
					return m.Exchange(to, []byte{7}, to, in[:])
				}))
				m.Begin(transport.Stamp{Seq: 2}, time.Now().Add(10*time.Second))
				var in [1]byte
				var lost *transport.PeerLostError
				err = m.Exchange(left, []byte{7}, left, in[:])
				if !errors.As(err, &lost) || lost.Rank != left || !lost.Left() {
					t.Errorf("rank %d has left, and an exchange with it says: %v", left, err)
				}
			}
		})
	}
}

// openWithout opens the group on the slow rank once it knows that left has gone, with a context that has ended by that.
func openWithout(
	t *testing.T, w *world, open func(context.Context, int) (*Mesh, error), slow, left int,
) (*Mesh, error) {
	t.Helper()
	n := w.nodes[slow]
	for limit := time.Now().Add(20 * time.Second); ; {
		n.mu.Lock()
		_, gone := n.lost[left]
		for _, e := range n.early {
			gone = gone || e.from == left
		}
		parked := len(n.parked)
		changed := n.changed
		n.mu.Unlock()
		if gone && parked >= 2 {
			break
		}
		if time.Now().After(limit) {
			t.Fatalf("rank %d has not heard that rank %d has left; %d connections", slow, left, parked)
		}
		select {
		case <-changed:
		case <-time.After(10 * time.Millisecond):
		}
	}
	ctx, end := context.WithCancel(t.Context())
	end()
	return open(ctx, slow)
}

// TestWhoClosesInTheMiddleHasLeft: a rank whose group is closed while another waits for it has left, and has not given
// up, as with ranks that share memory.
func TestWhoClosesInTheMiddleHasLeft(t *testing.T) {
	w := newWorld(t, 2, nil)
	meshes := w.open(1, nil)
	errs := each(meshes, func(m *Mesh) error {
		defer m.Close()
		if m.Rank() == 0 {
			m.Fail(transport.ErrClosed)
			return nil
		}
		m.Begin(transport.Stamp{Seq: 1}, time.Now().Add(10*time.Second))
		return m.Recv(0, make([]byte, 1))
	})
	var lost *transport.PeerLostError
	if !errors.As(errs[1], &lost) || lost.Rank != 0 || !lost.Left() {
		t.Errorf("rank 1: %v", errs[1])
	}
}
