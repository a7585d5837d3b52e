package node

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"hora/server/backend"
)

// smallSegments is an outbox whose segments are soon full.
func smallSegments(t *testing.T, dir string) *outbox {
	t.Helper()
	o, err := openOutbox(dir)
	if err != nil {
		t.Fatal(err)
	}
	o.longest, o.kept, o.rolls = 1000, 3000, true
	return o
}

// nth are the records of these tests: of each kind that is remembered some, and a line else, of the record's number.
func nth(n uint64) Record {
	switch {
	case n == 1:
		return Record{Begun: &Begun{1}}
	case n == 2:
		return Record{Ready: &backend.Ready{Text: "e", Lock: []string{"x==1"}}}
	case n%50 == 3:
		text := fmt.Sprintf(`{"event":"opened","size":%d,"hosts":[{"name":"a","slots":1}]}`, n)
		return Record{Event: json.RawMessage(text)}
	}
	return Record{Lines: []backend.Line{{N: n, Text: strings.Repeat("x", int(n*53%160))}}}
}

func putAll(t *testing.T, o *outbox, upTo uint64) {
	t.Helper()
	for n := o.n + 1; n <= upTo; n++ {
		if err := o.put(nth(n)); err != nil {
			t.Fatal(err)
		}
	}
}

// holds checks what who has taken some records is told: each one after them, or what stands for those that are gone.
func holds(t *testing.T, what string, from uint64, next func() (Record, error)) (last uint64, gone bool) {
	t.Helper()
	for at := from; ; at++ {
		r, err := next()
		if err != nil {
			if !errors.Is(err, io.EOF) {
				t.Fatalf("%s: after %d, at %d: %v", what, from, at, err)
			}
			return at, gone
		}
		if r.Gone == nil {
			if r.N <= from {
				at--
				continue
			}
			if r.N != at+1 {
				t.Fatalf("%s: after %d comes %d, and should be %d", what, from, r.N, at+1)
			}
			continue
		}
		g := r.Gone
		if gone || r.N <= from {
			t.Fatalf("%s: after %d it says that all up to %d are gone", what, from, r.N)
		}
		gone = true
		want, opened := r.N, (r.N-3)/50*50+3
		if want%50 == 3 {
			want--
		}
		if g.Begun.IsZero() || g.Ready == nil || g.Ready.Lock[0] != "x==1" || g.Lines != want ||
			!strings.Contains(string(g.Opened), fmt.Sprintf(`"size":%d,`, opened)) {
			t.Fatalf("%s: for those up to %d stands %+v", what, r.N, g)
		}
		at = r.N - 1
	}
}

// read is what is left of an outbox without its keeper.
func read(t *testing.T, what, dir string, from uint64) (last uint64, gone bool) {
	t.Helper()
	r, err := openAfter(dir, from)
	if err != nil {
		t.Fatalf("%s: after %d: %v", what, from, err)
	}
	defer r.close()
	return holds(t, what, from, r.next)
}

