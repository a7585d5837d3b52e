package jobtest_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"hora/elastic"
	"hora/event"
	"hora/internal/hosttest"
	"hora/launch"
	"hora/launch/machine"
)

// These tests run jobs over hosts that are network namespaces, reached by ssh. The launcher
// is a process of this test program on the first host.

const launcherArgument = "__launcher"

// hostsPlan is what such a launcher is told.
type hostsPlan struct {
	Command                []string // none: this program
	NP, Min, Max, Restarts int
	OnLoss                 elastic.Policy
	Hosts                  string
	Discover               string // a file of "host:slots" lines, read again and again
	Cool, Wait             time.Duration
	Silence                time.Duration
	DrainOn, Report, State string
	ByHost                 bool
	Env                    []string
}

// beLauncher runs a job as `hora run` does and tells its events on standard output.
func beLauncher() int {
	var p hostsPlan
	err := json.Unmarshal([]byte(os.Args[2]), &p)
	if err == nil {
		err = launchPlan(&p)
	}
	if err != nil {
		fmt.Println("launcher:", err)
		return 1
	}
	return 0
}

func launchPlan(p *hostsPlan) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	name, err := os.Hostname()
	if err != nil {
		return err
	}
	dir, err := os.Getwd()
	if err != nil {
		return err
	}
	a := asked{
		Command: p.Command, NP: p.NP, Min: p.Min, Max: p.Max, Restarts: p.Restarts, OnLoss: p.OnLoss,
		Silence: p.Silence, Dir: dir, ByHost: p.ByHost, DrainOn: p.DrainOn, Report: p.Report, StateDir: p.State,
		Cool: p.Cool, Wait: p.Wait, Env: p.Env,
		Place: launch.Place{
			Itself: len(p.Command) == 0, Coordinator: []string{self, coordinatorArgument},
			Self: []string{self, agentArgument}, Binary: self, LocalName: name, Environ: os.Environ(),
			Stdout: os.Stdout, Stderr: os.Stdout, Events: &event.Sink{},
		},
	}
	if p.Hosts != "" {
		if a.Hosts, err = launch.ParseHosts(p.Hosts); err != nil {
			return err
		}
	}
	if p.Discover != "" {
		a.Find = launch.ScriptHosts("cat "+p.Discover, 0, os.Environ())
	}
	defer a.Events.Add(teller{})()
	machine.Adopt()
	o, err := launch.Run(context.Background(), a.spec(), a.Place)
	machine.Sweep()
	if err != nil {
		return err
	}
	if o.Kind != launch.Finished {
		return errors.New(o.String())
	}
	return nil
}

// teller prints events.
type teller struct{}

func (teller) Operation(*event.Operation) {}

func (teller) Event(e event.Event) {
	at := time.Now().UnixNano()
	switch e := e.(type) {
	case *event.Started:
		fmt.Printf("%d -1 started rank %d pid %d on %s\n", at, e.Rank, e.Pid, e.Host)
	case *event.Exited:
		fmt.Printf("%d -1 exited rank %d on %s: %s\n", at, e.Rank, e.Host, e.Cause)
	default:
		fmt.Printf("%d -1 event: %s\n", at, strings.ReplaceAll(e.String(), "\n", " /"))
	}
}

// startOnHosts starts a job on the first of some hosts.
func startOnHosts(t *testing.T, first *hosttest.Host, p hostsPlan, env ...string) *elasticJob {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p.Env = append(append(p.Env, env...), roleVariable+"=train")
	if p.Silence > 0 {
		p.Env = append(p.Env, fmt.Sprintf("HORA_PEER_TIMEOUT=%v", p.Silence.Seconds()))
	}
	text, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	j := &elasticJob{t: t, pids: map[int]int{}, changed: make(chan struct{}), ended: make(chan struct{})}
	ctx, cancel := context.WithCancel(context.Background())
	cmd := first.Command(ctx, first.Install(self, "launcher"), launcherArgument, string(text))
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = cmd.Stdout
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	j.launcher, j.hostOf = cmd.Process.Pid, map[int]string{}
	go func() {
		defer close(j.ended)
		for s := bufio.NewScanner(out); s.Scan(); {
			j.heard(s.Text())
		}
		j.err = cmd.Wait()
	}()
	t.Cleanup(func() {
		cancel()
		<-j.ended
	})
	return j
}

