package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"hora"
	"hora/job"
	"hora/server/backend"
	"hora/server/client"
	"hora/server/node"
)

// countsIn names the file at whose appearance the workers of these tests have done enough.
const countsIn = "TEST_ENOUGH"

// savesIn names the file where rank 0 of these workers keeps the last step that it commits, and begins.
const savesIn = "TEST_SAVES"

// count is an elastic job's worker: it counts steps, says each before it commits it, reports it, says that it has, and
// checks their sums.
func count(ctx context.Context) error {
	cfg, err := hora.FromEnv(os.Getenv)
	if err != nil {
		return err
	}
	c, err := net.Dial("unix", os.Getenv(node.ReportVariable))
	if err != nil {
		return err
	}
	defer c.Close()
	told := json.NewEncoder(c)
	state := hora.NewState()
	steps, saved := 0, os.Getenv(savesIn)
	if b, err := os.ReadFile(saved); err == nil {
		if steps, err = strconv.Atoi(string(b)); err != nil {
			return err
		}
		fmt.Printf("goes on after step %d\n", steps)
	}
	state.Int("steps", &steps)
	return hora.RunElastic(ctx, cfg, state, func(ctx context.Context, w *hora.World) error {
		pause := time.NewTicker(20 * time.Millisecond)
		defer pause.Stop()
		for {
			<-pause.C
			sums := []float64{1, 0}
			if _, err := os.Stat(os.Getenv(countsIn)); err == nil && w.Rank() == 0 {
				sums[1] = 1
			}
			if err := hora.Allreduce(ctx, w.Group(), sums, hora.Sum); err != nil {
				return err
			}
			if int(sums[0]) != w.Size() {
				return fmt.Errorf("%d ranks sum to %g", w.Size(), sums[0])
			}
			steps++
			fmt.Printf("step %d by %d\n", steps, w.Size()) // all of them: a killed agent's ranks are not heard out
			if err := told.Encode(backend.Report{
				Rank: w.Rank(), Step: int64(steps), Metrics: map[string]backend.Value{os.Getenv("HORA_HOST"): 1},
			}); err != nil {
				return err
			}
			fmt.Printf("told %d on %s\n", steps, os.Getenv("HORA_HOST"))
			if sums[1] > 0 {
				if w.Rank() == 0 {
					fmt.Println("enough")
				}
				return nil
			}
			if saved != "" && w.Rank() == 0 {
				if err := os.WriteFile(saved+".new", []byte(strconv.Itoa(steps)), 0o644); err != nil {
					return err
				}
				if err := os.Rename(saved+".new", saved); err != nil {
					return err
				}
			}
			if err := state.Commit(); err != nil {
				return err
			}
		}
	})
}

// counting is such a job.
type counting struct {
	*site
	id     int64
	enough string
	lost   string // a node that was lost, of which not all need have come
}

// elasticSite is one with a pool of some nodes of two slots each, and a job that counts with four ranks, or the least.
func elasticSite(t *testing.T, least int, nodes ...string) (*counting, map[string]*os.Process) {
	return elasticSiteOf(t, least, func(*client.Document) {}, nodes...)
}

