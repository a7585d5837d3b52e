package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// orphanage is a job whose workers have started processes in sessions of their own, and what is left of it.
type orphanage struct {
	t        *testing.T
	temp     string
	mark     string
	launcher *lively
	pid      int
}

func newOrphanage(t *testing.T) *orphanage {
	t.Helper()
	o := &orphanage{t: t, temp: t.TempDir(), mark: fmt.Sprintf("HORA_TEST_MARK=%d-%d", os.Getpid(), time.Now().UnixNano())}
	cmd := exec.Command(self(t), "run", "-np", "2", "sh", "-c", `setsid sh -c 'sleep 1000; :' & (setsid sleep 1000 &); echo up; sleep 1000; :`)
	cmd.Env = append(os.Environ(), "HORA_TEST_PROGRAM=1", "TMPDIR="+o.temp, o.mark)
	o.launcher = start(t, cmd)
	o.pid = cmd.Process.Pid
	o.launcher.await("[0]<stdout>:up\n", "[1]<stdout>:up\n")
	return o
}

// ours lists the processes of the job that a word of their command line names, "" for all.
func (o *orphanage) ours(word string) (pids []int) {
	files, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, f := range files {
		line, _ := os.ReadFile(f)
		env, _ := os.ReadFile(filepath.Join(filepath.Dir(f), "environ"))
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(f)))
		// The guard has no environment.
		its := bytes.Contains(env, []byte(o.mark)) || bytes.Contains(line, []byte(o.temp))
		if its && bytes.Contains(line, []byte(word)) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// kill ends some at once.
func (o *orphanage) kill(pids ...int) {
	for _, pid := range pids {
		// The one before may have taken it along.
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && err != syscall.ESRCH {
			o.t.Fatalf("kill %d: %v", pid, err)
		}
	}
}

// nothingLeft waits until neither a process nor a secret is there, and says how long that took.
func (o *orphanage) nothingLeft() {
	o.t.Helper()
	began := time.Now()
	for {
		pids := o.ours("")
		dirs, _ := filepath.Glob(filepath.Join(o.temp, "*"))
		if len(pids)+len(dirs) == 0 {
			o.t.Logf("nothing was left after %v", time.Since(began).Round(time.Millisecond))
			return
		}
		if time.Since(began) > 10*time.Second {
			o.kill(pids...)
			o.t.Fatalf("left behind: processes %v, %v", pids, dirs)
		}
		<-time.After(5 * time.Millisecond)
	}
}

// TestNothingOutlivesLauncherAndAgent kills two of the launcher, its agent and the guard at once, and then all three:
// what is left then goes with the next job of this user.
func TestNothingOutlivesLauncherAndAgent(t *testing.T) {
	one := func(o *orphanage, word string) int {
		pids := o.ours(word)
		if len(pids) != 1 {
			o.t.Fatalf("%d processes %q: %v", len(pids), word, pids)
		}
		return pids[0]
	}
	t.Run("launcher and agent", func(t *testing.T) {
		o := newOrphanage(t)
		o.kill(o.pid, one(o, "__agent"))
		o.nothingLeft()
	})
	t.Run("launcher and guard", func(t *testing.T) {
		o := newOrphanage(t)
		o.kill(o.pid, one(o, "__guard"))
		o.nothingLeft()
	})
	t.Run("agent and guard", func(t *testing.T) {
		o := newOrphanage(t)
		o.kill(one(o, "__agent"), one(o, "__guard"))
		if _, last := o.launcher.end(); !strings.Contains(last, "its agent ended early") {
			t.Errorf("the last line is %q", last)
		}
		o.nothingLeft()
	})
	t.Run("all", func(t *testing.T) {
		o := newOrphanage(t)
		o.kill(one(o, "__guard"), o.pid, one(o, "__agent"))
		keep := filepath.Join(o.temp, "hora-1-2") // not ours: it holds something else
		if err := os.Mkdir(keep, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(keep, "notes"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if r := commandEnv(t, t.TempDir(), []string{"TMPDIR=" + o.temp}, "hora", "run", "-np", "1", "true"); r.code != 0 {
			t.Fatalf("%d %s", r.code, r.err)
		}
		if err := os.Remove(filepath.Join(keep, "notes")); err != nil {
			t.Error(err)
		}
		os.Remove(keep)
		o.nothingLeft()
	})
	t.Run("none", func(t *testing.T) {
		o := newOrphanage(t)
		o.launcher.signal(syscall.SIGTERM)
		o.launcher.end()
		o.nothingLeft()
	})
}
