package tcp

import (
	"sync"
	"testing"
	"time"

	"hora/transport"
)

// TestWantedTwice: a connection that is wanted again and again while it is being made is made
// once; of two, one end could keep the first and the other end the second.
func TestWantedTwice(t *testing.T) {
	w := newWorld(t, 2, nil)
	for group := uint64(1); group <= 40; group++ {
		meshes := w.open(group, func(c *MeshConfig) { c.Lazy = func(int) bool { return true } })
		var wanting sync.WaitGroup
		done := make(chan struct{})
		for range 4 {
			wanting.Go(func() {
				for {
					select {
					case <-done:
						return
					default:
						meshes[0].dial(meshes[0].stride) // as rank 1's messages would have it do
					}
				}
			})
		}
		errs := each(meshes, func(m *Mesh) error {
			for seq := uint64(1); seq <= 20; seq++ {
				m.Begin(transport.Stamp{Seq: seq}, time.Time{})
				var in [1]byte
				if err := m.Exchange(1-m.Rank(), []byte{7}, 1-m.Rank(), in[:]); err != nil {
					return err
				}
			}
			return nil
		})
		close(done)
		wanting.Wait()
		must(t, errs)
		for _, m := range meshes {
			m.Close()
		}
	}
}