// heard takes a line of the launcher in.
func (j *elasticJob) heard(line string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.out.WriteString(line + "\n")
	var rank, pid int
	var host string
	if _, rest, ok := strings.Cut(line, " -1 "); ok {
		if n, _ := fmt.Sscanf(rest, "started rank %d pid %d on %s", &rank, &pid, &host); n == 3 {
			j.pids[rank], j.hostOf[pid] = pid, host
		} else if n, _ := fmt.Sscanf(rest, "exited rank %d on", &rank); n == 1 {
			delete(j.pids, rank)
		}
	}
	j.wake()
}

// openAt opens the gate of jobs that wait for a file "open" where they started.
func openAt(t *testing.T, n *hosttest.Net) {
	t.Helper()
	for _, h := range n.Hosts {
		if err := os.WriteFile(filepath.Join(h.Home, "open"), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// TestALostHostMovesToSpareSlots cuts a host silently under replace: its rank starts on the
// host that has a slot to spare, no restart is used, and the weights are those of an
// undisturbed run. The second loss finds no slot.
func TestALostHostMovesToSpareSlots(t *testing.T) {
	if testing.Short() {
		t.Skip("takes long; TestAKilledAgentIsALostHost takes the same way")
	}
	n := hosttest.Up(t, "a", "b", "c")
	const steps = 100
	j := startOnHosts(t, n.Hosts[0], hostsPlan{
		NP: 2, Restarts: 3, OnLoss: elastic.Replace, Hosts: "a:1,b:1,c:1", Silence: 3 * time.Second,
	}, fmt.Sprint("STEPS=", steps), "EVERY=1", "GATE=open")
	j.until("both at work", 40*time.Second, func() bool { return j.said("sum in epoch 1\n") >= 2 && len(j.pids) == 2 })
	at := time.Now()
	n.Hosts[1].Cable(false)
	j.until("the next epoch", 40*time.Second, func() bool { return j.said("sum in epoch 2\n") >= 2 })
	openAt(t, n)
	heard := append(j.moments("error ", at), j.moments("news ", at)...)
	t.Logf("cut to the error: %.1f s, to the next sum: %.1f s, with a timeout of 3 s", slices.Max(heard)/1000, slices.Max(j.moments("sum in epoch 2", at))/1000)
	got := j.wait(2 * time.Minute)
	if want := course(steps)[steps]; len(got) != 2 || got[0] != want || got[1] != want {
		t.Errorf("digests %v, want %s; first wrong: %s\n%s", got, want, straying(j.text(), course(steps)), j.text())
	}
	if text := j.text(); !strings.Contains(text, "rank 1 on b: silent for 3s") || !strings.Contains(text, ": starting it on c") || !strings.Contains(text, " 0 restarts used, 3 left") {
		t.Errorf("the story is\n%s", text)
	}
}

// TestAClosedConnectionIsALostHost kills the ssh session of a host's agent. The agent asks its worker to end, which may
// tell the coordinator that it leaves before the launcher has heard of the loss: the report names the loss.
func TestAClosedConnectionIsALostHost(t *testing.T) {
	n := hosttest.Up(t, "a", "b", "c")
	a, b := n.Hosts[0], n.Hosts[1]
	j := startOnHosts(t, a, hostsPlan{NP: 2, Restarts: 1, OnLoss: elastic.Replace, Hosts: "b:1,c:2", Report: "report.json"}, "STEPS=20", "EVERY=1", "GATE=open")
	j.until("both at work", 40*time.Second, func() bool { return j.said("sum in epoch 1\n") >= 2 && len(j.pids) == 2 })
	if b.Kill("sshd.*@") == 0 {
		t.Fatal("no ssh session to kill")
	}
	j.until("the next epoch", 40*time.Second, func() bool { return j.said("sum in epoch 2\n") >= 2 })
	openAt(t, n)
	j.wait(time.Minute)
	text, err := os.ReadFile(filepath.Join(a.Home, "report.json"))
	var r event.Report
	if err == nil {
		err = json.Unmarshal(text, &r)
	}
	if err != nil || len(r.Epochs) != 2 || r.Restarts != 0 || r.Epochs[0].Gone == nil {
		t.Fatalf("%v\n%s\n%s", err, text, j.text())
	}
	if g := r.Epochs[0].Gone; g.Host != "b" || !strings.Contains(g.Reason, "closed") && !strings.Contains(g.Reason, "ssh ended early") {
		t.Errorf("the first epoch ended by %+v\n%s", g, j.text())
	}
}

// TestAHostThatIsCutWhenTheWorkIsDone costs nothing: its workers have said that they are done.
func TestAHostThatIsCutWhenTheWorkIsDone(t *testing.T) {
	policies := []elastic.Policy{elastic.Continue, elastic.Replace, elastic.Stop}
	if os.Getenv("HORA_SOAK") != "1" {
		policies = policies[:1] // the way is the same
	}
	for _, policy := range policies {
		t.Run(policy.String(), func(t *testing.T) {
			n := hosttest.Up(t, "a", "b")
			plan := hostsPlan{NP: 2, OnLoss: policy, Min: 1, Hosts: "a:1,b:1", Silence: 2 * time.Second}
			if policy == elastic.Replace {
				plan.Restarts = 1
			}
			j := startOnHosts(t, n.Hosts[0], plan, "STEPS=20", "EVERY=1", "STAY=open")
			j.until("both to be done", 40*time.Second, func() bool { return j.said(" digest ") == 2 })
			n.Hosts[1].Cable(false)
			j.until("the loss", 40*time.Second, func() bool { return j.said("the work is done, and its workers are not waited for") > 0 })
			openAt(t, n)
			j.sameWeights(2, 20)
		})
	}
}

// TestALateHostJoinsAndIsLost: a host that a discovery finds while the job runs is reached
// by ssh and trains with the others; it is cut, the others go on; it comes back.
func TestALateHostJoinsAndIsLost(t *testing.T) {
	n := hosttest.Up(t, "a", "b")
	a, b := n.Hosts[0], n.Hosts[1]
	at := func(text string) time.Time {
		t.Helper()
		file := filepath.Join(a.Home, "hosts")
		if err := os.WriteFile(file+".new", []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(file+".new", file); err != nil {
			t.Fatal(err)
		}
		return time.Now()
	}
	at("a:1\n")
	j := startOnHosts(
		t, a,
		hostsPlan{NP: 1, OnLoss: elastic.Continue, Discover: "hosts", Silence: 3 * time.Second, Cool: time.Second},
		"STEPS=100000000", "EVERY=1",
	)
	j.until("one at work", 40*time.Second, func() bool { return j.said("sum in epoch 1\n") == 1 })
	came := at("a:1\nb:2\n")
	j.until("three at work", 40*time.Second, func() bool { return j.said("reset size 3") > 0 && j.said("size 3\n") >= 3 })
	t.Logf("a new host in the list to its workers in the training: %.1f s", slices.Max(j.moments("size 3", came))/1000)
	cut := time.Now()
	b.Cable(false)
	j.until("one goes on", 40*time.Second, func() bool { return j.said("reset size 1\n") > 0 })
	t.Logf("cut to the survivor's next epoch: %.1f s, with a timeout of 3 s", slices.Max(j.moments("reset size 1", cut))/1000)
	back := time.Now()
	b.Cable(true)
	j.until("three again", 60*time.Second, func() bool { return len(j.momentsHeld("size 3", back)) >= 3 })
	if text := j.text(); !strings.Contains(text, "b: silent for 3s") || !strings.Contains(text, "it is tried again in") {
		t.Errorf("the story is\n%s", text)
	}
}
