package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"hora/event"
	"hora/internal/wire"
)

// writtenDown has a test that fails tell what the launchers of a job in a folder, and their coordinators, have written
// down: the ledger but for its first line, which has the secret, and the kinds and bodies of the journal's records.
func writtenDown(t *testing.T, dir string) {
	t.Cleanup(func() {
		if !t.Failed() {
			return
		}
		ledger, err := os.ReadFile(filepath.Join(dir, "state", "launcher"))
		_, rest, _ := strings.Cut(string(ledger), "\n")
		t.Logf("the ledger (%v):\n%s", err, rest)
		journal, err := os.ReadFile(filepath.Join(dir, "state", "journal"))
		var records strings.Builder
		for rd := bytes.NewReader(journal); err == nil; {
			kind, body, end := wire.ReadMessage(rd, nil, 1<<20)
			if end != nil {
				break
			}
			fmt.Fprintf(&records, "%d %q\n", kind, body)
		}
		t.Logf("the journal (%v):\n%s", err, records.String())
	})
}

// elasticAdopted starts an elastic job, kills its launcher once its two ranks meet, and has another adopt it.
func elasticAdopted(t *testing.T, dir string, unseen bool, args ...string) (heir *lively, pids [2]int) {
	t.Helper()
	writtenDown(t, dir)
	args = append([]string{"run", "-np", "2", "--report", "story", "--coordinator-state", "state"}, args...)
	args = append(args, "--env", "HORA_TEST_PROGRAM=", "--env", "HORA_TEST_WORKER=elastic", "--env", "ENOUGH="+filepath.Join(dir, "enough"), self(t))
	cmd := exec.Command(self(t), args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "HORA_TEST_PROGRAM=1", "HORA_ADOPT_TIMEOUT=20")
	l := start(t, cmd)
	l.await("world of 2 as rank 0", "world of 2 as rank 1")
	for rank := range pids {
		pids[rank] = pidOf(t, l.text()[strings.Index(l.text(), fmt.Sprint("world of 2 as rank ", rank)):])
	}
	l.signal(syscall.SIGKILL)
	if unseen {
		syscall.Kill(pids[1], syscall.SIGKILL) // nobody hears of it
	}
	return heirOf(t, dir), pids
}

// heirOf adopts a job, from another folder than the job's.
func heirOf(t *testing.T, dir string) *lively {
	t.Helper()
	next := exec.Command(self(t), "run", "--adopt", filepath.Join(dir, "state"), "--verbose")
	next.Dir, next.Env = t.TempDir(), append(os.Environ(), "HORA_TEST_PROGRAM=1")
	return start(t, next)
}

// concluded lets an adopted job finish, and reads its report.
func concluded(t *testing.T, dir string, l *lively) *event.Report {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, "enough"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if code, _ := l.end(); code != 0 {
		t.Fatalf("exit code %d\n%s", code, l.text())
	}
	var r event.Report
	b, err := os.ReadFile(filepath.Join(dir, "story"))
	if err == nil {
		err = json.Unmarshal(b, &r)
	}
	if err != nil || len(r.Epochs) != 2 || r.ExitCode != 0 {
		t.Fatalf("%v: the report is\n%s\nand the launcher said\n%s", err, b, l.text())
	}
	return &r
}

