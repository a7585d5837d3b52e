package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"hora/internal/hosttest"
)

// overSSH is a job of a rank here and one on each of two other hosts. They note their processes, wait for the file go,
// and do one allreduce.
type overSSH struct {
	t       *testing.T
	desk    *hosttest.Host
	others  []*hosttest.Host
	program string
}

func newOverSSH(t *testing.T) *overSSH {
	t.Helper()
	n := hosttest.Up(t, "desk", "server1", "server2")
	o := &overSSH{t: t, desk: n.Hosts[0], others: n.Hosts[1:]}
	for _, h := range n.Hosts {
		o.program = h.Install(self(t), "hora")
	}
	return o
}

// hosts are its hosts by rank.
func (o *overSSH) hosts() []*hosttest.Host { return append([]*hosttest.Host{o.desk}, o.others...) }

func (o *overSSH) run(wait int, args ...string) *lively {
	o.t.Helper()
	argv := []string{"env", "HORA_TEST_PROGRAM=1", "HORA_PEER_TIMEOUT=2", fmt.Sprint("HORA_ADOPT_TIMEOUT=", wait)}
	argv = append(append(argv, o.program, "run"), args...)
	return start(o.t, o.desk.Command(o.t.Context(), argv...))
}

func (o *overSSH) begin(wait int) *lively {
	o.t.Helper()
	return o.beginOn(wait, "desk:1,server1:1,server2:1")
}

func (o *overSSH) beginOn(wait int, hosts string, flags ...string) *lively {
	o.t.Helper()
	for _, h := range o.hosts() {
		for _, name := range []string{"go", "pids", "sums"} {
			_ = os.Remove(filepath.Join(h.Home, name)) // of the last job
		}
	}
	script := `echo $$ >> ~/pids; echo up $HORA_RANK; while [ ! -e ~/go ]; do sleep 0.02; done
HORA_TEST_WORKER=1 HORA_TEST_PROGRAM= ~/hora > ~/sums; code=$?; cat ~/sums; exit $code`
	flags = append(flags, "-H", hosts, "--coordinator-state", "state", "sh", "-c", script)
	l := o.run(wait, flags...)
	for rank := range strings.Count(hosts, ":") {
		l.await(fmt.Sprint("up ", rank))
	}
	// What ranks print may come before the launcher has noted that they were asked for: until then nobody can adopt
	// them.
	noted := filepath.Join(o.desk.Home, "state", "launcher")
	end := time.After(30 * time.Second)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		if f, err := os.Stat(noted); err == nil && f.Size() > 0 {
			return l
		}
		select {
		case <-tick.C:
		case <-end:
			o.t.Fatalf("nothing is noted in %s", noted)
		}
	}
}

// sever kills a launcher; with all, also all else that is no agent and no worker, on every host.
func (o *overSSH) sever(l *lively, all bool) {
	o.t.Helper()
	l.signal(syscall.SIGKILL)
	if all {
		o.desk.Kill(`__coordinator|__guard|^ssh `)
		for _, h := range o.others {
			h.Kill(`__agent --remote --(stay|return)=`)
		}
	}
}

func (o *overSSH) release() {
	o.t.Helper()
	for _, h := range o.hosts() {
		if err := os.WriteFile(filepath.Join(h.Home, "go"), nil, 0o600); err != nil {
			o.t.Fatal(err)
		}
	}
}

// gone waits until nothing of the job is left anywhere.
func (o *overSSH) gone(within time.Duration) {
	o.t.Helper()
	end := time.After(within)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for left := -1; left != 0; {
		left = o.desk.Count(`^ssh |__agent|__coordinator`)
		for _, h := range o.others {
			left += h.Count(`__agent|sleep 0.02|hora`)
		}
		select {
		case <-tick.C:
		case <-end:
			o.t.Fatalf("%d processes of the job are left", left)
		}
	}
}

// TestAJobOverSSHIsAdopted: agents that were started by ssh wait for another launcher, which finds them by a second
// ssh; workers are not started again and meet as if nothing had been. Where nobody comes they end, and on a host that
// is cut off.
func TestAJobOverSSHIsAdopted(t *testing.T) {
	if testing.Short() {
		t.Skip("takes long under the race detector")
	}
	o := newOverSSH(t)
	for _, all := range []bool{false, true} {
		o.sever(o.begin(30), all)
		second := o.run(30, "--adopt", "state", "--verbose")
		second.await("taking over job")
		moment := time.NewTimer(300 * time.Millisecond)
		<-moment.C
		o.sever(second, !all)
		o.release()
		heir := o.run(30, "--adopt", "state")
		if code, _ := heir.end(); code != 0 {
			t.Fatalf("exit code %d\n%s\nthe second said\n%s", code, heir.text(), second.text())
		}
		for rank, h := range o.hosts() {
			if want := fmt.Sprintf("[%d]<stdout>:rank %d of 3 on %s sums 6;", rank, rank, h.Name); !strings.Contains(heir.text(), want) {
				t.Errorf("no %q in\n%s", want, heir.text())
			}
			if b, err := os.ReadFile(filepath.Join(h.Home, "pids")); err != nil || strings.Count(string(b), "\n") != 1 {
				t.Errorf("rank %d was started again: %q, %v", rank, b, err)
			}
		}
		o.gone(10 * time.Second)
	}
	l := o.begin(2)
	o.sever(l, false)
	o.gone(30 * time.Second)
	late := o.run(2, "--adopt", "state")
	if code, last := late.end(); code != 69 || !strings.Contains(last, "the job's agents are gone (") {
		t.Errorf("exit code %d\n%s", code, late.text())
	}
	l = o.begin(2)
	o.others[1].Cable(false) // its agent cannot tell this from a launcher's death
	if code, last := l.end(); code != 69 || !strings.Contains(last, "lost host server2: silent for 2s") {
		t.Errorf("exit code %d\n%s", code, l.text())
	}
	o.gone(30 * time.Second)
}

// TestAnElasticJobOverSSHIsAdopted: what the killed launcher would have done for a rank on another host its heir does.
func TestAnElasticJobOverSSHIsAdopted(t *testing.T) {
	if testing.Short() {
		t.Skip("takes long under the race detector")
	}
	o := newOverSSH(t)
	l := o.run(30, "-np", "2", "-H", "server1:1,server2:1", "--restarts", "1", "--coordinator-state", "state",
		"--env", "HORA_TEST_PROGRAM=", "--env", "HORA_TEST_WORKER=elastic", "--env", "ENOUGH=go", "./hora")
	l.await("world of 2 as rank 0", "world of 2 as rank 1")
	o.sever(l, true)
	heir := o.run(30, "--adopt", "state", "--verbose")
	heir.await("taking over job")
	if killed := o.others[1].Kill(`^\./hora$`); killed != 1 {
		t.Fatalf("%d workers on server2", killed)
	}
	heir.await("starting it again, 0 restarts left", "world of 2 as rank 1")
	o.release()
	if code, _ := heir.end(); code != 0 {
		t.Errorf("exit code %d\n%s", code, heir.text())
	}
	o.gone(10 * time.Second)
}