func sizes(t *testing.T, dir string) (total int64, files int) {
	t.Helper()
	all, err := segmentsOf(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, before := range all {
		info, err := os.Stat(segmentName(dir, before))
		if err != nil {
			t.Fatal(err)
		}
		total += info.Size()
	}
	return total, len(all)
}

// TestWhatAServerHasIsRemoved: an outbox is no longer than what no server has, what is kept, and two segments; nothing
// goes that no server has; and who asks for what is gone is told so, by a keeper and by what it leaves.
func TestWhatAServerHasIsRemoved(t *testing.T) {
	dir := t.TempDir()
	o := smallSegments(t, dir)
	k := &keeper{dir: dir, box: o}
	const records = 400
	o.rolls = false
	putAll(t, o, 30)
	if _, files := sizes(t, dir); files != 1 {
		t.Errorf("nobody has acknowledged anything, and there are %d files", files)
	}
	o.acknowledge(0)
	putAll(t, o, records)
	whole, files := sizes(t, dir)
	if files < 5 {
		t.Errorf("%d bytes are in %d files", whole, files)
	}
	acked := uint64(0)
	for _, n := range []uint64{0, 1, 100, 101, 250, 250, 10, 399, 5000} {
		o.acknowledge(n)
		acked = max(acked, min(n, o.n))
		for from := uint64(0); from <= records; from += 13 {
			last, gone := read(t, fmt.Sprint("acknowledged ", acked), dir, from)
			if last != records || gone && from >= acked {
				t.Fatalf("acknowledged %d, after %d: the last is %d; gone: %v", acked, from, last, gone)
			}
		}
	}
	left, _ := sizes(t, dir)
	if most := o.kept + 2*o.longest; left > most || left < o.kept || whole < 2*most {
		t.Errorf("of %d bytes %d are left: at least %d, at most %d", whole, left, o.kept, most)
	}
	if _, gone := read(t, "at last", dir, 0); !gone {
		t.Error("nothing is gone")
	}
	if err := o.put(Record{Exit: &backend.Exit{Outcome: "success"}}); err != nil {
		t.Fatal(err)
	}
	for from := uint64(0); from <= records; from += 13 {
		here, there := net.Pipe()
		go func() {
			k.follow(t.Context(), there, from)
			there.Close()
		}()
		in := json.NewDecoder(here)
		last, _ := holds(t, "followed", from, func() (r Record, err error) { return r, in.Decode(&r) })
		if here.Close(); last != records+1 {
			t.Fatalf("who follows after %d hears up to %d", from, last)
		}
	}
	if begun, exit, err := lastRecords(dir); !begun || exit == nil || err != nil {
		t.Errorf("begun %v, ended %+v, %v", begun, exit, err)
	}
}

// TestAKeeperThatIsKilledWhileItRemoves leaves at each step what can be read from any record on.
func TestAKeeperThatIsKilledWhileItRemoves(t *testing.T) {
	dir := t.TempDir()
	o := smallSegments(t, dir)
	const records = 300
	putAll(t, o, records-1)
	if err := o.put(Record{Exit: &backend.Exit{Outcome: "success"}}); err != nil {
		t.Fatal(err)
	}
	before := t.TempDir()
	if err := os.CopyFS(before, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	o.acknowledge(records)
	head, err := os.ReadFile(filepath.Join(dir, headFile))
	if err != nil {
		t.Fatal(err)
	}
	all, _ := segmentsOf(before)
	left, _ := segmentsOf(dir)
	if len(all)-len(left) < 3 {
		t.Fatalf("of %d segments %d are left", len(all), len(left))
	}
	check := func(step string) {
		t.Helper()
		for from := uint64(0); from <= records; from += 41 {
			if last, _ := read(t, step, before, from); last != records {
				t.Fatalf("%s: after %d the last is %d", step, from, last)
			}
		}
		if begun, exit, err := lastRecords(before); !begun || exit == nil || err != nil {
			t.Errorf("%s: begun %v, ended %+v, %v", step, begun, exit, err)
		}
	}
	write := func(name string, b []byte) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(before, name), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(headFile+".new", head[:len(head)/2])
	check("half of the head is written")
	write(headFile, head)
	check("the head is there")
	for _, n := range all[:len(all)-len(left)] {
		if err := os.Remove(segmentName(before, n)); err != nil {
			t.Fatal(err)
		}
		check(fmt.Sprintf("the segment after %d is removed", n))
	}
	if _, gone := read(t, "at last", before, 0); !gone {
		t.Error("nothing is gone")
	}
	name := filepath.Join(before, headFile)
	if err := os.Remove(name); err != nil {
		t.Fatal(err)
	}
	if _, err := openAfter(before, 0); err != errTorn { // somebody has removed it: nothing is made up, and nobody waits
		t.Errorf("without the head: %v", err)
	}
	if begun, _, err := lastRecords(before); !begun || err != nil {
		t.Errorf("without the head: begun %v, %v", begun, err)
	}
}

// writesIn has a process of this test write an outbox there.
const writesIn = "TEST_OUTBOX"

// TestKilledOutbox kills a process that writes and removes all the time, wherever that is. Nothing is lost that no
// server had, and what is left can be read.
func TestKilledOutbox(t *testing.T) {
	if dir := os.Getenv(writesIn); dir != "" {
		o := smallSegments(t, dir)
		for n := uint64(1); ; n++ {
			putAll(t, o, n)
			if n%11 == 0 {
				fmt.Println(n - 5)
				o.acknowledge(n - 5)
			}
		}
	}
	rounds := 4
	if os.Getenv("HORA_SOAK") != "" {
		rounds = 400
	}
	removed := 0
	for round := range rounds {
		dir := t.TempDir()
		c := exec.Command(os.Args[0], "-test.run=^TestKilledOutbox$")
		c.Env = append(os.Environ(), writesIn+"="+dir)
		out, err := c.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		acked := uint64(0)
		in := bufio.NewScanner(out)
		for in.Scan() {
			if n, err := strconv.ParseUint(in.Text(), 10, 64); err == nil {
				acked = n
			}
			if acked > 300 {
				time.AfterFunc(time.Duration(round*97%1000)*time.Microsecond, func() { _ = c.Process.Kill() })
			}
		}
		_ = c.Wait()
		if acked < 300 {
			t.Fatalf("it ended by itself, after %d", acked)
		}
		for _, from := range []uint64{0, 1, acked / 2, acked - 200, acked - 1, acked, acked + 5} {
			last, gone := read(t, fmt.Sprint("round ", round), dir, from)
			if last < acked+5 || gone && from >= acked {
				t.Fatalf("round %d: a server has %d, after %d the last is %d; gone: %v", round, acked, from, last, gone)
			}
			if gone && from == 0 {
				removed++
			}
		}
		if begun, exit, err := lastRecords(dir); !begun || exit != nil || err != nil {
			t.Errorf("round %d: begun %v, ended %v, %v", round, begun, exit, err)
		}
	}
	if removed != rounds {
		t.Errorf("%d of %d had removed something", removed, rounds)
	}
}