// TestAnAdoptedJobGoesOnElastically: what the killed launcher would have done its heir does: a host that is about to go
// is left, a worker that is killed is replaced or done without, and the report tells of both launchers' times.
func TestAnAdoptedJobGoesOnElastically(t *testing.T) {
	t.Run("drain", func(t *testing.T) {
		t.Parallel()
		dir := t.TempDir()
		notice := filepath.Join(dir, "notice")
		l, _ := elasticAdopted(t, dir, false, "-H", "localhost:1,127.0.0.1:2", "--restarts", "2", "--drain-on", "sh:[ $HORA_HOST = localhost ] && [ -e "+notice+" ]")
		if err := os.WriteFile(notice, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		l.await("localhost is about to go: notice by ", "world of 2 as rank 0 on 127.0.0.1")
		r := concluded(t, dir, l)
		if g := r.Epochs[0].Gone; g == nil || g.Rank != 0 || g.Host != "localhost" || r.Restarts != 0 ||
			r.Left == nil || *r.Left != 2 || r.Epochs[1].Hosts["127.0.0.1"] != 2 {
			t.Errorf("the report is %+v", r)
		}
	})
	for name, c := range map[string]struct {
		args []string
		want string
		size int
	}{
		"replaced": {[]string{"--restarts", "2"}, " started on ", 2},
		"unseen":   {[]string{"--restarts", "2"}, " started on ", 2},
		"shrunk":   {[]string{"--restarts", "0", "--min-np", "1"}, "world of 1 as rank 0", 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			l, pids := elasticAdopted(t, dir, name == "unseen", c.args...)
			l.await("taking over job ")
			if name != "unseen" {
				syscall.Kill(pids[1], syscall.SIGKILL)
			}
			l.await(c.want)
			if moment := time.NewTimer(300 * time.Millisecond); name == "replaced" {
				<-moment.C
				l.signal(syscall.SIGKILL)
				<-l.over
				l = heirOf(t, dir)
			}
			r := concluded(t, dir, l)
			if r.Epochs[0].Size != 2 || r.Epochs[1].Size != c.size || r.Epochs[0].Gone == nil ||
				r.Epochs[0].Gone.Rank != 1 {
				t.Errorf("the report is %+v (gone: %+v); the launcher said\n%s", r, r.Epochs[0].Gone, l.text())
			}
			if e := r.Epochs[0]; e.Ended <= e.Began || r.Epochs[1].Began < e.Ended || r.Epochs[1].Began >= r.Seconds ||
				r.Epochs[1].Recovery == nil {
				t.Errorf("the report's times are %+v", r)
			}
		})
	}
}

// TestADiscoveredJobIsAdopted: hosts that came while the first launcher lived are kept, with their workers; its heir
// asks the same command in the same folder, and takes new hosts and slots in, which the next heir keeps.
func TestADiscoveredJobIsAdopted(t *testing.T) {
	dir := t.TempDir()
	writtenDown(t, dir)
	list := func(hosts string) {
		t.Helper()
		next := filepath.Join(dir, "next")
		if err := os.WriteFile(next, []byte(hosts), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(next, filepath.Join(dir, "hosts")); err != nil {
			t.Fatal(err)
		}
	}
	list("localhost:1\n")
	cmd := exec.Command(self(t), "run", "-np", "1", "--discover", "cat hosts", "--report", "story",
		"--coordinator-state", "state", "--verbose", "--env", "HORA_TEST_PROGRAM=", "--env", "HORA_TEST_WORKER=elastic",
		"--env", "ENOUGH="+filepath.Join(dir, "enough"), self(t))
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "HORA_TEST_PROGRAM=1", "HORA_ADOPT_TIMEOUT=20")
	l := start(t, cmd)
	l.await("world of 1 as rank 0")
	list("localhost:1\n127.0.0.1:1\n")
	l.await("world of 2 as rank 0", "world of 2 as rank 1")
	for _, step := range []struct {
		hosts string
		size  int
	}{
		{"localhost:1\n127.0.0.1:1\n::1:1\n", 3}, // a host more
		{"localhost:2\n127.0.0.1:1\n::1:1\n", 4}, // a slot more
		{"localhost:2\n127.0.0.1:1\n", 3},        // a host less
		{"localhost:2\n127.0.0.1:1\n::1:1\n", 4}, // the same name once more
	} {
		l.signal(syscall.SIGKILL)
		l = heirOf(t, dir)
		l.await("taking over job ")
		list(step.hosts)
		l.await(fmt.Sprintf("world of %d as rank 0", step.size))
		if text := l.text(); strings.Contains(text, "lost") || strings.Contains(text, "restart") {
			t.Fatalf("with %q\n%s", step.hosts, text)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "enough"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if code, _ := l.end(); code != 0 {
		t.Fatalf("exit code %d\n%s", code, l.text())
	}
	var r event.Report
	b, err := os.ReadFile(filepath.Join(dir, "story"))
	if err == nil {
		err = json.Unmarshal(b, &r)
	}
	var sizes []int
	for _, e := range r.Epochs {
		sizes = append(sizes, e.Size)
	}
	if err != nil || r.Restarts != 0 || fmt.Sprint(sizes) != "[1 2 3 4 3 4]" {
		t.Errorf("%v, epochs of %v: the report is\n%s", err, sizes, b)
	}
}
