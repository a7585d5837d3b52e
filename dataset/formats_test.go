package dataset

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/parquet-go/parquet-go"

	"hora/dataset/plan"
)

func put(t testing.TB, dir, name, text string) {
	t.Helper()
	name = filepath.Join(dir, name)
	if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name, []byte(text), 0o644)); err != nil {
		t.Fatal(err)
	}
}

// column reads a column of whole numbers, on so many ranks.
func column(t testing.TB, s *Set, name string, size int) []int64 {
	t.Helper()
	var all []int64
	for rank := range size {
		r := mustRead(t, s, Walk{0, 0, rank, size, int64(size * 7), plan.Short, nil})
		for {
			b, err := next(t, r)
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range r.Layout() {
				if f.Name == name {
					all = append(all, view[int64](b, f.At, b.Rows)...)
				}
			}
			b.Release()
		}
	}
	return all
}

// csvs writes files with so many rows each: id, half, name.
func csvs(t testing.TB, dir string, files ...int) int {
	t.Helper()
	id := 0
	for i, n := range files {
		var b strings.Builder
		b.WriteString("id,half,name\n")
		for range n {
			fmt.Fprintf(&b, "%d,%g,\"row, %d\"\n", id, float64(id)/2, id)
			id++
		}
		put(t, dir, fmt.Sprintf("part=%d/%d.csv", i, i), b.String())
	}
	return id
}

// TestFormatsAreTables: what is no Parquet has the same orders, ranks, states, filters
// and partitions.
func TestFormatsAreTables(t *testing.T) {
	dir := t.TempDir()
	n := csvs(t, dir, 5000, 1, 6000)
	s := mustOpen(t, Config{Source: []string{dir}, Seed: 3, Memory: 200_000})
	if s.Blocks() < 4 || s.Rows() != int64(n) {
		t.Errorf("%d rows in %d groups", s.Rows(), s.Blocks())
	}
	got := column(t, s, "id", 3)
	if slices.IsSorted(got) {
		t.Error("nothing is shuffled")
	}
	slices.Sort(got)
	for i, id := range got {
		if id != int64(i) {
			t.Fatalf("row %d is %d", i, id)
		}
	}
	only := mustOpen(t, Config{
		Source: []string{dir}, Shuffle: None,
		Filter: [][]Condition{{{Column: "part", Op: "==", Value: number("2")}, {Column: "id", Op: "<", Value: number("5010")}}},
	})
	if got := fmt.Sprint(column(t, only, "id", 1)); got != "[5001 5002 5003 5004 5005 5006 5007 5008 5009]" {
		t.Error(got)
	}
	bad := filepath.Join(dir, "part=1", "1.csv")
	put(t, dir, "part=1/1.csv", "id,half,name\n1,x,y\n")
	if _, err := Open(context.Background(), Config{Source: []string{dir}}); err == nil ||
		!strings.Contains(err.Error(), bad+": column \"half\" is string, and float64 in ") {
		t.Error(err)
	}
	put(t, dir, "part=1/1.csv", "id,half\n\"1,2\n")
	if _, err := Open(context.Background(), Config{Source: []string{dir}}); err == nil ||
		!strings.Contains(err.Error(), "open "+bad+": line 2") {
		t.Error(err)
	}
	if s, err := Open(context.Background(), Config{Source: []string{dir}, Skip: true}); err != nil ||
		s.Rows() != 11000 || len(s.Skipped()) != 1 {
		t.Error(err)
	}
}

// TestImagesThatChange: an image that is another one of the same size since the data were opened is an error, as it is
// of every other file.
func TestImagesThatChange(t *testing.T) {
	dir := t.TempDir()
	for i := range 6 {
		put(t, dir, fmt.Sprintf("class/%d.png", i), "an image "+fmt.Sprint(i))
	}
	s := mustOpen(t, Config{Source: []string{dir}, Shuffle: None})
	before := s.files[0].object.Tag
	name := filepath.Join(dir, "class", "3.png")
	info, err := os.Stat(name)
	if err != nil {
		t.Fatal(err)
	}
	put(t, dir, "class/3.png", "an image X")
	if err := os.Chtimes(name, info.ModTime(), info.ModTime().Add(1)); err != nil {
		t.Fatal(err)
	}
	r := mustRead(t, s, Walk{Size: 1, Batch: 6, Last: plan.Short})
	if _, err := next(t, r); err == nil || !strings.Contains(err.Error(), "3.png: the file has changed since it was opened") {
		t.Errorf("an image that has changed: %v", err)
	}
	again := mustOpen(t, Config{Source: []string{dir}, Shuffle: None})
	if again.files[0].object.Tag == before || again.fingerprint != s.fingerprint {
		t.Error("ranks of this host would take the new image for the old one, or other hosts' copies for other data")
	}
}

