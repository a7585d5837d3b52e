package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"hora/cmd/console"
	"hora/event"
	"hora/observe"
)

func TestStatusLine(t *testing.T) {
	var screen bytes.Buffer
	now := time.Unix(0, 0)
	s := newStatus(&screen, 3, func() int { return 60 }, func() time.Time { return now })
	out := s.above(&screen)
	said := func(want string) {
		t.Helper()
		if screen.String() != want {
			t.Errorf("got %q, want %q", screen.String(), want)
		}
		screen.Reset()
	}
	for r := range 3 {
		s.Event(&event.Started{Rank: r})
	}
	s.draw()
	said("") // too soon
	joined := func(epoch uint64, ranks ...int) {
		s.Event(&event.Opened{Epoch: epoch, Size: len(ranks)})
		for _, r := range ranks {
			s.Event(&event.Admitted{Rank: r})
		}
	}
	now = now.Add(5 * time.Second)
	s.draw()
	said("\r\x1b[Khora: 3 of 3 ranks started, 0 joined, 5s")
	joined(1, 0, 1, 2)
	s.draw()
	said("\r\x1b[Khora: 3 of 3 ranks up, 5s")
	for second := range 2 {
		p := &event.Progress{Rank: 2}
		p.Elapsed, p.Operations = time.Duration(second+1)*time.Second, int64(10*second)
		s.Event(p)
	}
	s.draw()
	said("\r\x1b[Khora: 3 of 3 ranks up, 5s, 10.0 collectives/s, 0.0 B/s")
	s.Event(&event.Exited{Rank: 1})
	joined(2, 0, 2)
	s.Event(&event.Restarted{Rank: 1})
	s.draw()
	said("\r\x1b[Khora: 2 of 3 ranks up, 5s, restarts: 1")
	s.Event(&event.Held{Rank: 2, Host: "a", Why: "held"})
	s.draw()
	said("\r\x1b[Khora: 2 of 3 ranks up, 5s, restarts: 1, waiting for rank 2:")
	s.Event(&event.Held{Rank: 2, Host: "a"})
	fmt.Fprintln(out, "loss 0.3")
	said("\r\x1b[Kloss 0.3\n\r\x1b[Khora: 2 of 3 ranks up, 5s, restarts: 1")
	fmt.Fprint(out, "half a")
	said("\r\x1b[Khalf a") // not into the middle of a line
	s.draw()
	said("")
	fmt.Fprintln(out, " line")
	s.Event(&event.Shrunk{Rank: 1})
	s.width = func() int { return 20 }
	s.draw()
	said(" line\n\r\x1b[Khora: 2 of 2 ranks ")
	s.width = func() int { return 1 }
	s.draw()
	said("\r\x1b[K") // no room
	s.draw()
	said("")
	s.width = func() int { return 20 }
	s.Event(&event.Started{Rank: 1})
	s.draw()
	said("\r\x1b[Khora: 3 of 3 ranks ")
	go s.run()
	s.close()
	said("\r\x1b[K")
	s.draw()
	said("")
}

// A terminal that was told no size has a usual one.
func TestATerminalWithoutAWidth(t *testing.T) {
	_, slave := terminal(t)
	if err := unix.IoctlSetWinsize(int(slave.Fd()), unix.TIOCSWINSZ, &unix.Winsize{}); err != nil {
		t.Fatal(err)
	}
	if n := terminalWidth(slave); n != console.UsualWidth {
		t.Errorf("it has %d columns", n)
	}
}

