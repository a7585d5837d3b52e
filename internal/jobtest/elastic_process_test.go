package jobtest_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"hora"
	"hora/elastic"
	"hora/event"
	"hora/launch"
	"hora/launch/agent"
)

var killSeed = flag.Uint64("kill-seed", 0, "seed of the kills' ranks and moments; 0 draws one")

// elasticRoles are workers that join by themselves.
var elasticRoles = map[string]func(ctx context.Context, cfg hora.Config) error{
	"train":    trainElastic,
	"userfail": failOnce,
	"alone":    commitAlone,
}

const agentArgument = "__agent"

func beAgent() int {
	caught := make(chan os.Signal, 8)
	signal.Notify(caught, syscall.SIGPIPE, syscall.SIGHUP, syscall.SIGINT, syscall.SIGTERM)
	cfg := agent.Config{In: os.Stdin, Out: os.Stdout, Temp: os.TempDir(), Home: os.TempDir(), Signals: caught}
	cfg.Remote = slices.Contains(os.Args, "--remote")
	if agent.Run(cfg) != nil {
		return 1
	}
	return 0
}

// say prints one line that the test reads, with the moment.
func say(w *hora.World, format string, args ...any) {
	fmt.Printf("%d %d %s\n", time.Now().UnixNano(), w.Rank(), fmt.Sprintf(format, args...))
}

// trainElastic is a training whose every bit depends on all steps before: STEPS steps
// of about a millisecond each.
func trainElastic(ctx context.Context, cfg hora.Config) error {
	steps, err := strconv.Atoi(os.Getenv("STEPS"))
	if err != nil {
		return err
	}
	every, _ := strconv.Atoi(os.Getenv("EVERY"))
	params := firstParams(os.Getenv("PARAMS"))
	step, note := 0, "start"
	state := hora.NewState()
	hora.Track(state, "params", params)
	state.Int("step", &step)
	state.Custom(
		"note", func() ([]byte, error) { return []byte(note), nil },
		func(b []byte) error { note = string(b); return nil },
	)
	state.OnReset(func(w *hora.World) error { say(w, "reset size %d", w.Size()); return nil })
	both := make([]float32, len(params)+1) // one more says that it is enough
	grads, whole := both[:len(params)], make([]float32, len(params))
	err = hora.RunElastic(ctx, cfg, state, func(ctx context.Context, w *hora.World) error {
		if want := fmt.Sprint("step ", step); note != want && step > 0 {
			return fmt.Errorf("state is torn: note %q at step %d", note, step)
		}
		say(w, "epoch %d begins at step %d with %s pid %d size %d", w.Epoch(), step, digestOf(params), os.Getpid(), w.Size())
		for first := true; step < steps; first = false {
			if err := gate(ctx, w, state, step, steps); err != nil {
				return err
			}
			part(both, params, step, w)
			if err := hora.Allreduce(ctx, w.Group(), both, hora.Sum); err != nil {
				say(w, "error at step %d with %s: %v", step, digestOf(params), err)
				return err
			}
			if first {
				say(w, "sum in epoch %d", w.Epoch())
			}
			compute(whole, params, step, 0, 1)
			for i, g := range grads {
				if math.Float32bits(g) != math.Float32bits(whole[i]) {
					say(w, "WRONG SUM in epoch %d at step %d: element %d is %v, want %v; %v of the whole are wrong", w.Epoch(), step, i, g, whole[i], wrong(grads, whole))
					return errors.New("wrong sum")
				}
				params[i] += 0.01 * g
			}
			if step++; step%50 == 0 && w.Rank() == 0 {
				say(w, "progress %d", step)
			}
			note = fmt.Sprint("step ", step)
			if step%max(every, 1) == 0 {
				if err := state.Commit(); err != nil {
					say(w, "news %v", err)
					return err
				}
			}
			quit(w, cfg.Rank, step)
			if both[len(params)] > 0 {
				return nil
			}
			if os.Getenv("SLOW") != "" {
				pause(2 * time.Millisecond)
			}
		}
		return nil
	})
	switch {
	case errors.Is(err, hora.ErrDrained):
		fmt.Printf("0 0 drained at step %d\n", step)
		linger()
		return nil
	case err != nil:
		return err
	}
	fmt.Printf("0 %d digest %s steps %d\n", cfg.Rank, digestOf(params), step)
	for os.Getenv("STAY") != "" && !present("STAY") { // the program has more to do than the job
		pause(2 * time.Millisecond)
	}
	return nil
}

// firstParams are what a training begins with: 3000 parameters, or as many as PARAMS says.
func firstParams(count string) []float32 {
	n, err := strconv.Atoi(count)
	if err != nil {
		n = 3000
	}
	params := make([]float32, n)
	for i := range params {
		params[i] = float32(i%17) * 0.25
	}
	return params
}

