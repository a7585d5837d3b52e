package jobtest_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"hora/elastic"
	"hora/event"
	"hora/internal/hosttest"
	"hora/launch"
)

// agentOf is the pid of the agent above a worker.
func (j *elasticJob) agentOf(rank int) int {
	j.t.Helper()
	j.mu.Lock()
	defer j.mu.Unlock()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", j.pids[rank]))
	if err != nil {
		j.t.Fatal(err)
	}
	f := strings.Fields(string(b[strings.LastIndexByte(string(b), ')')+1:]))
	pid, err := strconv.Atoi(f[1])
	if err != nil {
		j.t.Fatal(err)
	}
	return pid
}

// twoNames are two host names of this machine.
func twoNames(first, second int) []launch.Host {
	return []launch.Host{{Name: "localhost", Slots: first}, {Name: "127.0.0.1", Slots: second}}
}

// sameWeights compares the end of a job with the undisturbed course.
func (j *elasticJob) sameWeights(np, steps int) {
	j.t.Helper()
	all := course(steps)
	got := j.wait(time.Minute)
	if len(got) != np {
		j.t.Errorf("%d ranks told their digest\n%s", len(got), j.text())
	}
	for _, d := range got {
		if d != all[steps] {
			j.t.Errorf("digest %s, want %s; first wrong: %s\n%s", d, all[steps], straying(j.text(), all), j.text())
		}
	}
}

// tells fails unless the job has said all of some texts.
func (j *elasticJob) tells(texts ...string) {
	j.t.Helper()
	said := j.text()
	for _, s := range texts {
		if !strings.Contains(said, s) {
			j.t.Errorf("no %q in\n%s", s, said)
		}
	}
}

