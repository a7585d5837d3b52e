package main

import (
	"bytes"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"hora/internal/hosttest"
)

// With --tls nobody on the cable reads what workers of two hosts say; without it everybody does.
func TestTLSBetweenHosts(t *testing.T) {
	t.Parallel()
	n := hosttest.Up(t, "server1", "server2")
	a := n.Hosts[0]
	program, worker := a.Install(self(t), "hora"), ""
	for _, h := range n.Hosts {
		worker = h.Install(self(t), "worker")
	}
	for _, c := range []struct {
		flag  string
		clear bool
	}{{"--tls=false", true}, {"--tls", false}} {
		var heard, packets atomic.Int64
		var tap int
		a.Do(func() error {
			every := uint16(unix.ETH_P_ALL)
			var err error
			tap, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, int(every<<8|every>>8))
			if err == nil {
				err = unix.SetsockoptInt(tap, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 64<<20)
			}
			return err
		})
		stop, done := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(done)
			buf := make([]byte, 1<<17)
			for {
				fds := []unix.PollFd{{Fd: int32(tap), Events: unix.POLLIN}}
				if k, _ := unix.Poll(fds, 50); k == 0 {
					select {
					case <-stop:
						return
					default:
						continue
					}
				}
				k, err := unix.Read(tap, buf)
				if err != nil {
					return
				}
				packets.Add(1)
				if bytes.Contains(buf[:k], []byte(overheard)) {
					heard.Add(1)
				}
			}
		}()
		code, out, errs := a.Output(40*time.Second, "env", "HORA_TEST_PROGRAM=1", program, "run", "-np", "2", "-H", "server1:1,server2:1", c.flag,
			"--env", "HORA_TEST_PROGRAM=", "--env", "HORA_TEST_WORKER=tells", worker)
		close(stop)
		<-done
		unix.Close(tap)
		if code != 0 || strings.Count(out, "all was heard") != 1 {
			t.Errorf("%s: exit code %d\n%s%s", c.flag, code, out, errs)
		}
		t.Logf("%s: %d of %d packets held the text", c.flag, heard.Load(), packets.Load())
		if heard.Load() > 0 != c.clear || packets.Load() == 0 {
			t.Errorf("%s: %d of %d packets held the text", c.flag, heard.Load(), packets.Load())
		}
	}
}
