package rendezvous

import (
	"bytes"
	"context"
	"fmt"
	"math/bits"
	"net"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"time"

	"hora/internal/secret"
)

// memory is a listener whose connections are pipes of this process.
type memory struct {
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
}

func newMemory() *memory { return &memory{conns: make(chan net.Conn), done: make(chan struct{})} }

func (m *memory) Accept() (net.Conn, error) {
	select {
	case c := <-m.conns:
		return c, nil
	case <-m.done:
		return nil, net.ErrClosed
	}
}

func (m *memory) Close() error   { m.once.Do(func() { close(m.done) }); return nil }
func (m *memory) Addr() net.Addr { return &net.UnixAddr{Name: "memory", Net: "unix"} }

func (m *memory) dial() net.Conn {
	ours, theirs := net.Pipe()
	m.conns <- theirs
	return ours
}

// cpu is the processor time that this process has used.
func cpu() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// crowd has n workers join one epoch and leave, over dial, and says what the coordinator sent and received.
func crowd(t *testing.T, n int, key secret.Secret, s *Server, dial func() (net.Conn, error)) (received, sent int64) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	var wg sync.WaitGroup
	errs := make(chan error, n)
	for r := range n {
		wg.Go(func() {
			if err := attend(ctx, r, n, key, dial); err != nil {
				errs <- fmt.Errorf("rank %d: %w", r, err)
			}
		})
	}
	wg.Wait()
	close(errs)
	for err := range errs {
		t.Fatal(err)
	}
	return s.Bytes()
}

func attend(ctx context.Context, r, n int, key secret.Secret, dial func() (net.Conn, error)) error {
	var c *Client
	for c == nil {
		conn, err := dial()
		if err != nil {
			return err
		}
		c, err = DialConn(ctx, conn, key, Hello{Rank: r, Size: n, Host: fmt.Sprintf("host%04d", r/8), Beat: time.Minute})
		// who is pushed out by those behind dials again, as Dial does
		if err != nil && (!mayPass(err) || ctx.Err() != nil) {
			return err
		}
	}
	defer c.Close()
	e, err := c.Join(ctx, Member{Rank: r, Unix: "@hora-test", Addrs: []string{"10.0.0.1:40000", "10.1.0.1:40000"}, Pid: r})
	if err != nil {
		return err
	}
	if e.Number != 1 || e.Rank != r || e.Size != n {
		return fmt.Errorf("epoch %d, rank %d of %d", e.Number, e.Rank, e.Size)
	}
	for step := 1; step < n; step <<= 1 {
		for _, peer := range []int{(r + step) % n, (r - step + n) % n} {
			if m, ok := e.Member(peer); !ok || m.Pid != peer {
				return fmt.Errorf("rank %d at distance %d is not among its %d members", peer, step, len(e.Members))
			}
		}
	}
	return c.Leave(ctx)
}

func TestTenThousandWorkersJoinAndLeave(t *testing.T) {
	if testing.Short() {
		t.Skip("takes long under the race detector")
	}
	per := map[int]float64{}
	for _, n := range []int{1000, 10000} {
		key := secret.New()
		ln := newMemory()
		s := Serve(context.Background(), ln, Config{Secret: key, Size: n, Silence: time.Minute})
		before := cpu()
		received, sent := crowd(t, n, key, s, func() (net.Conn, error) { return ln.dial(), nil })
		used := cpu() - before
		s.Close()
		per[n] = float64(received+sent) / float64(n) / float64(bits.Len(uint(n)))
		t.Logf("%d workers: %v of processor time, %.0f bytes per worker", n, used, float64(received+sent)/float64(n))
		if n == 10000 && used > 15*time.Second { // three times the figure
			t.Errorf("%d workers took %v of processor time, the figure is 5 s", n, used)
		}
	}
	if per[10000] > 1.3*per[1000] {
		t.Errorf("bytes per worker and log n grow from %.0f to %.0f", per[1000], per[10000])
	}
}

func TestAThousandWorkersOverTCP(t *testing.T) {
	if testing.Short() {
		t.Skip("takes long under the race detector")
	}
	key := secret.New()
	s, addr := serveTCP(t, Config{Secret: key, Size: 1000})
	crowd(t, 1000, key, s, func() (net.Conn, error) { return net.DialTimeout("tcp", addr, 20*time.Second) })
}

func TestAThousandStrangersAreEndured(t *testing.T) {
	key := secret.New()
	_, addr := serveTCP(t, Config{Secret: key, Size: 2})
	var before runtime.MemStats
	runtime.ReadMemStats(&before)
	garbage := bytes.Repeat([]byte("HORA\xff garbage "), 64)
	for i := range 1000 {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if i%2 == 0 {
			c.Write(garbage)
		}
	}
	joined(t, addr, key, 2, nil)
	var after runtime.MemStats
	runtime.ReadMemStats(&after)
	grown := int64(after.Sys) - int64(before.Sys)
	t.Logf("1,000 strangers: memory, theirs included, grew by %.1f MB", float64(grown)/1e6)
	if grown > 100e6 {
		t.Errorf("memory grew by %.1f MB, at most 100", float64(grown)/1e6)
	}
}

func FuzzMessages(f *testing.F) {
	m := Member{Rank: 3, Host: "h", Unix: "@x", Addrs: []string{"a:1"}, Pid: 7}
	f.Add(kindJoin, appendMember(make([]byte, 8), &m))
	f.Add(kindEpoch, []byte("\x01\x00\x00\x00\x00\x00\x00\x00"))
	f.Add(kindNotice, (&Notice{Kind: NoticeLost, Host: "h", Reason: "r"}).message()[8:])
	f.Add(kindMembers, []byte("\x01\x00\x00\x00\x00\x00\x00\x00\xff\xff\xff\xff"))
	f.Fuzz(func(t *testing.T, kind uint8, body []byte) {
		_, _ = decodeRequest(kind, body)
		_, _, _ = decodeAnswer(kind, body)
		_, _ = decodeNotice(body)
	})
}
