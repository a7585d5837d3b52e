package jobtest_test

import (
	"bytes"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"hora/elastic"
	"hora/internal/hosttest"
)

// soak is a job over three hosts to which things happen at random, by seed.
type soak struct {
	t      *testing.T
	net    *hosttest.Net
	job    *elasticJob
	draw   *rand.Rand
	policy elastic.Policy
	story  []string
	at     time.Time // of the present event
	workers
}

// workers are what a job in the soak consists of.
type workers struct {
	command []string // none: this test program
	env     []string
	course  func(steps int) []string // what an undisturbed one goes through; none: this program's
}

const soakTimeout = 2 * time.Second

// beginning is what a member says at the start of an epoch.
var beginning = regexp.MustCompile(`epoch (\d+) begins at step`)

var soakEvents = flag.Int("soak-events", 0, "how many things happen to a job in the soak; 0 is the test's own count, a larger one with HORA_SOAK=1")

// TestSoakOverHosts kills, stops, cuts, drains and adds workers on namespaced hosts under
// both policies. Whatever happens, every sum is right, the training goes on after each
// event, the weights at the end are those of an undisturbed run, and nothing is left.
func TestSoakOverHosts(t *testing.T) {
	events := soakCount(t, 10, 200)
	for _, policy := range []elastic.Policy{elastic.Replace, elastic.Continue} {
		t.Run(policy.String(), func(t *testing.T) {
			soakOn(t, hosttest.Up(t, "a", "b", "c"), policy, events, workers{env: []string{"STEPS=1000000000", "EVERY=3", "SLOW=1", "END=open"}})
		})
	}
}

// soakCount is how many things happen: few in make test, many in make soak, or what the flag says.
func soakCount(t *testing.T, few, many int) int {
	t.Helper()
	switch {
	case *soakEvents > 0:
		return *soakEvents
	case os.Getenv("HORA_SOAK") == "1":
		return many
	case testing.Short():
		t.Skip("takes long")
	}
	return few
}

// soakOn runs a job on three hosts until so much has happened to it.
func soakOn(t *testing.T, n *hosttest.Net, policy elastic.Policy, events int, w workers) {
	s := &soak{t: t, draw: drawSeed(t, fmt.Sprintf(" -soak-events %d", events)), policy: policy, net: n, workers: w}
	plan := hostsPlan{
		Command: w.command, NP: 4, OnLoss: s.policy, Silence: soakTimeout, Cool: time.Second, Wait: time.Minute,
	}
	if policy == elastic.Replace {
		plan.Hosts, plan.Restarts = "a:2,b:2,c:2", 1<<20
	} else {
		plan.Discover, plan.Min, plan.Max, plan.ByHost = "hosts", 1, 5, true
		s.hosts("a:2\nb:2\nc:1\n")
	}
	mark := fmt.Sprintf("HORA_TEST_MARK=%s-%d", policy, os.Getpid())
	s.job = startOnHosts(t, n.Hosts[0], plan, append(slices.Clone(w.env), mark)...)
	s.at = time.Now()
	s.goesOn()
	for i := range events {
		what := s.event()
		s.story = append(s.story, fmt.Sprintf("%d: %s", i, what))
		s.goesOn()
	}
	openAt(t, n)
	s.sameAsUndisturbed()
	s.nothingLeft(mark)
	text := s.job.text()
	epochs := map[string]bool{}
	for _, m := range beginning.FindAllStringSubmatch(text, -1) {
		epochs[m[1]] = true
	}
	t.Logf("%d events, %d epochs, %d workers started, %d ended, %d restarts\n%s", events, len(epochs), strings.Count(text, "started rank"),
		strings.Count(text, "exited rank"), strings.Count(text, "starting it again"), strings.Join(s.story, "\n"))
}

// hosts changes what the discovery finds.
func (s *soak) hosts(text string) {
	file := filepath.Join(s.net.Hosts[0].Home, "hosts")
	if err := os.WriteFile(file+".new", []byte(text), 0o644); err != nil {
		s.t.Fatal(err)
	}
	if err := os.Rename(file+".new", file); err != nil {
		s.t.Fatal(err)
	}
}

// members are the living processes of the newest epoch that somebody has told of.
func (s *soak) members() (pids []int) {
	s.job.mu.Lock()
	defer s.job.mu.Unlock()
	newest := 0
	by := map[int][]int{}
	for line := range strings.Lines(s.job.out.String()) {
		_, rest, _ := strings.Cut(line, "epoch ")
		var epoch, step, pid, size int
		var digest string
		if n, _ := fmt.Sscanf(rest, "%d begins at step %d with %s pid %d size %d", &epoch, &step, &digest, &pid, &size); n == 5 {
			newest = max(newest, epoch)
			by[epoch] = append(by[epoch], pid)
		}
	}
	for _, pid := range by[newest] {
		for _, alive := range s.job.pids {
			if alive == pid {
				pids = append(pids, pid)
			}
		}
	}
	return pids
}

