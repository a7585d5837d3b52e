package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/iotest"
	"time"

	"hora/job"
	"hora/server/client"
)

func open(t *testing.T, dir string) *Store {
	t.Helper()
	s, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func add(t *testing.T, s *Store) int64 {
	t.Helper()
	p := 50
	j := &client.Job{State: job.Queued, Queued: time.Now(), Document: client.Document{
		Project: "a", Pool: "b", Priority: &p, Spec: job.Spec{Command: []string{"true"}},
	}}
	var id int64
	document, err := json.Marshal(j.Document)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Do(
		context.Background(), func(tx *sql.Tx) (err error) { id, err = NewJob(tx, j, document); return err },
	); err != nil {
		t.Fatal(err)
	}
	return id
}

func TestWritesShareACommitAndFailAlone(t *testing.T) {
	s := open(t, t.TempDir())
	var wg sync.WaitGroup
	bad := errors.New("this one")
	for i := range 200 {
		wg.Go(func() {
			err := s.Do(context.Background(), func(tx *sql.Tx) error {
				if err := SetUsed(tx, Project{Name: fmt.Sprint(i), Used: 1, At: time.Now()}); err != nil {
					return err
				}
				if i%10 == 0 {
					return bad
				}
				return nil
			})
			if want := i%10 == 0; errors.Is(err, bad) != want {
				t.Errorf("write %d: %v", i, err)
			}
		})
	}
	wg.Wait()
	if all, err := s.Projects(context.Background()); len(all) != 180 || err != nil {
		t.Errorf("%d of 180 writes are there: %v", len(all), err)
	}
}

// TestWhatIsAnsweredIsSynced: a kill shows nothing of it, since what was written stays in the system's memory; so the
// connection that writes, and there is but one, says itself that it syncs the log at each commit.
func TestWhatIsAnsweredIsSynced(t *testing.T) {
	s := open(t, t.TempDir())
	for pragma, want := range map[string]string{"journal_mode": "wal", "synchronous": "2", "foreign_keys": "1"} {
		var is string
		if err := s.write.QueryRow("PRAGMA " + pragma).Scan(&is); err != nil || is != want {
			t.Errorf("%s is %q and not %q, %v", pragma, is, want, err)
		}
	}
	if n := s.write.Stats().MaxOpenConnections; n != 1 {
		t.Errorf("%d connections write", n)
	}
	if _, err := s.read.Exec("DELETE FROM jobs"); err == nil {
		t.Error("a connection that reads has written")
	}
}

func TestOneServerAFolder(t *testing.T) {
	dir := t.TempDir()
	add(t, open(t, dir))
	for _, name := range []string{DatabaseFile, DatabaseFile + "-wal", "lock"} {
		if st, err := os.Stat(filepath.Join(dir, name)); err != nil || st.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", name, st.Mode(), err)
		}
	}
	if _, err := Open(dir); !errors.Is(err, ErrTaken) {
		t.Fatalf("opened twice: %v", err)
	}
}

