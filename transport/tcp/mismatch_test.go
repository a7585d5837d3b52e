package tcp

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"hora/internal/wire"
	"hora/transport"
)

// explained runs f on every rank in operation 1, has every rank that got a mismatch
// explain it, and returns the texts that each rank saw.
func explained(t *testing.T, meshes []*Mesh, f func(m *Mesh) error) [][][]byte {
	t.Helper()
	texts := make([][][]byte, len(meshes))
	must(t, each(meshes, func(m *Mesh) error {
		err := f(m)
		var mismatch *transport.MismatchError
		if !errors.As(err, &mismatch) {
			return fmt.Errorf("got %v instead of a mismatch", err)
		}
		texts[m.Rank()], err = m.Explain([]byte(fmt.Sprintf("rank %d", m.Rank())))
		return err
	}))
	// The operation after it works.
	must(t, each(meshes, func(m *Mesh) error {
		for seq := range uint64(3) {
			if err := ring(m, seq+2, 100_000); err != nil {
				return err
			}
		}
		return nil
	}))
	return texts
}

func wantAll(t *testing.T, texts [][][]byte) {
	t.Helper()
	for r, list := range texts {
		for o, text := range list {
			if string(text) != fmt.Sprintf("rank %d", o) {
				t.Errorf("rank %d knows %q of rank %d", r, text, o)
			}
		}
	}
}

func TestMismatchComesBackOnEveryRank(t *testing.T) {
	for name, c := range map[string]struct {
		ranks int
		print func(rank int) uint64
		bytes func(rank int) int
	}{
		"fingerprint, 2":     {2, func(r int) uint64 { return uint64(r) }, func(int) int { return 4 }},
		"fingerprint, 4":     {4, func(r int) uint64 { return uint64(r / 3) }, func(int) int { return 4 }},
		"length":             {3, func(int) uint64 { return 1 }, func(r int) int { return 8 + r/2 }},
		"length, large":      {3, func(int) uint64 { return 1 }, func(r int) int { return 8<<20 + r/2 }},
		"fingerprint, large": {4, func(r int) uint64 { return uint64(r / 3) }, func(int) int { return 8 << 20 }},
	} {
		t.Run(name, func(t *testing.T) {
			meshes := newWorld(t, c.ranks, nil).open(1, nil)
			begun := time.Now()
			wantAll(t, explained(t, meshes, func(m *Mesh) error {
				m.Begin(transport.Stamp{Seq: 1, Print: c.print(m.Rank())}, time.Time{})
				n := c.bytes(m.Rank())
				out, in := make([]byte, n), make([]byte, n)
				for range 3 { // an algorithm of several steps
					r, l := (m.Rank()+1)%m.Size(), (m.Rank()+m.Size()-1)%m.Size()
					if err := m.Exchange(r, out, l, in); err != nil {
						return err
					}
				}
				return nil
			}))
			if d := time.Since(begun); d > 5*time.Second {
				t.Errorf("took %v", d)
			}
		})
	}
}

// Each rank waits for another that is in a different operation and sends nothing.
func TestCyclicWaitIsFoundByProbes(t *testing.T) {
	meshes := newWorld(t, 3, func(c *NodeConfig) { c.Heartbeat = 100 * time.Millisecond }).open(1, nil)
	begun := time.Now()
	wantAll(t, explained(t, meshes, func(m *Mesh) error {
		m.Begin(transport.Stamp{Seq: 1, Print: uint64(m.Rank())}, time.Time{})
		return m.Recv((m.Rank()+1)%3, make([]byte, 4))
	}))
	if d := time.Since(begun); d > 2*time.Second {
		t.Errorf("took %v", d)
	}
}

// A root that has sent and gone on does not make the others wait for long.
func TestExplainDoesNotWaitForWhoHasPassed(t *testing.T) {
	meshes := newWorld(t, 2, nil).open(1, nil)
	begun := time.Now()
	must(t, each(meshes, func(m *Mesh) error {
		m.Begin(transport.Stamp{Seq: 1, Print: uint64(m.Rank())}, time.Time{})
		if m.Rank() == 0 {
			if err := m.Send(1, []byte("four")); err != nil {
				return err
			}
			return ring(m, 2, 10)
		}
		var mismatch *transport.MismatchError
		if err := m.Recv(0, make([]byte, 4)); !errors.As(err, &mismatch) || mismatch.Rank != 0 ||
			mismatch.Theirs.Print != 0 {
			return fmt.Errorf("got %v", err)
		}
		texts, err := m.Explain([]byte("mine"))
		if err != nil || texts[0] != nil || string(texts[1]) != "mine" {
			return fmt.Errorf("texts %q, %v", texts, err)
		}
		return ring(m, 2, 10)
	}))
	if d := time.Since(begun); d > 2*time.Second {
		t.Errorf("took %v", d)
	}
}

