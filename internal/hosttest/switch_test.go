package hosttest

import (
	"encoding/binary"
	"io"
	"net"
	"slices"
	"testing"
	"time"
)

// listen makes a host's UDP socket on the switch.
func listen(h *Host) *net.UDPConn {
	var c *net.UDPConn
	h.Do(func() (err error) {
		c, err = net.ListenUDP("udp4", &net.UDPAddr{IP: net.ParseIP(h.Via), Port: 7000})
		return err
	})
	return c
}

// datagrams sends n numbered ones and returns the numbers that came before quiet.
func datagrams(t *testing.T, from, to *net.UDPConn, n int, quiet time.Duration) []int {
	t.Helper()
	b := make([]byte, 8)
	for i := range n {
		binary.BigEndian.PutUint64(b, uint64(i))
		if _, err := from.WriteTo(b, to.LocalAddr()); err != nil {
			t.Fatal(err)
		}
	}
	var got []int
	for {
		if err := to.SetReadDeadline(time.Now().Add(quiet)); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(onePacket{to}, b); err != nil {
			return got
		}
		got = append(got, int(binary.BigEndian.Uint64(b)))
	}
}

type onePacket struct{ *net.UDPConn }

func (p onePacket) Read(b []byte) (int, error) { return p.UDPConn.Read(b) }

// trip is the time of a datagram there and another back.
func trip(t *testing.T, a, b *net.UDPConn) time.Duration {
	t.Helper()
	best := time.Hour
	for range 5 {
		began := time.Now()
		if len(once(t, a, b)) != 1 || len(once(t, b, a)) != 1 {
			t.Fatal("a datagram is lost")
		}
		best = min(best, time.Since(began))
	}
	return best
}

func once(t *testing.T, from, to *net.UDPConn) []byte {
	t.Helper()
	if _, err := from.WriteTo([]byte{1}, to.LocalAddr()); err != nil {
		t.Fatal(err)
	}
	if err := to.SetReadDeadline(time.Now().Add(2 * time.Second)); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 9)
	n, err := to.Read(b)
	if err != nil {
		return nil
	}
	return b[:n]
}

func TestSwitch(t *testing.T) {
	n := Up(t, "server1", "server2", "server3")
	s := n.Switch(42)
	h1, h2, h3 := n.Hosts[0], n.Hosts[1], n.Hosts[2]
	a, b, c := listen(h1), listen(h2), listen(h3)
	defer a.Close()
	defer b.Close()
	defer c.Close()

	if got := trip(t, a, b); got > 10*time.Millisecond {
		t.Errorf("an open way takes %v there and back", got)
	}
	s.Set(h1, h2, Way{Delay: 30 * time.Millisecond}) // one direction of one pair
	if got := trip(t, a, b); got < 30*time.Millisecond || got > 55*time.Millisecond {
		t.Errorf("delayed one way by 30 ms: %v", got)
	}
	if got := trip(t, a, c); got > 10*time.Millisecond {
		t.Errorf("another pair: %v", got)
	}

	s.Set(h1, h2, Way{Cut: true})
	if got := datagrams(t, a, b, 20, 100*time.Millisecond); len(got) > 0 {
		t.Errorf("through a cut way came %v", got)
	}
	if got := datagrams(t, b, a, 20, 100*time.Millisecond); len(got) != 20 {
		t.Errorf("back came %d of 20", len(got))
	}
	if _, lost := s.Count(h1, h2); lost != 20 {
		t.Errorf("%d packets are counted as lost", lost)
	}
	s.Set(h1, h2, Way{})
	if got := datagrams(t, a, b, 20, 100*time.Millisecond); len(got) != 20 {
		t.Errorf("after healing came %d of 20", len(got))
	}

	s.Set(h1, h2, Way{Loss: 0.2, Delay: time.Millisecond})
	got := datagrams(t, a, b, 200, 200*time.Millisecond)
	if len(got) < 130 || len(got) > 190 || !slices.IsSorted(got) {
		t.Errorf("with a loss of 20 %% came %d of 200, in order: %v", len(got), slices.IsSorted(got))
	}
	sent, _ := h1.Bytes()
	if again := fates(42, 0, 1, 200); !slices.Equal(got, again) {
		t.Errorf("the seed tells another story: %d came and %d should", len(got), len(again))
	}
	if after, _ := h1.Bytes(); after != sent {
		t.Error("the clean network carried something")
	}
	t.Logf("of 200 datagrams with 20 %% loss %d came", len(got))
}

// fates are the packets that a fresh way of that seed lets through.
func fates(seed uint64, from, to, n int) []int {
	var out []int
	w := newWay(seed, from, to, nil, func([]byte) {})
	w.change(Way{Loss: 0.2})
	for i := range n {
		if _, ok := w.fate(8, time.Time{}); ok {
			out = append(out, i)
		}
	}
	return out
}

func TestSwitchLimitsTheRate(t *testing.T) {
	n := Up(t, "server1", "server2")
	s := n.Switch(1)
	s.Set(n.Hosts[0], n.Hosts[1], Way{Rate: 100e6})
	const size = 4 << 20
	var ln net.Listener
	n.Hosts[1].Do(func() (err error) {
		ln, err = net.Listen("tcp4", n.Hosts[1].Via+":7001")
		return err
	})
	defer ln.Close()
	var conn net.Conn
	n.Hosts[0].Do(func() (err error) {
		conn, err = net.DialTimeout("tcp4", ln.Addr().String(), 5*time.Second)
		return err
	})
	defer conn.Close()
	in, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	for _, direction := range []struct {
		name     string
		from, to net.Conn
		lo, hi   float64 // Mbit/s
	}{{"limited", conn, in, 20, 105}, {"the way back", in, conn, 110, 1e9}} {
		failed := make(chan error, 1)
		began := time.Now()
		go func() {
			_, err := direction.from.Write(make([]byte, size))
			failed <- err
		}()
		if err := direction.to.SetReadDeadline(time.Now().Add(20 * time.Second)); err != nil {
			t.Fatal(err)
		}
		if _, err := io.CopyN(io.Discard, direction.to, size); err != nil {
			t.Fatal(err)
		}
		if err := <-failed; err != nil {
			t.Fatal(err)
		}
		rate := 8 * size / time.Since(began).Seconds() / 1e6
		t.Logf("%s: %.0f Mbit/s", direction.name, rate)
		if rate < direction.lo || rate > direction.hi {
			t.Errorf("%s: %.0f Mbit/s", direction.name, rate)
		}
	}
}
