package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"hora/internal/hosttest"
)

// build makes the program as users have it.
func build(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "hora")
	if out, err := exec.Command("go", "build", "-ldflags=-s -w", "-o", path, ".").CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	return path
}

// contest runs every contender rounds times, in turn, and returns sorted durations.
func contest(t *testing.T, rounds int, contenders map[string]func() time.Duration) map[string][]time.Duration {
	t.Helper()
	names := make([]string, 0, len(contenders))
	for n := range contenders {
		names = append(names, n)
	}
	slices.Sort(names)
	took := map[string][]time.Duration{}
	for range rounds {
		for _, n := range names {
			took[n] = append(took[n], contenders[n]())
		}
	}
	for _, n := range names {
		slices.Sort(took[n])
		t.Logf("%-28s median %8.2f ms   least %8.2f   most %8.2f", n, ms(median(took[n])), ms(took[n][0]), ms(took[n][rounds-1]))
	}
	return took
}

func median(d []time.Duration) time.Duration { return d[len(d)/2] }
func ms(d time.Duration) float64             { return float64(d.Microseconds()) / 1000 }

// timed is how long one command takes; it must succeed.
func timed(t *testing.T, env []string, argv ...string) func() time.Duration {
	return func() time.Duration {
		cmd := exec.Command(argv[0], argv[1:]...)
		cmd.Env = append(os.Environ(), env...)
		var said bytes.Buffer
		cmd.Stderr = &said
		began := time.Now()
		if err := cmd.Run(); err != nil {
			t.Fatalf("%v: %v\n%s", argv, err, said.String())
		}
		return time.Since(began)
	}
}

// The figures of starting a job on this machine; docs of bench/results say how they are measured. Bounds are three
// times the figures here: the machine may be busy with somebody else's work. make test runs this alone, in its speed
// step.
func TestStartingIsQuick(t *testing.T) {
	if os.Getenv("HORA_SPEED") == "" && os.Getenv("HORA_SOAK") == "" {
		t.Skip("is timed alone: HORA_SPEED=1 runs it (the speed step of make test)")
	}
	rounds := 5
	if os.Getenv("HORA_SOAK") != "" {
		rounds = 21
	}
	program := build(t)
	workerEnv := []string{"HORA_TEST_WORKER=1"}
	contenders := map[string]func() time.Duration{
		"sh -c true":                 timed(t, nil, "sh", "-c", "true"),
		"hora run -np 2 true":        timed(t, nil, program, "run", "-np", "2", "true"),
		"hora run -np 2 allreduce":   timed(t, workerEnv, program, "run", "-np", "2", self(t)),
		"hora: exit to return":       afterExit(t, program),
		"hora run -np 2 python pass": timed(t, nil, program, "run", "-np", "2", "python3", "-c", "pass"),
		"two python pass":            twoPlain(t),
	}
	if _, err := exec.LookPath("mpirun"); err == nil {
		contenders["mpirun -np 2 true"] = timed(t, nil, "mpirun", "--allow-run-as-root", "-np", "2", "true")
	}
	took := contest(t, rounds, contenders)
	bound := func(what string, is, limit time.Duration) {
		if is > limit {
			t.Errorf("%s: %v, at most %v", what, is, limit)
		}
	}
	bound("hora run -np 2 allreduce", median(took["hora run -np 2 allreduce"]), 3*60*time.Millisecond)
	bound("last exit to return", median(took["hora: exit to return"]), 3*200*time.Millisecond)
	bound("overhead over two plain processes", median(took["hora run -np 2 python pass"])-median(took["two python pass"]), 3*50*time.Millisecond)
	mpi := took["mpirun -np 2 true"]
	if mpi == nil {
		t.Skip("needs mpirun: all but the comparison with it is done")
	}
	bound("hora run -np 2 true against a third of mpirun's", median(took["hora run -np 2 true"]), median(mpi)) // three times a third
}

// afterExit is the time from a worker's last act to the launcher's return.
func afterExit(t *testing.T, program string) func() time.Duration {
	return func() time.Duration {
		out, err := exec.Command(program, "run", "-np", "2", "--no-tag", "sh", "-c", "date +%s%N").Output()
		end := time.Now()
		if err != nil {
			t.Fatal(err)
		}
		last := int64(0)
		for f := range strings.FieldsSeq(string(out)) {
			n, _ := strconv.ParseInt(f, 10, 64)
			last = max(last, n)
		}
		return end.Sub(time.Unix(0, last))
	}
}