func TestRates(t *testing.T) {
	now := time.Unix(100, 0)
	var r observe.Rates
	tell := func(rank int, seconds, inside float64, operations, bytes int64) {
		p := event.Progress{Rank: rank, Host: fmt.Sprintf("host%d", rank/2)}
		p.Elapsed, p.Inside = time.Duration(seconds*1e9), time.Duration(inside*1e9)
		p.Operations, p.Bytes = operations, bytes
		r.Add(&p, now)
	}
	want := func(text string) {
		t.Helper()
		got := ""
		if p, known := r.Pace(now); known {
			got = paceText(p)
		}
		if got != text {
			t.Errorf("got %q, want %q", got, text)
		}
	}
	for rank := range 2 {
		tell(rank, 1, 0.5, 100, 1e6)
	}
	want("") // one report is no rate
	tell(0, 2, 0.9, 350, 1251e6)
	tell(1, 2, 0.89, 350, 1251e6)
	want(", 250 collectives/s, 1.2 GB/s")
	tell(0, 3, 1.5, 600, 2501e6)
	tell(1, 3, 1.1, 600, 2501e6)
	want(", 250 collectives/s, 1.2 GB/s, slowest: rank 1 (others wait 20 %)")
	tell(2, 5, 1, 0, 0)
	tell(2, 7, 1, 24000, 10)
	want(", 12,000 collectives/s, 1.2 GB/s, slowest: rank 2 on host1 (others wait 30 %)")
	tell(2, 0.5, 0, 0, 0) // it was started again
	want(", 250 collectives/s, 1.2 GB/s, slowest: rank 1 (others wait 20 %)")
	now = now.Add(observe.Fresh + time.Second)
	want("")
}

// A job on a terminal tells how fast it goes, and for whom the others wait.
func TestStatusLineTellsTheRates(t *testing.T) {
	t.Parallel()
	master, slave := terminal(t)
	if err := unix.IoctlSetWinsize(int(slave.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: 200}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	stop := filepath.Join(t.TempDir(), "stop")
	cmd := exec.CommandContext(ctx, self(t), "run", "-np", "2", "--env", "HORA_TEST_PROGRAM=", "--env", "HORA_TEST_WORKER=uneven", "--env", "HORA_TEST_STOP="+stop, self(t))
	cmd.Env = append(os.Environ(), "HORA_TEST_PROGRAM=1")
	cmd.Stderr = slave
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	slave.Close()
	line := regexp.MustCompile(`hora: 2 of 2 ranks up, \d+s, [0-9.]+ collectives/s, [0-9.]+ [kM]?B/s, slowest: rank 1 \(others wait \d+ %\)`)
	var seen []byte
	buf := make([]byte, 4096)
	for {
		n, err := master.Read(buf)
		seen = append(seen, buf[:n]...)
		if line.Match(seen) {
			_ = os.WriteFile(stop, nil, 0o600) // the workers look for it
		}
		if err != nil {
			break // the terminal's last writer has ended
		}
	}
	if err := cmd.Wait(); err != nil || !line.Match(seen) {
		t.Errorf("%v; the terminal shows %q", err, seen)
	}
}

// terminal is a pseudo-terminal: what is written to slave can be read from master.
func terminal(t *testing.T) (master, slave *os.File) {
	t.Helper()
	m, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	n, err := unix.IoctlGetInt(int(m.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.IoctlSetPointerInt(int(m.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	s, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	if err := unix.IoctlSetWinsize(int(s.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: 80}); err != nil {
		t.Fatal(err)
	}
	return m, s
}

func TestStatusLineOnATerminalOnly(t *testing.T) {
	t.Parallel()
	master, slave := terminal(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	run := func(errs io.Writer) {
		t.Helper()
		cmd := exec.CommandContext(ctx, self, "run", "-np", "2", "sh", "-c", "sleep 2.2; echo here")
		cmd.Env = append(os.Environ(), "HORA_TEST_PROGRAM=1")
		cmd.Stderr = errs
		out, err := cmd.Output()
		if err != nil || strings.Contains(string(out), "ranks ") {
			t.Fatalf("%v %s", err, out)
		}
	}
	seen := make(chan string, 1)
	go func() {
		var b []byte
		buf := make([]byte, 4096)
		for {
			n, err := master.Read(buf)
			b = append(b, buf[:n]...)
			if err != nil || bytes.Contains(b, []byte("the end")) {
				seen <- string(b)
				return
			}
		}
	}()
	run(slave)
	fmt.Fprintln(slave, "the end")
	if got := <-seen; !strings.Contains(got, "hora: 2 of 2 ranks started, 0 joined, 1s") && !strings.Contains(got, "hora: 2 of 2 ranks started, 0 joined, 2s") || !strings.Contains(got, "\r\x1b[Kthe end") {
		t.Errorf("%q", got)
	}
	var piped bytes.Buffer
	run(&piped)
	if piped.Len() > 0 {
		t.Errorf("piped: %q", piped.String())
	}
}
