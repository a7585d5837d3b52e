package timeline

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"hora/event"
)

var rewrite = flag.Bool("rewrite", false, "write testdata anew")

// disk is a file in memory. After every write its text must be JSON.
type disk struct {
	mu     sync.Mutex
	text   []byte
	room   int64         // bytes; 0 is without bound
	gate   chan struct{} // when set, each write after the first takes one
	writes int
	broken error // the first text that was no JSON
	closed bool
}

func (d *disk) WriteAt(p []byte, at int64) (int, error) {
	d.mu.Lock()
	gate := d.gate
	d.writes++
	first := d.writes == 1
	d.mu.Unlock()
	if gate != nil && !first {
		<-gate
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	var err error
	if d.room > 0 && at+int64(len(p)) > d.room {
		p, err = p[:max(0, d.room-at)], syscall.ENOSPC
	}
	if n := at + int64(len(p)); n > int64(len(d.text)) {
		d.text = append(d.text, make([]byte, n-int64(len(d.text)))...)
	}
	copy(d.text[at:], p)
	if err == nil && d.broken == nil {
		if _, e := parse(d.text); e != nil {
			d.broken = fmt.Errorf("%w in %s", e, d.text)
		}
	}
	return len(p), err
}

func (d *disk) Truncate(n int64) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.text = d.text[:n]
	return nil
}

func (d *disk) Close() error {
	d.closed = true
	return nil
}

// entry is one record of a file.
type entry struct {
	Name, Ph, S string
	Ts          *int64
	Dur         *int64
	Pid         *int
	Args        map[string]any
}

func parse(text []byte) ([]entry, error) {
	var all []entry
	return all, json.Unmarshal(text, &all)
}

// nested checks that what begins in a process ends there, in order of time.
func nested(t *testing.T, all []entry) {
	t.Helper()
	open, last := map[int]int{}, map[int]int64{}
	for _, e := range all {
		if e.Pid == nil || e.Ph == "M" {
			continue
		}
		switch e.Ph {
		case "B":
			open[*e.Pid]++
		case "E":
			open[*e.Pid]--
		}
		if *e.Ts < last[*e.Pid] || open[*e.Pid] < 0 {
			t.Errorf("process %d goes back at %+v", *e.Pid, e)
		}
		last[*e.Pid] = *e.Ts
	}
	for pid, n := range open {
		if n != 0 {
			t.Errorf("%d phases of process %d do not end", n, pid)
		}
	}
}

// told collects log lines.
type told struct {
	mu sync.Mutex
	b  strings.Builder
}

func (l *told) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *told) lines() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.FieldsFunc(l.b.String(), func(r rune) bool { return r == '\n' })
}

func begin(t *testing.T, cfg Config, d *disk) (*Writer, *event.Sink, *told) {
	t.Helper()
	var sink event.Sink
	l := new(told)
	cfg.Log = slog.New(slog.NewTextHandler(l, nil))
	w, err := start(cfg, &sink, d)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.Stop(time.Minute) })
	return w, &sink, l
}

func end(t *testing.T, w *Writer, d *disk) []entry {
	t.Helper()
	if err := w.Stop(time.Minute); err != nil {
		t.Fatal(err)
	}
	if d.broken != nil {
		t.Fatal(d.broken)
	}
	all, err := parse(d.text)
	if err != nil {
		t.Fatalf("%v in %s", err, d.text)
	}
	if !d.closed {
		t.Error("the file was not closed")
	}
	nested(t, all)
	return all
}

func op(name string, at int64) *event.Operation {
	const us = 1000
	return &event.Operation{
		Group: "world (named)", Size: 2, Name: name, Kind: "allreduce", Op: "sum", Type: "float32", Fused: 1, Dims: 1, Shape: [event.MaxDims]int{3},
		Submitted: at * us, Agreed: (at + 10) * us, Started: (at + 11) * us, Arrived: (at + 20) * us,
		Done: (at + 30) * us,
	}
}

