package main

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"hora/bench"
)

func TestBenchCollectivesRefuses(t *testing.T) {
	goals := filepath.Join(t.TempDir(), "goals.json")
	if err := os.WriteFile(goals, []byte("no goals"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args string
		code int
		want string
	}{
		{"--np 0", 2, "0 ranks is not between 1 and 256"},
		{"--np two", 2, `--np "two" is not numbers as 2,4`},
		{"--np 3 --ops allreduce", 2, "give all of --np, --ops, --links and --peers"},
		{"--ops sum", 2, `no operation is called "sum" (there are allreduce,`},
		{"--links infiniband", 2, `no link is called "infiniband"`},
		{"--peers nccl", 2, `no peer is called "nccl"`},
		{"--sizes 3", 2, `read size "3": want a number of bytes from 4`},
		{"--sizes 64Mi..4", 2, "the range holds none of the sizes"},
		{"--rounds 0", 2, "at least one round is needed"},
		{"--format xml", 2, "want table, jsonl or csv"},
		{"--slack 0", 2, "want a factor above 0"},
		{"--slack NaN", 2, "want a factor above 0"},
		{"--slack much", 2, `--slack "much" is not a number`},
		{"--check /no/goals", 2, "read goals: open /no/goals"},
		{"--check " + goals, 2, "read goals of"},
		{"--plot /no/x.svg", 1, "name a file in a folder that you may write to"},
		{"now", 2, "takes flags only"},
		{"--np 2 --ops allreduce --links shm --peers roofline --sizes 512Gi", 1, "nothing was measured: no size of 512Gi fits the memory"},
	} {
		r := horaCommand(t, append([]string{"bench", "collectives"}, strings.Fields(c.args)...)...)
		if r.code != c.code || !strings.Contains(r.last(), c.want) {
			t.Errorf("%s: exit code %d, want %d with %q: %s", c.args, r.code, c.code, c.want, r.err)
		}
	}
}

// benchWithout starts a benchmark against gloo where compiler is the only one, or none.
func benchWithout(t *testing.T, compiler string, args ...string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for _, name := range []string{"taskset", "chrt", "sh", "cat", "chmod", "sleep"} {
		path, err := exec.LookPath(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(path, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	if compiler != "" {
		if err := os.WriteFile(filepath.Join(dir, "g++"), []byte(compiler), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command(self, append([]string{"bench", "collectives", "--np", "2", "--ops", "allreduce", "--links", "shm", "--peers", "gloo", "--sizes", "4,64"}, args...)...)
	cmd.Env = append(os.Environ(), "HORA_TEST_PROGRAM=1", "PATH="+dir, "XDG_CACHE_HOME="+t.TempDir())
	return cmd
}

// compiled is a compiler whose programs do what body says.
func compiled(body string) string {
	return "#!/bin/sh\nwhile [ $# -gt 0 ]; do [ \"$1\" = -o ] && out=$2; shift; done\ncat > $out <<'end'\n#!/bin/sh\n" + body + "\nend\nchmod +x $out\n"
}

// TestBenchGoesOnWithoutAPeer: our own figures come, and what the peer lacks is named.
func TestBenchGoesOnWithoutAPeer(t *testing.T) {
	for _, c := range []struct{ compiler, want string }{
		{"", "is missing: it takes the packages g++ libgloo-dev"},
		{compiled("echo unhappy >&2; exit 7"), "gloo-ring: exit status 7: unhappy"},
	} {
		cmd := benchWithout(t, c.compiler, "--rounds", "1", "--format", "jsonl")
		var errs bytes.Buffer
		cmd.Stderr = &errs
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%v: %s", err, errs.String())
		}
		d := json.NewDecoder(bytes.NewReader(out))
		rows := 0
		for {
			var r bench.Row
			if err := d.Decode(&r); err == io.EOF {
				break
			} else if err != nil {
				t.Fatalf("%v in %s", err, out)
			}
			rows++
			if r.HoraUS <= 0 || r.PeerUS != 0 || !strings.Contains(r.Failure, c.want) {
				t.Errorf("%+v, want %q", r, c.want)
			}
		}
		if rows != 2 {
			t.Errorf("%d rows, want one for each size:\n%s", rows, out)
		}
	}
}

// TestBenchInterrupted: Ctrl-C ends a peer that hangs, and what was measured until then
// is shown. Wait returns when nobody holds standard error any more: nothing is left.
func TestBenchInterrupted(t *testing.T) {
	hangs := filepath.Join(t.TempDir(), "hangs")
	if err := syscall.Mkfifo(hangs, 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := benchWithout(t, compiled("echo here > "+hangs+"; exec sleep 1000"))
	var out bytes.Buffer
	cmd.Stdout = &out
	var errs bytes.Buffer
	cmd.Stderr = &errs
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	late := time.AfterFunc(30*time.Second, func() { cmd.Process.Kill() })
	defer late.Stop()
	here, err := os.Open(hangs) // waits for the peer
	if err != nil {
		t.Fatal(err)
	}
	defer here.Close()
	if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // its exit code tells
	if cmd.ProcessState.ExitCode() != 130 || strings.Count(out.String(), "interrupted") != 2 || !strings.Contains(errs.String(), "what was measured until then") {
		t.Errorf("exit code %d\n%s%s", cmd.ProcessState.ExitCode(), out.String(), errs.String())
	}
}
