package jobtest_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"hora/launch"
)

const coordinatorArgument = "__coordinator"

func beCoordinator() int {
	if err := launch.Coordinate(os.Stdin, os.Stdout, os.NewFile(3, "door")); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// coordinatorOf is the pid of the coordinator that a job's state directory is kept by, 0
// while there is none.
func coordinatorOf(dir string) int {
	files, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil || !strings.Contains(string(b), "\x00"+coordinatorArgument) {
			continue
		}
		open, _ := filepath.Glob(filepath.Join(filepath.Dir(f), "fd/*"))
		for _, fd := range open {
			if to, err := os.Readlink(fd); err == nil && to == filepath.Join(dir, "journal") {
				pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(f)))
				return pid
			}
		}
	}
	return 0
}

// killCoordinator ends the coordinator and returns when that was.
func (j *elasticJob) killCoordinator(dir string) time.Time {
	j.t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	pid := coordinatorOf(dir)
	for pid == 0 && time.Now().Before(deadline) {
		pause(2 * time.Millisecond)
		pid = coordinatorOf(dir)
	}
	at := time.Now()
	if pid == 0 || syscall.Kill(pid, syscall.SIGKILL) != nil {
		j.t.Fatalf("there is no coordinator to kill\n%s", j.text())
	}
	return at
}

// TestAKilledCoordinatorIsStartedAgain kills the coordinator alone, which the training does
// not notice, and right before and after a worker, whose replacement then meets the next
// coordinator. The weights are those of an undisturbed run.
func TestAKilledCoordinatorIsStartedAgain(t *testing.T) {
	const np, steps = 3, 200
	dir := t.TempDir()
	gate, open := gateFile(t)
	draw := drawSeed(t)
	rounds := 4
	if os.Getenv("HORA_SOAK") == "1" {
		rounds = 40
	}
	j := startElastic(t, np, "train", func(s *asked) { s.StateDir = dir }, fmt.Sprint("STEPS=", steps), "EVERY=1", gate)
	epoch := 1
	settled := func() {
		t.Helper()
		want := fmt.Sprintf("sum in epoch %d\n", epoch)
		j.until("all ranks in epoch "+strconv.Itoa(epoch), 40*time.Second, func() bool { return j.said(want) >= np && len(j.pids) == np })
	}
	settled()
	for range 2 { // the second has the first one's story from the journal
		j.killCoordinator(dir)
		j.until("another coordinator", 20*time.Second, func() bool { return strings.Count(strings.Join(j.events, "\n"), ": started again from ") > 0 })
	}
	pause(300 * time.Millisecond)
	if text := j.text(); strings.Contains(text, "epoch 2 begins") || strings.Contains(text, "error") {
		t.Errorf("the training noticed:\n%s", text)
	}
	for i := range rounds {
		pause(time.Duration(draw.IntN(30)) * time.Millisecond)
		if i%2 == 0 {
			at := j.kill(draw.IntN(np), draw)
			pause(time.Duration(draw.IntN(3000)) * time.Microsecond)
			j.killCoordinator(dir)
			epoch++
			settled()
			t.Logf("worker, then coordinator: all at work again after %.0f ms", latest(j.moments(fmt.Sprintf("sum in epoch %d", epoch), at)))
			continue
		}
		at := j.killCoordinator(dir)
		j.kill(draw.IntN(np), draw)
		epoch++
		settled()
		t.Logf("coordinator, then worker: all at work again after %.0f ms", latest(j.moments(fmt.Sprintf("sum in epoch %d", epoch), at)))
	}
	open()
	j.sameWeights(np, steps)
	j.tells("the coordinator ended (signal: killed): started again from "+dir, fmt.Sprintf("%d epochs in", epoch))
	if pid := coordinatorOf(dir); pid != 0 {
		t.Errorf("coordinator %d is left", pid)
	}
}

// latest is the largest of some times.
func latest(ms []float64) (most float64) {
	for _, m := range ms {
		most = max(most, m)
	}
	return most
}
