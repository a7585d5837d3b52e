package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"hora"
	"hora/internal/hosttest"
)

// worker is a training script that does one allreduce and tells about it.
func worker() int {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	cfg, err := hora.FromEnv(os.Getenv)
	switch {
	case err != nil:
	case os.Getenv("HORA_TEST_WORKER") == "elastic":
		err = trainElastic(context.Background(), cfg)
	case os.Getenv("HORA_TEST_WORKER") == "tells":
		err = tell(ctx, cfg)
	case os.Getenv("HORA_TEST_WORKER") == "uneven":
		err = workUnevenly(context.Background(), cfg)
	default:
		err = work(ctx, cfg)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "WorkerError:", err)
		return 1
	}
	return 0
}

func work(ctx context.Context, cfg hora.Config) error {
	w, err := hora.Join(ctx, cfg)
	if err != nil {
		return err
	}
	defer w.Close()
	if os.Getenv("HORA_TEST_WORKER") == "dies" && w.Rank() == 1 {
		syscall.Kill(os.Getpid(), syscall.SIGKILL)
	}
	if os.Getenv("HORA_TEST_WORKER") == "raises" && w.Rank() == 1 {
		fmt.Fprintln(os.Stderr, "ValueError: bad batch")
		os.Exit(3) // nothing deferred runs
	}
	x := []float64{float64(w.Rank() + 1)}
	if err := hora.Allreduce(ctx, w.Group(), x, hora.Sum); err != nil {
		return err
	}
	c := w.Group().Counters()
	fmt.Printf("rank %d of %d on %s sums %g; shm %v tcp %v\n", w.Rank(), w.Size(), w.Host(), x[0], c.SHM.BytesSent > 0, c.TCP.BytesSent > 0)
	return w.Leave(ctx)
}

// overheard is what a worker sends in clear, for a listener on its cable.
const overheard = "said so that everybody on the cable can hear it. "

// tell has rank 0 broadcast a text many times over.
func tell(ctx context.Context, cfg hora.Config) error {
	w, err := hora.Join(ctx, cfg)
	if err != nil {
		return err
	}
	defer w.Close()
	text := bytes.Repeat([]byte(overheard), 1000)
	x := make([]byte, len(text))
	if w.Rank() == 0 {
		copy(x, text)
	}
	if err := hora.Broadcast(ctx, w.Group(), x, 0); err != nil {
		return err
	}
	if w.Rank() == 1 && bytes.Equal(x, text) {
		fmt.Println("all was heard")
	}
	return w.Leave(ctx)
}

// workUnevenly has rank 1 come late to every allreduce, until a file appears.
func workUnevenly(ctx context.Context, cfg hora.Config) error {
	w, err := hora.Join(ctx, cfg)
	if err != nil {
		return err
	}
	defer w.Close()
	step := time.NewTicker(20 * time.Millisecond)
	defer step.Stop()
	x := make([]float64, 1000)
	for x[0] == 0 {
		if w.Rank() == 1 {
			<-step.C
			if _, err := os.Stat(os.Getenv("HORA_TEST_STOP")); err == nil {
				x[0] = 1 // to all ranks
			}
		}
		if err := hora.Allreduce(ctx, w.Group(), x, hora.Sum); err != nil {
			return err
		}
	}
	return w.Leave(ctx)
}

func self(t *testing.T) string {
	t.Helper()
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

func TestWorkersOfRunReduce(t *testing.T) {
	host, _ := os.Hostname()
	r := command(t, t.TempDir(), "hora", "run", "-np", "3", "--env", "HORA_TEST_PROGRAM=", "--env", "HORA_TEST_WORKER=1", self(t))
	for rank := range 3 {
		if want := fmt.Sprintf("[%d]<stdout>:rank %d of 3 on %s sums 6;", rank, rank, host); !strings.Contains(r.out, want) {
			t.Errorf("no %q in %+v", want, r)
		}
	}
}

// TestALostWorkerIsNamedToAllAndLast: every other rank and the launcher's last line say who was lost and why, in the
// lost one's own words where it left any.
func TestALostWorkerIsNamedToAllAndLast(t *testing.T) {
	host, _ := os.Hostname()
	for _, c := range []struct {
		way  string
		code int
		why  string
	}{
		{"dies", 137, "killed by signal 9 (SIGKILL)"},
		{"raises", 3, "exit code 3: ValueError: bad batch"},
	} {
		r := command(t, t.TempDir(), "hora", "run", "-np", "3", "--env", "HORA_TEST_PROGRAM=", "--env", "HORA_TEST_WORKER="+c.way, self(t))
		if r.code != c.code || r.last() != "hora: rank 1 on "+host+": "+c.why {
			t.Errorf("%+v", r)
		}
		for _, rank := range []int{0, 2} {
			begin := fmt.Sprintf("[%d]<stderr>:WorkerError: ", rank)
			if line := lineOf(r.err, begin); !strings.Contains(line, "lost rank 1 on host "+host+": ") || !strings.HasSuffix(line, c.why+"\n") {
				t.Errorf("rank %d says %q of the loss: %+v", rank, line, r)
			}
		}
	}
}

// lineOf is the first line of text that begins so.
func lineOf(text, begin string) string {
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, begin) {
			return line
		}
	}
	return ""
}

