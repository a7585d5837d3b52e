package hora_test

import (
	"context"
	"fmt"
	"testing"

	"hora"
	"hora/event"
)

// TestPacks has three tensors of 400 bytes travel together, as the events tell it: private
// memory is copied into a pack, neighbours in a registered buffer are summed where they
// lie, and Config.FusionBytes bounds what goes together.
func TestPacks(t *testing.T) {
	const n, count = 3, 100
	for _, test := range []struct {
		name       string
		fusion     int
		registered bool
		fused      int // tensors in the largest pack
		copied     bool
	}{
		{"private", 0, false, 3, true},
		{"registered", 0, true, 3, false},
		{"two at a time", 900, false, 2, true},
		{"two at a time where they lie", 900, true, 2, false},
		{"never", -1, false, 1, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			ring := event.NewRing(16)
			twoRanks(t, func(rank int, c *hora.Config) {
				c.FusionBytes, c.Links = test.fusion, "shm"
				if rank == 0 {
					c.Events = new(hora.Sink)
					c.Events.Add(ring)
				}
			}, func(w *hora.World) error {
				ctx := context.Background()
				g, err := w.NewGroup(ctx, nil, hora.Named())
				if err != nil {
					return err
				}
				x := make([]float32, n*count)
				if test.registered {
					var err error
					x, err = hora.BufferOf[float32](ctx, g, n*count)
					if err != nil {
						return err
					}
				}
				var rs []hora.Request
				for i := range n {
					part := x[i*count : (i+1)*count]
					for k := range part {
						part[k] = float32(i + 1)
					}
					rs = append(rs, hora.AllreduceRequest(fmt.Sprint("grad.", i), part, hora.Sum))
				}
				var all [1]hora.Ticket
				if err := g.Submit(rs, all[:]); err != nil {
					return err
				}
				if _, err := g.Wait(all[0], -1); err != nil {
					return err
				}
				for k, v := range x {
					if v != float32(2*(k/count+1)) {
						return fmt.Errorf("element %d is %v", k, v)
					}
				}
				return nil
			})
			ops := make([]event.Operation, 16)
			k, _, _ := ring.Drain(ops, 0)
			seen, most := 0, 0
			for _, o := range ops[:k] {
				if o.Kind != "allreduce" {
					continue
				}
				seen++
				most = max(most, o.Fused)
				if copied := o.Packing != 0; copied != (test.copied && o.Fused > 1) {
					t.Errorf("%s of %d was copied: %v", o.Name, o.Fused, copied)
				}
			}
			if seen != n || most != test.fused {
				t.Errorf("%d operations, at most %d together, want %d and %d", seen, most, n, test.fused)
			}
		})
	}
}
