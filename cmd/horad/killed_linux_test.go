package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"hora/job"
	"hora/server/client"
	"hora/server/node"
)

// TestAKilledServerLosesNothing kills the server again and again while jobs run, come and end: no acknowledged job is
// lost or runs twice, none is started again, and all they have written is there.
func TestAKilledServerLosesNothing(t *testing.T) {
	kills, seed := 3, uint64(time.Now().UnixNano())
	if os.Getenv("HORA_SOAK") == "1" {
		kills = 100
	}
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 1))
	s := newSite(t, 8)
	const lines = 100
	script := fmt.Sprintf(`echo begins; i=0; while [ $i -lt %d ]; do echo line $i; i=$((i+1)); sleep 0.02; done; echo ends`, lines)
	var ids []int64
	submit := func() {
		j, err := s.client.Submit(context.Background(), shell(1, script), client.Key())
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, j.ID)
	}
	for range 5 {
		submit()
	}
	var longest time.Duration
	for kill := range kills {
		for range 3 {
			submit()
		}
		s.until(ids[len(ids)-1], in(job.Running))
		running := s.running()
		if running == 0 {
			t.Fatal("nothing runs: this kill would prove nothing")
		}
		<-time.After(time.Duration(rng.IntN(600)) * time.Millisecond)
		s.kill()
		begin := time.Now()
		s.up()
		s.heardSince(ids[len(ids)-1], begin)
		took := time.Since(begin)
		longest = max(longest, took)
		if took > 6*time.Second {
			t.Errorf("kill %d: %d jobs were taken up after %v, and 2 s are promised", kill, running, took)
		}
	}
	for _, id := range ids {
		j := s.until(id, ended)
		if j.State != job.Finished {
			t.Errorf("job %d: %s: %s", id, j.State, j.Text)
			continue
		}
		if j, _ = s.client.Job(context.Background(), id); len(j.Attempts) != 1 {
			t.Errorf("job %d ran %d times", id, len(j.Attempts))
		}
		next := 0
		err := s.client.Lines(context.Background(), id, client.Following{Rank: 0}, func(l client.Line) {
			want := fmt.Sprintf("line %d", next-1)
			switch next {
			case 0:
				want = "begins"
			case lines + 1:
				want = "ends"
			}
			if l.Text != want {
				t.Errorf("job %d: line %d is %q, want %q", id, next, l.Text, want)
			}
			next++
		})
		if err != nil || next != lines+2 {
			t.Errorf("job %d has %d lines of %d: %v", id, next, lines+2, err)
		}
	}
	t.Logf("%d kills, %d jobs, taken up after at most %v", kills, len(ids), longest)
}

// heardSince waits for what a job's rank 0 wrote after a moment, or for its end.
func (s *site) heardSince(id int64, moment time.Time) {
	s.t.Helper()
	ctx, heard := context.WithCancel(context.Background())
	defer heard()
	_, err := s.client.Follow(ctx, id, client.Following{Rank: 0, Since: moment, Line: func(l client.Line) {
		if l.At.After(moment) {
			heard()
		}
	}})
	if err != nil && ctx.Err() == nil {
		s.t.Fatal(err)
	}
}

func (s *site) running() int {
	s.t.Helper()
	a, err := s.client.About(context.Background())
	if err != nil {
		s.t.Fatal(err)
	}
	return a.Running
}

