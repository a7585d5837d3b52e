package main

import (
	"bufio"
	"context"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"hora/internal/hosttest"
)

// What takes longer than two seconds says what it waits for: a slow copy, a host that does not answer, workers that do
// not want to end, and hosts that have not been found. Each is interrupted once it has said so.
func TestLongWaitsSayForWhat(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("takes long under the race detector")
	}
	n := hosttest.Up(t, "server1", "server2", "server3")
	program := n.Hosts[0].Install(build(t), "hora")
	n.Hosts[1].Rate(5) // the program takes about twenty seconds
	n.Hosts[2].Cable(false)
	const stubborn = `trap "" TERM; [ $RANK = 1 ] && touch up; until [ -e up ]; do sleep 0.05; done; [ $RANK = 0 ] && exit 3; while :; do sleep 0.1; done`
	var all sync.WaitGroup
	for _, c := range []struct {
		want string
		argv []string
	}{
		{`^hora: copying hora to server2 \(\d+\.\d of \d+\.\d MB\); \d+s so far, at most 2m0s$`, strings.Fields("-np 2 --start-timeout 120 -H server1:1,server2:1 true")},
		{`^hora: no answer yet from server3; \d+s so far, at most 2m0s$`, strings.Fields("-np 2 --start-timeout 120 -H server1:1,server3:1 true")},
		{`^hora: waiting for rank 1 to end: it is killed after 5s$`, []string{"-np", "2", "sh", "-c", stubborn}},
		{`^hora: waiting for hosts: there are 1 of 2 slots; \d+s so far, at most 2m0s$`, []string{"-np", "2", "--elastic-timeout", "120", "--discover", "echo localhost:1", "true"}},
	} {
		all.Go(func() {
			ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
			defer cancel()
			cmd := n.Hosts[0].Command(ctx, append([]string{program, "run"}, c.argv...)...)
			errs, err := cmd.StderrPipe()
			if err == nil {
				err = cmd.Start()
			}
			if err != nil {
				t.Error(err)
				return
			}
			want, seen, text := regexp.MustCompile(c.want), false, ""
			for lines := bufio.NewScanner(errs); lines.Scan(); {
				text += lines.Text() + "\n"
				if !seen && want.MatchString(lines.Text()) {
					seen = true
					_ = cmd.Process.Signal(os.Interrupt) // it may end by itself
				}
			}
			if err := cmd.Wait(); err == nil || !seen {
				t.Errorf("hora run %v: %v, want %q in\n%s", c.argv, err, c.want, text)
			}
		})
	}
	all.Wait()
}
