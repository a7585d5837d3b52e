package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"hora/job"
	"hora/server/client"
)

// listed are the hashes in a list of files as these tests write it: one a line.
func listed(list []byte) ([]string, error) { return strings.Fields(string(list)), nil }

// without removes content with a hash from a folder.
func without(hash string) func(*testing.T, string) {
	return func(t *testing.T, dir string) {
		t.Helper()
		if err := os.Remove(filepath.Join(dir, "blobs", hash[:2], hash[2:])); err != nil {
			t.Fatal(err)
		}
	}
}

// withRun changes a folder's database.
func withRun(query string) func(*testing.T, string) {
	return func(t *testing.T, dir string) {
		t.Helper()
		db, err := connect(filepath.Join(dir, DatabaseFile), "", 1)
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		if _, err := db.Exec(query); err != nil {
			t.Fatal(err)
		}
	}
}

// TestCheckMissesWhatIsGone makes a folder with all that a job may have, and takes one of each away.
func TestCheckMissesWhatIsGone(t *testing.T) {
	dir, ctx := t.TempDir(), context.Background()
	s := open(t, dir)
	keep := func(text string) string {
		t.Helper()
		hash, _, err := s.TakeBlob(ctx, strings.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		return hash
	}
	file, diff, output := keep("a file"), keep("a difference"), keep("an output")
	list := keep(file + "\n")
	p := 50
	j := &client.Job{State: job.Queued, Queued: time.Now(), Document: client.Document{
		Project: "a", Pool: "b", Priority: &p, Spec: job.Spec{Command: []string{"true"}},
		Code: list, Source: map[string]string{"diff": diff, "commit": "c0ffee"},
	}}
	document, err := json.Marshal(j.Document)
	if err != nil {
		t.Fatal(err)
	}
	var lines []client.Line
	for n := range 100 {
		lines = append(lines, client.Line{Attempt: 1, Number: uint64(n) + 1, At: time.Now(), Text: fmt.Sprint("line ", n)})
	}
	if err := s.Do(ctx, func(tx *sql.Tx) error {
		id, err := NewJob(tx, j, document)
		return errors.Join(
			err, AddLines(tx, id, 1, lines), AddPoints(tx, id, "loss", 0, []client.Point{{Step: 1}, {Step: 2}}),
			SetArtifact(tx, id, client.Artifact{Path: "model.pt", Hash: output, Size: 9, At: time.Now()}),
			AddDeed(tx, client.Deed{At: time.Now(), What: "submit"}), AddDeed(tx, client.Deed{At: time.Now(), What: "cancel"}),
		)
	}); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, want string
		damage     func(*testing.T, string)
	}{
		{"nothing", "", func(*testing.T, string) {}},
		{"an output", "is missing: it is outputs/model.pt of job 1", without(output)},
		{"the list of files", "is missing: it is the list of the files that went along with job 1", without(list)},
		{"a file of the folder", "is missing: it is a file that went along with job 1", without(file)},
		{"a difference", "is missing: it is what was not committed of the folder of job 1", without(diff)},
		{
			"lines", "lines 1 to 100 of attempt 1 of job 1: read",
			withRun("UPDATE lines SET block = substr(block, 1, length(block) - 9)"),
		},
		{"lines of others", "there are others", withRun("UPDATE lines SET last = last + 1")},
		{"points", "has 24 bytes, and should have 2 points", withRun("UPDATE metrics SET block = substr(block, 1, 24)")},
		{"a document", "what was submitted as job 1 cannot be read", withRun("UPDATE jobs SET document = '{'")},
		{"a record", "who did what: record 1 is missing", withRun("DELETE FROM audit WHERE id = 1")},
		{
			"a record's text", "record 2 was changed after it was written",
			withRun("UPDATE audit SET what = 'other' WHERE id = 2"),
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			to := filepath.Join(t.TempDir(), "copy")
			if n, err := Backup(dir, to, func() {}); n != 4 || err != nil {
				t.Fatalf("%d files of content, %v", n, err)
			}
			c.damage(t, to)
			r, err := Check(to, listed)
			text := strings.Join(r.Faults, "\n")
			if err != nil || (text == "") != (c.want == "") || !strings.Contains(text, c.want) {
				t.Errorf("%q, %v", text, err)
			}
		})
	}
}

// corrupt is what the database says of a page of its own that it cannot read.
type corrupt struct{}

func (corrupt) Error() string { return "database disk image is malformed (11)" }

func (corrupt) Code() int { return sqliteCorrupt }

// TestDamageIsToldOfWhatIsRead: a database may open, and be damaged where a server reads it first.
func TestDamageIsToldOfWhatIsRead(t *testing.T) {
	s := open(t, t.TempDir())
	err := s.Read(t.Context(), func(*sql.Tx) error { return corrupt{} })
	want := "the database is damaged (database disk image is malformed (11)): end the server, and run horad check"
	if err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("%v", err)
	}
}