// TestNoticeMovesAWholeJob gives notice for the host that has all ranks: one is moved first,
// and the one that still holds the state only when the other has it, too.
func TestNoticeMovesAWholeJob(t *testing.T) {
	dir := t.TempDir()
	const steps = 100
	gate, open := gateFile(t)
	j := startElastic(t, 2, "train", func(s *asked) {
		s.Hosts, s.Restarts = twoNames(2, 2), 1
		s.DrainOn = "sh:test -e " + dir + "/$HORA_HOST"
	}, fmt.Sprint("STEPS=", steps), "EVERY=1", gate)
	j.until("both at work", 30*time.Second, func() bool { return j.said("sum in epoch 1\n") >= 2 })
	if err := os.WriteFile(filepath.Join(dir, "localhost"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	j.until("both on the other host", 40*time.Second, func() bool {
		return strings.Count(strings.Join(j.events, "\n"), "starting it on 127.0.0.1") == 2 && len(j.pids) == 2
	})
	open()
	j.sameWeights(2, steps)
	j.tells("localhost is about to go: notice by test -e ", "its workers commit and leave", " 0 restarts used, 1 left", "0 steps done again")
}

// TestNoticeShrinksAJob: under continue the others go on, whether those that left end before
// the work is done or after it.
func TestNoticeShrinksAJob(t *testing.T) {
	for _, lingers := range []bool{false, true} {
		t.Run(map[bool]string{false: "at once", true: "lingering"}[lingers], func(t *testing.T) {
			gate, open := gateFile(t)
			linger, end := gateFile(t)
			env := []string{"STEPS=100", "EVERY=1", gate, strings.Replace(linger, "GATE=", "LINGER=", 1)}
			j := startElastic(t, 3, "train", func(s *asked) {
				s.Hosts, s.Restarts, s.OnLoss, s.Min = twoNames(1, 2), 0, elastic.Continue, 1
			}, env...)
			j.until("all at work", 30*time.Second, func() bool { return j.said("sum in epoch 1\n") >= 3 && len(j.pids) == 3 })
			syscall.Kill(j.agentOf(1), syscall.SIGTERM) // the other way to give notice
			j.until("one goes on", 40*time.Second, func() bool { return j.said("reset size 1\n") == 1 })
			tell := []string{"127.0.0.1 is about to go: its agent was asked to end (SIGTERM): its workers commit and leave", "0 steps done again"}
			if lingers {
				open()
				j.until("the work is done", 30*time.Second, func() bool { return j.said(" steps 100\n") == 1 })
				end()
			} else {
				end()
				j.until("both have ended", 30*time.Second, func() bool { return len(j.pids) == 1 })
				open()
				tell = append(tell, "the other goes on")
			}
			j.sameWeights(1, 100)
			j.tells(tell...)
		})
	}
}

// TestTheLastWithTheStateStays: the other worker is killed when this one has been asked to leave and has not yet come
// to its commit. It is the only one with the state then, stays and does the work.
func TestTheLastWithTheStateStays(t *testing.T) {
	draw := rand.New(rand.NewPCG(10, 10))
	j := startElastic(t, 2, "train", func(s *asked) {
		s.Hosts, s.Restarts, s.OnLoss, s.Min = twoNames(1, 1), 0, elastic.Continue, 1
	}, "STEPS=600", "EVERY=600", "SLOW=1") // it commits at the end
	j.until("both at work", 30*time.Second, func() bool { return j.said("sum in epoch 1\n") >= 2 && len(j.pids) == 2 })
	syscall.Kill(j.agentOf(1), syscall.SIGTERM)
	j.until("the notice", 30*time.Second, func() bool { return strings.Contains(strings.Join(j.events, "\n"), "is about to go") })
	j.kill(0, draw)
	j.sameWeights(1, 600)
	j.tells("127.0.0.1 is about to go", "killed by signal 9 (SIGKILL): the other goes on")
	if strings.Contains(j.text(), "drained at step") {
		t.Errorf("it has left:\n%s", j.text())
	}
}

// TestNoticeWithoutASpareSlot: nobody is asked to leave for whom there is no place.
func TestNoticeWithoutASpareSlot(t *testing.T) {
	file := filepath.Join(t.TempDir(), "notice")
	gate, open := gateFile(t)
	j := startElastic(t, 2, "train", func(s *asked) { s.DrainOn, s.Restarts = file, 1 }, "STEPS=100", "EVERY=1", gate)
	j.until("both at work", 30*time.Second, func() bool { return j.said("sum in epoch 1\n") >= 2 })
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	j.until("the warning", 40*time.Second, func() bool { return strings.Contains(strings.Join(j.events, "\n"), "is about to go") })
	open()
	j.sameWeights(2, 100)
	j.tells("is about to go: notice in "+file, "its workers stay until it is gone")
}

// TestANoticeFileDrainsAHost: a file appears on one of three hosts. Its worker goes on to its next commit and leaves,
// and the next epoch begins with that very step, with the rank on the host to spare (replace) or without it (continue).
// The report says by whose leave, that no step was done again and that no restart was used.
func TestANoticeFileDrainsAHost(t *testing.T) {
	if testing.Short() {
		t.Skip("takes long")
	}
	n := hosttest.Up(t, "a", "b", "c")
	a, b := n.Hosts[0], n.Hosts[1]
	for _, policy := range []elastic.Policy{elastic.Replace, elastic.Continue} {
		t.Run(policy.String(), func(t *testing.T) {
			notice, enough := filepath.Join(b.Temp, "notice"), filepath.Join(a.Home, "end")
			p := hostsPlan{NP: 2, OnLoss: policy, Hosts: "a:1,b:1,c:1", DrainOn: "/tmp/notice", Report: "report.json", Restarts: 1}
			if policy == elastic.Continue {
				p.Hosts, p.Min, p.Restarts = "a:1,b:1", 1, 0
			}
			s := &soak{t: t, net: n, job: startOnHosts(t, a, p, "STEPS=100000000", "EVERY=7", "SLOW=1", "END=end")}
			j := s.job
			defer os.Remove(enough)
			j.until("both at work", 40*time.Second, func() bool { return j.said("sum in epoch 1\n") >= 2 && len(j.pids) == 2 })
			if err := os.WriteFile(notice, nil, 0o644); err != nil {
				t.Fatal(err)
			}
			left := p.NP
			if policy == elastic.Continue {
				left--
			}
			j.until("the next epoch", 40*time.Second, func() bool { return j.said("sum in epoch 2\n") == left })
			if err := os.Remove(notice); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(enough, nil, 0o644); err != nil {
				t.Fatal(err)
			}
			s.sameAsUndisturbed()
			at := -1
			for line := range strings.Lines(j.text()) {
				if _, err := fmt.Sscanf(line, "0 0 drained at step %d", &at); err == nil {
					break
				}
			}
			if at < 0 || at%7 != 0 || j.said(fmt.Sprintf("epoch 2 begins at step %d with", at)) != left {
				t.Errorf("the worker left at step %d; the others began elsewhere\n%s", at, j.text())
			}
			text, err := os.ReadFile(filepath.Join(a.Home, "report.json"))
			var r event.Report
			if err == nil {
				err = json.Unmarshal(text, &r)
			}
			if err != nil || len(r.Epochs) != 2 || r.Restarts != 0 || r.Epochs[0].Gone == nil ||
				r.Epochs[1].Recovery == nil {
				t.Fatalf("%v: the report is\n%s", err, text)
			}
			if g, c := r.Epochs[0].Gone, r.Epochs[1].Recovery; g.Rank != 1 || g.Host != "b" ||
				g.Reason != "left the job: notice in /tmp/notice" || c.Steps != 0 {
				t.Errorf("the report is\n%s", text)
			}
			j.tells("b is about to go: notice in /tmp/notice: its workers commit and leave")
		})
	}
}

// TestAKilledAgentIsALostHost: its workers end with it, and start on slots to spare.
func TestAKilledAgentIsALostHost(t *testing.T) {
	const steps = 100
	gate, open := gateFile(t)
	j := startElastic(t, 3, "train", func(s *asked) {
		s.Hosts, s.Restarts = append(twoNames(2, 1), launch.Host{Name: "here", Slots: 1}), 1
	},
		fmt.Sprint("STEPS=", steps), "EVERY=3", gate)
	j.until("all at work", 30*time.Second, func() bool { return j.said("sum in epoch 1\n") >= 3 && len(j.pids) == 3 })
	syscall.Kill(j.agentOf(2), syscall.SIGKILL)
	j.until("the next epoch", 40*time.Second, func() bool { return j.said("epoch 2 begins") == 3 })
	open()
	j.sameWeights(3, steps)
	j.tells("rank 2 on 127.0.0.1: its agent ended early (signal: killed)", "starting it on here", " 0 restarts used, 1 left")
}

// TestAFailedWorkerTakesItsHostAway, where it is asked for and other hosts have the slots: the other worker there
// commits and leaves, and both start elsewhere. Otherwise a failed worker is started again where it was.
func TestAFailedWorkerTakesItsHostAway(t *testing.T) {
	const steps = 100
	for _, byHost := range []bool{true, false} {
		t.Run(map[bool]string{true: "host", false: "slot"}[byHost], func(t *testing.T) {
			gate, open := gateFile(t)
			j := startElastic(t, 3, "train", func(s *asked) {
				s.Hosts, s.Restarts, s.ByHost = append(twoNames(1, 2), launch.Host{Name: "here", Slots: 2}), 2, byHost
			}, fmt.Sprint("STEPS=", steps), "EVERY=1", gate)
			j.until("all at work", 30*time.Second, func() bool { return j.said("sum in epoch 1\n") >= 3 && len(j.pids) == 3 })
			j.signal(1, syscall.SIGKILL)
			if !byHost {
				j.until("all again", 40*time.Second, func() bool { return j.said("sum in epoch 2\n") >= 3 })
				open()
				j.sameWeights(3, steps)
				j.tells("rank 1 on 127.0.0.1: killed by signal 9 (SIGKILL): starting it again, 1 restart left")
				return
			}
			j.until("both elsewhere", 40*time.Second, func() bool {
				return strings.Count(strings.Join(j.events, "\n"), "starting it on here") == 2 && len(j.pids) == 3
			})
			open()
			j.sameWeights(3, steps)
			j.tells("127.0.0.1: rank 1: killed by signal 9 (SIGKILL): it is not used any more",
				"rank 2 on 127.0.0.1: rank 1: killed by signal 9 (SIGKILL): starting it on here", " 1 restart used, 1 left")
		})
	}
}
