package store

import (
	"context"
	"database/sql"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"hora/job"
)

// What earlier releases have written, byte by byte: these blocks are data, and no code of today makes them.

// oldLines is a block of two lines of JSON, and oldPacked one of ten more through zstd, numbers 3 to 12.
const (
	oldLines = `{"attempt":1,"number":1,"at":"2026-11-22T10:00:01Z","rank":0,"text":"caf\u00e9 \u003c\u0026\u003e"}
{"attempt":1,"number":2,"at":"2026-11-22T10:00:02Z","rank":1,"err":true,"text":"a \"word\"\tand \ufffd"}
`
	oldPacked = "28b52ffd4400c602f5040012481a1c70b16d009dc0331db11b738289fcaeea2aad8d96368d66effe5f5f4c45f3cc44c4c3c3c324" +
		"491004398e8331b6d6524a15cd93b14be160686304e1fa06d8fe59865bcfbc3f88f486a5f1cf05e9f44e0f03990811b1bcbcbedb4f" +
		"d2f30e1466f9417d2794ed6e0f081b20b0730799b29ccd624acb2d6d8c4d4c82b8309ab2dcc260ca720ba329cb2d0c532cb7304cb9" +
		"9c0b63cc9471cb81a392cedbc3c86f"
	oldDocument = `{"spec":{"command":["sh","train.sh"],"np":2},"project":"a","pool":"b","priority":50,"retries":1}`
	// oldContent is the hash of the word "content".
	oldContent = "ed7002b439e9ac845f22357d822bac1444730fbdb6016d3ec9432297b9ec9f73"
)

// oldPoint is a point of a block: step, milliseconds, value.
func oldPoint(step, at int64, value float64) []byte {
	b := binary.LittleEndian.AppendUint64(nil, uint64(step))
	b = binary.LittleEndian.AppendUint64(b, uint64(at))
	return binary.LittleEndian.AppendUint64(b, math.Float64bits(value))
}

// writeOld fills a database of a version as its release did: a job that runs its second attempt, with output, metrics
// whose steps go back, a file and a story; and a job that waits.
func writeOld(t *testing.T, db *sql.DB, version int) {
	t.Helper()
	do := func(query string, args ...any) {
		t.Helper()
		if _, err := db.Exec(query, args...); err != nil {
			t.Fatalf("version %d: %v", version, err)
		}
	}
	begin := time.Date(2026, 11, 22, 10, 0, 0, 0, time.UTC).UnixNano()
	second := int64(time.Second)
	for i, state := range []string{"running", "queued"} {
		do(`INSERT INTO jobs (id, state, project, pool, user, name, priority, queued, document)
			VALUES (?, ?, 'a', 'b', 'c', '', 50, ?, ?)`, i+1, state, begin, oldDocument)
	}
	do(`INSERT INTO attempts (job, number, started, ended, outcome, code, text, shares, taken) VALUES
		(1, 1, ?, ?, 'failure', 3, 'exit code 3', '[{"node":"here","slots":2}]', 17),
		(1, 2, ?, 0, '', 0, '', '[{"node":"here","slots":2}]', 1)`, begin, begin+20*second, begin+21*second)
	packed, err := hex.DecodeString(oldPacked)
	if err != nil {
		t.Fatal(err)
	}
	lines := `INSERT INTO lines (job, attempt, first, last, begins, ends, codec, block) VALUES (1, 1, ?, ?, ?, ?, ?, ?)`
	do(lines, 1, 2, begin+second, begin+2*second, 0, []byte(oldLines))
	do(lines, 3, 12, begin+3*second, begin+12*second, 1, packed)
	metrics := `INSERT INTO metrics (job, name, rank, seq, first, last, count, low, high, final, block)
		VALUES (1, ?, 0, ?, ?, ?, ?, ?, ?, ?, ?)`
	var block []byte
	for step := range int64(101) {
		block = append(block, oldPoint(step, begin/1e6+step, float64(step))...)
	}
	for step := int64(50); step < 60; step++ {
		block = append(block, oldPoint(step, begin/1e6+200+step, float64(-step))...)
	}
	last := 59 // the steps of a block's first and its last point,
	if version >= slices.Index(versions, leastAndGreatest)+1 {
		last = 100 // and since then its least and its greatest
	}
	do(metrics, "loss", 1, 0, last, 111, -59.0, 100.0, -59.0, block)
	do(metrics, "loss", 2, 60, 60, 1, -60.0, -60.0, -60.0, oldPoint(60, begin/1e6+300, -60))
	do(metrics, "none", 1, 1, 1, 1, math.MaxFloat64, math.MaxFloat64, math.MaxFloat64, oldPoint(1, begin/1e6, math.NaN()))
	do(`INSERT INTO artifacts (job, path, size, hash, at) VALUES (1, 'deep/model.pt', 7, ?, ?)`, oldContent, begin)
	do(`INSERT INTO happenings (job, number, at, attempt, kind, text, fields)
		VALUES (1, 1, ?, 1, 'failure', 'exit code 3; it queues again', '{"code":3}')`, begin+20*second)
	do(`INSERT INTO projects (name, used, at) VALUES ('a', 12.5, ?)`, begin)
	if version >= 3 {
		do(`INSERT INTO tags (job, name, value) VALUES (1, 'kind', 'test')`)
	}
	if version >= 4 {
		do(`INSERT INTO tokens (hash, scope, pool, node, expires) VALUES (?, 'node', 'lab', 'one', 0)`, HashOf("text"))
		do(`INSERT INTO pools (name, document) VALUES ('lab', '{"name": "lab", "provider": "static"}')`)
	}
}