// TestTermLeavesJobsRunning ends the server as a system does, and as a terminal does: Ctrl-C there goes to all that it
// runs in the foreground, of which a job is no part. What ran goes on as it was.
func TestTermLeavesJobsRunning(t *testing.T) {
	s := newSite(t, 1)
	gate := filepath.Join(t.TempDir(), "go")
	j := s.submit(shell(1, "echo begins as $$; until [ -e "+gate+" ]; do sleep 0.05; done; echo went as $$"))
	s.eventually("it has begun", func() bool { return strings.Contains(s.text(j.ID), "begins") })
	before := s.until(j.ID, in(job.Running))
	for end, send := range map[string]func() error{
		"TERM":   func() error { return s.cmd.Process.Signal(syscall.SIGTERM) },
		"Ctrl-C": func() error { return syscall.Kill(-s.cmd.Process.Pid, syscall.SIGINT) },
	} {
		if err := send(); err != nil {
			t.Fatal(err)
		}
		if err := s.cmd.Wait(); err != nil {
			t.Errorf("after %s the server ended with %v", end, err)
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		var gone *client.NoServer
		if _, err := s.client.Job(ctx, j.ID); !errors.As(err, &gone) {
			t.Errorf("the server is away, and a call says %v", err)
		}
		cancel()
		s.up()
		if again := s.until(j.ID, in(job.Running)); !again.Started.Equal(before.Started) {
			t.Errorf("after %s: it ran since %v, and now since %v", end, before.Started, again.Started)
		}
	}
	if err := os.WriteFile(gate, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	s.until(j.ID, in(job.Finished))
	a, err := s.client.Job(context.Background(), j.ID)
	if err != nil || len(a.Attempts) != 1 || !a.Started.Equal(before.Started) {
		t.Errorf("%+v, %v", a, err)
	}
	text := s.text(j.ID)
	_, pid, _ := strings.Cut(text, "begins as ")
	pid, _, _ = strings.Cut(pid, "\n")
	if strings.Count(text, "begins") != 1 || !strings.Contains(text, "went as "+pid+"\n") {
		t.Errorf("it wrote %q", text)
	}
}

// TestDownNowStartsNothing: the room that hora down --now makes is not given to a job that waits, which the server
// would leave behind running.
func TestDownNowStartsNothing(t *testing.T) {
	s := newSite(t, 1)
	first := s.submit(shell(1, "sleep 1000"))
	s.until(first.ID, in(job.Running))
	next := s.submit(shell(1, "echo went"))
	s.downNow(first.ID, next.ID)
}

// downNow ends the server and the job that runs, and sees that the one that waits is begun by the next server alone. It
// answers how long the end took.
func (s *site) downNow(runs, waits int64) time.Duration {
	s.t.Helper()
	begin := time.Now()
	if r := s.hora("down", "--now"); r.code != 0 {
		s.t.Fatalf("hora down --now after %v: %+v", time.Since(begin), r)
	}
	took := time.Since(begin)
	_ = s.cmd.Wait()
	if _, err := os.Stat(filepath.Join(s.dir, "attempts", fmt.Sprintf("%d.1", waits))); err == nil {
		s.t.Error("the job that waited was begun")
	}
	s.up()
	if j := s.until(runs, in(job.Cancelled)); len(j.Attempts) != 1 {
		s.t.Errorf("%+v", j)
	}
	s.until(waits, in(job.Finished))
	return took
}

// TestDownNowOfAJobThatTakesItsTime: a job that does not end when it is asked to is waited for, however long that
// takes, and the room that it leaves is nobody's.
func TestDownNowOfAJobThatTakesItsTime(t *testing.T) {
	t.Parallel() // it waits, most of the time
	s := newSite(t, 1)
	first := s.submit(shell(1, "trap '' TERM; echo runs; while :; do sleep 1; done"))
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	_, _ = s.client.Follow(ctx, first.ID, client.Following{Rank: 0, Line: func(client.Line) { cancel() }})
	next := s.submit(shell(1, "echo went"))
	if took := s.downNow(first.ID, next.ID); took < 5*time.Second {
		t.Errorf("the job was ended in %v, which tells nothing of one that takes longer", took)
	}
}

// TestAStoppedServerCountsAsAway: who follows a job there, or asks for the list, is told so, as of one that has ended.
func TestAStoppedServerCountsAsAway(t *testing.T) {
	s := newSite(t, 1)
	j := s.submit(shell(1, "while [ ! -f outputs/go ]; do sleep 0.05; done"))
	s.until(j.ID, in(job.Running))
	c := client.New(s.url, s.client.Token)
	c.Silence = 2 * time.Second
	heard, followed := make(chan struct{}), make(chan error, 1)
	go func() {
		f := client.Following{Quiet: true, Rank: -2, State: func(client.Job) { close(heard) }}
		_, err := c.Follow(t.Context(), j.ID, f)
		followed <- err
	}()
	<-heard
	if err := s.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.cmd.Process.Signal(syscall.SIGCONT) }()
	s.eventually("all threads of the server stand still", func() bool {
		threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", s.cmd.Process.Pid))
		for _, path := range threads {
			if stat, err := os.ReadFile(path); err == nil && !bytes.Contains(stat, []byte(") T ")) {
				return false
			}
		}
		return len(threads) > 0
	})
	begin := time.Now()
	_, err := c.Jobs(t.Context(), nil, "", "", 10)
	var gone *client.NoServer
	if took := time.Since(begin); !errors.As(err, &gone) || took > 3*c.Silence {
		t.Errorf("after %v a list says %v", took, err)
	}
	select {
	case err := <-followed:
		if !errors.As(err, &gone) {
			t.Error(err)
		}
	case <-time.After(4 * c.Silence):
		t.Error("a follower waits for a server that was stopped")
	}
	if err := s.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Do(t.Context(), j.ID, "cancel"); err != nil {
		t.Error(err)
	}
	s.until(j.ID, ended)
}

// TestTheTokenIsForTerminals: what a service writes goes into the system's journal, and no token with it.
func TestTheTokenIsForTerminals(t *testing.T) {
	s := newSite(t, 1)
	if r := s.hora("down"); r.code != 0 {
		t.Fatalf("%+v", r)
	}
	_ = s.cmd.Wait()
	out := &bytes.Buffer{}
	c := exec.Command(filepath.Join(s.bin, "hora"), "up", "--dir", s.dir, "--port", "0")
	c.Env, c.Stdout, c.Stderr = s.env(), out, out
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(patience); s.hora("jobs").code != 0; {
		if time.Now().After(end) {
			t.Fatal("the server does not answer")
		}
	}
	if r := s.hora("down"); r.code != 0 {
		t.Errorf("%+v", r)
	}
	_ = c.Wait()
	s.cmd = nil
	said, place := out.String(), filepath.Join(s.dir, "token")
	if strings.Contains(said, s.client.Token) || !strings.Contains(said, place) {
		t.Errorf("it says %q", said)
	}
}

// TestAKilledKeeperIsALostNode kills the process that keeps a job: its workers end, and the job queues again without
// one of its retries.
func TestAKilledKeeperIsALostNode(t *testing.T) {
	s := newSite(t, 1)
	j := s.submit(shell(1, "[ -f outputs/second ] && exit 0; echo > outputs/second; echo runs; echo $$ > outputs/pid; while :; do sleep 0.1; done"))
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	_, _ = s.client.Follow(ctx, j.ID, client.Following{Rank: 0, Line: func(client.Line) { cancel() }})
	first, err := os.ReadFile(filepath.Join(s.dir, "attempts", "1.1", "outbox"))
	if err != nil {
		t.Fatal(err)
	}
	var begun node.Record
	if err := json.Unmarshal(first[:bytes.IndexByte(first, '\n')], &begun); err != nil || begun.Begun == nil {
		t.Fatalf("%s: %v", first, err)
	}
	worker := 0
	for worker == 0 { // its next line follows at once
		b, _ := os.ReadFile(filepath.Join(s.dir, "attempts", "1.1", "work", "outputs", "pid"))
		worker, _ = strconv.Atoi(strings.TrimSpace(string(b)))
	}
	if err := syscall.Kill(begun.Begun.Pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	j = s.until(j.ID, ended)
	j, _ = s.client.Job(context.Background(), j.ID)
	if len(j.Attempts) < 2 || j.Attempts[0].Outcome != client.Lost {
		t.Fatalf("%+v", j)
	}
	if err := syscall.Kill(worker, 0); err == nil {
		t.Errorf("worker %d of the lost attempt lives", worker)
	}
}

// TestWhatWasAnsweredHolds: the server is killed the moment it has answered: a running job that was cancelled ends as
// that, and one that was resumed and runs is not begun again.
func TestWhatWasAnsweredHolds(t *testing.T) {
	s := newSite(t, 2)
	s.port = s.url[strings.LastIndex(s.url, ":")+1:]
	ctx := context.Background()
	for range 3 {
		runs := s.submit(shell(1, "sleep 600"))
		s.until(runs.ID, in(job.Running))
		if _, err := s.client.Do(ctx, runs.ID, "cancel"); err != nil {
			t.Fatal(err)
		}
		s.kill()
		s.up()
		if j := s.until(runs.ID, ended); j.State != job.Cancelled {
			t.Errorf("it was cancelled, and is %+v", j)
		}

		d := shell(1, "sleep 600")
		d.Held = true
		held := s.submit(d)
		if _, err := s.client.Do(ctx, held.ID, "resume"); err != nil {
			t.Fatal(err)
		}
		s.until(held.ID, in(job.Running))
		s.kill()
		s.up()
		j := s.until(held.ID, in(job.Running))
		if j, err := s.client.Job(ctx, j.ID); err != nil || len(j.Attempts) != 1 {
			t.Errorf("it was resumed once, and has %+v, %v", j.Attempts, err)
		}
		if _, err := s.client.Do(ctx, held.ID, "cancel"); err != nil {
			t.Fatal(err)
		}
		s.until(held.ID, ended)
	}
}