// One that has finished the operation and does nothing else does not, either.
func TestExplainDoesNotWaitForTheIdle(t *testing.T) {
	meshes := newWorld(t, 2, func(c *NodeConfig) { c.Heartbeat = 100 * time.Millisecond }).open(1, nil)
	begun := time.Now()
	must(t, each(meshes, func(m *Mesh) error {
		m.Begin(transport.Stamp{Seq: 1, Print: uint64(m.Rank())}, time.Time{})
		if m.Rank() == 0 {
			return m.Send(1, []byte("four"))
		}
		var mismatch *transport.MismatchError
		if err := m.Recv(0, make([]byte, 4)); !errors.As(err, &mismatch) {
			return fmt.Errorf("got %v", err)
		}
		texts, err := m.Explain([]byte("mine"))
		if err != nil || texts[0] != nil {
			return fmt.Errorf("texts %q, %v", texts, err)
		}
		return nil
	}))
	if d := time.Since(begun); d > 2*time.Second {
		t.Errorf("took %v", d)
	}
	must(t, each(meshes, func(m *Mesh) error { return ring(m, 2, 10) }))
}

func TestPairMismatchIsExplainedByThePairAlone(t *testing.T) {
	meshes := newWorld(t, 3, nil).open(1, nil)
	s := transport.Stamp{Seq: transport.PairSeq | 1, Print: 3}
	begun := time.Now()
	must(t, each(meshes, func(m *Mesh) error {
		m.Begin(s, time.Time{})
		switch m.Rank() {
		case 0:
			m.Send(1, make([]byte, 1<<22)) // more than the receiver expects
		case 1:
			var mismatch *transport.MismatchError
			if err := m.Recv(0, make([]byte, 8)); !errors.As(err, &mismatch) {
				return fmt.Errorf("got %v", err)
			}
		default:
			return nil
		}
		texts, err := m.Explain([]byte{byte('0' + m.Rank())})
		if err != nil || string(texts[0]) != "0" || string(texts[1]) != "1" || texts[2] != nil {
			return fmt.Errorf("%q %v", texts, err)
		}
		return nil
	}))
	must(t, each(meshes, func(m *Mesh) error { return ring(m, 1, 10_000) }))
	must(t, each(meshes[:2], func(m *Mesh) error {
		m.Begin(transport.Stamp{Seq: transport.PairSeq | 2, Print: 4}, time.Time{})
		b := make([]byte, 100_000)
		if m.Rank() == 0 {
			return m.Send(1, b)
		}
		return m.Recv(0, b)
	}))
	if d := time.Since(begun); d > 3*time.Second {
		t.Errorf("took %v", d)
	}
}

// A rank that gives up in the middle of a long message completes it as aborted, and
// the next operation starts on a clean stream. Many rounds, to hit many places.
func TestFailedOperationsLeaveNoGarbage(t *testing.T) {
	meshes := newWorld(t, 2, nil).open(1, func(c *MeshConfig) {
		c.Lanes, c.StripeBytes, c.SocketBytes = 2, 1<<18,
			1<<16
	})
	must(t, each(meshes, func(m *Mesh) error {
		for round := range uint64(30) {
			n := 1<<16 + int(round)*50_000
			m.Begin(transport.Stamp{Seq: 2*round + 1, Print: 9}, time.Time{})
			out, in := make([]byte, n), make([]byte, n)
			if m.Rank() == 1 { // wants one more step of another length
				if err := m.Recv(0, in[:100]); err == nil {
					return fmt.Errorf("round %d: no error", round)
				}
			} else if err := m.Exchange(1, out, 1, in); err == nil {
				return fmt.Errorf("round %d: no error", round)
			}
			texts, err := m.Explain([]byte{byte('0' + m.Rank())})
			if err != nil || string(texts[0])+string(texts[1]) != "01" {
				return fmt.Errorf("round %d: %q %v", round, texts, err)
			}
			if err := ring(m, 2*round+2, n); err != nil {
				return fmt.Errorf("round %d: %w", round, err)
			}
		}
		return nil
	}))
}