// TestGolden is the whole file of a small history.
func TestGolden(t *testing.T) {
	d := new(disk)
	w, sink, _ := begin(t, Config{Clock: event.NewEpoch(), MarkCycles: true, Every: time.Hour}, d)
	w.base = 0 // the operations' clock begins with the file
	sink.Emit(&event.Ready{Group: "world (named)", Name: "allreduce.test_allreduce", Rank: 1, At: w.start.Add(1004 * time.Microsecond)})
	w.Parts("allreduce.test_allreduce", `0.weight, "1".bias`)
	o := op("allreduce.test_allreduce", 1000)
	o.Fused, o.Packing, o.Started, o.Reduced = 2, 1_012_000, 1_015_000, 1_028_000
	sink.Operation(o)
	sink.Operation(op("allreduce.test_allreduce", 2000)) // known now: no marks
	o = op("broadcast.weird \"name\"\n\x01\xff", 3000)
	o.Kind, o.Op, o.Dims, o.Shape, o.Type = "broadcast", "", 2, [event.MaxDims]int{2, 3}, "int64"
	sink.Operation(o) // nobody says when he was ready
	o = &event.Operation{
		Group: "world", Size: 2, Kind: "barrier", Submitted: 4_000_000, Started: 4_005_000,
		Arrived: 4_050_000, Done: 4_051_000,
	}
	sink.Operation(o)
	o = op("x", 5000)
	o.Group, o.Ranks, o.Agreed, o.Started, o.Arrived, o.Err = "set 1", []int{0, 7}, 0, 0, 0, errors.New(`lost rank 7 (b)`)
	sink.Operation(o)
	end(t, w, d)
	got := strings.Replace(string(d.text), fmt.Sprint(w.start.UnixMicro()), "N", 1)
	golden := filepath.Join("testdata", "golden.json")
	if *rewrite {
		if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("got\n%s\nwant\n%s\n(go test ./timeline -rewrite, then read the difference)", got, want)
	}
}

// TestComplete: the file is JSON after every write, however the writes fall, and holds
// everything in the end.
func TestComplete(t *testing.T) {
	d := new(disk)
	w, sink, l := begin(t, Config{Every: time.Millisecond, Buffer: 1 << 20, MarkCycles: true}, d)
	const ops = 1500
	for i := range ops {
		sink.Operation(op(fmt.Sprint("t", i%7), int64(i)*100))
		sink.Emit(&event.Agreed{Names: 1})
	}
	all := end(t, w, d)
	count := map[string]int{}
	for _, e := range all {
		count[e.Name]++
	}
	if count["ALLREDUCE"] != ops || count["NEGOTIATE_ALLREDUCE"] != ops || count["CYCLE_START"] != ops || count["process_name"] != 8 {
		t.Errorf("%v", count)
	}
	if count["0"] != 7 || count["1"] != 7 {
		t.Errorf("each rank is marked once per tensor, not %d and %d times for 7", count["0"], count["1"])
	}
	if d.writes < 2 || len(l.lines()) != 0 {
		t.Errorf("%d writes, %v", d.writes, l.lines())
	}
}

// TestSlowDisk: operations are never delayed; what was left out is counted.
func TestSlowDisk(t *testing.T) {
	d := &disk{gate: make(chan struct{})}
	w, sink, l := begin(t, Config{Every: time.Millisecond, Buffer: 8}, d)
	const ops = 1000
	for i := range ops { // while the disk takes nothing
		sink.Operation(op("t", int64(i)*100))
	}
	if err := w.Stop(time.Millisecond); err == nil || !strings.Contains(err.Error(), "disk") {
		t.Errorf("stopped with %v although the disk takes nothing", err)
	}
	close(d.gate)
	all := end(t, w, d)
	written, said := 0, ""
	for _, e := range all {
		if e.Name == "ALLREDUCE" {
			written++
		}
		if e.Ph == "i" {
			said = e.Name
		}
	}
	if want := fmt.Sprintf("hora: %d operations are not in this file", ops-written); written == 0 || !strings.HasPrefix(said, want) {
		t.Errorf("%d of %d operations are there and the file says %q", written, ops, said)
	}
	if lines := l.lines(); len(lines) != 1 || !strings.Contains(lines[0], "disk was too slow") {
		t.Errorf("%v", lines)
	}
}

// TestFullDisk: one warning, the job goes on, and what is there is complete.
func TestFullDisk(t *testing.T) {
	d := &disk{room: 4000}
	w, sink, l := begin(t, Config{Every: time.Millisecond}, d)
	deadline := time.Now().Add(10 * time.Second)
	for i := 0; len(l.lines()) == 0; i++ {
		sink.Operation(op("t", int64(i)*100))
		if time.Now().After(deadline) {
			t.Fatal("no word about the full disk")
		}
	}
	for i := range 1000 {
		sink.Operation(op("t", int64(i)*100))
	}
	if err := w.Stop(time.Minute); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("stopped with %v", err)
	}
	lines := l.lines()
	if len(lines) != 1 || !strings.Contains(lines[0], "no space left on device; the job goes on without it") {
		t.Errorf("%v", lines)
	}
	if _, err := parse(d.text); err != nil {
		t.Errorf("%v in %s", err, d.text)
	}
	if _, err := start(Config{}, new(event.Sink), &disk{room: 5}); err == nil || !strings.Contains(err.Error(), "regular file") {
		t.Errorf("started with %v on a full disk", err)
	}
}