// event does one thing and says what.
func (s *soak) event() string {
	pids := s.members()
	if len(pids) == 0 {
		s.t.Fatalf("nobody is a member\n%s", s.job.text())
	}
	victim := pids[s.draw.IntN(len(pids))]
	host := s.net.Hosts[1+s.draw.IntN(2)]
	elsewhere := 0
	for _, pid := range pids {
		if s.job.hostName(pid) != host.Name {
			elsewhere++
		}
	}
	pause(time.Duration(s.draw.IntN(50)) * time.Millisecond)
	s.at = time.Now()
	kind := s.draw.IntN(8)
	switch {
	case kind < 2 && len(pids) > 1:
		syscall.Kill(victim, syscall.SIGKILL)
		return fmt.Sprintf("kill -9 %d on %s", victim, s.job.hostName(victim))
	case kind == 2 && len(pids) > 1:
		syscall.Kill(victim, syscall.SIGSTOP)
		s.job.until("a stopped worker to be ended", time.Minute, func() bool { return syscall.Kill(victim, 0) != nil || s.job.deadHeld(victim) })
		return fmt.Sprintf("stop %d on %s for good", victim, s.job.hostName(victim))
	case kind == 3:
		syscall.Kill(victim, syscall.SIGSTOP)
		pause(soakTimeout / 4)
		syscall.Kill(victim, syscall.SIGCONT)
		return fmt.Sprintf("stop %d on %s for a while", victim, s.job.hostName(victim))
	case kind == 4 && elsewhere > 0:
		return s.cut(host)
	case kind == 5:
		host.Cable(false)
		pause(soakTimeout / 4)
		host.Cable(true)
		return "cut " + host.Name + " for a while"
	case kind == 6:
		syscall.Kill(s.job.launcher, syscall.SIGSTOP)
		pause(soakTimeout / 4)
		syscall.Kill(s.job.launcher, syscall.SIGCONT)
		return "stop the launcher for a while"
	case s.policy == elastic.Continue:
		text := fmt.Sprintf("a:%d\nb:%d\nc:%d\n", 1+s.draw.IntN(2), s.draw.IntN(3), s.draw.IntN(3))
		s.hosts(text)
		pause(1200 * time.Millisecond) // until it has been asked for
		return "hosts " + strings.ReplaceAll(text, "\n", " ")
	case len(pids) > 1:
		syscall.Kill(victim, syscall.SIGTERM)
		return fmt.Sprintf("ask %d on %s to leave", victim, s.job.hostName(victim))
	}
	return "nothing"
}

// cut pulls a host's cable until the launcher has given the host up, where it has a worker there.
func (s *soak) cut(host *hosttest.Host) string {
	busy := false
	s.job.mu.Lock()
	for _, pid := range s.job.pids {
		busy = busy || s.job.hostOf[pid] == host.Name
	}
	s.job.mu.Unlock()
	host.Cable(false)
	if busy {
		s.job.until("the cut of "+host.Name+" to be seen", time.Minute, func() bool {
			return len(s.job.momentsHeld("event: "+host.Name+": ", s.at)) > 0
		})
	}
	host.Cable(true)
	return "cut " + host.Name
}

func (j *elasticJob) hostName(pid int) string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.hostOf[pid]
}

// deadHeld says whether the launcher has heard of a process's end; the caller holds the lock.
func (j *elasticJob) deadHeld(pid int) bool {
	for _, p := range j.pids {
		if p == pid {
			return false
		}
	}
	return true
}

// goesOn waits until the training has made steps after the last event.
func (s *soak) goesOn() {
	s.t.Helper()
	s.job.until("the training to go on after "+strings.Join(s.story, "; "), 90*time.Second, func() bool {
		return len(s.job.momentsHeld("progress ", s.at)) > 1
	})
	if strings.Contains(s.job.text(), "WRONG SUM") {
		s.t.Fatalf("a wrong sum:\n%s", s.job.text())
	}
}

// sameAsUndisturbed compares all ends with a run that nothing happened to.
func (s *soak) sameAsUndisturbed() {
	digests := s.job.wait(time.Minute)
	steps := 0
	for line := range strings.Lines(s.job.text()) {
		if f := strings.Fields(line); len(f) == 6 && f[2] == "digest" {
			steps, _ = strconv.Atoi(f[5])
		}
	}
	undisturbed := course
	if s.course != nil {
		undisturbed = s.course
	}
	want := undisturbed(steps)
	if len(digests) == 0 {
		s.t.Errorf("nobody told a digest\n%s", s.job.text())
	}
	for _, d := range digests {
		if d != want[steps] {
			s.t.Fatalf("after %d steps: %s, want %s; first wrong: %s\n%s", steps, d, want[steps], straying(s.job.text(), want), s.job.text())
		}
	}
	s.t.Logf("%d steps, %d ranks at the end, all as undisturbed", steps, len(digests))
}

// nothingLeft looks for processes, secrets and shared memory of the job.
func (s *soak) nothingLeft(mark string) {
	left := func() (all []string) {
		files, _ := filepath.Glob("/proc/[0-9]*/environ")
		for _, f := range files {
			if b, err := os.ReadFile(f); err == nil && bytes.Contains(b, []byte(mark)) {
				all = append(all, filepath.Dir(f))
			}
		}
		for _, h := range s.net.Hosts {
			dirs, _ := filepath.Glob(h.Temp + "/hora-*")
			all = append(all, dirs...)
			if _, names, _ := h.Output(20*time.Second, "ls", "-A", "/dev/shm"); names != "" {
				all = append(all, h.Name+":/dev/shm: "+names)
			}
		}
		return all
	}
	deadline := time.Now().Add(15 * time.Second)
	for len(left()) > 0 && time.Now().Before(deadline) {
		pause(50 * time.Millisecond)
	}
	if l := left(); len(l) > 0 {
		s.t.Errorf("left behind: %v", l)
	}
}