func TestDeadlineNamesTheRankAndTellsTheOthers(t *testing.T) {
	meshes := newWorld(t, 3, nil).open(1, nil)
	begun := time.Now()
	errs := each(meshes, func(m *Mesh) error {
		switch m.Rank() {
		case 0:
			m.Begin(transport.Stamp{Seq: 1, Print: 1}, time.Now().Add(200*time.Millisecond))
			return m.Recv(1, make([]byte, 4))
		case 2:
			m.Begin(transport.Stamp{Seq: 1, Print: 1}, time.Time{})
			return m.Recv(0, make([]byte, 4))
		}
		return nil
	})
	var deadline *transport.DeadlineError
	if !errors.As(errs[0], &deadline) || deadline.Rank != 1 || deadline.After < 200*time.Millisecond {
		t.Errorf("rank 0: %v", errs[0])
	}
	var lost *transport.PeerLostError
	if !errors.As(errs[2], &lost) || lost.Rank != 0 || !strings.Contains(lost.Reason, "gave up") {
		t.Errorf("rank 2: %v", errs[2])
	}
	if d := time.Since(begun); d > 1500*time.Millisecond {
		t.Errorf("took %v", d)
	}
}

func TestTellReachesIdleRanks(t *testing.T) {
	meshes := newWorld(t, 2, nil).open(1, nil)
	got := make(chan string, 1)
	meshes[1].OnTell(func(from int, msg []byte) { got <- fmt.Sprintf("%d %s", from, msg[:5]) })
	if err := meshes[0].Tell(1, append([]byte("hello"), make([]byte, transport.MaxTell-5)...)); err != nil {
		t.Fatal(err)
	}
	select {
	case s := <-got:
		if s != "0 hello" {
			t.Fatal(s)
		}
	case <-time.After(5 * time.Second):
		t.Fatal("nothing came")
	}
	if err := meshes[0].Tell(1, make([]byte, transport.MaxTell+1)); err == nil {
		t.Fatal("too long a message was taken")
	}
}

// TestTellBeforeAnybodyListens: what comes before a mesh is open, and before it has a listener, is
// heard in order.
func TestTellBeforeAnybodyListens(t *testing.T) {
	w := newWorld(t, 2, nil)
	first := w.open(1, nil) // so that they are connected
	const n = 3000
	tell := func(from *Mesh, group uint64, i int) {
		for !from.n.tell(from.cfg.Peers[1], wire.AppendControl(nil, wire.Control{
			Kind: wire.ControlTell, Group: group, To: 1, Lost: -1, Text: fmt.Append(nil, i),
		})) {
			runtime.Gosched()
		}
	}
	for i := range n { // of a group that is not made yet
		tell(first[0], 2, i)
	}
	meshes := w.open(2, nil)
	for i := range n {
		tell(meshes[0], 2, n+i)
	}
	got := make(chan string, 4*n)
	var once sync.Once
	meshes[1].OnTell(func(from int, msg []byte) {
		once.Do(func() {
			for i := range n { // while what was kept is handed over
				tell(meshes[0], 2, 2*n+i)
			}
		})
		got <- string(msg)
	})
	for i := range 3 * n {
		select {
		case s := <-got:
			if s != fmt.Sprint(i) {
				t.Fatalf("message %d came as number %d", i, i)
			}
		case <-time.After(5 * time.Second):
			t.Fatalf("message %d did not come", i)
		}
	}
}

// TestTellTooMuchTooEarly: a rank that cannot keep what it is told ends the group with a sentence.
func TestTellTooMuchTooEarly(t *testing.T) {
	meshes := newWorld(t, 2, nil).open(1, nil)
	began := time.Now()
	for end := began.Add(20 * time.Second); ; {
		err := meshes[1].verdict(-1, -1)
		if err != nil && strings.Contains(err.Error(), "more than can be kept") {
			return
		}
		if err != nil || time.Now().After(end) {
			t.Fatalf("after %v: %v", time.Since(began), err)
		}
		if meshes[0].Tell(1, make([]byte, transport.MaxTell)) != nil {
			runtime.Gosched()
		}
	}
}