// TestAnOlderStoreIsCopiedAndBroughtUpToDate opens what each earlier version has written, and reads all of it.
func TestAnOlderStoreIsCopiedAndBroughtUpToDate(t *testing.T) {
	ctx := context.Background()
	for version := 1; version < len(versions); version++ {
		dir := t.TempDir()
		name := filepath.Join(dir, DatabaseFile)
		db, err := connect(name, "", 1)
		if err != nil {
			t.Fatal(err)
		}
		for i := range version {
			if _, err := db.Exec(versions[i]); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := db.Exec(fmt.Sprintf("PRAGMA user_version = %d", version)); err != nil {
			t.Fatal(err)
		}
		writeOld(t, db, version)
		db.Close()
		blob := filepath.Join(dir, "blobs", oldContent[:2], oldContent[2:])
		if err := os.MkdirAll(filepath.Dir(blob), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(blob, []byte("content"), 0o600); err != nil {
			t.Fatal(err)
		}
		s := open(t, dir)
		check := func(what string, good bool, got any, err error) {
			t.Helper()
			if err != nil || !good {
				t.Errorf("version %d: %s: %+v, %v", version, what, got, err)
			}
		}
		lives, err := s.Lives(ctx)
		check("jobs", len(lives) == 2 && lives[0].Job.State == job.Running && lives[1].Job.State == job.Queued &&
			lives[0].Job.Document.Spec.Command[1] == "train.sh" && lives[0].Taken == 1 &&
			lives[0].Attempt != nil && lives[0].Attempt.Shares[0].Slots == 2, lives, err)
		j, err := s.Job(ctx, 1)
		check("attempts", len(j.Attempts) == 2 && j.Attempts[0].Code == 3 && j.Document.Retries == 1, j, err)
		lines, _, more, err := s.Lines(ctx, 1, Cursor{}, time.Time{}, 100)
		var text []string
		for i, l := range lines {
			text = append(text, l.Text)
			if l.Number != uint64(i)+1 || l.Attempt != 1 || l.At.Second() != i+1 {
				t.Errorf("version %d: line %d is %+v", version, i+1, l)
			}
		}
		check("lines", len(lines) == 12 && !more && text[0] == "caf\u00e9 <&>" && text[1] == "a \"word\"\tand \ufffd" &&
			text[11] == "hora: line 12" && lines[1].Err && lines[1].Rank == 1 && lines[11].Rank == -1, lines, err)
		since, _, _, err := s.Lines(ctx, 1, Cursor{}, lines[9].At, 100)
		check("lines since", len(since) == 3, since, err)
		for _, c := range []struct{ first, last, want int64 }{{60, 100, 42}, {50, 59, 20}, {0, 49, 50}, {61, 61, 1}} {
			some, err := s.Metrics(ctx, 1, "loss", c.first, c.last, 1000)
			check(fmt.Sprint("metrics of steps ", c), len(some) == 1 && int64(len(some[0].Points)) == c.want, some, err)
		}
		all, err := s.Metrics(ctx, 1, "", 0, 0, 0)
		check("metrics", len(all) == 2 && all[0].Count == 112 && all[0].Min == -60 && all[0].Max == 100 &&
			all[0].Last == -60 && all[1].LastIs == "NaN", all, err)
		files, err := s.Artifacts(ctx, 1)
		check("files", len(files) == 1 && files[0].Path == "deep/model.pt" && files[0].Size == 7, files, err)
		story, err := s.Happenings(ctx, 1)
		check("story", len(story) == 1 && strings.Contains(story[0].Text, "queues again"), story, err)
		used, err := s.Projects(ctx)
		check("projects", len(used) == 1 && used[0].Used == 12.5, used, err)
		if version >= 3 {
			check("tags", j.Tags["kind"] == "test", j.Tags, nil)
		}
		if version >= 4 {
			oldNode(t, s)
		}
		checked, err := Check(dir, listed)
		check("check", len(checked.Faults) == 0 && checked.Jobs == 2 && checked.Blobs == 1, checked, err)
		if _, err := os.Stat(fmt.Sprintf("%s.before-%d", name, len(versions))); err != nil {
			t.Errorf("version %d was not copied before: %v", version, err)
		}
	}
}

// everything is what a database has, its tables' words and all that is in them, as a version stands in it.
func everything(t *testing.T, db *sql.DB) string {
	t.Helper()
	list := func(query string) (all []string) {
		rows, err := db.Query(query)
		if err != nil {
			t.Fatal(err)
		}
		defer rows.Close()
		names, err := rows.Columns()
		if err != nil {
			t.Fatal(err)
		}
		for rows.Next() {
			values, into := make([]any, len(names)), make([]any, len(names))
			for i := range values {
				into[i] = &values[i]
			}
			if err := rows.Scan(into...); err != nil {
				t.Fatal(err)
			}
			all = append(all, fmt.Sprint(values))
		}
		if err := rows.Err(); err != nil {
			t.Fatal(err)
		}
		return all
	}
	all := list("PRAGMA user_version")
	all = append(all, list("SELECT type, name, sql FROM sqlite_master ORDER BY type, name")...)
	for _, name := range list("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name") {
		all = append(all, name)
		all = append(all, list("SELECT * FROM "+strings.Trim(name, "[]"))...)
	}
	return strings.Join(all, "\n")
}

// TestAStepThatFails leaves a store as its release wrote it, with the copy beside it, though the steps before it went
// well; and once what was in its way is gone the store is brought up to date.
func TestAStepThatFails(t *testing.T) {
	const version = 3
	dir := t.TempDir()
	name := filepath.Join(dir, DatabaseFile)
	db, err := connect(name, "", 1)
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range append(slices.Clone(versions[:version]),
		fmt.Sprintf("PRAGMA user_version = %d", version), "CREATE TABLE made (by TEXT) STRICT") { // a later step makes one
		if _, err := db.Exec(step); err != nil {
			t.Fatal(err)
		}
	}
	writeOld(t, db, version)
	before := everything(t, db)
	db.Close()
	for range 2 {
		s, err := Open(dir)
		if err == nil {
			s.Close()
			t.Fatal("it was opened")
		}
		for _, want := range []string{"table made already exists", "it is as it was", "go on with the release that wrote it"} {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%v lacks %q", err, want)
			}
		}
		for _, name := range []string{name, fmt.Sprintf("%s.before-%d", name, len(versions))} {
			db, err := connect(name, "", 1)
			if err != nil {
				t.Fatal(err)
			}
			if is := everything(t, db); is != before {
				t.Errorf("%s was\n%s\nand is\n%s", name, before, is)
			}
			db.Close()
		}
	}
	if db, err = connect(name, "", 1); err != nil {
		t.Fatal(err)
	}
	if _, err := db.Exec("DROP TABLE made"); err != nil {
		t.Fatal(err)
	}
	db.Close()
	if lives, err := open(t, dir).Lives(context.Background()); err != nil || len(lives) != 2 {
		t.Errorf("%+v, %v", lives, err)
	}
}
