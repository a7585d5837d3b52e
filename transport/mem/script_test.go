package mem

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"hora/transport"
)

func TestScriptText(t *testing.T) {
	const text = "kill 3 at 5; leave 2 at 1; cut 1>2 at 4; drop 1>2 at 4; garble 0>1 at 1; delay 0>1 by 5ms at 2"
	s, err := ParseScript(text)
	if err != nil {
		t.Fatal(err)
	}
	if s.String() != text {
		t.Errorf("read and written again: %s", s)
	}
	for bad, says := range map[string]string{
		"explode 3": "want one of", "kill": "want an action", "kill 1>2": "take a rank", "cut 3": "take a rank",
		"kill x": "invalid syntax", "cut 1>y": "invalid syntax", "kill 1 at x": "invalid syntax", "kill 1 near 5": "neither at nor by",
		"delay 1>2 by 5": "missing unit",
	} {
		if _, err := ParseScript(bad); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: got %v, want an error with %q", bad, err, says)
		}
	}
}

// TestCutIsFinal: what the script has besides for a link that it has cut brings nothing
// across, in whatever order the faults stand.
func TestCutIsFinal(t *testing.T) {
	for _, text := range []string{
		"cut 0>1 at 3; delay 0>1 by 1.5s at 5", "delay 0>1 by 1.5s at 5; cut 0>1 at 3",
		"cut 0>1 at 3; garble 0>1 at 5; drop 0>1 at 6", "garble 0>1 at 5; drop 0>1 at 6; cut 0>1 at 3",
	} {
		synctest.Test(t, func(t *testing.T) {
			script, err := ParseScript(text)
			if err != nil {
				t.Fatal(err)
			}
			c, err := New(2, Config{Script: script})
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			a, b := c.Mesh(0), c.Mesh(1)
			a.Begin(transport.Stamp{Seq: 1}, time.Time{})
			b.Begin(transport.Stamp{Seq: 1}, time.Time{})
			for i := range byte(8) {
				if err := a.Send(1, []byte{i}); err != nil {
					t.Fatalf("%s: message %d: %v", text, i+1, err)
				}
			}
			begin := time.Now()
			var p [1]byte
			for i := range byte(2) {
				if err := b.Recv(0, p[:]); err != nil || p[0] != i {
					t.Fatalf("%s: message %d brought %d, %v", text, i+1, p[0], err)
				}
			}
			var lost *transport.PeerLostError
			if err := b.Recv(0, p[:]); !errors.As(err, &lost) || lost.Rank != 0 || time.Since(begin) != 10*time.Second {
				t.Errorf("%s: after %v: %d, %v", text, time.Since(begin), p[0], err)
			}
		})
	}
}

// TestLettersArrive outside of operations, in order, even at a rank that is busy
// waiting; and not from a rank that is cut off.
func TestLettersArrive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, err := New(3, Config{Script: Script{{Do: Cut, From: 2, To: 0, At: 1}}})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		got := make(chan string, 9)
		c.Mesh(0).OnTell(func(from int, msg []byte) { got <- string(msg) })
		s := transport.Stamp{Seq: 1}
		c.Mesh(2).Begin(s, time.Time{})
		if err := c.Mesh(2).Send(0, []byte("lost")); err != nil {
			t.Fatal(err)
		}
		for rank, text := range map[int]string{1: "one", 2: "silent"} {
			if err := c.Mesh(rank).Tell(0, []byte(text)); err != nil {
				t.Fatal(err)
			}
		}
		if err := c.Mesh(1).Tell(0, []byte("two")); err != nil {
			t.Fatal(err)
		}
		if a, b := <-got, <-got; a != "one" || b != "two" {
			t.Errorf("heard %q, %q", a, b)
		}
		synctest.Wait()
		if len(got) > 0 {
			t.Errorf("heard %q from a silent rank", <-got)
		}
		if c.Mesh(1).Tell(9, nil) == nil {
			t.Error("told a rank that does not exist")
		}
	})
}

// TestOldMessagesAreDropped: what a failed operation left behind is in nobody's way.
func TestOldMessagesAreDropped(t *testing.T) {
	c, err := New(2, Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	a, b := c.Mesh(0), c.Mesh(1)
	for seq := uint64(1); seq <= 3; seq++ {
		a.Begin(transport.Stamp{Seq: seq}, time.Time{})
		if err := a.Send(1, []byte{byte(seq)}); err != nil {
			t.Fatal(err)
		}
	}
	b.Begin(transport.Stamp{Seq: 3}, time.Time{})
	var p [1]byte
	if err := b.Recv(0, p[:]); err != nil || p[0] != 3 {
		t.Errorf("received %d, %v", p[0], err)
	}
	if got := b.Counters().Mem; got.MessagesReceived != 1 || got.BytesReceived != 1 {
		t.Errorf("counted %+v", got)
	}
}

func TestLayouts(t *testing.T) {
	for _, hosts := range [][]int{{1}, {0, 2}, {0}} {
		if _, err := New(2, Config{Hosts: hosts}); err == nil {
			t.Errorf("hosts %v were accepted for 2 ranks", hosts)
		}
	}
	if _, err := New(0, Config{}); err == nil {
		t.Error("a cluster of nobody was built")
	}
}
