package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"hora"
	"hora/internal/hosttest"
)

// met reports whether all ranks of a world of n have summed.
func met(out string, n int) bool {
	return strings.Count(out, fmt.Sprintf(" of %d on", n)) == n && strings.Count(out, fmt.Sprintf(" sums %d;", n*(n+1)/2)) == n
}

// Workers of a real Slurm on two nodes: with and without PMI, on one of them, on both, and under a batch script's
// mpiexec.
func TestWorkersStartedBySrun(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("takes long under the race detector")
	}
	n := hosttest.Up(t, "server1", "server2")
	n.Slurm()
	head := n.Hosts[0]
	var program, file string
	s := hora.NewSecret()
	for _, h := range n.Hosts {
		program = h.Install(self(t), "worker")
		if err := s.WriteFile(filepath.Join(h.Home, "job/secret")); err != nil {
			t.Fatal(err)
		}
		file = "HORA_SECRET_FILE=" + filepath.Join(filepath.Dir(program), "job/secret")
	}
	for _, c := range []struct {
		ranks int
		env   string
		argv  string
		wants string
	}{
		{3, "A=1", "srun -N1 -n3", "shm true tcp false"},
		{2, "A=1", "srun -N1 -n2 --mpi=pmi2", "shm true tcp false"},
		{2, "A=1", "srun -N1 -n2 --mpi=pmix", "shm true tcp false"},
		{4, file, "srun -N2 -n4", "tcp true"},
		{2, file, "srun -N2 -n2 --mpi=pmi2", "shm false tcp true"},
		{2, file, "srun -N2 -n2 --mpi=pmix", "shm false tcp true"},
	} {
		code, out, errs := head.Output(
			60*time.Second,
			append(append([]string{"env", "HORA_TEST_WORKER=1", c.env}, strings.Fields(c.argv)...), program)...,
		)
		if code != 0 || !met(out, c.ranks) || !strings.Contains(out, c.wants) {
			t.Errorf("%s: exit code %d\n%s%s", c.argv, code, out, errs)
		}
	}
	code, _, errs := head.Output(60*time.Second, "env", "HORA_TEST_WORKER=1", "srun", "-N2", "-n2", program)
	if code == 0 || !strings.Contains(errs, "set HORA_SECRET_FILE on every host") {
		t.Errorf("two nodes without a secret: exit code %d\n%s", code, errs)
	}
}

// Workers of MPICH's mpiexec: two jobs at once, behind a script, do not meet each other.
func TestWorkersStartedByMPICH(t *testing.T) {
	if _, err := exec.LookPath("mpiexec.hydra"); err != nil {
		t.Skip("needs MPICH: there is no mpiexec.hydra")
	}
	script := filepath.Join(t.TempDir(), "train.sh")
	if err := os.WriteFile(script, []byte("#!/bin/sh\n"+self(t)+"\nexit $?\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for _, ranks := range []int{2, 3} {
		for _, program := range []string{script, self(t)} {
			wg.Go(func() {
				out, err := startedBy(t, nil, "mpiexec.hydra", "-n", strconv.Itoa(ranks), program)
				if err != nil || !met(out, ranks) {
					t.Errorf("%d ranks of %s: %v\n%s", ranks, program, err, out)
				}
			})
		}
	}
	wg.Wait()
	out, err := startedBy(t, nil, "mpiexec.hydra", "-pmi-port", "-n", "2", self(t))
	if err == nil || !strings.Contains(out, "start mpiexec without -pmi-port") {
		t.Errorf("-pmi-port: %v\n%s", err, out)
	}
}

// Open MPI across hosts, over ssh: rank 0's address and the secret are passed on as its documentation says.
func TestWorkersStartedByMpirunOnTwoHosts(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("mpirun"); err != nil {
		t.Skip("needs mpirun")
	}
	n := hosttest.Up(t, "server1", "server2")
	s := hora.NewSecret()
	var program, file string
	for _, h := range n.Hosts {
		program = h.Install(self(t), "worker")
		file = filepath.Join(filepath.Dir(program), "job/secret")
		if err := s.WriteFile(filepath.Join(h.Home, "job/secret")); err != nil {
			t.Fatal(err)
		}
	}
	code, out, errs := n.Hosts[0].Output(40*time.Second, "env", "HORA_TEST_WORKER=1", "HORA_ADDR=server1:29600", "HORA_SECRET_FILE="+file,
		"mpirun", "--allow-run-as-root", "-np", "4", "-H", "server1:2,server2:2", "--mca", "plm_rsh_args", "-o StrictHostKeyChecking=accept-new",
		"--mca", "oob_tcp_if_include", "10.77.0.0/24", "--mca", "btl_tcp_if_include", "10.77.0.0/24",
		"-x", "HORA_TEST_WORKER", "-x", "HORA_ADDR", "-x", "HORA_SECRET_FILE", program)
	if code != 0 || !met(out, 4) || !strings.Contains(out, "tcp true") {
		t.Errorf("exit code %d\n%s%s", code, out, errs)
	}
}

// The pods of an Indexed Job on two nodes: each has the variables that Kubernetes and the manifest in docs/launching.md
// set and the secret as a mounted file; the name of rank 0's pod is the address, and rank 0 may come last.
func TestWorkersOfAnIndexedJob(t *testing.T) {
	n := hosttest.Up(t, "train-0", "train-1")
	s := hora.NewSecret()
	var wg sync.WaitGroup
	for _, rank := range []int{1, 0} {
		h := n.Hosts[rank]
		program := h.Install(self(t), "worker")
		if err := s.WriteFile(filepath.Join(h.Home, "job/secret")); err != nil {
			t.Fatal(err)
		}
		wg.Go(func() {
			code, out, errs := h.Output(40*time.Second, "env", "HORA_TEST_WORKER=1",
				"JOB_COMPLETION_INDEX="+strconv.Itoa(rank), "HOSTNAME="+h.Name, "KUBERNETES_SERVICE_HOST=10.96.0.1", "KUBERNETES_SERVICE_PORT=443",
				"HORA_SIZE=2", "HORA_ADDR=train-0:29600", "HORA_SECRET_FILE="+filepath.Join(filepath.Dir(program), "job/secret"), program)
			if want := fmt.Sprintf("rank %d of 2 on %s sums 3; shm false tcp true", rank, h.Name); code != 0 || !strings.Contains(out, want) {
				t.Errorf("%s: exit code %d\n%s%s", h.Name, code, out, errs)
			}
		})
	}
	wg.Wait()
}
