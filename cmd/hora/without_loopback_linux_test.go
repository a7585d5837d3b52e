package main

import (
	"strings"
	"testing"
	"time"

	"hora/internal/hosttest"
)

// A job on a host without 127.0.0.1 meets at ::1; where that is missing too, the sentence says what to do.
func TestAHostWithoutALoopbackAddress(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("takes long under the race detector")
	}
	n := hosttest.Up(t, "desk")
	desk := n.Hosts[0]
	program, worker := desk.Install(self(t), "hora"), desk.Install(self(t), "worker")
	run := func(flags string) (int, string, string) {
		argv := append([]string{"env", "HORA_TEST_PROGRAM=1", program, "run", "-np", "2"}, strings.Fields(flags)...)
		return desk.Output(60*time.Second, append(argv, "--env", "HORA_TEST_PROGRAM=", "--env", "HORA_TEST_WORKER=1", worker)...)
	}
	change := func(command string) {
		if code, _, errs := desk.Output(10*time.Second, "sh", "-c", command); code != 0 {
			t.Fatalf("%s: %s", command, errs)
		}
	}
	change("ip addr del 127.0.0.1/8 dev lo")
	for _, flags := range []string{"", "--env HORA_LINKS=tcp", "--restarts 1"} {
		if code, out, errs := run(flags); code != 0 || !met(out, 2) {
			t.Errorf("%s: exit code %d\n%s%s", flags, code, out, errs)
		}
	}
	change("ip addr flush dev lo")
	const want = "hora: listen for workers: this host has neither 127.0.0.1 nor ::1: bring its loopback interface up, as with ip link set lo up\n"
	if code, _, errs := run(""); code != 71 || errs != want {
		t.Errorf("exit code %d\n%s", code, errs)
	}
}
