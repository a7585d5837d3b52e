//go:build linux

package shm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"hora/internal/secret"
	"hora/transport"
)

// logged is a log that tests read.
type logged struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

func (l *logged) logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

// TestStrangers has all kinds of them at the socket while two ranks open.
func TestStrangers(t *testing.T) {
	log := &logged{}
	s := secret.New()
	ln, err := Listen(s, ListenConfig{Job: "j", Host: "h", Strangers: secret.NewStrangers(func(r secret.Refused) {
		log.logger().Warn(r.String())
	}).Telling(1000, time.Minute)})
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	config := func(rank int) Config {
		return Config{Secret: s, Job: "j", Host: "h", Rank: rank, Ranks: []int{0, 1}, Listener: ln, Leader: ln.Addr()}
	}
	first := make(chan error, 1)
	var link *Link
	go func() {
		var err error
		link, err = Open(ctx, config(0))
		first <- err
	}()

	for name, say := range map[string]string{
		"nothing": "", "garbage": strings.Repeat("\x00\xff garbage", 100),
		"http": "GET / HTTP/1.1\r\n\r\n", "half a hello": "hora",
	} {
		conn, err := net.Dial("unix", ln.Addr())
		if err != nil {
			t.Fatal(err)
		}
		io.WriteString(conn, say)
		conn.(*net.UnixConn).CloseWrite()
		conn.SetDeadline(time.Now().Add(10 * time.Second))
		if _, err := io.Copy(io.Discard, conn); err != nil && !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("%s: %v", name, err)
		}
		conn.Close()
	}
	wrong := config(1)
	wrong.Secret = secret.New()
	if _, err := Open(ctx, wrong); !errors.Is(err, secret.ErrProof) {
		t.Errorf("wrong secret: %v", err)
	}
	other := config(1)
	other.Job = "another"
	if _, err := Open(ctx, other); err == nil || !strings.Contains(err.Error(), `"another"`) {
		t.Errorf("wrong job: %v", err)
	}
	settle(t, func() error {
		for _, why := range []string{"hora's", "did not prove", "that is job"} { // of garbage, http and half a hello; the wrong secret; the wrong job
			if !strings.Contains(log.String(), why) {
				return fmt.Errorf("nothing says %q:\n%s", why, log)
			}
		}
		return nil
	})

	second, err := Open(ctx, config(1))
	if err != nil {
		t.Fatal(err)
	}
	defer second.Close()
	if err := <-first; err != nil {
		t.Fatal(err)
	}
	defer link.Close()
	second.Begin(transport.Stamp{Seq: 1}, time.Time{})
	if err := second.Send(0, []byte("x")); err != nil {
		t.Fatal(err)
	}
	link.Begin(transport.Stamp{Seq: 1}, time.Time{})
	if err := link.Recv(1, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
}

// A thousand connections that say nothing keep a rank of this host out no longer than it takes to let go of the oldest.
func TestIdleStrangersKeepNobodyOut(t *testing.T) {
	s := secret.New()
	ln, err := Listen(s, ListenConfig{Job: "j", Host: "h"})
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	for range 1000 {
		conn, err := net.Dial("unix", ln.Addr())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
	}
	began := time.Now()
	each(t, 2, func(i int) error {
		l, err := Open(t.Context(), Config{
			Secret: s, Job: "j", Host: "h", Rank: i, Ranks: []int{0, 1}, Listener: ln,
			Leader: ln.Addr(),
		})
		if err != nil {
			return err
		}
		return l.Close()
	})
	if took := time.Since(began); took > proofTime {
		t.Errorf("two ranks met after %v", took)
	}
}

// asNobody runs f on a thread that has become another user, and ends that thread.
func asNobody(t *testing.T, f func()) {
	if os.Geteuid() != 0 {
		t.Skip("only root can become another user")
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		if _, _, e := unix.RawSyscall(unix.SYS_SETRESUID, 65534, 65534, 65534); e != 0 {
			t.Errorf("become nobody: %v", e)
			return
		}
		f()
	}()
	<-done
}

func TestForeignUserIsRefused(t *testing.T) {
	log := &logged{}
	s := secret.New()
	ln, err := Listen(s, ListenConfig{Job: "j", Host: "h", Log: log.logger()})
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	asNobody(t, func() {
		// By hand: the runtime would connect on this thread too, but nothing promises it.
		fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err == nil {
			err = unix.Connect(fd, &unix.SockaddrUnix{Name: ln.Addr()})
		}
		if err != nil {
			t.Errorf("connect: %v", err)
			return
		}
		defer unix.Close(fd)
		if n, err := unix.Read(fd, make([]byte, 1)); n != 0 && err == nil {
			t.Error("a foreign user was answered")
		}
	})
	settle(t, func() error {
		if !strings.Contains(log.String(), "user 65534") {
			return fmt.Errorf("log: %s", log)
		}
		return nil
	})
}

// TestForeignLeaderIsRefused has another user sit on the leader's address.
func TestForeignLeaderIsRefused(t *testing.T) {
	name := fmt.Sprintf("@hora-test-%d", os.Getpid())
	ready, done := make(chan int, 1), make(chan struct{})
	asNobody(t, func() {
		fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err == nil {
			err = unix.Bind(fd, &unix.SockaddrUnix{Name: name})
		}
		if err == nil {
			err = unix.Listen(fd, 1)
		}
		if err != nil {
			t.Errorf("listen: %v", err)
		}
		ready <- fd
	})
	close(done)
	fd := <-ready
	defer unix.Close(fd)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	_, err := Open(ctx, Config{Secret: secret.New(), Job: "j", Rank: 1, Ranks: []int{0, 1}, Leader: name})
	if err == nil || !strings.Contains(err.Error(), "user 65534") {
		t.Fatalf("got %v", err)
	}
}

func TestPathSocket(t *testing.T) {
	s := secret.New()
	ln, err := Listen(s, ListenConfig{Addr: filepath.Join(t.TempDir(), "sock"), Job: "j"})
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	each(t, 2, func(i int) error {
		l, err := Open(t.Context(), Config{
			Secret: s, Job: "j", Rank: i + 4, Ranks: []int{4, 5}, Listener: ln,
			Leader: ln.Addr(),
		})
		if err != nil {
			return err
		}
		return l.Close()
	})
}

// TestSilentRank has a rank that never comes: Open ends with its context and says
// who is missing.
func TestSilentRank(t *testing.T) {
	s := secret.New()
	ln, err := Listen(s, ListenConfig{})
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	each(t, 2, func(i int) error {
		_, err := Open(ctx, Config{
			Secret: s, Host: "h", Rank: i, Ranks: []int{0, 1, 7}, Listener: ln,
			Leader: ln.Addr(),
		})
		if err == nil {
			return errors.New("opened without rank 7")
		}
		if !strings.Contains(err.Error(), "rank [7] on host h") || errors.As(err, new(*UnavailableError)) {
			return err
		}
		return nil
	})
}

func TestUnlikeRanks(t *testing.T) {
	s := secret.New()
	ln, err := Listen(s, ListenConfig{})
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	each(t, 2, func(i int) error {
		_, err := Open(t.Context(), Config{
			Secret: s, Rank: i, Ranks: []int{0, 1}, Listener: ln, Leader: ln.Addr(),
			SlotBytes: 4096 * (i + 1),
		})
		if !errors.As(err, new(*UnavailableError)) || !strings.Contains(err.Error(), "configure all ranks alike") {
			return fmt.Errorf("got %w", err)
		}
		return nil
	})
}
