package node

import (
	"encoding/json"
	"io"
	"math"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestAFullDiskHoldsRecordsUp writes to a disk that is full, and then is not.
func TestAFullDiskHoldsRecordsUp(t *testing.T) {
	dir := t.TempDir()
	o, err := openOutbox(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := o.put(Record{Begun: &Begun{1}}); err != nil {
		t.Fatal(err)
	}
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	o.mu.Lock()
	room := o.f
	o.f = full
	o.mu.Unlock()
	done := make(chan error, 1)
	go func() { done <- o.put(Record{Lines: []Line{{N: 1, Text: "held up"}}}) }()
	select {
	case err := <-done:
		t.Fatalf("a full disk took a record: %v", err)
	case <-time.After(3 * roomAfter):
	}
	o.mu.Lock()
	o.f = room
	o.mu.Unlock()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if err := o.put(Record{Exit: &Exit{Code: 3}}); err != nil {
		t.Fatal(err)
	}
	begun, exit, err := lastRecords(dir)
	if !begun || exit == nil || exit.Code != 3 || err != nil {
		t.Fatalf("%v %+v %v", begun, exit, err)
	}
}

// TestAPartOfARecordIsNone cuts an outbox at every byte, as a crash may.
func TestAPartOfARecordIsNone(t *testing.T) {
	dir := t.TempDir()
	o, err := openOutbox(dir)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		if err := o.put(Record{Lines: []Line{{N: uint64(i) + 1, Text: "text"}}}); err != nil {
			t.Fatal(err)
		}
	}
	whole, err := os.ReadFile(filepath.Join(dir, outboxFile))
	if err != nil {
		t.Fatal(err)
	}
	for n := range whole {
		cut := t.TempDir()
		if err := os.WriteFile(filepath.Join(cut, outboxFile), whole[:n], 0o600); err != nil {
			t.Fatal(err)
		}
		r, err := openReader(cut)
		if err != nil {
			t.Fatal(err)
		}
		next := uint64(1)
		for {
			rec, err := r.next()
			if err == io.EOF {
				break
			}
			if err != nil || rec.N != next {
				t.Fatalf("cut at %d: record %d of %d: %v", n, rec.N, next, err)
			}
			next++
		}
		r.f.Close()
	}
}

func TestNumbersThatAreNone(t *testing.T) {
	for _, v := range []float64{1.5, math.Inf(1), math.Inf(-1), math.NaN(), 0} {
		b, err := json.Marshal(Report{Metrics: map[string]Value{"a": Value(v)}})
		if err != nil {
			t.Fatal(err)
		}
		var r Report
		if err := json.Unmarshal(b, &r); err != nil {
			t.Fatal(err)
		}
		if got := float64(r.Metrics["a"]); got != v && !(math.IsNaN(got) && math.IsNaN(v)) {
			t.Errorf("%v became %v by way of %s", v, got, b)
		}
	}
	var r Report
	if json.Unmarshal([]byte(`{"metrics": {"a": "seven"}}`), &r) == nil {
		t.Error("a word was taken for a number")
	}
}

// TestAKeeperAfterOneThatCameNoFurther: what a keeper leaves that ended before its job began does not hold up the next.
func TestAKeeperAfterOneThatCameNoFurther(t *testing.T) {
	k := &keeper{dir: t.TempDir()}
	left := filepath.Join(k.dir, "sockets")
	if err := os.Mkdir(left, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(left, "s"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	name, err := k.listen()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(filepath.Dir(name)) })
	for _, end := range []string{"s", "r"} {
		c, err := net.Dial("unix", filepath.Join(filepath.Dir(name), end))
		if err != nil {
			t.Fatal(err)
		}
		c.Close()
	}
}
