package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"hora/doctor"
	"hora/internal/hosttest"
	"hora/probe"
)

// installed puts this program on a host and returns what to run there.
func installed(t *testing.T, h *hosttest.Host) func(limit time.Duration, args ...string) (int, string, string) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	path := h.Install(self, "hora")
	return func(limit time.Duration, args ...string) (int, string, string) {
		t.Helper()
		return h.Output(limit, append([]string{"env", "HORA_TEST_PROGRAM=1", path}, args...)...)
	}
}

func TestFiguresOfTheNetworkBetweenNames(t *testing.T) {
	r := horaCommand(t, "bench", "net", "-H", "localhost,127.0.0.1", "--json")
	var n probe.Net
	if err := json.Unmarshal([]byte(r.out), &n); err != nil || r.code != 0 {
		t.Fatalf("%v %+v", err, r)
	}
	if strings.Join(n.Hosts, " ") != "localhost 127.0.0.1" || len(n.Pairs) != 2 || n.Pairs[0].Rate <= 0 ||
		n.Pairs[1].Latency <= 0 || n.Advice == "" {
		t.Errorf("%+v", n)
	}
	if len(n.Allreduce) == 0 {
		t.Errorf("no allreduce was measured: %+v", n)
	}
	for _, a := range n.Allreduce {
		if a.Predicted <= 0 || a.Measured <= 0 {
			t.Errorf("an allreduce of %d bytes: %+v", a.Bytes, a)
		}
	}
	if fmt.Sprint(n.Same) != "[[localhost 127.0.0.1]]" || !strings.HasPrefix(n.Advice, "localhost and 127.0.0.1 are two names of one machine, so these are no figures of a network") {
		t.Errorf("%v: %s", n.Same, n.Advice)
	}
	var page bytes.Buffer
	if err := n.WritePage(&page); err != nil || strings.Contains(page.String(), "predicted, µs") ||
		strings.Contains(page.String(), "a step") {
		t.Errorf("%v\n%s", err, page.String())
	}
	r = horaCommand(t, "bench", "net")
	if r.code != 2 || !strings.Contains(r.last(), "-H server1,server2") {
		t.Errorf("%+v", r)
	}
	r = horaCommand(t, "bench", "net", "-H", "server1:4")
	if r.code != 2 || !strings.Contains(r.last(), "name at least two") {
		t.Errorf("%+v", r)
	}
}

func TestDoctorLooksAtHosts(t *testing.T) {
	n := hosttest.Up(t, "server1", "server2", "server3")
	os.Remove(n.Hosts[2].Home + "/.ssh/authorized_keys")
	hora := installed(t, n.Hosts[0])
	code, out, errs := hora(60*time.Second, "doctor", "-H", "server1,server2,server3,nosuch", "--json")
	var page struct {
		Findings []doctor.Finding
		Worst    doctor.State
		Net      *probe.Net
	}
	if err := json.Unmarshal([]byte(out), &page); err != nil || code != 1 || page.Worst != doctor.Problem {
		t.Fatalf("exit code %d, %v\n%s%s", code, err, out, errs)
	}
	do := map[string]string{}
	topics := map[string]int{}
	for _, f := range page.Findings {
		topics[f.Host]++
		if f.Topic == "ssh" && f.State == doctor.Problem {
			do[f.Host] = f.Do
		}
	}
	if do["server3"] != "ssh-keygen -t ed25519; ssh-copy-id server3" || !strings.Contains(do["nosuch"], "/etc/hosts") {
		t.Errorf("next steps %q", do)
	}
	if topics["server1"] < 10 || topics["server2"] < 10 || page.Net == nil || len(page.Net.Pairs) != 2 {
		t.Errorf("%v\n%s", topics, out)
	}
	sent, received := n.Hosts[1].Bytes()
	if page.Net != nil && (sent < 1<<20 || received < 1<<20) {
		t.Errorf("server2 has sent %d bytes and received %d: the network was not measured", sent, received)
	}
	code, out, _ = hora(60*time.Second, "bench", "net", "-H", "server1,server2")
	if code != 0 || strings.Contains(out, "two names") || !strings.Contains(out, "server1  server2") || !strings.Contains(out, "predicted") {
		t.Errorf("exit code %d\n%s", code, out)
	}
}