func number(text string) any { return json.Number(text) }

// TestConvert: what is written has the rows of what was read, in their order, in small
// row groups with checksums; nobody sees half of it.
func TestConvert(t *testing.T) {
	ctx, dir := context.Background(), t.TempDir()
	n := csvs(t, filepath.Join(dir, "in"), 3000, 4000)
	for i, compression := range []string{"snappy", "zstd", "none"} {
		to := filepath.Join(dir, fmt.Sprint("out", i))
		if i == 2 {
			to += ".parquet"
		}
		v, err := Convert(ctx, Conversion{
			Source: []string{filepath.Join(dir, "in")}, To: to, Group: 50_000, Compression: compression, Threads: 2,
		})
		if err != nil || v.Rows != int64(n) || v.Groups < 4 || len(v.Files) != 1 {
			t.Fatalf("%+v %v", v, err)
		}
		found, err := Verify(ctx, []string{to}, 1, nil)
		if err != nil || len(found.Damaged)+len(found.Unchecked) > 0 || found.Rows != int64(n) {
			t.Fatalf("%+v %v", found, err)
		}
		s := mustOpen(t, Config{Source: []string{to}, Shuffle: None})
		if got := column(t, s, "id", 1); int64(len(got)) != v.Rows || !slices.IsSorted(got) {
			t.Errorf("%d rows", len(got))
		}
		f, err := os.Open(v.Files[0])
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		info, _ := f.Stat()
		p, err := parquet.OpenFile(f, info.Size())
		if err != nil {
			t.Fatal(err)
		}
		if p.NumRows() != v.Rows || len(p.OffsetIndexes()) != v.Groups*4 {
			t.Errorf("another reader finds %d rows and %d offset indexes", p.NumRows(), len(p.OffsetIndexes()))
		}
		if _, err := Convert(ctx, Conversion{Source: []string{filepath.Join(dir, "in")}, To: to}); err == nil ||
			!strings.Contains(err.Error(), "is there already; choose another name") {
			t.Error(err)
		}
	}
	table(t, dir, 97, 500) // Parquet with nulls and dictionaries
	v, err := Convert(ctx, Conversion{Source: []string{filepath.Join(dir, "part-00.parquet")}, To: filepath.Join(dir, "again")})
	if err != nil {
		t.Fatal(err)
	}
	s := mustOpen(t, Config{
		Source: []string{filepath.Join(dir, "again")}, Fields: everything, Nulls: map[string]any{"maybe": "mask"},
		Shuffle: None,
	})
	r := mustRead(t, s, Walk{0, 0, 0, 1, 500, plan.Short, nil})
	b, err := next(t, r)
	if err != nil || b.Rows != 500 || v.Rows != 500 {
		t.Fatal(err)
	}
	for i, id := range ids(t, r, b) {
		if id != int64(i) {
			t.Fatalf("row %d is %d", i, id)
		}
	}
	if _, err := Convert(ctx, Conversion{
		Source: []string{filepath.Join(dir, "in")}, To: filepath.Join(dir, "x"), Compression: "lzma",
	}); err == nil || !strings.Contains(err.Error(), "use snappy, zstd or none") {
		t.Error(err)
	}
	left, _ := filepath.Glob(filepath.Join(dir, ".hora-convert-*"))
	if _, err := os.Stat(filepath.Join(dir, "x")); err == nil || len(left) > 0 {
		t.Errorf("a conversion that failed left %v", left)
	}
}

type deltaVector struct {
	Kind string `parquet:"storageType"`
}

type deltaAdd struct {
	Path   string       `parquet:"path"`
	Vector *deltaVector `parquet:"deletionVector,optional"`
}

type deltaMeta struct {
	Schema string `parquet:"schemaString"`
}

type deltaProtocol struct {
	Reader int32 `parquet:"minReaderVersion"`
}

type deltaRow struct {
	Add      *deltaAdd      `parquet:"add,optional"`
	Meta     *deltaMeta     `parquet:"metaData,optional"`
	Protocol *deltaProtocol `parquet:"protocol,optional"`
}