// TestAFolderThatIsFreeInAMoment has the lock held as a process does that a killed server had begun to start.
func TestAFolderThatIsFreeInAMoment(t *testing.T) {
	dir := t.TempDir()
	open(t, dir).Close()
	held, err := os.Open(filepath.Join(dir, "lock"))
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Flock(int(held.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		t.Fatal(err)
	}
	time.AfterFunc(200*time.Millisecond, func() { held.Close() })
	add(t, open(t, dir))
}

func TestANewerStoreIsRefusedAndADamagedOneFound(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	id := add(t, s)
	to := filepath.Join(t.TempDir(), "copy")
	if _, _, err := s.TakeBlob(context.Background(), strings.NewReader("content")); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"token", "authority.pem", "authority.key"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(name), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if n, err := Backup(dir, to, func() {}); n != 1 || err != nil {
		t.Fatalf("%d files of content, %v", n, err)
	}
	for _, name := range []string{"token", "authority.pem", "authority.key"} {
		if b, err := os.ReadFile(filepath.Join(to, name)); string(b) != name || err != nil {
			t.Errorf("%s of the copy: %q, %v", name, b, err)
		}
	}
	if r, err := Check(to, listed); err != nil || len(r.Faults) != 0 || r.Jobs != 1 || r.Blobs != 1 {
		t.Fatalf("%+v, %v", r, err)
	}
	copied := open(t, to)
	if j, err := copied.Job(context.Background(), id); err != nil || j.Document.Spec.Command[0] != "true" {
		t.Fatalf("%+v, %v", j, err)
	}
	if _, err := copied.write.Exec("PRAGMA user_version = 99"); err != nil {
		t.Fatal(err)
	}
	copied.Close()
	if _, err := Open(to); err == nil || !strings.Contains(err.Error(), "written by a newer release") {
		t.Fatalf("a store of version 99: %v", err)
	}
	blob := ""
	if err := blobs(to, func(_, name string) error { blob = name; return nil }); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(blob, []byte("consent"), 0o600); err != nil {
		t.Fatal(err)
	}
	if r, err := Check(to, listed); err != nil || len(r.Faults) != 1 {
		t.Fatalf("%+v, %v", r, err)
	}
	if err := os.WriteFile(filepath.Join(to, DatabaseFile), []byte(strings.Repeat("no database ", 1000)), 0o600); err != nil {
		t.Fatal(err)
	}
	if r, err := Check(to, listed); err != nil || len(r.Faults) == 0 {
		t.Fatalf("%+v, %v", r, err)
	}
	if _, err := Open(to); err == nil {
		t.Fatal("a file that is no database was opened")
	}
}

func TestLinesInBlocks(t *testing.T) {
	s := open(t, t.TempDir())
	id := add(t, s)
	ctx := context.Background()
	begin := time.Now().UTC().Truncate(time.Second)
	for block := range 40 {
		var lines []client.Line
		for i := range 10 {
			n := uint64(block*10 + i + 1)
			lines = append(lines, client.Line{
				Attempt: 1, Number: n, At: begin.Add(time.Duration(n) * time.Second), Text: strings.Repeat("x", int(n)),
			})
		}
		if err := s.Do(ctx, func(tx *sql.Tx) error { return AddLines(tx, id, 1, lines) }); err != nil {
			t.Fatal(err)
		}
	}
	look := func() {
		t.Helper()
		var got []client.Line
		c := Cursor{}
		for {
			lines, next, _, err := s.Lines(ctx, id, c, time.Time{}, 25)
			if err != nil {
				t.Fatal(err)
			}
			if len(lines) == 0 {
				break
			}
			got, c = append(got, lines...), next
		}
		if len(got) != 400 || got[399].Number != 400 || len(got[123].Text) != 124 {
			t.Fatalf("%d lines of 400", len(got))
		}
		if lines, _, _, err := s.Lines(ctx, id, Cursor{1, 397}, time.Time{}, 100); err != nil || len(lines) != 3 {
			t.Fatalf("%d lines after 397, %v", len(lines), err)
		}
		lines, _, _, err := s.Lines(ctx, id, Cursor{}, begin.Add(396*time.Second), 100)
		if err != nil || len(lines) != 5 {
			t.Fatalf("%d lines since 396, %v", len(lines), err)
		}
		if lines, next, err := s.Tail(ctx, id, 7); err != nil || len(lines) != 7 || lines[0].Number != 394 ||
			next != (Cursor{1, 400}) {
			t.Fatalf("%d lines at the end, %v, %v", len(lines), next, err)
		}
	}
	look()
	if err := s.Do(ctx, func(tx *sql.Tx) error { return Compact(tx, id, 1) }); err != nil {
		t.Fatal(err)
	}
	look()
}

// TestLinesThatComeOneByOne: ten thousand are in few blocks while the job runs, and each is where it was.
func TestLinesThatComeOneByOne(t *testing.T) {
	s := open(t, t.TempDir())
	id, ctx := add(t, s), context.Background()
	begin := time.Unix(1_700_000_000, 0)
	const n = 10_000
	for i := 1; i <= n; {
		err := s.Do(ctx, func(tx *sql.Tx) error {
			for range 500 {
				at := begin.Add(time.Duration(i) * time.Second)
				l := client.Line{Attempt: 1, Number: uint64(i), At: at, Text: strconv.Itoa(i)}
				if err := AddLines(tx, id, 1, []client.Line{l}); err != nil {
					return err
				}
				i++
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	blocks, err := s.Blocks(ctx, id, Cursor{}, time.Time{}, n+1)
	if err != nil || len(blocks) > 60 {
		t.Fatalf("%d lines are in %d blocks, %v", n, len(blocks), err)
	}
	next := uint64(0)
	for _, b := range blocks {
		lines, err := b.Lines()
		if err != nil || b.First != next+1 {
			t.Fatalf("after line %d comes a block of %d to %d, %v", next, b.First, b.Last, err)
		}
		for _, l := range lines {
			if next++; l.Number != next || l.Text != strconv.FormatUint(next, 10) {
				t.Fatalf("line %d is %+v", next, l)
			}
		}
	}
	if next != n {
		t.Errorf("there are %d lines", next)
	}
	since, _, _, err := s.Lines(ctx, id, Cursor{}, begin.Add((n-9)*time.Second), n)
	if err != nil || len(since) != 10 {
		t.Errorf("of the last ten seconds are %d lines, %v", len(since), err)
	}
}

func TestMetricsByRangeAndResolution(t *testing.T) {
	s := open(t, t.TempDir())
	id := add(t, s)
	ctx := context.Background()
	for begin := 0; begin < 2000; begin += 100 {
		var points []client.Point
		for i := begin; i < begin+100; i++ {
			points = append(points, client.Point{Step: int64(i), At: int64(i), Value: float64(i % 1000)})
		}
		if err := s.Do(ctx, func(tx *sql.Tx) error { return AddPoints(tx, id, "loss", 3, points) }); err != nil {
			t.Fatal(err)
		}
	}
	bad := []client.Point{{Step: 1, Value: math.NaN()}, {Step: 2, Value: math.Inf(-1)}}
	var mixed []client.Point
	for i, v := range []float64{3, math.Inf(1), 2, math.NaN()} {
		mixed = append(mixed, client.Point{Step: int64(i), Value: v})
	}
	if err := s.Do(ctx, func(tx *sql.Tx) error {
		return errors.Join(AddPoints(tx, id, "bad", 0, bad), AddPoints(tx, id, "mixed", 0, mixed))
	}); err != nil {
		t.Fatal(err)
	}
	all, err := s.Metrics(ctx, id, "", 0, math.MaxInt64, 50)
	if err != nil || len(all) != 3 {
		t.Fatalf("%+v, %v", all, err)
	}
	if m := all[0]; m.LastIs != "-Inf" || m.Min < m.Max || client.Finite(m.Min) != nil || len(m.Points) > 0 {
		t.Errorf("of nothing but numbers that are none: %+v", m)
	}
	if m := all[2]; m.LastIs != "NaN" || m.Min != 2 || m.Max != 3 || len(m.Points) != 2 {
		t.Errorf("of some numbers that are none: %+v", m)
	}
	m := all[1]
	if m.Name != "loss" || m.Rank != 3 || m.Count != 2000 || m.Min != 0 || m.Max != 999 || m.Last != 999 ||
		len(m.Points) != 50 || m.Points[0].Min != 0 || m.Points[0].Max != 39 {
		t.Fatalf("%+v", m)
	}
	if all, err = s.Metrics(ctx, id, "loss", 500, 509, 50); err != nil || len(all[0].Points) != 10 ||
		all[0].Points[0].Step != 500 {
		t.Fatalf("%+v, %v", all, err)
	}
}

// TestStepsThatGoBack: a job that goes on from what it saved reports some steps again, in the block that has them or in
// the next; a range of steps has all its points.
func TestStepsThatGoBack(t *testing.T) {
	s := open(t, t.TempDir())
	id, ctx := add(t, s), context.Background()
	report := func(name string, from, to int64) {
		t.Helper()
		var points []client.Point
		for step := from; step < to; step++ {
			points = append(points, client.Point{Step: step, Value: float64(step)})
		}
		if err := s.Do(ctx, func(tx *sql.Tx) error { return AddPoints(tx, id, name, 0, points) }); err != nil {
			t.Fatal(err)
		}
	}
	report("one block", 0, 101)
	report("one block", 50, 60)
	report("two blocks", 0, 300) // the second begins with step 256,
	report("two blocks", 100, 110)
	report("two blocks", 20, 30)
	for _, c := range []struct {
		name        string
		first, last int64
		want        int
	}{
		{"one block", 60, 100, 41},
		{"one block", 0, 49, 50},
		{"one block", 50, 59, 20},
		{"two blocks", 280, 299, 20},
		{"two blocks", 20, 29, 20},
		{"two blocks", 100, 109, 20},
		{"two blocks", 0, 299, 320},
	} {
		all, err := s.Metrics(ctx, id, c.name, c.first, c.last, 1000)
		if err != nil || len(all) != 1 || len(all[0].Points) != c.want {
			t.Errorf("%s, steps %d to %d: %d points of %d, %v", c.name, c.first, c.last, len(all[0].Points), c.want, err)
		}
	}
}

// TestTheLastStep is that of the last point, wherever its block begins, and not the greatest.
func TestTheLastStep(t *testing.T) {
	s := open(t, t.TempDir())
	id := add(t, s)
	for _, c := range []struct{ from, to, want int64 }{{0, 0, -1}, {0, 301, 300}, {200, 231, 230}, {10, 11, 10}} {
		var points []client.Point
		for step := c.from; step < c.to; step++ {
			points = append(points, client.Point{Step: step})
		}
		var last int64
		if err := s.Do(context.Background(), func(tx *sql.Tx) (err error) {
			if err = AddPoints(tx, id, "loss", 0, points); err == nil {
				last, err = LastStep(tx, id, "loss", 0)
			}
			return err
		}); err != nil || last != c.want {
			t.Errorf("after steps %d to %d: %d, %v", c.from, c.to-1, last, err)
		}
	}
}

// oldNode looks at a pool and a node of it that were kept before anybody noted for whose jobs it is, and since when.
func oldNode(t *testing.T, s *Store) {
	t.Helper()
	ctx := context.Background()
	if pools, err := s.Pools(ctx); err != nil || len(pools) != 1 || pools[0].Name != "lab" || pools[0].Projects != nil {
		t.Errorf("%+v, %v", pools, err)
	}
	token, found, err := s.Token(ctx, "text")
	if err != nil || !found || token.Pool != "lab" || token.Node != "one" {
		t.Errorf("%+v, %v, %v", token, found, err)
	}
	if all, err := s.NodeTokens(ctx); err != nil || len(all) != 1 || all[0].Node != "one" || !all[0].Made.IsZero() {
		t.Errorf("%+v, %v", all, err)
	}
	is := client.Pool{Name: "lab", Provider: "static", Projects: []string{"vision"}}
	if err := s.Do(ctx, func(tx *sql.Tx) error { return SetPool(tx, &is) }); err != nil {
		t.Fatal(err)
	}
	if pools, err := s.Pools(ctx); err != nil || len(pools) != 1 || len(pools[0].Projects) != 1 {
		t.Errorf("%+v, %v", pools, err)
	}
}

// TestContentIsStreamed: it is written as it comes; what has another hash, or breaks off, leaves nothing, and what a
// killed server has left goes when the next one opens the folder.
func TestContentIsStreamed(t *testing.T) {
	dir, ctx := t.TempDir(), context.Background()
	s, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { s.Close() }()
	const size = 32 << 20
	content := func() io.Reader { return io.LimitReader(ones{}, size) }
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	hash, n, err := s.TakeBlob(ctx, content())
	runtime.ReadMemStats(&after)
	if took := after.TotalAlloc - before.TotalAlloc; err != nil || n != size || took > size/8 {
		t.Fatalf("%d bytes with %d of memory, %v", n, took, err)
	}
	info, err := os.Stat(s.BlobFile(hash))
	if err != nil || info.Size() != size || info.Mode() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
	files := func() (all []string) {
		_ = filepath.WalkDir(filepath.Join(dir, "blobs"), func(p string, d fs.DirEntry, _ error) error {
			if !d.IsDir() {
				all = append(all, p)
			}
			return nil
		})
		return all
	}
	other := (*OtherHash)(nil)
	if _, _, err := s.TakeBlobAs(ctx, strings.NewReader("x"), hash); !errors.As(err, &other) || other.Said != hash {
		t.Errorf("content of another hash: %v", err)
	}
	cut := io.MultiReader(strings.NewReader("x"), iotest.ErrReader(io.ErrUnexpectedEOF))
	if _, _, err := s.TakeBlob(ctx, cut); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("content that breaks off: %v", err)
	}
	if again, n, err := s.TakeBlobAs(ctx, content(), hash); again != hash || n != size || err != nil {
		t.Errorf("the same once more: %v, %v, %v", again, n, err)
	}
	if all := files(); len(all) != 1 {
		t.Errorf("there are %v", all)
	}
	s.Close()
	if err := os.WriteFile(filepath.Join(dir, "blobs", ".new-1"), []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}
	if s, err = Open(dir); err != nil {
		t.Fatal(err)
	}
	if all := files(); len(all) != 1 {
		t.Errorf("of a server that was killed: %v", all)
	}
}

// ones is content without an end.
type ones struct{}

func (ones) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 1
	}
	return len(p), nil
}