// TestPaths: what cannot be written is one sentence.
func TestPaths(t *testing.T) {
	dir := t.TempDir()
	for _, path := range []string{dir, filepath.Join(dir, "no", "where.json"), ""} {
		_, err := Start(Config{Path: path}, new(event.Sink))
		if err == nil || !strings.HasPrefix(err.Error(), "start timeline: ") ||
			strings.ContainsAny(err.Error(), "\n") || !strings.Contains(err.Error(), "; give ") {
			t.Errorf("%q: %v", path, err)
		}
	}
	path := filepath.Join(dir, "t.json")
	if err := os.WriteFile(path, []byte(strings.Repeat("old", 1000)), 0o644); err != nil {
		t.Fatal(err)
	}
	w, err := Start(Config{Path: path}, new(event.Sink))
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Stop(time.Minute); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if all, err := parse(text); err != nil || len(all) != 2 || all[0].Args["start_time_since_epoch_in_micros"] == nil {
		t.Errorf("%v %v", all, err)
	}
}

// TestStartStop: writers come and go while operations run on several goroutines.
func TestStartStop(t *testing.T) {
	var sink event.Sink
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for g := range 3 {
		wg.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
					o := op(fmt.Sprint("t", i%5), int64(i))
					o.Group = fmt.Sprint("set ", g)
					sink.Operation(o)
					sink.Emit(&event.Agreed{})
					sink.Emit(&event.Ready{Group: o.Group, Name: o.Name, Rank: 1, At: time.Now()})
				}
			}
		})
	}
	for i := range 30 {
		d := new(disk)
		w, err := start(Config{Every: time.Millisecond, Buffer: 256, Log: slog.New(slog.DiscardHandler)}, &sink, d)
		if err != nil {
			t.Fatal(err)
		}
		w.MarkCycles(i%2 == 0)
		w.Clock(event.NewEpoch())
		var both sync.WaitGroup
		both.Go(func() { w.Stop(time.Minute) })
		end(t, w, d)
		both.Wait()
	}
	close(stop)
	wg.Wait()
	if sink.On() {
		t.Error("a stopped writer still listens")
	}
}

// TestPatience: a first operation waits for the ranks' word, but not for ever.
func TestPatience(t *testing.T) {
	d := new(disk)
	w, sink, _ := begin(t, Config{Every: time.Millisecond, Patience: 20 * time.Millisecond}, d)
	sink.Operation(op("t", 1000))
	sink.Operation(op("t", 2000))
	deadline := time.Now().Add(10 * time.Second)
	for there := false; !there; {
		d.mu.Lock()
		there = strings.Count(string(d.text), `"NEGOTIATE_ALLREDUCE"`) == 2
		d.mu.Unlock()
		if time.Now().After(deadline) {
			t.Fatal("the operations are not written without the others' word")
		}
	}
	sink.Emit(&event.Ready{Group: "world (named)", Name: "t", Rank: 1, At: time.Now()}) // too late
	for _, e := range end(t, w, d) {
		if e.Ph == "X" && e.Name == "1" && *e.Dur != 0 {
			t.Errorf("%+v", e)
		}
	}
}

// TestListening: what is heard costs no allocation.
func TestListening(t *testing.T) {
	d := new(disk)
	w, _, _ := begin(t, Config{Every: time.Hour, Buffer: 4096}, d)
	o := op("t", 1)
	if n := testing.AllocsPerRun(1000, func() { w.Operation(o) }); n != 0 {
		t.Errorf("%v allocations per operation", n)
	}
}

func BenchmarkOperation(b *testing.B) {
	w, err := start(Config{Every: 10 * time.Millisecond, Buffer: 1 << 16}, new(event.Sink), new(null))
	if err != nil {
		b.Fatal(err)
	}
	names := make([]string, 14)
	for i := range names {
		names[i] = fmt.Sprintf("allreduce.layers.%d.weight", i)
	}
	o := op("t", 1)
	b.ReportAllocs()
	h := newHeard(1)
	for i := 0; b.Loop(); i++ {
		o.Name = names[i%len(names)]
		o.Submitted += 100_000
		o.Agreed, o.Started, o.Arrived, o.Done = o.Submitted+5000, o.Submitted+5500, o.Submitted+8000, o.Submitted+20000
		h.ops = append(h.ops[:0], record{Operation: *o})
		w.page.add(h)
		if len(w.page.text) > 1<<20 {
			w.page.text = w.page.text[:0]
		}
	}
	b.StopTimer()
	w.page.text = w.page.text[:0]
	w.Stop(time.Minute)
}

type null struct{}

func (*null) WriteAt(p []byte, _ int64) (int, error) { return len(p), nil }
func (*null) Truncate(int64) error                   { return nil }
func (*null) Close() error                           { return nil }
