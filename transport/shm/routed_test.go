//go:build linux

package shm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"hora/internal/secret"
	"hora/transport"
	"hora/transport/mem"
)

// openRouted opens four ranks on two hosts, 0 and 2 on one, 1 and 3 on the other.
// Across hosts they go by an in-process mesh.
func openRouted(t *testing.T) []*transport.Routed {
	t.Helper()
	far, err := mem.New(4, mem.Config{PeerTimeout: 5 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	s := secret.New()
	ln, err := Listen(s, ListenConfig{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	out := make([]*transport.Routed, 4)
	each(t, 4, func(i int) error {
		seats := []int{i % 2, i%2 + 2}
		near, err := Open(ctx, Config{
			Secret: s, Group: uint64(i % 2), Rank: i, Ranks: seats, Host: fmt.Sprint("h", i%2),
			Listener: ln, Leader: ln.Addr(), PeerTimeout: 5 * time.Second,
		})
		if err != nil {
			return err
		}
		out[i], err = transport.NewRouted(transport.RoutedConfig{
			Rank: i, Hosts: []int{0, 1, 0, 1}, Names: []string{"h0", "h1", "h0", "h1"},
			Local: near, Seats: seats, Remote: far.Mesh(i),
		})
		return err
	})
	if t.Failed() {
		t.FailNow()
	}
	t.Cleanup(func() { each(t, 4, func(i int) error { return out[i].Close() }) })
	return out
}

// everybody exchanges n bytes with everybody.
func everybody(m transport.Mesh, n int) error {
	for step := 1; step < m.Size(); step++ {
		to, from := (m.Rank()+step)%m.Size(), (m.Rank()-step+m.Size())%m.Size()
		in := make([]byte, n)
		if err := m.Exchange(to, bytes.Repeat([]byte{byte(m.Rank() + 1)}, n), from, in); err != nil {
			return err
		}
		if n > 0 && (in[0] != byte(from+1) || in[n-1] != byte(from+1)) {
			return fmt.Errorf("from rank %d came %d … %d", from, in[0], in[n-1])
		}
	}
	return nil
}

func TestRoutedMessages(t *testing.T) {
	meshes := openRouted(t)
	each(t, 4, func(i int) error {
		m := meshes[i]
		for k, n := range []int{0, 8, 1 << 20} {
			m.Begin(transport.Stamp{Seq: uint64(k + 1), Print: 4}, time.Time{})
			if err := everybody(m, n); err != nil {
				return err
			}
			in := make([]byte, n) // a ring whose halves lie on different links
			if err := m.Exchange((i+1)%4, make([]byte, n), (i+3)%4, in); err != nil {
				return err
			}
		}
		c := m.Counters()
		if c.SHM.BytesSent == 0 || c.Mem.BytesSent == 0 || m.Board().Seats() != 2 || m.HostName(1) != "h1" {
			return fmt.Errorf("counters %+v", c)
		}
		return nil
	})
}

func TestRoutedMismatch(t *testing.T) {
	meshes := openRouted(t)
	each(t, 4, func(i int) error {
		m := meshes[i]
		m.Begin(transport.Stamp{Seq: 1, Print: uint64(i / 3)}, time.Time{}) // rank 3 differs
		var clash *transport.MismatchError
		if err := everybody(m, 100); !errors.As(err, &clash) {
			return fmt.Errorf("exchange: %v", err)
		}
		texts, err := m.Explain(fmt.Append(nil, "rank ", i))
		if got := fmt.Sprintf("%s", texts); err != nil || got != "[rank 0 rank 1 rank 2 rank 3]" {
			return fmt.Errorf("explain: %s %v", got, err)
		}
		m.Begin(transport.Stamp{Seq: 2}, time.Time{})
		return everybody(m, 100)
	})
}

// TestRoutedFailure fails one rank: those who wait for somebody else, on either link,
// learn of it.
func TestRoutedFailure(t *testing.T) {
	meshes := openRouted(t)
	each(t, 4, func(i int) error {
		m := meshes[i]
		m.Begin(transport.Stamp{Seq: 1}, time.Time{})
		if i == 3 {
			m.Fail(errors.New("the disk is full"))
			return nil
		}
		// 0 and 1 wait for each other over the far link, 2 for 0 over the near one.
		err := m.Recv([]int{1, 0, 0}[i], make([]byte, 1))
		var lost *transport.PeerLostError
		if !errors.As(err, &lost) {
			return fmt.Errorf("recv: %v", err)
		}
		return nil
	})
}

func TestRoutedTell(t *testing.T) {
	meshes := openRouted(t)
	heard := make(chan string, 16)
	for i, m := range meshes {
		m.OnTell(func(from int, msg []byte) { heard <- fmt.Sprintf("%d→%d %s", from, i, msg) })
	}
	want := map[string]bool{}
	for i, m := range meshes {
		for to := range 4 {
			if to != i {
				if err := m.Tell(to, []byte("hi")); err != nil {
					t.Fatal(err)
				}
				want[fmt.Sprintf("%d→%d hi", i, to)] = true
			}
		}
	}
	for range len(want) {
		delete(want, <-heard)
	}
	if len(want) > 0 {
		t.Errorf("not heard: %v", want)
	}
}

func TestRoutedRefusesGaps(t *testing.T) {
	if _, err := transport.NewRouted(transport.RoutedConfig{Hosts: []int{0, 1}}); err == nil {
		t.Error("nothing reaches rank 1")
	}
	if _, err := transport.NewRouted(transport.RoutedConfig{Hosts: []int{0}, Rank: 1}); err == nil {
		t.Error("rank 1 of 1")
	}
	alone, err := transport.NewRouted(transport.RoutedConfig{Hosts: []int{0}})
	if err != nil {
		t.Fatal(err)
	}
	alone.Begin(transport.Stamp{Seq: 1}, time.Time{})
	if err := errors.Join(alone.Exchange(-1, nil, -1, nil), alone.Close()); err != nil || alone.Board() != nil {
		t.Error(err)
	}
}