// startedBy runs the worker under another launcher.
func startedBy(t *testing.T, env []string, argv ...string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Env = append(append(os.Environ(), "HORA_TEST_WORKER=1"), env...)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func TestWorkersStartedByMpirun(t *testing.T) {
	if _, err := exec.LookPath("mpirun"); err != nil {
		t.Skip("needs mpirun")
	}
	out, err := startedBy(t, nil, "mpirun", "--allow-run-as-root", "--oversubscribe", "-np", "2", self(t))
	if err != nil || !strings.Contains(out, "rank 0 of 2 on") || strings.Count(out, " sums 3;") != 2 {
		t.Errorf("%v\n%s", err, out)
	}
}

// Two processes that somebody starts with the variables of torchrun or Horovod find each other.
func TestWorkersStartedByHand(t *testing.T) {
	port := freePort(t)
	for name, env := range map[string]func(rank int) []string{
		"torchrun": func(r int) []string {
			return []string{
				"RANK=" + strconv.Itoa(r), "WORLD_SIZE=2", "LOCAL_RANK=" + strconv.Itoa(r), "LOCAL_WORLD_SIZE=2",
				"MASTER_ADDR=127.0.0.1", "MASTER_PORT=" + strconv.Itoa(port), "TORCHELASTIC_RUN_ID=" + t.Name(),
			}
		},
		"horovod": func(r int) []string {
			return []string{
				"HOROVOD_RANK=" + strconv.Itoa(r), "HOROVOD_SIZE=2", "HOROVOD_LOCAL_RANK=" + strconv.Itoa(r), "HOROVOD_LOCAL_SIZE=2", "HOROVOD_CROSS_RANK=0", "HOROVOD_CROSS_SIZE=1",
				"HOROVOD_GLOO_RENDEZVOUS_ADDR=127.0.0.1", "HOROVOD_GLOO_RENDEZVOUS_PORT=" + strconv.Itoa(port),
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			var wg sync.WaitGroup
			for r := range 2 {
				wg.Go(func() {
					out, err := startedBy(t, env(r), self(t))
					if err != nil || !strings.Contains(out, fmt.Sprintf("rank %d of 2 on", r)) || !strings.Contains(out, " sums 3;") {
						t.Errorf("rank %d: %v\n%s", r, err, out)
					}
				})
			}
			wg.Wait()
		})
	}
}

func freePort(t *testing.T) int {
	t.Helper()
	r := command(t, t.TempDir(), "hora", "run", "-np", "1", "--no-tag", "sh", "-c", "echo $MASTER_PORT")
	n, err := strconv.Atoi(strings.TrimSpace(r.out))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// The line that Horovod's readme shows, on two hosts of those names.
func TestHorovodrunOnTwoHosts(t *testing.T) {
	n := hosttest.Up(t, "server1", "server2")
	a := n.Hosts[0]
	for _, h := range n.Hosts {
		if err := os.Mkdir(filepath.Join(h.Home, "bin"), 0o755); err != nil {
			t.Fatal(err)
		}
		h.Install(self(t), "bin/python")
	}
	program := a.Install(self(t), "bin/horovodrun")
	code, out, errs := a.Output(40*time.Second, "env", "PATH="+filepath.Dir(program)+":/usr/bin:/bin", "HORA_TEST_PROGRAM=1", "sh", "-c",
		"horovodrun -np 8 -H server1:4,server2:4 --env HORA_TEST_PROGRAM= --env HORA_TEST_WORKER=1 python train.py")
	if code != 0 {
		t.Fatalf("exit code %d\n%s%s", code, out, errs)
	}
	for r, host := range []string{"server1", "server1", "server1", "server1", "server2", "server2", "server2", "server2"} {
		if want := fmt.Sprintf("[%d]<stdout>:rank %d of 8 on %s sums 36;", r, r, host); !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	if !strings.Contains(out, "tcp true") {
		t.Errorf("nothing went between the hosts:\n%s", out)
	}
}