// checkpointOf writes version 2's, in which part-01 is all that lives.
func checkpointOf(t *testing.T, dir string, vector bool) {
	t.Helper()
	f, err := os.Create(filepath.Join(dir, "_delta_log", fmt.Sprintf("%020d.checkpoint.parquet", 2)))
	if err != nil {
		t.Fatal(err)
	}
	w := parquet.NewGenericWriter[deltaRow](f)
	rows := []deltaRow{{Protocol: &deltaProtocol{1}}, {Meta: &deltaMeta{"{}"}}, {Add: &deltaAdd{Path: "part-01.parquet"}}}
	if vector {
		rows[2].Add.Vector = &deltaVector{"u"}
	}
	if _, err := w.Write(rows); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(w.Close(), f.Close()); err != nil {
		t.Fatal(err)
	}
}

// TestDelta: a folder with a log has the rows that the log says.
func TestDelta(t *testing.T) {
	dir := t.TempDir()
	table(t, dir, 50, 100, 100, 100, 100)
	commit := func(version int, lines ...string) {
		put(t, dir, fmt.Sprintf("_delta_log/%020d.json", version), strings.Join(lines, "\n")+"\n")
	}
	add := func(i int) string {
		return fmt.Sprintf(`{"add":{"path":"part-%02d.parquet","partitionValues":{},"size":1,"dataChange":true}}`, i)
	}
	remove := func(i int) string { return fmt.Sprintf(`{"remove":{"path":"part-%02d.parquet"}}`, i) }
	open := func() (string, error) {
		s, err := Open(context.Background(), Config{Source: []string{dir}, Shuffle: None, Fields: everything[:1]})
		if err != nil {
			return "", err
		}
		defer s.Close()
		got := column(t, s, "id", 1)
		var from []string
		for i := 0; i < len(got); i += 100 {
			from = append(from, fmt.Sprint(got[i]))
		}
		return strings.Join(from, " "), nil
	}
	want := func(rows string) {
		t.Helper()
		if got, err := open(); err != nil || got != rows {
			t.Errorf("files that begin with rows %q, want %q: %v", got, rows, err)
		}
	}
	refused := func(says string) {
		t.Helper()
		if got, err := open(); err == nil || !strings.Contains(err.Error(), says) ||
			!strings.Contains(err.Error(), "as a Delta table") {
			t.Errorf("%q %v, want %q", got, err, says)
		}
	}
	want("0 100 200 300")
	commit(0, `{"protocol":{"minReaderVersion":1,"minWriterVersion":2}}`, `{"metaData":{"schemaString":"{}"}}`, add(0), add(1))
	want("0 100")
	commit(1, remove(0), add(2))
	want("100 200")
	commit(3, add(3))
	refused("commit 2 of its log is not there, and commit 3 is")
	commit(2, remove(1))
	want("200 300")
	commit(4, remove(3), `{"add":{"path":"part-03.parquet","deletionVector":{"storageType":"u"}}}`)
	refused("deleted by deletion vectors")
	commit(4, `{"metaData":{"schemaString":"{\"delta.columnMapping.physicalName\":\"c1\"}"}}`)
	refused("column mapping")
	commit(4, `{"protocol":{"minReaderVersion":3,"readerFeatures":["deletionVectors","somethingNew"]}}`)
	refused(`must know "somethingNew"`)
	commit(4, `{"add":{"path":"part-09.parquet"}}`)
	refused("its log names a file that cannot be read")
	commit(4, `{"add":{"path":"s3://other/part-09.parquet"}}`)
	refused("which lies elsewhere")
	commit(4, "{")
	refused("commit 4 of its log: line 1 is no JSON")
	commit(4, `{"commitInfo":{}}`)

	// A checkpoint takes the place of the commits before it.
	checkpoint := func(vector bool) { checkpointOf(t, dir, vector) }
	checkpoint(false)
	for v := range 3 {
		if err := os.Remove(filepath.Join(dir, "_delta_log", fmt.Sprintf("%020d.json", v))); err != nil {
			t.Fatal(err)
		}
	}
	want("100 300")
	checkpoint(true)
	refused("deleted by deletion vectors")
	if err := os.Remove(filepath.Join(dir, "_delta_log", fmt.Sprintf("%020d.checkpoint.parquet", 2))); err != nil {
		t.Fatal(err)
	}
	put(t, dir, "_delta_log/"+fmt.Sprintf("%020d.checkpoint.80a083e8-7026.json", 3), "{}")
	refused("of the second kind (v2)")
}
