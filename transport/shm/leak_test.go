//go:build linux

package shm

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"
)

// possessions are what a link must give back: open descriptors, mapped memory of
// ours, goroutines.
type possessions struct{ fds, maps, goroutines int }

func counted(t *testing.T) (p possessions) {
	t.Helper()
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Fatal(err)
	}
	return possessions{len(fds), bytes.Count(maps, []byte("memfd:hora")), runtime.NumGoroutine()}
}

// settle collects garbage (boards hold their mappings) until f is content.
func settle(t *testing.T, f func() error) {
	t.Helper()
	end := time.Now().Add(5 * time.Second)
	for {
		runtime.GC()
		err := f()
		if err == nil {
			return
		}
		if time.Now().After(end) {
			t.Fatal(err)
		}
		runtime.Gosched()
	}
}

func TestNothingIsLeft(t *testing.T) {
	cycle := func(t *testing.T) {
		links := openAll(t, 3, nil)
		each(t, 3, func(i int) error {
			l := links[i]
			kept, err := l.Buffer(t.Context(), 1<<20)
			if err != nil {
				return err
			}
			given, err := l.Buffer(t.Context(), 100)
			if err != nil {
				return err
			}
			if err := barrier(l, 1); err != nil {
				return err
			}
			if err := given.Close(); err != nil {
				return err
			}
			if err := errors.Join(l.Tell((i+1)%3, []byte("bye")), l.Close(), l.Close()); err != nil {
				return err
			}
			kept.Bytes()[1<<20-1] = 1 // still there
			return errors.Join(kept.Close(), kept.Close())
		})
	}
	t.Run("warm", cycle) // what the runtime opens once
	before := counted(t)
	for range 5 {
		t.Run("cycle", cycle)
	}
	settle(t, func() error {
		if now := counted(t); now.fds > before.fds || now.maps > 0 || now.goroutines > before.goroutines {
			return fmt.Errorf("before %+v, after five cycles %+v", before, now)
		}
		return nil
	})
}

// TestFailedOpenLeavesNothing counts after Opens that cannot succeed.
func TestFailedOpenLeavesNothing(t *testing.T) {
	TestSilentRank(t)
	before := counted(t)
	for range 3 {
		TestSilentRank(t)
		TestUnlikeRanks(t)
	}
	settle(t, func() error {
		if now := counted(t); now.fds > before.fds || now.maps > 0 || now.goroutines > before.goroutines {
			return fmt.Errorf("before %+v, after %+v", before, now)
		}
		return nil
	})
}

// TestKilledRanksLeaveNothing looks for what a killed job could leave on the host, where
// other jobs come and go.
func TestKilledRanksLeaveNothing(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	sockets := func(name string) int {
		all, _ := os.ReadFile("/proc/net/unix")
		return bytes.Count(all, []byte(name))
	}
	files := func() (found []string) {
		for _, dir := range []string{"/dev/shm", os.TempDir()} {
			entries, _ := os.ReadDir(dir)
			for _, e := range entries {
				if strings.HasPrefix(e.Name(), "hora") {
					found = append(found, dir+"/"+e.Name())
				}
			}
		}
		return found
	}
	ranks := startJob(t, 2, role{CPU: -1})
	leader := ranks[1].role.Leader
	if !strings.HasPrefix(leader, "@hora-") || sockets(leader) == 0 {
		t.Fatalf("the leader's socket %q is not in /proc/net/unix", leader)
	}
	for _, p := range ranks {
		p.Cmd.Process.Kill()
		<-p.Ended
	}
	settle(t, func() error {
		if left := files(); len(left) > 0 || sockets(leader) > 0 {
			return fmt.Errorf("files %v, %d sockets", left, sockets(leader))
		}
		return nil
	})
}