// part is what this rank brings to a step, and its word that it is enough.
func part(both, params []float32, step int, w *hora.World) {
	// At least once: a rank that loses its processor here for a millisecond would bring the
	// last step's sum as its part.
	for began, done := time.Now(), false; !done; done = time.Since(began) >= time.Millisecond {
		compute(both[:len(params)], params, step, w.Rank(), w.Size())
	}
	if both[len(params)] = 0; present("END") {
		both[len(params)] = 1
	}
}

// quit ends a process whose rank and step QUIT names, as one that has finished.
func quit(w *hora.World, rank, step int) {
	if os.Getenv("QUIT") == fmt.Sprintf("%d:%d", rank, step) {
		say(w, "has enough at step %d", step)
		os.Exit(0)
	}
}

// present says whether the file that a variable names is there.
func present(variable string) bool {
	file := os.Getenv(variable)
	_, err := os.Stat(file)
	return file != "" && err == nil
}

// linger keeps a worker that has left until the file that LINGER names is there.
func linger() {
	for os.Getenv("LINGER") != "" && !present("LINGER") {
		pause(2 * time.Millisecond)
	}
}

// gate holds the training in its middle until the file that GATE names is there: ranks
// agree on that by sums that change nothing.
func gate(ctx context.Context, w *hora.World, state *hora.State, step, steps int) error {
	file := os.Getenv("GATE")
	for first := true; file != "" && step == steps/2; first = false {
		open := make([]float32, 1000)
		if present("GATE") {
			open[0] = 1
		}
		if err := hora.Allreduce(ctx, w.Group(), open, hora.Sum); err != nil {
			say(w, "error at the gate: %v", err)
			return err
		}
		if first {
			say(w, "sum in epoch %d", w.Epoch())
		}
		if open[0] == float32(w.Size()) {
			return nil
		}
		if err := state.Check(); err != nil {
			say(w, "news %v", err)
			return err
		}
		pause(2 * time.Millisecond)
	}
	return nil
}

// gateFile makes the variable GATE and what opens it.
func gateFile(t *testing.T) (variable string, open func()) {
	file := filepath.Join(t.TempDir(), "open")
	return "GATE=" + file, func() {
		if err := os.WriteFile(file, nil, 0o644); err != nil {
			t.Error(err)
		}
	}
}

func digestOf(params []float32) string {
	h := fnv.New64a()
	var b []byte
	for _, p := range params {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(p))
	}
	h.Write(b)
	return fmt.Sprintf("%016x", h.Sum64())
}

// course is the digest before every step of a training that one process does alone:
// each element's gradient comes from one rank, so every sum is exact.
func course(steps int) []string { return courseOf("", steps) }

// courseOf is course with as many parameters as PARAMS says.
func courseOf(count string, steps int) []string {
	params := firstParams(count)
	grads := make([]float32, len(params))
	all := []string{digestOf(params)}
	for step := range steps {
		compute(grads, params, step, 0, 1)
		for i, g := range grads {
			params[i] += 0.01 * g
		}
		all = append(all, digestOf(params))
	}
	return all
}

// straying is the first line that shows another digest at a step than the undisturbed
// course has there.
func straying(text string, want []string) string {
	for line := range strings.Lines(text) {
		_, at, ok := strings.Cut(line, " at step ")
		var step int
		var digest string
		if ok {
			if n, _ := fmt.Sscanf(at, "%d with %16s", &step, &digest); n == 2 && step < len(want) && want[step] != digest {
				return line
			}
		}
	}
	return ""
}

// wrong lists the stretches in which a and b differ.
func wrong(a, b []float32) (at [][2]int) {
	for i := range a {
		switch {
		case math.Float32bits(a[i]) == math.Float32bits(b[i]):
		case len(at) > 0 && at[len(at)-1][1] == i:
			at[len(at)-1][1]++
		default:
			at = append(at, [2]int{i, i + 1})
		}
	}
	return at
}

// compute is this rank's part of a step; the parts of all ranks make up the whole.
func compute(grads, params []float32, step, rank, size int) {
	clear(grads)
	from, to := len(grads)*rank/size, len(grads)*(rank+1)/size
	for i := from; i < to; i++ {
		grads[i] = float32(math.Sin(float64(params[i])*1.3+float64(step))) - 0.1*params[(i+7)%len(params)]
	}
}

func failOnce(ctx context.Context, cfg hora.Config) error {
	state := hora.NewState()
	return hora.RunElastic(ctx, cfg, state, func(ctx context.Context, w *hora.World) error {
		if err := hora.Barrier(ctx, w.Group()); err != nil {
			return err
		}
		if w.Rank() == 1 {
			return errors.New("the data ends here")
		}
		return hora.Barrier(ctx, w.Group())
	})
}

