package jobtest_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"hora"
	"hora/internal/jobtest"
)

// diary is a log's output, of one rank.
type diary struct {
	mu sync.Mutex // guards b
	b  bytes.Buffer
}

func (l *diary) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *diary) refusals() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.b.String(), "refused")
}

// sockets are the abstract sockets at which this process listens.
func sockets(t *testing.T) (list []string) {
	t.Helper()
	own := map[string]bool{}
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, fd := range fds {
		to, _ := os.Readlink("/proc/self/fd/" + fd.Name())
		if inode, is := strings.CutPrefix(to, "socket:["); is {
			own[strings.TrimSuffix(inode, "]")] = true
		}
	}
	b, err := os.ReadFile("/proc/net/unix")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) { // Num RefCount Protocol Flags Type St Inode Path
		if f := strings.Fields(line); len(f) == 8 && f[3] == "00010000" && own[f[6]] && f[7][0] == '@' {
			list = append(list, f[7])
		}
	}
	return list
}

// TestStrangersWhileRanksMeet has strangers at ranks that listen already and have not found the coordinator yet, which
// is how it is for long in a job that many strangers harass: the log of rank 0, which serves it, tells of all of them
// in a few lines, those of the others have none.
func TestStrangersWhileRanksMeet(t *testing.T) {
	const size = 4
	before := len(sockets(t))
	s := hora.NewSecret()
	addr := "127.0.0.1:" + strconv.Itoa(jobtest.FreePort(t))
	logs := make([]diary, size)
	ready := make(chan struct{})
	go func() {
		defer close(ready)
		var at []string
		for limit := time.Now().Add(20 * time.Second); len(at) < before+size-1 && time.Now().Before(limit); {
			at = sockets(t)
		}
		for _, a := range at {
			for range 5 {
				c, err := net.Dial("unix", a)
				if err != nil {
					continue
				}
				fmt.Fprint(c, "GET / HTTP/1.1\r\nHost: somewhere.example\r\n\r\n")
				c.SetReadDeadline(time.Now().Add(5 * time.Second))
				for err == nil { // until it is sent away
					_, err = c.Read(make([]byte, 512))
				}
				c.Close()
			}
		}
	}()
	jobtest.Ranks(t, size, func(rank int) (err error) {
		ctx, cancel := context.WithTimeout(context.Background(), 40*time.Second)
		defer cancel()
		if rank == 0 {
			<-ready
		}
		w, err := hora.Join(ctx, hora.Config{
			Rank: rank, Size: size, Addr: addr, Serve: true, Secret: s,
			Log: slog.New(slog.NewTextHandler(&logs[rank], nil)),
		})
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, w.Leave(ctx)) }()
		x := []float32{1}
		if err := hora.Allreduce(ctx, w.Group(), x, hora.Sum); err != nil || x[0] != size {
			return fmt.Errorf("sum %v: %w", x[0], err)
		}
		return nil
	})
	for rank := range logs {
		n := logs[rank].refusals()
		if rank > 0 && n > 0 || rank == 0 && (n < 1 || n > 4) {
			t.Errorf("rank %d's log has %d words about strangers:\n%s", rank, n, logs[rank].b.String())
		}
	}
}
