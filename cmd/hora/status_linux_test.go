package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"hora/launch"
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
		s.Event(&launch.Started{Rank: r})
	}
	s.draw()
	said("") // too soon
	now = now.Add(5 * time.Second)
	s.Event(&launch.Exited{Rank: 1})
	s.Event(&launch.Restarted{Rank: 1})
	s.draw()
	said("\r\x1b[Khora: 2 of 3 ranks up, 5s, restarts: 1")
	fmt.Fprintln(out, "loss 0.3")
	said("\r\x1b[Kloss 0.3\n\r\x1b[Khora: 2 of 3 ranks up, 5s, restarts: 1")
	fmt.Fprint(out, "half a")
	said("\r\x1b[Khalf a") // not into the middle of a line
	s.draw()
	said("")
	fmt.Fprintln(out, " line")
	s.Event(&launch.Shrunk{Rank: 1})
	s.width = func() int { return 20 }
	s.draw()
	said(" line\n\r\x1b[Khora: 2 of 2 ranks ")
	go s.run()
	s.close()
	said("\r\x1b[K")
	s.draw()
	said("")
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
		if err != nil || strings.Contains(string(out), "ranks up") {
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
	if got := <-seen; !strings.Contains(got, "hora: 2 of 2 ranks up, 1s") && !strings.Contains(got, "hora: 2 of 2 ranks up, 2s") || !strings.Contains(got, "\r\x1b[Kthe end") {
		t.Errorf("%q", got)
	}
	var piped bytes.Buffer
	run(&piped)
	if piped.Len() > 0 {
		t.Errorf("piped: %q", piped.String())
	}
}
