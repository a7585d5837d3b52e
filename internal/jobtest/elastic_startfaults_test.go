package jobtest_test

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"hora/elastic"
	"hora/launch"
)

var startFaults = flag.Int("start-faults", 0, "how many jobs of Python workers meet a fault in TestFaultsFromTheStartOn; 0 is the test's own count")

// Times of such a job: the peer timeout, the limit for those that do not join, and after how long it may end.
const (
	faultSilence = 2 * time.Second
	faultJoin    = 6 * time.Second
	faultOpen    = 2500 * time.Millisecond
)

// faulty is a job of Python workers to which one thing happens at a random moment from the start of its processes on.
type faulty struct {
	*elasticJob
	seed   uint64
	policy elastic.Policy
	np     int
	rank   int // whom it happens to
	kind   string
	at     time.Duration
	hit    bool // the process was there, and not all ranks had done their work
}

// TestFaultsFromTheStartOn kills, stops, pauses and asks to leave, at random moments from the start of the processes
// on: while Python starts, while ranks meet, in the training, at its end. Each job ends within a bound and as its
// policy says, every sum and every digest is right, and no process is left.
func TestFaultsFromTheStartOn(t *testing.T) {
	jobs := *startFaults
	if jobs == 0 {
		jobs = soakCount(t, 10, 200)
	}
	base := *killSeed
	if base == 0 {
		base = uint64(time.Now().UnixNano())
	}
	if exec.Command("python3", "-c", "import sys; sys.exit(sys.version_info < (3, 10))").Run() != nil {
		t.Skip("needs the system's python3, 3.10 or newer")
	}
	home := pythonHere(t, buildLibrary(t))
	var mu sync.Mutex // guards what follows
	count := map[string]int{}
	longest := time.Duration(0)
	t.Run("jobs", func(t *testing.T) {
		for i := range uint64(jobs) {
			t.Run(fmt.Sprint(base+i), func(t *testing.T) {
				t.Parallel()
				f := drawFault(t, base+i)
				began := time.Now()
				f.run(home)
				if t.Failed() {
					t.Errorf("%s\n%s", f, f.text())
				}
				mu.Lock()
				defer mu.Unlock()
				longest = max(longest, time.Since(began))
				count[fmt.Sprintf("%v, %s", f.policy, f.kind)]++
			})
		}
	})
	t.Logf("seed %d: %d faults; the longest job took %v; %v", base, jobs, longest.Round(time.Millisecond), count)
}

func (f *faulty) String() string {
	return fmt.Sprintf("%s of rank %d of %d after %v under %v: go test ./internal/jobtest -run '^TestFaultsFromTheStartOn$' -kill-seed %d -start-faults 1", f.kind, f.rank, f.np, f.at, f.policy, f.seed)
}

func drawFault(t *testing.T, seed uint64) *faulty {
	draw := rand.New(rand.NewPCG(seed, 2))
	f := &faulty{elasticJob: &elasticJob{t: t}, seed: seed, np: 2 + draw.IntN(2)}
	f.policy = []elastic.Policy{elastic.Stop, elastic.Replace, elastic.Continue}[draw.IntN(3)]
	f.rank = draw.IntN(f.np)
	f.kind = []string{"kill", "kill", "kill", "stop", "pause", "term", "agent"}[draw.IntN(7)]
	f.at = time.Duration(draw.Int64N(int64(faultOpen + 500*time.Millisecond)))
	return f
}

// run does one job.
func (f *faulty) run(home string) {
	dir := f.t.TempDir()
	j := startElastic(f.t, f.np, "", func(s *asked) {
		s.Command, s.Dir = []string{"python3", filepath.Join(home, "worker.py")}, dir
		s.OnLoss, s.Silence, s.Join, s.Min, s.Restarts = f.policy, faultSilence, faultJoin, 1, 0
		if f.policy == elastic.Replace {
			s.Restarts = 3
		}
	}, "PYTHONPATH="+filepath.Join(home, "python"), fmt.Sprintf("HORA_PEER_TIMEOUT=%v", faultSilence.Seconds()), "HORA_START_TIMEOUT=10")
	f.elasticJob = j
	opens := time.AfterFunc(faultOpen, func() { os.WriteFile(filepath.Join(dir, "open"), nil, 0o644) })
	defer opens.Stop()
	j.until("the processes", 30*time.Second, func() bool { return len(j.pids) == f.np })
	j.mu.Lock()
	all := fmt.Sprint(j.pids)
	pid := j.pids[f.rank]
	j.mu.Unlock()
	pause(f.at)
	f.happens(pid)
	select {
	case <-j.ended:
	case <-time.After(60 * time.Second):
		f.t.Fatalf("HANG: %s\n%s", f, j.text())
	}
	f.judge()
	j.mu.Lock()
	defer j.mu.Unlock()
	if len(j.pids) > 0 && f.kind != "agent" {
		f.t.Errorf("processes %v of %s are there", j.pids, all)
	}
}

