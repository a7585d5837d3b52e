package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// withPrograms makes a folder of fake programs all there is on the path but sh and sleep.
func withPrograms(t *testing.T, bodies map[string]string) {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"sh", "sleep"} {
		path, err := exec.LookPath(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(path, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	for name, body := range bodies {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+body+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", dir)
}

// TestAPeerThatIsNotBuilt: a package is named where one is missing, and only there.
func TestAPeerThatIsNotBuilt(t *testing.T) {
	for _, c := range []struct {
		what, peer string
		programs   map[string]string
		missing    bool
		want       string
	}{
		{"no compiler", "gloo", nil, true, "g++"},
		{"no header", "gloo", map[string]string{"g++": "echo 'gloo.cc:6:10: fatal error: gloo/allgather.h: No such file or directory' >&2; exit 1"}, true, "gloo/allgather.h"},
		{"no library", "gloo", map[string]string{"g++": "echo '/usr/bin/ld: cannot find -lgloo: No such file or directory'; echo 'collect2: error: ld returned 1' >&2; exit 1"}, true, "cannot find -lgloo"},
		{"no Intel MPI", "impi", nil, true, "build peer impi: no include/mpi.h in its folder \"\"; install the packages impi-rt impi-devel"},
		{"no mpirun", "openmpi", map[string]string{"mpicc": "exit 0"}, true, "mpirun"},
		{"a full disk", "gloo", map[string]string{"g++": "echo 'x.s: Fatal error: No space left on device' >&2; exit 1"}, false, "No space left on device; look at"},
		{"another gloo", "gloo", map[string]string{"g++": "echo 'gloo.cc:60: error: is not a member' >&2; exit 1"}, false, "is not a member"},
		{"a compiler that builds nothing", "gloo", map[string]string{"g++": "exit 0"}, false, "build peer gloo: open"},
	} {
		withPrograms(t, c.programs)
		cache := t.TempDir()
		_, err := buildPeer(t.Context(), c.peer, Config{Cache: cache, Environ: os.Environ()})
		var missing *MissingPeer
		if err == nil || errors.As(err, &missing) != c.missing || !strings.Contains(err.Error(), c.want) ||
			strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v, want %q, of a missing package: %v", c.what, err, c.want, c.missing)
		}
		if kept, _ := os.ReadDir(cache); len(kept) > 0 {
			t.Errorf("%s: kept %v", c.what, kept)
		}
	}
}

// TestAPeerThatCannotBeKept leaves nothing that a later run would take for it.
func TestAPeerThatCannotBeKept(t *testing.T) {
	// The limit of a file's size stands for a full disk: the write ends in the middle.
	const compiler = `while [ $# -gt 0 ]; do [ "$1" = -o ] && out=$2; shift; done; echo '#!/bin/sh' > $out`
	cache := t.TempDir()
	withPrograms(t, map[string]string{"g++": compiler})
	program, err := buildPeer(t.Context(), "gloo", Config{Cache: cache, Environ: os.Environ()})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(program); err != nil {
		t.Fatal(err)
	}
	part := fmt.Sprintf("%s.%d", program, os.Getpid())
	if err := os.Symlink("/dev/full", part); err != nil {
		t.Fatal(err)
	}
	if _, err := buildPeer(t.Context(), "gloo", Config{Cache: cache, Environ: os.Environ()}); !errors.Is(err,
		syscall.ENOSPC) || !strings.Contains(err.Error(), "keep peer gloo: ") {
		t.Errorf("%v", err)
	}
	if left, _ := os.ReadDir(cache); len(left) > 0 {
		t.Errorf("left %v", left)
	}
}

// TestInterruptedWhileAPeerIsBuilt: what the compiler has started ends too, nothing is left
// where it worked, and nobody is called missing.
func TestInterruptedWhileAPeerIsBuilt(t *testing.T) {
	started := filepath.Join(t.TempDir(), "started")
	if err := syscall.Mkfifo(started, 0o600); err != nil {
		t.Fatal(err)
	}
	withPrograms(t, map[string]string{"g++": ": > $TMPDIR/half.s; sleep 1000 & echo $! > " + started + "; wait"})
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	child := make(chan string, 1)
	go func() {
		text, _ := os.ReadFile(started) // when it has been written
		child <- strings.TrimSpace(string(text))
		stop()
	}()
	r := &runner{
		cfg:      Config{Plan: Plan{Rounds: 1}, Cache: t.TempDir(), Environ: os.Environ(), Say: t.Errorf},
		programs: map[string]string{},
	}
	c := Combination{"allreduce", "shm", 2, []int{4}, []string{"gloo", "openmpi"}}
	missing := r.build(ctx, []Combination{c})
	if len(missing) > 0 {
		t.Errorf("missing: %v", missing)
	}
	pid := <-child
	// who was killed may not have come to its end yet
	for limit := time.Now().Add(5 * time.Second); ; <-time.After(5 * time.Millisecond) {
		state, err := os.ReadFile("/proc/" + pid + "/stat")
		if err != nil || strings.Contains(string(state), ") Z ") {
			break
		}
		if time.Now().After(limit) {
			t.Errorf("what the compiler had started goes on: %s", state)
			break
		}
	}
	if left, _ := os.ReadDir(dir); len(left) > 0 {
		t.Errorf("left %v", left)
	}
	for _, row := range r.rows(contestOf(c, missing)) {
		if row.Failure != "interrupted" {
			t.Errorf("%+v", row)
		}
	}
}
