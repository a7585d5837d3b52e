package node

import (
	"encoding/json"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"hora/server/backend"
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
	go func() { done <- o.put(Record{Lines: []backend.Line{{N: 1, Text: "held up"}}}) }()
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
	if err := o.put(Record{Exit: &backend.Exit{Code: 3}}); err != nil {
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
		if err := o.put(Record{Lines: []backend.Line{{N: uint64(i) + 1, Text: "text"}}}); err != nil {
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
		r, err := openAfter(cut, 0)
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
		r.close()
	}
}

// TestWhatIsTakenIsNotReadAgain: a server that comes goes on from the last record it took, however much stands before
// that, and gets each one after it.
func TestWhatIsTakenIsNotReadAgain(t *testing.T) {
	dir := t.TempDir()
	box, err := openOutbox(dir)
	if err != nil {
		t.Fatal(err)
	}
	k := &keeper{dir: dir, box: box}
	box.longest = 1 << 30
	const records = 600
	for n := uint64(1); n <= records; n++ {
		r := Record{Lines: []backend.Line{{N: n, Text: strings.Repeat("x", int(n*53%16_000))}}}
		switch n {
		case 1:
			r = Record{Begun: &Begun{1}}
		case records:
			r = Record{Exit: &backend.Exit{Outcome: "success"}}
		}
		if err := k.box.put(r); err != nil {
			t.Fatal(err)
		}
	}
	if len(box.marks) < 3 {
		t.Fatalf("there are %d marks", len(box.marks))
	}
	follow := func(from uint64) {
		t.Helper()
		here, there := net.Pipe()
		defer here.Close()
		go func() {
			k.follow(t.Context(), there, from)
			there.Close()
		}()
		next := from + 1
		for in := json.NewDecoder(here); ; next++ {
			var r Record
			if err := in.Decode(&r); err != nil {
				break
			}
			if r.N != next {
				t.Fatalf("after %d comes record %d, and should be %d", from, r.N, next)
			}
		}
		if next != records+1 {
			t.Fatalf("after %d the last record is %d of %d", from, next-1, records)
		}
	}
	for from := range uint64(records) {
		if from%61 == 0 || from > records-3 {
			follow(from)
		}
	}
	for _, m := range box.marks {
		follow(m.n)
	}
	last := box.marks[len(box.marks)-1]
	f, err := os.OpenFile(filepath.Join(dir, outboxFile), os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteAt(make([]byte, last.at), 0); err != nil { // who reads this gets nothing
		t.Fatal(err)
	}
	follow(last.n)
	follow(records - 1)
}

// TestTheLastRecordOfAPart cuts an outbox anywhere: it has ended where the last record is whole, and has begun where
// the first one is.
func TestTheLastRecordOfAPart(t *testing.T) {
	dir := t.TempDir()
	o, err := openOutbox(dir)
	if err != nil {
		t.Fatal(err)
	}
	long := strings.Repeat("a long line ", 1000)
	for _, r := range []Record{
		{Begun: &Begun{1}}, {Lines: []backend.Line{{N: 1, Text: `"exit":{`}}}, {Exit: &backend.Exit{Code: 3, Text: long}},
	} {
		if err := o.put(r); err != nil {
			t.Fatal(err)
		}
	}
	name := filepath.Join(dir, outboxFile)
	whole, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	first := strings.IndexByte(string(whole), '\n') + 1
	for n := len(whole); n >= 0; n-- {
		if n > first+200 && n < len(whole)-200 && n%997 != 0 {
			continue
		}
		if err := os.Truncate(name, int64(n)); err != nil {
			t.Fatal(err)
		}
		begun, exit, err := lastRecords(dir)
		if err != nil || begun != (n >= first) || (exit != nil) != (n == len(whole)) ||
			exit != nil && exit.Text != long {
			t.Fatalf("cut at %d of %d: begun %v, ended %v, %v", n, len(whole), begun, exit != nil, err)
		}
	}
}

// TestARecordThatCannotBeRead ends an outbox: what came before it is handed over, and the keeper counts as gone.
func TestARecordThatCannotBeRead(t *testing.T) {
	next := `{"n":3,"at":"2026-11-22T10:00:00Z","exit":{"code":0,"outcome":"success","text":""}}`
	for name, torn := range map[string]string{
		"zeros":         strings.Repeat("\x00", 4096) + next + "\n",
		"another one":   strings.Replace(next, `"n":3`, `"n":4`, 1) + "\n",
		"half of one":   next[:20] + "\n" + next + "\n",
		"an empty line": "\n" + next + "\n",
	} {
		l := &Local{Dir: t.TempDir()}
		dir := l.Folder(1, 1)
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, jobFile), []byte("{}"), 0o600); err != nil {
			t.Fatal(err)
		}
		o, err := openOutbox(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range []Record{{Begun: &Begun{1}}, {Lines: []backend.Line{{N: 1, Text: "taken"}}}} {
			if err := o.put(r); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := o.f.WriteString(torn); err != nil {
			t.Fatal(err)
		}
		taken := uint64(0)
		err = l.Watch(t.Context(), 1, 1, 0, func(all []Record) error {
			for _, r := range all {
				if taken++; r.N != taken {
					t.Errorf("%s: record %d came after %d", name, r.N, taken-1)
				}
			}
			return nil
		})
		if !errors.Is(err, backend.ErrLost) || taken != 2 {
			t.Errorf("%s: %d records of 2, %v", name, taken, err)
		}
		if begun, exit, err := lastRecords(dir); !begun || exit != nil || err != nil {
			t.Errorf("%s: begun %v, ended %v, %v", name, begun, exit, err)
		}
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