// happens is the fault itself.
func (f *faulty) happens(pid int) {
	f.mu.Lock()
	_, there := f.pids[f.rank]
	f.hit = there && !f.toldHeld()
	f.mu.Unlock()
	send := func(s syscall.Signal) { syscall.Kill(pid, s) } // it may have ended
	switch f.kind {
	case "kill":
		send(syscall.SIGKILL)
	case "stop":
		send(syscall.SIGSTOP)
	case "pause":
		send(syscall.SIGSTOP)
		pause(faultSilence / 4)
		send(syscall.SIGCONT)
	case "term":
		send(syscall.SIGTERM)
	case "agent":
		if parent := parentOf(pid); there && parent > 1 && parent != os.Getpid() {
			syscall.Kill(parent, syscall.SIGKILL)
		} else {
			f.hit = false
		}
	}
}

// toldHeld says whether all ranks have told their digests; the caller holds the lock.
func (f *faulty) toldHeld() bool { return f.said(" digest ") >= f.np }

// parentOf is a process's parent, 0 when it is gone.
func parentOf(pid int) int {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	var state string
	var parent int
	fmt.Sscanf(string(b[strings.LastIndexByte(string(b), ')')+1:]), "%s %d", &state, &parent)
	return parent
}

// judge compares how the job ended with what its policy says.
func (f *faulty) judge() {
	text := f.text()
	f.t.Helper()
	if f.err != nil || strings.Contains(text, "WRONG SUM") || strings.Contains(text, "is torn") {
		f.t.Errorf("%v", f.err)
	}
	digests := 0
	for line := range strings.Lines(text) {
		var rank, steps int
		var digest string
		if n, _ := fmt.Sscanf(line, "0 %d digest %s steps %d", &rank, &digest, &steps); n == 3 {
			digests++
			if want := pythonCourse(steps)[steps]; digest != want {
				f.t.Errorf("rank %d ends after %d steps with %s, want %s", rank, steps, digest, want)
			}
		}
	}
	o := f.outcome
	switch {
	case o.Kind == launch.Finished:
		least := f.np
		if f.policy == elastic.Continue && f.kind != "pause" {
			least--
		}
		if digests < least || f.policy == elastic.Stop && f.hit && f.kind != "pause" && digests < f.np {
			f.t.Errorf("%d digests of at least %d", digests, least)
		}
	case f.kind == "agent":
		if o.Kind != launch.LostHost || !strings.Contains(o.String(), "its agent ended early") {
			f.t.Errorf("the job ended by %q", o.String())
		}
	case f.kind == "pause":
		f.t.Errorf("a pause ended the job: %q", o.String())
	case f.policy != elastic.Stop && digests == 0:
		f.t.Errorf("the job does not go on: %q", o.String())
	case o.Rank != f.rank && !strings.Contains(o.String(), fmt.Sprintf("rank %d on here (", f.rank)):
		f.t.Errorf("rank %d is blamed: %q", o.Rank, o.String())
	}
}

// pythonHere makes a folder with the package in the folder python, and the soak's worker beside it.
func pythonHere(t *testing.T, library string) (home string) {
	t.Helper()
	home = t.TempDir()
	sources, err := filepath.Glob("python/hora/*.py")
	if err == nil {
		err = os.MkdirAll(filepath.Join(home, "python", "hora"), 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	folders(t, filepath.Join(home, "python", "hora"))
	to := map[string]string{filepath.Join("python", "tests", "soak_worker.py"): "worker.py"}
	for _, from := range append(sources, filepath.Join(library, "libhora.so"), filepath.Join(library, "_fast.abi3.so")) {
		to[from] = filepath.Join("python", "hora", filepath.Base(from))
	}
	for from, name := range to {
		b, err := os.ReadFile(from)
		if err == nil {
			err = os.WriteFile(filepath.Join(home, name), b, 0o755)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return home
}
