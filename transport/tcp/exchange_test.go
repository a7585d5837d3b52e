package tcp

import (
	"fmt"
	"testing"
	"time"

	"hora/transport"
)

var sizes = []int{
	0, 1, 4, 63, 4095, 4096, 4097, 16351, 16352, 16353, 65536, 262144, 262145, 1 << 20, 3<<20 + 5,
	16 << 20,
}

func TestRingOfAllSizes(t *testing.T) {
	for _, c := range []struct {
		ranks int
		name  string
		node  func(*NodeConfig)
		mesh  func(*MeshConfig)
	}{
		{ranks: 2, name: "plain"},
		{ranks: 3, name: "plain"},
		{ranks: 5, name: "plain"},
		{2, "small buffers", nil, func(c *MeshConfig) { c.SocketBytes = 8 << 10 }},
		{3, "striped", nil, func(c *MeshConfig) { c.Lanes, c.StripeBytes = 3, 10_000 }},
		{2, "TLS", func(c *NodeConfig) { c.TLS = true }, nil},
		{3, "lazy", nil, func(c *MeshConfig) { c.Lazy = func(int) bool { return true } }},
	} {
		t.Run(fmt.Sprintf("%s %d", c.name, c.ranks), func(t *testing.T) {
			meshes := newWorld(t, c.ranks, c.node).open(1, c.mesh)
			all := sizes
			if c.name == "small buffers" { // the kernel's timers make these slow
				all = sizes[:12]
			} else if testing.Short() {
				all = sizes[:len(sizes)-2]
			} else if c.ranks == 2 && c.name == "plain" {
				all = append(all, 64<<20)
			}
			must(t, each(meshes, func(m *Mesh) error {
				for i, n := range all {
					if err := ring(m, uint64(i+1), n); err != nil {
						return err
					}
				}
				return nil
			}))
			var sum int
			for _, n := range all {
				sum += n
			}
			got := meshes[0].Counters().TCP
			if got.BytesSent != uint64(sum) || got.BytesReceived != uint64(sum) ||
				got.MessagesSent != uint64(len(all)) {
				t.Fatalf("%+v, sent %d bytes in %d messages", got, sum, len(all))
			}
		})
	}
}

func TestSendAndReceiveByPairs(t *testing.T) {
	meshes := newWorld(t, 3, nil).open(1, nil)
	must(t, each(meshes, func(m *Mesh) error {
		for round := range uint64(50) {
			// Ranks 0 and 1 talk among themselves; all take part in a ring after it.
			s := transport.Stamp{Seq: transport.PairSeq | (round + 1), Print: 3}
			b := make([]byte, 9000)
			if m.Rank() == 0 {
				m.Begin(s, time.Time{})
				pattern(b, 0, round)
				if err := m.Send(1, b); err != nil {
					return err
				}
			}
			if m.Rank() == 1 {
				m.Begin(s, time.Time{})
				if err := m.Recv(0, b); err != nil {
					return err
				}
			}
			if err := ring(m, round+1, 100); err != nil {
				return err
			}
		}
		return nil
	}))
}

// A pair's message waits aside while the group goes on.
func TestPairMessageDoesNotBlockTheGroup(t *testing.T) {
	meshes := newWorld(t, 2, nil).open(1, nil)
	must(t, each(meshes, func(m *Mesh) error {
		s := transport.Stamp{Seq: transport.PairSeq | 1, Print: 3}
		b := make([]byte, 100)
		if m.Rank() == 0 {
			m.Begin(s, time.Time{})
			pattern(b, 0, 1)
			if err := m.Send(1, b); err != nil {
				return err
			}
		}
		if err := ring(m, 1, 5000); err != nil {
			return err
		}
		if m.Rank() == 1 {
			m.Begin(s, time.Time{})
			if err := m.Recv(0, b); err != nil {
				return err
			}
			want := make([]byte, 100)
			pattern(want, 0, 1)
			if string(b) != string(want) {
				return fmt.Errorf("other bytes came")
			}
		}
		return nil
	}))
}

func TestManyGroupsOnOneNode(t *testing.T) {
	w := newWorld(t, 3, nil)
	for g := range uint64(4) {
		meshes := w.open(g+1, nil)
		must(t, each(meshes, func(m *Mesh) error { return ring(m, 1, 1000) }))
		if g%2 == 0 {
			must(t, each(meshes, (*Mesh).Close))
		}
	}
}

func TestSteadyStateAllocatesNothing(t *testing.T) {
	meshes := newWorld(t, 2, nil).open(1, nil)
	for _, n := range []int{4, 4096, 100_000} {
		const rounds = 200
		done := make(chan error, 1)
		bufs := [2][2][]byte{{make([]byte, n), make([]byte, n)}, {make([]byte, n), make([]byte, n)}}
		step := func(m *Mesh, i int) error {
			m.Begin(transport.Stamp{Seq: uint64(n*1000 + i), Print: 1}, time.Time{})
			o := 1 - m.Rank()
			return m.Exchange(o, bufs[m.Rank()][0], o, bufs[m.Rank()][1])
		}
		go func() {
			for i := range rounds + 1 {
				if err := step(meshes[1], i); err != nil {
					done <- err
					return
				}
			}
			done <- nil
		}()
		i := 0
		allocs := testing.AllocsPerRun(rounds, func() {
			if err := step(meshes[0], i); err != nil {
				t.Error(err)
			}
			i++
		})
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		if allocs > 0.05 { // heartbeats and the runtime are counted as well
			t.Errorf("%d bytes: %v allocations per exchange", n, allocs)
		}
	}
}
