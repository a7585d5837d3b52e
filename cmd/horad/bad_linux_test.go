package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"hora/server/client"
	"hora/server/snapshot"
	"hora/server/store"
)

func contentOf(text string) (content []byte, hash string) {
	sum := sha256.Sum256([]byte(text))
	return []byte(text), hex.EncodeToString(sum[:])
}

// TestANodeOfAnotherVersion starts a node that speaks another version of what nodes say; the others stay.
func TestANodeOfAnotherVersion(t *testing.T) {
	t.Parallel() // it waits, most of the time
	s := newSite(t, 1)
	if r := s.hora("pool", "add", "lab"); r.code != 0 {
		t.Fatalf("%+v", r)
	}
	s.joining("one", "lab")
	source, err := filepath.Abs("../../server/node/join.go")
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(source)
	if err != nil {
		t.Fatal(err)
	}
	other := strings.Replace(string(text), "const Protocol = 1\n", "const Protocol = 2\n", 1)
	if other == string(text) {
		t.Fatal("the version is not where it was")
	}
	dir := t.TempDir()
	write := func(name string, b []byte) string {
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o600); err != nil {
			t.Fatal(err)
		}
		return filepath.Join(dir, name)
	}
	overlay, err := json.Marshal(map[string]map[string]string{"Replace": {source: write("join.go", []byte(other))}})
	if err != nil {
		t.Fatal(err)
	}
	build := exec.Command(
		"go", "build", "-overlay", write("overlay.json", overlay), "-o", filepath.Join(dir, "hora"), "hora/cmd/hora",
	)
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	token, err := s.client.JoinToken(context.Background(), "lab", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	c := exec.CommandContext(
		ctx, filepath.Join(dir, "hora"), "node", "--pool", "lab", "--name", "two", "--server", s.url, "--dir", filepath.Join(dir, "two"),
	)
	c.Env = append(s.env(), "HORA_TOKEN="+token.Token)
	out, err := c.CombinedOutput()
	exit := (*exec.ExitError)(nil)
	if !errors.As(err, &exit) || ctx.Err() != nil || bytes.Count(out, []byte("\n")) != 1 ||
		!bytes.Contains(out, []byte("the server speaks version 1 of what nodes say, and node two")) ||
		!bytes.Contains(out, []byte("version 2: install the same hora on both")) {
		t.Errorf("a node of another version: %v, %s", err, out)
	}
	if got := s.ready("lab"); len(got) != 1 || got[0] != "one" {
		t.Errorf("the pool has %v", got)
	}
}

// horad runs the server's program.
func (s *site) horad(args ...string) said {
	c := exec.Command(filepath.Join(s.bin, "horad"), args...)
	var out, errs strings.Builder
	c.Stdout, c.Stderr = &out, &errs
	_ = c.Run()
	return said{c.ProcessState.ExitCode(), out.String(), errs.String()}
}

// TestADamagedStore: hora up and horad check say in a sentence what is wrong and what to do, and a backup starts.
func TestADamagedStore(t *testing.T) {
	s := newSite(t, 1)
	for range 200 { // pages enough
		d := shell(1, "true")
		d.Held = true
		s.submit(d)
	}
	saved := filepath.Join(t.TempDir(), "saved")
	horad := s.horad
	if r := s.hora("secret", "set", "KEY", "--file", "/etc/hostname"); r.code != 0 {
		t.Fatalf("%+v", r)
	}
	if r := horad("backup", s.dir, saved); r.code != 0 || !strings.Contains(r.errs, "secrets.key is not in it") {
		t.Fatalf("%+v", r)
	}
	if r := s.hora("down", "--now"); r.code != 0 {
		t.Fatalf("%+v", r)
	}
	_ = s.cmd.Wait()
	s.cmd = nil
	whole := s.dir
	for _, c := range []struct {
		name   string
		damage func(b []byte) []byte
	}{
		{"another file", func(b []byte) []byte { copy(b, "something else, which is no database"); return b }},
		{"no page but the first", func(b []byte) []byte {
			for i := 4096; i < len(b); i++ {
				b[i] = 0xa5
			}
			return b
		}},
		{"half of it", func(b []byte) []byte { return b[:len(b)/2&^4095] }},
	} {
		dir := filepath.Join(t.TempDir(), "server")
		if err := os.CopyFS(dir, os.DirFS(whole)); err != nil {
			t.Fatal(err)
		}
		name := filepath.Join(dir, store.DatabaseFile)
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, c.damage(b), 0o600); err != nil {
			t.Fatal(err)
		}
		r := s.hora("up", "--dir", dir, "--port", "0")
		if r.code == 0 || strings.Count(r.errs, "\n") != 1 || !strings.Contains(r.errs, "the database is damaged") ||
			!strings.Contains(r.errs, "run horad check with its folder") {
			t.Errorf("%s: hora up said %+v", c.name, r)
		}
		says := name + ": the database is damaged: restore the last backup with horad restore, into a new folder ("
		if r := horad("check", dir); !strings.HasPrefix(r.out, says) || strings.Contains(r.out, "end the server") {
			t.Errorf("%s: horad check said %+v", c.name, r)
		}
		to := filepath.Join(t.TempDir(), "of-a-bad-one")
		r = horad("restore", dir, to)
		_, err = os.Stat(to)
		told := strings.Contains(r.errs, "take another backup") && !strings.Contains(r.errs, "end the server")
		if r.code == 0 || !os.IsNotExist(err) || !told {
			t.Errorf("%s: horad restore said %+v, and left %v", c.name, r, err)
		}
		if r := horad("check", dir); r.code == 0 || strings.Count(r.errs, "\n") != 1 || !strings.Contains(r.errs, "horad restore") {
			t.Errorf("%s: horad check said %+v", c.name, r)
		}
	}
	s.dir = filepath.Join(t.TempDir(), "restored")
	if r := horad("restore", saved, s.dir); r.code != 0 || !strings.Contains(r.errs, "put its secrets.key, which no backup has, into "+s.dir+" first") {
		t.Fatalf("%+v", r)
	}
	s.up()
	if _, err := s.client.Job(context.Background(), 200); err != nil {
		t.Errorf("of the backup job 200 is missing: %v", err)
	}
}