func twoPlain(t *testing.T) func() time.Duration {
	one := timed(t, nil, "python3", "-c", "pass")
	return func() time.Duration {
		began := time.Now()
		var wg sync.WaitGroup
		wg.Go(func() { one() })
		one()
		wg.Wait()
		return time.Since(began)
	}
}

// The first line of a user's Python program under hora and under torchrun, which imports torch in the launcher.
func TestFirstPythonLineAgainstTorchrun(t *testing.T) {
	if os.Getenv("HORA_SOAK") == "" {
		t.Skip("takes long; HORA_SOAK=1 runs it (make soak)")
	}
	out, err := exec.Command("sh", "../../tools/deps.sh", "path", "venv").Output()
	if err != nil {
		t.Fatal(err)
	}
	venv := strings.TrimSpace(string(out))
	dir := t.TempDir()
	script := filepath.Join(dir, "first.py")
	if err := os.WriteFile(script, []byte("import os, time\nos.write(1, b\"%d\\n\" % time.time_ns())\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	program := build(t)
	first := func(argv ...string) func() time.Duration {
		return func() time.Duration {
			began := time.Now()
			out, err := exec.Command(argv[0], argv[1:]...).Output()
			if err != nil {
				t.Fatalf("%v: %v", argv, err)
			}
			latest := int64(0)
			for f := range strings.FieldsSeq(string(out)) {
				n, _ := strconv.ParseInt(f, 10, 64)
				latest = max(latest, n)
			}
			return time.Unix(0, latest).Sub(began)
		}
	}
	for _, np := range []string{"2", "4"} {
		took := contest(t, 15, map[string]func() time.Duration{
			"hora np " + np:     first(program, "run", "-np", np, "--no-tag", venv+"/bin/python", script),
			"torchrun np " + np: first(venv+"/bin/torchrun", "--nproc-per-node", np, script),
		})
		ratio := float64(median(took["torchrun np "+np])) / float64(median(took["hora np "+np]))
		t.Logf("np %s: %.1f times sooner", np, ratio)
		if ratio < 8.0/3 {
			t.Error(fmt.Errorf("np %s: only %.1f times sooner", np, ratio))
		}
	}
}

// Four hosts over ssh, one rank each, until the first allreduce is done, against mpirun that starts `true` there.
func TestStartingOnFourHostsAgainstMpirun(t *testing.T) {
	if testing.Short() {
		t.Skip("takes long under the race detector")
	}
	if _, err := exec.LookPath("mpirun"); err != nil {
		t.Skip("needs mpirun")
	}
	rounds := 3
	if os.Getenv("HORA_SOAK") != "" {
		rounds = 15
	}
	n := hosttest.Up(t, "server1", "server2", "server3", "server4")
	a := n.Hosts[0]
	program := a.Install(build(t), "hora")
	var worker string
	for _, h := range n.Hosts {
		worker = h.Install(self(t), "worker")
	}
	on := func(want string, argv ...string) func() time.Duration {
		return func() time.Duration {
			began := time.Now()
			code, out, errs := a.Output(30*time.Second, argv...)
			took := time.Since(began)
			if code != 0 || strings.Count(out, want) != 4 && want != "" {
				t.Fatalf("%v: exit code %d\n%s%s", argv, code, out, errs)
			}
			return took
		}
	}
	const hosts = "server1:1,server2:1,server3:1,server4:1"
	hora := on(" sums 10;", program, "run", "-np", "4", "-H", hosts, "--env", "HORA_TEST_WORKER=1", worker)
	hora() // copies the program
	took := contest(t, rounds, map[string]func() time.Duration{
		"hora run, allreduce": hora,
		"mpirun true": on("", "mpirun", "--allow-run-as-root", "-np", "4", "-H", hosts, "--mca", "plm_rsh_args", "-o StrictHostKeyChecking=accept-new",
			"--mca", "oob_tcp_if_include", "10.77.0.0/24", "--mca", "btl_tcp_if_include", "10.77.0.0/24", "true"),
		"ssh true": on("", "ssh", "-o", "StrictHostKeyChecking=accept-new", "server2", "true"),
	})
	if h, m := median(took["hora run, allreduce"]), median(took["mpirun true"]); h > 3*m {
		t.Errorf("hora needs %v, mpirun %v", h, m)
	}
}
