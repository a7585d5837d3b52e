package jobtest_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"hora"
	"hora/elastic"
	"hora/launch"
)

func init() { elasticRoles["traceable"] = traceable }

// traceable is trainElastic that a debugger which is not above it may attach to.
func traceable(ctx context.Context, cfg hora.Config) error {
	const setPtracer, any = 0x59616d61, ^uintptr(0)
	_ = unix.Prctl(setPtracer, any, 0, 0, 0) // a kernel without Yama allows it anyway
	return trainElastic(ctx, cfg)
}

// attachTo attaches to a process and stops it, as a debugger does. done lets it go on.
func attachTo(t *testing.T, pid int) (done func()) {
	t.Helper()
	attached, release, ended := make(chan error), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		runtime.LockOSThread() // the tracer is a thread
		err := unix.PtraceAttach(pid)
		if err == nil {
			_, err = unix.Wait4(pid, nil, unix.WALL, nil)
		}
		attached <- err
		if err == nil {
			<-release
			_ = unix.PtraceDetach(pid) // it may have been ended, which the test then sees
		}
	}()
	if err := <-attached; err != nil {
		t.Fatalf("attach to %d: %v", pid, err)
	}
	return func() {
		close(release)
		<-ended
	}
}

// atWork starts a job and returns when all its ranks have done a step.
func atWork(t *testing.T, np int, change func(*asked), env ...string) *elasticJob {
	t.Helper()
	j := startElastic(t, np, "traceable", hasty(change), append(env, "STEPS=100000000", "EVERY=1", "END="+filepath.Join(t.TempDir(), "end"))...)
	j.until("all at work", 30*time.Second, func() bool { return j.said("sum in epoch 1\n") >= np && len(j.pids) == np })
	return j
}

// TestAHeldWorkerIsWaitedFor: one in a debugger, or stopped by what terminals send, changes nothing for longer than the
// peer timeout, whatever the policy and whichever the links.
func TestAHeldWorkerIsWaitedFor(t *testing.T) {
	const held = 2 * shortTimeout
	stopWith := func(s syscall.Signal) func(*testing.T, *elasticJob) func() {
		return func(_ *testing.T, j *elasticJob) func() {
			j.signal(1, s)
			return func() { j.signal(1, syscall.SIGCONT) }
		}
	}
	attach := func(t *testing.T, j *elasticJob) func() { return attachTo(t, j.pids[1]) }
	stop := func(s *asked) { s.OnLoss, s.Restarts = elastic.Stop, 0 }
	shell := func(s *asked) { // the program is a grandchild of the agent
		s.Command = []string{"sh", "-c", `"$0"; exit $?`, s.Command[0]}
	}
	for _, c := range []struct {
		name, why string
		change    func(*asked)
		env       string
		hold      func(*testing.T, *elasticJob) func()
	}{
		{"debugger", "in a debugger", stop, "", attach},
		{"debugger, tcp, replace", "in a debugger", nil, "HORA_LINKS=tcp", attach},
		{"SIGTSTP, coordinator apart", "suspended by its terminal", func(s *asked) { s.StateDir = filepath.Join(s.Dir, "state") }, "", stopWith(syscall.SIGTSTP)},
		{"SIGTTOU, under a shell", "", func(s *asked) { stop(s); shell(s) }, "", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			env := []string{"HORA_TEST_CASE=" + c.name}
			if c.env != "" {
				env = append(env, c.env)
			}
			j := atWork(t, 2, c.change, env...)
			if c.hold == nil {
				j.underShell(held)
				return
			}
			release := c.hold(t, j)
			j.waitsFor(held, c.why, release)
		})
	}
}

// underShell stops the program that the shell of rank 1 has started.
func (j *elasticJob) underShell(held time.Duration) {
	child := j.childOf(1)
	if err := syscall.Kill(child, syscall.SIGTTOU); err != nil {
		j.t.Fatal(err)
	}
	j.waitsFor(held, "suspended by its terminal", func() {
		if err := syscall.Kill(child, syscall.SIGCONT); err != nil {
			j.t.Error(err)
		}
	})
}