// TestAJobFileWithWrongLines: each is named with its line, and the nearest name where there is one.
func TestAJobFileWithWrongLines(t *testing.T) {
	s := newSite(t, 1)
	for _, c := range []struct{ text, want string }{
		{"np: 1\nprority: 3\ncommand: [true]\n", `job.yaml:2: there is no field "prority": did you mean priority?`},
		{"np: 1\n\ntime-limt: 3m\ncommand: [true]\n", `job.yaml:3: there is no field "time-limt": did you mean time_limit?`},
		{"comand: [true]\n", `job.yaml:1: there is no field "comand": did you mean command?`},
		{"priority: [1, 2]\ncommand: [true]\n", "job.yaml:1: priority takes one value"},
		{"command: [true]\npriority: 101\n", `job.yaml:2: priority: "101" is not a whole number from 0 to 100`},
		{"follow: true\ncommand: [true]\n", `job.yaml:1: there is no field "follow"`},
		{"- np\n", `a job is lines such as "np: 2"`},
	} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "job.yaml"), []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		r := s.horaIn(dir, "submit", "--no-code", "--file", "job.yaml")
		if r.code == 0 || !strings.Contains(r.errs, c.want) || strings.Count(r.errs, "\n") != 1 {
			t.Errorf("%q: %+v, and not in one line with %q", c.text, r, c.want)
		}
	}
	if all, err := s.client.Jobs(context.Background(), nil, "", "", 10); err != nil || len(all.Jobs) != 0 {
		t.Errorf("there are jobs: %+v, %v", all, err)
	}
}

// TestFoldersThatTheServerRefuses sends what the client would not: it is the server that has the room.
func TestFoldersThatTheServerRefuses(t *testing.T) {
	s := newSite(t, 1)
	ctx := context.Background()
	send := func(text string) string {
		content, hash := contentOf(text)
		if err := s.client.Put(ctx, hash, bytes.NewReader(content)); err != nil {
			t.Fatal(err)
		}
		return hash
	}
	list := func(files ...snapshot.File) string {
		content, _, err := (&snapshot.Manifest{Files: files}).Encode()
		if err != nil {
			t.Fatal(err)
		}
		return send(string(content))
	}
	large := send(strings.Repeat("x", 60<<20))
	var many []snapshot.File
	for _, name := range strings.Fields("a b c d e f g h i j") {
		many = append(many, snapshot.File{Path: name, Mode: 0o644, Size: 1, Hash: large})
	}
	_, nowhere := contentOf("nowhere")
	for _, c := range []struct {
		name, code string
		status     int
		want       string
	}{
		{"too large", list(many...), 422, "the folder has 600 MB, and 500 MB go along at most"},
		{"lacks a file", list(snapshot.File{Path: "a", Mode: 0o644, Size: 1, Hash: nowhere}), 409, "the folder's file a is not here: send it first"},
		{"leads out", list(snapshot.File{Path: "../a", Mode: 0o644, Size: 1, Hash: large}), 422, "leads out of the folder"},
		{"is none", send("some text"), 422, "is not a folder's list"},
	} {
		d := shell(1, "true")
		d.Code, d.Held = c.code, true
		_, err := s.client.Submit(ctx, d, client.Key())
		var f *client.Fault
		if !errors.As(err, &f) || f.Status != c.status || !strings.Contains(f.Detail, c.want) {
			t.Errorf("a folder that %s: %v, want %d %q", c.name, err, c.status, c.want)
		}
	}
	d := shell(1, "true")
	d.Code, d.Held = list(many[:5]...), true
	if _, err := s.client.Submit(ctx, d, client.Key()); err != nil {
		t.Errorf("a folder of 300 MB: %v", err)
	}
}