// elasticJob is one job under test, run by the launcher.
type elasticJob struct {
	t        *testing.T
	mu       sync.Mutex // guards what follows
	out      bytes.Buffer
	pids     map[int]int // of living workers, by the rank they were started with
	events   []string
	changed  chan struct{}
	kills    int
	ended    chan struct{}
	launcher int            // its pid, where it is a process of its own
	hostOf   map[int]string // by pid, there
	outcome  launch.Outcome
	err      error
}

func (j *elasticJob) Write(b []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.out.Write(b)
	j.wake()
	return len(b), nil
}

func (j *elasticJob) wake() {
	close(j.changed)
	j.changed = make(chan struct{})
}

func (j *elasticJob) Operation(*event.Operation) {}

func (j *elasticJob) Event(e event.Event) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.events = append(j.events, e.String())
	switch e := e.(type) {
	case *event.Started:
		j.pids[e.Rank] = e.Pid
	case *event.Exited:
		delete(j.pids, e.Rank)
	}
	j.wake()
}

// text is everything that was said.
func (j *elasticJob) text() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.out.String() + strings.Join(j.events, "\n")
}

// until waits for cond, which is called with the lock held.
func (j *elasticJob) until(what string, within time.Duration, cond func() bool) {
	j.t.Helper()
	late := time.After(within)
	for {
		j.mu.Lock()
		ok, more := cond(), j.changed
		j.mu.Unlock()
		if ok {
			return
		}
		select {
		case <-more:
		case <-j.ended:
			j.mu.Lock()
			ok := cond()
			j.mu.Unlock()
			if !ok {
				j.t.Fatalf("the job ended (%v %v) before: %s\n%s", j.outcome.String(), j.err, what, j.text())
			}
			return
		case <-late:
			j.t.Fatalf("not within %v: %s\n%s", within, what, j.text())
		}
	}
}

// said counts the lines that contain want; the caller holds the lock.
func (j *elasticJob) said(want string) int { return strings.Count(j.out.String(), want) }

// kill ends a living worker with SIGKILL and returns when that was; rank -1 takes any.
func (j *elasticJob) kill(rank int, draw *rand.Rand) time.Time {
	j.mu.Lock()
	defer j.mu.Unlock()
	var ranks []int
	for r := range j.pids {
		if rank < 0 || r == rank {
			ranks = append(ranks, r)
		}
	}
	if len(ranks) == 0 {
		return time.Time{}
	}
	slices.Sort(ranks)
	r := ranks[draw.IntN(len(ranks))]
	at := time.Now()
	if syscall.Kill(j.pids[r], syscall.SIGKILL) != nil {
		return time.Time{}
	}
	delete(j.pids, r)
	j.kills++
	return at
}

// startElastic runs np workers of a role under the launcher.
func startElastic(t *testing.T, np int, role string, change func(*asked), env ...string) *elasticJob {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	j := &elasticJob{t: t, pids: map[int]int{}, changed: make(chan struct{}), ended: make(chan struct{})}
	a := asked{
		Command: []string{self}, NP: np, Dir: t.TempDir(), Env: env, OnLoss: elastic.Replace, Restarts: 1000,
		Place: launch.Place{
			Self: []string{self, agentArgument}, Coordinator: []string{self, coordinatorArgument}, LocalName: "here",
			Environ: append(os.Environ(), roleVariable+"="+role), Stdout: j, Stderr: j, Events: &event.Sink{},
			Grace: time.Second, // a test that ends before its training waits so long for ranks that wait for each other
		},
	}
	if change != nil {
		change(&a)
	}
	remove := a.Events.Add(j)
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		defer close(j.ended)
		j.outcome, j.err = launch.Run(ctx, a.spec(), a.Place)
	}()
	t.Cleanup(func() {
		cancel()
		<-j.ended
		remove()
	})
	return j
}

// wait returns the digests that the workers ended with.
func (j *elasticJob) wait(within time.Duration) (digests []string) {
	j.t.Helper()
	select {
	case <-j.ended:
	case <-time.After(within):
		j.t.Fatalf("the job did not end within %v:\n%s", within, j.text())
	}
	if j.err != nil || j.outcome.Kind != launch.Finished {
		j.t.Fatalf("the job ended with %v: %s\n%s", j.err, j.outcome.String(), j.text())
	}
	for line := range strings.Lines(j.out.String()) {
		if f := strings.Fields(line); len(f) > 3 && f[2] == "digest" {
			digests = append(digests, f[3])
		}
	}
	return digests
}