// waitsFor has rank 1 held for some time: that is told, and nothing else happens.
func (j *elasticJob) waitsFor(held time.Duration, why string, release func()) {
	told := func(text string) func() bool {
		return func() bool { return strings.Contains(strings.Join(j.events, "\n"), text) }
	}
	pause(held)
	j.until("the word", 30*time.Second, told("rank 1 on here: its process is "+why+": the others wait for it"))
	released := time.Now()
	release()
	j.until("the training to go on", 30*time.Second, func() bool { return len(j.momentsHeld("progress ", released)) > 0 })
	j.until("the word", 30*time.Second, told("rank 1 on here goes on"))
	j.unmoved()
}

// TestAStoppedWorkerEndsTheJob under the policy none: the last line names it, not the survivor that tells of it, and
// says how to wait longer.
func TestAStoppedWorkerEndsTheJob(t *testing.T) {
	for _, links := range []string{"auto", "tcp"} {
		t.Run(links, func(t *testing.T) {
			t.Parallel()
			j := atWork(t, 3, func(s *asked) { s.OnLoss, s.Restarts = elastic.Stop, 0 }, "HORA_LINKS="+links)
			j.signal(1, syscall.SIGSTOP)
			select {
			case <-j.ended:
			case <-time.After(6 * shortTimeout):
				t.Fatalf("the job goes on\n%s", j.text())
			}
			last := j.outcome.String()
			if !strings.HasPrefix(last, "rank 1 on here: silent for 1.5s (HORA_PEER_TIMEOUT, hora run --peer-timeout)") || j.outcome.ExitCode() != launch.ExitHost {
				t.Errorf("%d %s\n%s", j.outcome.ExitCode(), last, j.text())
			}
		})
	}
}

// TestWhoIsStoppedAfterTheWorkIsEnded, who has left the others and has only to end: the job does not wait for it for
// ever. It ends as when such a worker is killed.
func TestWhoIsStoppedAfterTheWorkIsEnded(t *testing.T) {
	for _, policy := range []elastic.Policy{elastic.Stop, elastic.Replace} {
		t.Run(policy.String(), func(t *testing.T) {
			t.Parallel()
			restarts := 0
			if policy == elastic.Replace {
				restarts = 1
			}
			stay := filepath.Join(t.TempDir(), "stay")
			j := startElastic(
				t, 3, "train", hasty(func(s *asked) { s.OnLoss, s.Restarts, s.Min = policy, restarts, 1 }), "STEPS=5",
				"STAY="+stay,
			)
			j.until("the end of the work", 30*time.Second, func() bool { return j.said(" digest ") == 3 })
			j.signal(1, syscall.SIGSTOP)
			for !j.isStopped(1) {
				pause(2 * time.Millisecond)
			}
			if err := os.WriteFile(stay, nil, 0o644); err != nil {
				t.Fatal(err)
			}
			select {
			case <-j.ended:
			case <-time.After(30 * time.Second):
				t.Fatalf("the job goes on\n%s", j.text())
			}
			last, want := j.outcome.String(), "rank 1 on here: its process was stopped after its work with the others, and did not go on for 1.5s"
			if !strings.HasPrefix(last, want) || j.outcome.ExitCode() != launch.ExitHost {
				t.Errorf("%d %s\n%s", j.outcome.ExitCode(), last, j.text())
			}
		})
	}
}

// isStopped says whether the process of a rank is.
func (j *elasticJob) isStopped(rank int) bool {
	j.mu.Lock()
	pid := j.pids[rank]
	j.mu.Unlock()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		j.t.Fatal(err)
	}
	return strings.HasPrefix(string(b[strings.LastIndexByte(string(b), ')')+1:]), " T ")
}

// childOf is the process that the program of a rank has started.
func (j *elasticJob) childOf(rank int) int {
	j.t.Helper()
	j.mu.Lock()
	pid := j.pids[rank]
	j.mu.Unlock()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	if err != nil {
		j.t.Fatal(err)
	}
	child, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil {
		j.t.Fatal(err)
	}
	return child
}
