package jobtest_test

import (
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"hora/internal/jobtest"
)

// wire passes bytes on between two addresses until it is cut; then it says nothing more,
// and its connections stay open, as when a cable is pulled.
type wire struct {
	t   *testing.T
	mu  sync.Mutex // guards all
	all []net.Conn
	cut chan struct{}
	wg  sync.WaitGroup
}

func newWire(t *testing.T) *wire {
	w := &wire{t: t, cut: make(chan struct{})}
	t.Cleanup(func() {
		w.mu.Lock()
		for _, c := range w.all {
			c.Close()
		}
		w.mu.Unlock()
		w.wg.Wait()
	})
	return w
}

// to is an address that leads to another over the wire.
func (w *wire) to(addr string) string {
	w.t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { ln.Close() })
	w.wg.Go(func() {
		for {
			near, err := ln.Accept()
			if err != nil {
				return
			}
			far, err := net.Dial("tcp", addr)
			if err != nil { // nobody listens yet: the rank dials again
				near.Close()
				continue
			}
			w.mu.Lock()
			w.all = append(w.all, near, far)
			w.mu.Unlock()
			w.wg.Go(func() { w.pass(near, far) })
			w.wg.Go(func() { w.pass(far, near) })
		}
	})
	return ln.Addr().String()
}

func (w *wire) pass(from, to net.Conn) {
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		select {
		case <-w.cut:
			io.Copy(io.Discard, from)
			return
		default:
		}
		if n > 0 {
			to.Write(buf[:n])
		}
		if err != nil {
			to.Close()
			return
		}
	}
}

// TestACutNetworkIsNamed cuts one of three ranks off. Nothing ends and nothing is refused:
// the others hear of it by the peer timeout alone, name rank, host and operation, and
// refuse the next operation at once.
func TestACutNetworkIsNamed(t *testing.T) {
	file := secretFile(t)
	cable := newWire(t)
	var direct []string
	for range 3 {
		direct = append(direct, "127.0.0.1:"+strconv.Itoa(jobtest.FreePort(t)))
	}
	far := make([]string, 3) // the same, over the cable
	for r, addr := range direct {
		far[r] = cable.to(addr)
	}
	var all []*process
	for r, peers := range [][]string{
		{direct[0], direct[1], far[2]}, {direct[0], direct[1], far[2]}, {far[0], far[1], direct[2]},
	} {
		all = append(all, startOne(t, r, "loop", []string{
			"HORA_RANK=" + strconv.Itoa(r), "HORA_SIZE=3", "HORA_PEERS=" + strings.Join(peers, ","), "HORA_SECRET_FILE=" + file,
			"HORA_LINKS=tcp", "HORA_PEER_TIMEOUT=1.5",
		}))
	}
	for _, p := range all {
		p.until("running", 20*time.Second)
	}
	began := time.Now()
	close(cable.cut)
	for r, p := range all {
		text := p.until("later:", 15*time.Second)
		d := time.Since(began)
		t.Logf("rank %d learned of it after %v", r, d)
		if d < 700*time.Millisecond || d > 5*time.Second {
			t.Errorf("rank %d learned of it after %v with a timeout of 1.5 s", r, d)
		}
		lost := []string{"2"}
		if r == 2 {
			lost = []string{"0", "1"}
		}
		for _, line := range []string{"error", "later"} {
			said := false
			for _, rank := range lost {
				said = said || strings.Contains(text, line+": allreduce grad.w: lost rank "+rank+" on host 127.0.0.1")
			}
			if !said {
				t.Errorf("rank %d does not name rank %s, its host and the operation:\n%s", r, strings.Join(lost, " or "), text)
			}
		}
		var ms int
		if _, err := fmt.Sscanf(text[strings.Index(text, "after "):], "after %d ms", &ms); err != nil || ms > 500 {
			t.Errorf("rank %d: the operation after that took %d ms (%v)", r, ms, err)
		}
	}
}