// elasticSiteOf is one whose job is changed before it is submitted.
func elasticSiteOf(
	t *testing.T, least int, change func(*client.Document), nodes ...string,
) (*counting, map[string]*os.Process) {
	s := newSite(t, 1)
	s.more = []string{"--patience", "8s"}
	s.kill()
	s.port = s.url[strings.LastIndex(s.url, ":")+1:]
	s.up()
	if r := s.hora("pool", "add", "lab"); r.code != 0 {
		t.Fatalf("%+v", r)
	}
	all := map[string]*os.Process{}
	for _, n := range nodes {
		all[n] = s.joining(n, "lab").Process
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := &counting{site: s, enough: filepath.Join(t.TempDir(), "enough")}
	low := 10
	d := shell(4, fmt.Sprintf("echo began >outputs/by.$HORA_RANK.$HORA_HOST; %s=%s exec %s", countsIn, c.enough, self))
	d.Pool, d.Spec.MinNP, d.Priority = "lab", least, &low
	change(&d)
	c.id = s.submit(d).ID
	t.Cleanup(func() {
		if t.Failed() {
			r := s.hora("job", fmt.Sprint(c.id))
			t.Logf("its story is\n%s%s", r.out, r.errs)
			for _, l := range strings.Split(s.text(c.id), "\n") {
				if l != "" && !strings.Contains(l, "step ") && !strings.Contains(l, "told ") {
					t.Log(l)
				}
			}
		}
	})
	return c, all
}

var aStep = regexp.MustCompile(`step (\d+) by (\d+)`)

// last are its last step and how many ranks did it.
func (c *counting) last() (step, ranks int) {
	if all := aStep.FindAllStringSubmatch(c.text(c.id), -1); len(all) > 0 {
		m := all[len(all)-1]
		step, _ = strconv.Atoi(m[1])
		ranks, _ = strconv.Atoi(m[2])
	}
	return step, ranks
}

func (c *counting) by(n int) {
	c.t.Helper()
	c.eventually(fmt.Sprintf("it counts with %d", n), func() bool { _, ranks := c.last(); return ranks == n })
}

// on are the nodes where it has slots.
func (c *counting) on() map[string]int {
	j, err := c.client.Job(context.Background(), c.id)
	if err != nil {
		c.t.Fatal(err)
	}
	out := map[string]int{}
	for _, s := range j.Shares {
		out[s.Node] = s.Slots
	}
	return out
}

// finish has it end, and no step missing.
func (c *counting) finish() client.Job {
	c.t.Helper()
	if err := os.WriteFile(c.enough, nil, 0o644); err != nil {
		c.t.Fatal(err)
	}
	j := c.until(c.id, ended)
	if j.State != job.Finished || len(j.Attempts) != 1 {
		c.t.Errorf("the elastic job ended as %+v", j)
	}
	missingSteps(c.t, c.text(c.id))
	c.missingReports()
	return j
}

var aReport = regexp.MustCompile(`told (\d+) on (\w+)`)

// missingReports says which of those that its ranks have sent are not there.
func (c *counting) missingReports() {
	c.t.Helper()
	all, err := c.client.Metrics(context.Background(), c.id, "", 100_000)
	if err != nil {
		c.t.Fatal(err)
	}
	had := map[string]int{}
	for _, m := range all {
		for _, p := range m.Points {
			had[fmt.Sprint(p.Step, " on ", m.Name)]++
		}
	}
	told := map[string]int{}
	for _, m := range aReport.FindAllStringSubmatch(c.text(c.id), -1) {
		if m[2] != c.lost {
			told[m[1]+" on "+m[2]]++
		}
	}
	for what, n := range told {
		if had[what] < n {
			c.t.Errorf("%d times step %s was reported, and %d times it is there", n, what, had[what])
		}
	}
	if len(told) == 0 {
		c.t.Error("nothing was reported")
	}
	for what, n := range had {
		if n > 2 { // slots of a node
			c.t.Errorf("step %s is there %d times", what, n)
		}
	}
}

// missingSteps says which it lacks of those that a counting job has done.
func missingSteps(t *testing.T, text string) {
	t.Helper()
	had, most := map[int]bool{}, 0
	for _, m := range aStep.FindAllStringSubmatch(text, -1) {
		n, _ := strconv.Atoi(m[1])
		had[n], most = true, max(most, n)
	}
	for n := 1; n <= most; n++ {
		if !had[n] {
			t.Errorf("step %d of %d is missing", n, most)
		}
	}
	t.Logf("%d steps", most)
}

// promised is how soon after its next commit an elastic job has given slots away.
const promised = time.Second

// TestAnElasticJobOfTwoNodes gives two of four slots away for a job of a higher priority, at its next commit, and gets
// them back after it: no step is lost, whether or not the server is killed while that goes on.
func TestAnElasticJobOfTwoNodes(t *testing.T) {
	t.Parallel() // it waits, most of the time
	c, _ := elasticSite(t, 2, "one", "two")
	c.by(4)
	if on := c.on(); on["one"] != 2 || on["two"] != 2 {
		t.Fatalf("it is on %v", on)
	}
	high := 90
	gate := filepath.Join(t.TempDir(), "gate")
	urgent := shell(2, `until [ -e `+gate+` ]; do sleep 0.02; done; rm -f `+gate+`.seen`)
	urgent.Pool, urgent.Priority = "lab", &high

	asked := time.Now()
	first := c.submit(urgent)
	c.until(first.ID, in(job.Running))
	took := time.Since(asked)
	t.Logf("two slots were given away in %v", took.Round(time.Millisecond))
	if took > 3*promised {
		t.Errorf("two slots were given away in %v: the promise is %v", took, promised)
	}
	c.by(2)
	if on := c.on(); len(on) != 1 {
		t.Errorf("it has given a node away and is on %v", on)
	}
	if err := os.WriteFile(gate, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	c.until(first.ID, ended)
	asked = time.Now()
	c.by(4)
	t.Logf("it has them back after %v", time.Since(asked).Round(time.Millisecond))
	if err := os.Remove(gate); err != nil {
		t.Fatal(err)
	}

	second := c.submit(urgent)
	c.eventually("it is told", func() bool {
		return strings.Count(c.hora("job", fmt.Sprint(c.id)).out, "it gives slots away") == 2
	})
	c.kill()
	c.up()
	c.until(second.ID, in(job.Running))
	c.by(2)
	c.kill()
	if err := os.WriteFile(gate, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	c.up()
	c.until(second.ID, ended)
	c.by(4)
	c.finish()
	to := t.TempDir()
	r := c.hora("artifacts", fmt.Sprint(c.id), "--to", to)
	for _, node := range []string{"one", "two"} {
		if all, _ := filepath.Glob(filepath.Join(to, "by.*."+node)); r.code != 0 || len(all) == 0 {
			t.Errorf("nothing that the ranks on %s left has come back: %+v", node, r)
		}
	}
}

// TestAnElasticJobLosesANode: it is left out, and the job goes on, with another where there is one.
func TestAnElasticJobLosesANode(t *testing.T) {
	t.Parallel() // it waits, most of the time
	c, nodes := elasticSite(t, 2, "one", "two")
	c.by(4)
	keeps := c.first()
	lost := "two"
	if keeps == "two" {
		lost = "one"
	}
	c.lost = lost
	killTree(t, nodes[lost].Pid)
	c.by(2)
	c.eventually("the node is left out", func() bool { return len(c.on()) == 1 })
	other := c.joining("three", "lab")
	_ = other
	c.by(4)
	if on := c.on(); on[keeps] != 2 || on["three"] != 2 {
		t.Errorf("it is on %v", on)
	}
	c.finish()
}

// TestAnElasticJobWithTooFewSlots: one that a lost node leaves with fewer than its least queues again, which eats none
// of its retries, of which it has none.
func TestAnElasticJobWithTooFewSlots(t *testing.T) {
	t.Parallel() // it waits, most of the time
	c, nodes := elasticSite(t, 3, "one", "two")
	c.by(4)
	lost := "two"
	if c.first() == "two" {
		lost = "one"
	}
	killTree(t, nodes[lost].Pid)
	j := c.until(c.id, in(job.Queued))
	if j, err := c.client.Job(context.Background(), j.ID); err != nil || len(j.Attempts) != 1 ||
		j.Attempts[0].Outcome != client.Lost || !strings.Contains(j.Attempts[0].Text, "fewer slots are left than --min-np 3") {
		t.Fatalf("%+v, %v", j, err)
	}
	c.joining("three", "lab")
	c.until(c.id, in(job.Running))
	c.by(4)
	if err := os.WriteFile(c.enough, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if j := c.until(c.id, ended); j.State != job.Finished || len(j.Attempts) != 2 {
		t.Errorf("it ended as %+v", j)
	}
}

// TestAnElasticJobOutlivesItsAgents: it begins on the one node that there is and takes another when that comes; agents
// that are killed come back, on the node that keeps the job and on the other, and its attempt goes on.
func TestAnElasticJobOutlivesItsAgents(t *testing.T) {
	t.Parallel() // it waits, most of the time
	c, nodes := elasticSite(t, 2, "one")
	c.by(2)
	nodes["two"] = c.joining("two", "lab").Process
	c.by(4)
	for _, node := range []string{"one", "two"} {
		step, _ := c.last()
		for _, pid := range below(t, nodes[node].Pid) {
			if b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)); strings.Contains(string(b), "\x00agent\x00--kept") {
				_ = syscall.Kill(pid, syscall.SIGKILL)
			}
		}
		c.eventually("the others go on", func() bool { n, ranks := c.last(); return n > step && ranks == 2 })
		c.by(4)
	}
	if on := c.on(); on["one"] != 2 || on["two"] != 2 {
		t.Errorf("it is on %v", on)
	}
	c.finish()
}

// first is the node that keeps the job.
func (c *counting) first() string {
	j, err := c.client.Job(context.Background(), c.id)
	if err != nil || len(j.Shares) == 0 {
		c.t.Fatal(j, err)
	}
	return j.Shares[0].Node
}

// below are the processes that run in the folder of a node: its keepers and all that they have started.
func below(t *testing.T, pid int) (all []int) {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil {
		t.Fatal(err)
	}
	args := strings.Split(string(b), "\x00")
	dir := args[slices.Index(args, "--dir")+1] + string(filepath.Separator)
	found, _ := filepath.Glob("/proc/[0-9]*/cwd")
	for _, p := range found {
		if at, err := os.Readlink(p); err == nil && strings.HasPrefix(at, dir) {
			n, _ := strconv.Atoi(filepath.Base(filepath.Dir(p)))
			all = append(all, n)
		}
	}
	return all
}

// killTree ends a node as a power cut does: its program, and the keepers with all that they have started.
func killTree(t *testing.T, pid int) {
	t.Helper()
	_ = syscall.Kill(pid, syscall.SIGSTOP)
	for _, n := range below(t, pid) {
		_ = syscall.Kill(n, syscall.SIGKILL)
	}
	_ = syscall.Kill(pid, syscall.SIGKILL)
}

// TestPauseOfAnElasticJob: its workers leave at their next commit, the last of them too, whether it has one node or
// more; and it runs again when it may.
func TestPauseOfAnElasticJob(t *testing.T) {
	t.Parallel() // it waits, most of the time
	for _, nodes := range [][]string{{"one", "two"}, {"one"}} {
		c, _ := elasticSite(t, 2, nodes...)
		c.by(2 * len(nodes))
		asked := time.Now()
		if r := c.hora("pause", fmt.Sprint(c.id)); r.code != 0 {
			t.Fatalf("%+v", r)
		}
		c.until(c.id, in(job.Paused))
		took := time.Since(asked)
		t.Logf("with %d nodes it was paused in %v", len(nodes), took.Round(time.Millisecond))
		if took > 3*pausedIn {
			t.Errorf("with %d nodes it was paused in %v: %v are promised", len(nodes), took, pausedIn)
		}
		text := c.text(c.id)
		if strings.Contains(text, "SIGTERM") {
			t.Errorf("its workers did not leave at a commit: %s", text)
		}
		const told = "it was told to end, and its workers left at a commit"
		if r := c.hora("logs", fmt.Sprint(c.id)); !strings.Contains(r.errs, told) || strings.Contains(r.errs, "left before the work was done") {
			t.Errorf("a pause reads like a failure: %s", r.errs)
		}
		if r := c.hora("job", fmt.Sprint(c.id)); !strings.Contains(r.out, "paused: "+told) {
			t.Errorf("its story does not say that it was paused: %s", r.out)
		}
		if r := c.hora("resume", fmt.Sprint(c.id)); r.code != 0 {
			t.Fatalf("%+v", r)
		}
		if err := os.WriteFile(c.enough, nil, 0o644); err != nil {
			t.Fatal(err)
		}
		j := c.until(c.id, ended)
		if j.State != job.Finished || len(j.Attempts) != 2 || j.Attempts[0].Outcome != client.Held {
			t.Errorf("%+v", j)
		}
	}
}

// pausedIn is a second until the job hears of it, its next commit, and its processes' ends.
const pausedIn = 3 * time.Second