// moments are the times of the lines that contain want, since at, in milliseconds.
func (j *elasticJob) moments(want string, at time.Time) (ms []float64) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.momentsHeld(want, at)
}

// momentsHeld is moments for callers that hold the lock.
func (j *elasticJob) momentsHeld(want string, at time.Time) (ms []float64) {
	for line := range strings.Lines(j.out.String()) {
		nano, rest, _ := strings.Cut(line, " ")
		n, err := strconv.ParseInt(nano, 10, 64)
		if err == nil && strings.Contains(rest, want) && n >= at.UnixNano() {
			ms = append(ms, float64(n-at.UnixNano())/1e6)
		}
	}
	return ms
}

// undisturbed is the digest of a run that nothing happened to.
func undisturbed(t *testing.T, np int, env ...string) string {
	t.Helper()
	all := startElastic(t, np, "train", nil, env...).wait(5 * time.Minute) // on a crowded machine
	if len(all) != np || len(slices.Compact(slices.Clone(all))) != 1 {
		t.Fatalf("%d ranks ended with digests %v", np, all)
	}
	return all[0]
}

// drawSeed prints the command that does the same kills again, with these flags.
func drawSeed(t *testing.T, flags ...string) *rand.Rand {
	seed := *killSeed
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	soak := ""
	if os.Getenv("HORA_SOAK") == "1" {
		soak = "HORA_SOAK=1 "
	}
	t.Logf("seed %d: %sgo test ./internal/jobtest -run '^%s$' -kill-seed %d%s", seed, soak, t.Name(), seed, strings.Join(flags, ""))
	return rand.New(rand.NewPCG(seed, 1))
}

// TestReplacedWorkersChangeNothing kills workers at random moments, some while the last
// loss is still being dealt with, and compares the weights' bits with those of a run
// that nothing happened to.
func TestReplacedWorkersChangeNothing(t *testing.T) {
	const np = 3
	kills := 20
	if testing.Short() {
		kills = 4
	}
	if os.Getenv("HORA_SOAK") == "1" {
		kills = 100
	}
	draw := drawSeed(t)
	env := []string{"STEPS=" + strconv.Itoa(40*kills), "EVERY=3"}
	want := course(40 * kills)[40*kills]
	if calm := undisturbed(t, np, env...); calm != want {
		t.Fatalf("undisturbed ranks end with %s, one process with %s", calm, want)
	}
	j := startElastic(t, np, "train", nil, env...)
	for i := range kills {
		epochs := 0
		if i == 0 || draw.IntN(4) > 0 {
			j.until("an epoch with all ranks at work", 30*time.Second, func() bool {
				if len(j.pids) < np {
					return false
				}
				epochs = j.said("sum in epoch")
				return epochs >= np
			})
		}
		pause(time.Duration(draw.IntN(60)) * time.Millisecond)
		j.kill(-1, draw)
		select {
		case <-j.ended:
			t.Fatalf("the training ended after %d kills", j.kills)
		default:
		}
	}
	got := j.wait(2 * time.Minute)
	if len(got) != np || len(slices.Compact(slices.Clone(got))) != 1 || got[0] != want {
		t.Errorf("after %d kills the ranks' digests are %v, want %s; first wrong: %s\n%s", j.kills, got, want, straying(j.text(), course(40*kills)), j.text())
	}
	t.Logf("%d kills, %d restarts", j.kills, strings.Count(j.text(), "starting it again"))
}

// TestKillsInTheMiddleOfLargeSums: the same with tensors of several pieces, two ranks of
// which may be reading each other's memory when one of them ends.
func TestKillsInTheMiddleOfLargeSums(t *testing.T) {
	if testing.Short() {
		t.Skip("takes long")
	}
	const steps, size = 20, "550000"
	kills := 2
	if os.Getenv("HORA_SOAK") == "1" {
		kills = 30
	}
	draw := drawSeed(t)
	j := startElastic(t, 2, "train", nil, fmt.Sprint("STEPS=", steps*kills), "EVERY=1", "PARAMS="+size)
	for i := range kills {
		j.until("both at work", 30*time.Second, func() bool {
			return len(j.pids) == 2 && j.said(fmt.Sprintf("sum in epoch %d\n", i+1)) >= 2
		})
		pause(time.Duration(draw.IntN(100)) * time.Millisecond)
		j.kill(-1, draw)
	}
	want := courseOf(size, steps*kills)[steps*kills]
	got := j.wait(2 * time.Minute)
	if len(got) != 2 || got[0] != want || got[1] != want {
		t.Errorf("after %d kills the digests are %v, want %s\n%s", j.kills, got, want, j.text())
	}
}

func pause(d time.Duration) { <-time.After(d) }
