package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"hora"
)

// trainElastic adds until a file says that it is enough, and tells of every world it was in.
func trainElastic(ctx context.Context, cfg hora.Config) error {
	state := hora.NewState()
	steps := 0
	state.Int("steps", &steps)
	return hora.RunElastic(ctx, cfg, state, func(ctx context.Context, w *hora.World) error {
		fmt.Printf("world of %d as rank %d on %s, pid %d, step %d\n", w.Size(), w.Rank(), w.Host(), os.Getpid(), steps)
		pause := time.NewTicker(5 * time.Millisecond)
		defer pause.Stop()
		for {
			<-pause.C
			enough := []float64{0}
			if _, err := os.Stat(os.Getenv("ENOUGH")); err == nil && w.Rank() == 0 {
				enough[0] = 1
			}
			if err := hora.Allreduce(ctx, w.Group(), enough, hora.Sum); err != nil {
				return err
			}
			steps++
			if enough[0] > 0 {
				return nil
			}
			if err := state.Commit(); err != nil {
				return err
			}
		}
	})
}

// follow passes lines on until want lines with such a text have come, and returns the last of them.
func follow(t *testing.T, lines <-chan string, text string, want int) string {
	t.Helper()
	limit := time.After(40 * time.Second)
	var seen []string
	for n := 0; ; {
		select {
		case l, ok := <-lines:
			if !ok {
				t.Fatalf("it ended without %d times %q:\n%s", want, text, strings.Join(seen, "\n"))
			}
			seen = append(seen, l)
			if strings.Contains(l, text) {
				if n++; n == want {
					return l
				}
			}
		case <-limit:
			t.Fatalf("%d times %q instead of %d:\n%s", n, text, want, strings.Join(seen, "\n"))
		}
	}
}

func TestWorkersFollowDiscoveredHosts(t *testing.T) {
	dir := t.TempDir()
	hosts, enough := filepath.Join(dir, "hosts"), filepath.Join(dir, "enough")
	at := func(text string) {
		t.Helper()
		if err := os.WriteFile(hosts+".new", []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(hosts+".new", hosts); err != nil {
			t.Fatal(err)
		}
	}
	at("localhost:1\n")
	ctx, cancel := context.WithTimeout(t.Context(), 90*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, self(t), "run", "-np", "1", "--discover", "cat "+hosts, "--blacklist-cooldown-range", "1", "2", "--verbose",
		"--env", "HORA_TEST_PROGRAM=", "--env", "HORA_TEST_WORKER=elastic", "--env", "ENOUGH="+enough, self(t))
	cmd.Env = append(os.Environ(), "HORA_TEST_PROGRAM=1")
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	cmd.Stdout, cmd.Stderr = w, w
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	w.Close()
	lines := make(chan string, 1000)
	go func() {
		defer close(lines)
		for s := bufio.NewScanner(r); s.Scan(); {
			lines <- s.Text()
		}
	}()
	follow(t, lines, "world of 1 as rank 0 on localhost", 1)
	at("localhost:1\n127.0.0.1:2\n")
	follow(t, lines, "world of 3 as ", 3)
	at("127.0.0.1:1\nlocalhost:1\n")
	follow(t, lines, "world of 2 as ", 2)
	at("127.0.0.1:0\nlocalhost:2\n") // one moves
	l := follow(t, lines, "world of 2 as rank 1 on localhost", 1)
	var pid int
	if _, err := fmt.Sscanf(l[strings.Index(l, "pid "):], "pid %d,", &pid); err != nil {
		t.Fatal(l)
	}
	syscall.Kill(pid, syscall.SIGKILL)
	follow(t, lines, "localhost: rank", 1)                  // banned
	follow(t, lines, "a new worker starts on localhost", 1) // and tried again
	follow(t, lines, "world of 2 as ", 2)
	if err := os.WriteFile(enough, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	var rest []string
	for l := range lines {
		rest = append(rest, l)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("%v\n%s", err, strings.Join(rest, "\n"))
	}
}
