package main

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"hora/job"
)

// committed is a folder with a commit of train.sh, lib/model.txt and a link to that.
func committed(t *testing.T) (dir string, write func(name, text string, mode os.FileMode), commit string) {
	t.Helper()
	dir = t.TempDir()
	write = func(name, text string, mode os.FileMode) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), mode); err != nil {
			t.Fatal(err)
		}
	}
	git := func(args ...string) string {
		t.Helper()
		c := exec.Command("git", append([]string{"-C", dir, "-c", "user.name=t", "-c", "user.email=t@example.org"}, args...)...)
		out, err := c.CombinedOutput()
		if err != nil {
			t.Fatalf("git %q: %v: %s", args, err, out)
		}
		return strings.TrimSpace(string(out))
	}
	if err := os.Mkdir(filepath.Join(dir, "lib"), 0o755); err != nil {
		t.Fatal(err)
	}
	write("train.sh", "echo first\n", 0o755)
	write("lib/model.txt", "a model", 0o644)
	if err := os.Symlink("lib/model.txt", filepath.Join(dir, "model")); err != nil {
		t.Fatal(err)
	}
	git("init", "-q")
	git("add", ".")
	git("commit", "-q", "-m", "first")
	return dir, write, git("rev-parse", "HEAD")
}

// showsCode looks at the pages of job 1's code.
func (s *site) showsCode(commit string) {
	s.t.Helper()
	for path, want := range map[string][]string{
		"/jobs/1": {
			commit, `<a href="/jobs/1/code/lib/model.txt">lib/model.txt</a>`, "model → lib/model.txt", `<span class="del">-echo first`,
			`<span class="add">&#43;echo second`,
		},
		"/jobs/1/code/train.sh": {"echo second", `<a href="/jobs/1">job 1</a>`},
		"/jobs/1/code/model":    {"It is a link to <code>lib/model.txt</code>"},
		"/jobs/1/code/nothing":  {"no file nothing went along with job 1"},
	} {
		r, page := s.call("GET", path, "")
		if (r.StatusCode == 404) != strings.HasSuffix(path, "nothing") {
			s.t.Errorf("%s answers %s", path, r.Status)
		}
		for _, w := range want {
			if !strings.Contains(page, w) {
				s.t.Errorf("%s lacks %q: %s", path, w, page)
			}
		}
		if strings.Contains(page, "not committed</pre>") {
			s.t.Errorf("%s has a file that nobody has asked for", path)
		}
	}
}

// TestCode gets back the folder that went along with a job, as it was, and hears what differs since.
func TestCode(t *testing.T) {
	s := newSite(t, 1)
	dir, write, commit := committed(t)
	write("lib/new.txt", "not committed", 0o644)
	write("train.sh", "echo second\n", 0o755)
	if r := s.horaIn(dir, "submit", "sh", "train.sh"); r.code != 0 || r.out != "1\n" {
		t.Fatalf("%+v", r)
	}
	s.until(1, in(job.Finished))
	s.showsCode(commit)
	write("train.sh", "echo third\n", 0o755)
	write("more.txt", "", 0o644)
	if err := os.Remove(filepath.Join(dir, "lib/model.txt")); err != nil {
		t.Fatal(err)
	}

	r := s.hora("code", "1")
	for _, want := range []string{"commit " + commit + ", with changes in train.sh, lib/new.txt", "train.sh\n", "lib/new.txt\n", "model -> lib/model.txt\n"} {
		if r.code != 0 || !strings.Contains(r.out, want) {
			t.Errorf("hora code lacks %q: %+v", want, r)
		}
	}
	if !strings.Contains(r.out, "hora code 1 --changes writes them\n") {
		t.Errorf("hora code does not say how to see what was changed: %+v", r)
	}
	if r := s.hora("code", "1", "--changes"); r.code != 0 || !strings.Contains(r.out, "-echo first\n+echo second\n") {
		t.Errorf("%+v", r)
	}
	if strings.Contains(r.out, "more.txt") {
		t.Errorf("what came later is listed: %+v", r)
	}
	to := filepath.Join(t.TempDir(), "again")
	if r := s.hora("code", "1", "--to", to); r.code != 0 || r.out != "4 files in "+to+"\n" {
		t.Errorf("%+v", r)
	}
	for name, want := range map[string]string{"train.sh": "echo second\n", "lib/new.txt": "not committed", "model": "a model"} {
		if b, err := os.ReadFile(filepath.Join(to, name)); string(b) != want {
			t.Errorf("%s came back as %q, %v", name, b, err)
		}
	}
	if info, err := os.Stat(filepath.Join(to, "train.sh")); err != nil || info.Mode()&0o100 == 0 {
		t.Errorf("train.sh may not be run any more: %v, %v", info.Mode(), err)
	}
	if r := s.hora("code", "1", "--to", to); r.code == 0 || !strings.Contains(r.errs, "is not empty: name a new one") {
		t.Errorf("a folder with files in it: %+v", r)
	}
	if r := s.hora("code", "1", "--file", "train.sh"); r.code != 0 || r.out != "echo second\n" {
		t.Errorf("%+v", r)
	}
	if r := s.hora("code", "1", "--file", "trian.sh"); r.code == 0 || !strings.Contains(r.errs, "no file trian.sh went along with job 1: hora code 1 lists") {
		t.Errorf("%+v", r)
	}
	if r := s.horaIn(dir, "code", "1", "--diff"); r.code != 0 || r.out != "D lib/model.txt\nA more.txt\nM train.sh\n" {
		t.Errorf("%+v", r)
	}
	if r := s.horaIn(to, "code", "1", "--diff"); r.code != 0 || !strings.HasSuffix(r.out, "is what went along with job 1\n") {
		t.Errorf("%+v", r)
	}
	if r := s.hora("submit", "--no-code", "true"); r.code != 0 {
		t.Fatalf("%+v", r)
	}
	if r := s.hora("code", "2"); r.code == 0 || !strings.Contains(r.errs, "no folder went along with job 2") {
		t.Errorf("%+v", r)
	}
	if r := s.hora("code", "1", "--diff", "--to", "x"); r.code != 2 {
		t.Errorf("%+v", r)
	}
}

// TestALinkedWorkingFolder goes along with what the link leads to: a shell that has gone there says the link's name in
// PWD.
func TestALinkedWorkingFolder(t *testing.T) {
	s := newSite(t, 1)
	dir, _, _ := committed(t)
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	s.extra = []string{"PWD=" + link}
	if r := s.horaIn(link, "submit", "--follow", "sh", "train.sh"); r.code != 0 || r.out != "[0]<stdout>:first\n" {
		t.Fatalf("%+v", r)
	}
	if r := s.horaIn(link, "code", "1", "--diff"); r.code != 0 || !strings.HasSuffix(r.out, "is what went along with job 1\n") {
		t.Errorf("%+v", r)
	}
	if r := s.hora("code", "1"); !strings.Contains(r.out, "from "+link) {
		t.Errorf("%+v", r)
	}
}

// TestDamagedContent reaches nobody as if it were whole: what has another hash, and what cannot be read to its end.
func TestDamagedContent(t *testing.T) {
	s := newSite(t, 1)
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "train.sh"), []byte("mkdir -p outputs; echo result >outputs/r; echo code >outputs/s\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if r := s.horaIn(dir, "submit", "--follow", "sh", "train.sh"); r.code != 0 {
		t.Fatalf("%+v", r)
	}
	blobOf := func(text string) string {
		sum := sha256.Sum256([]byte(text))
		hash := hex.EncodeToString(sum[:])
		at := filepath.Join(s.dir, "blobs", hash[:2], hash[2:])
		if _, err := os.Stat(at); err != nil {
			t.Fatalf("the content %q: %v", text, err)
		}
		return at
	}
	if err := os.WriteFile(blobOf("result\n"), []byte("Result\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	to := t.TempDir()
	if r := s.hora("artifacts", "1", "--to", to); r.code == 0 || !strings.Contains(r.errs, "fetch r: what came has the hash ") {
		t.Errorf("%+v", r)
	}
	if left, err := os.ReadDir(to); err != nil || len(left) > 0 {
		t.Errorf("%v is left, %v", left, err)
	}
	unreadable := blobOf("code\n")
	// It opens, and cannot be read.
	if err := errors.Join(os.Remove(unreadable), os.Mkdir(unreadable, 0o700)); err != nil {
		t.Fatal(err)
	}
	in, err := s.client.Get(t.Context(), filepath.Base(filepath.Dir(unreadable))+filepath.Base(unreadable))
	if err == nil {
		_, err = io.ReadAll(in)
		in.Close()
	}
	if !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("what cannot be read came whole: %v", err)
	}
	code := blobOf("mkdir -p outputs; echo result >outputs/r; echo code >outputs/s\n")
	if err := os.WriteFile(code, []byte("echo another program\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if r := s.hora("code", "1", "--to", filepath.Join(t.TempDir(), "again")); r.code == 0 || !strings.Contains(r.errs, "make train.sh again: ") {
		t.Errorf("%+v", r)
	}
	if r := s.horaIn(dir, "submit", "--follow", "sh", "train.sh"); r.code == 0 || strings.Contains(r.out, "another program") {
		t.Errorf("a job ran what nobody has submitted: %+v", r)
	}
}

// zeros are so many, however fast they are read.
func zeros(n int64) io.Reader { return io.LimitReader(zero{}, n) }

type zero struct{}

func (zero) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// TestLargeContentGoesToTheDisk as it comes: the server does not hold it. What has another hash is refused.
func TestLargeContentGoesToTheDisk(t *testing.T) {
	const size = 400 << 20
	s := newSite(t, 1)
	h := sha256.New()
	if _, err := io.Copy(h, zeros(size)); err != nil {
		t.Fatal(err)
	}
	hash := hex.EncodeToString(h.Sum(nil))
	before := peak(t, s.cmd.Process.Pid)
	err := s.client.Put(t.Context(), strings.Repeat("0", 64), zeros(1<<20))
	if err == nil || !strings.Contains(err.Error(), "send it again") {
		t.Errorf("content of another hash: %v", err)
	}
	if err := s.client.Put(t.Context(), hash, zeros(size)); err != nil {
		t.Fatal(err)
	}
	if grown := peak(t, s.cmd.Process.Pid) - before; grown > 100 {
		t.Errorf("the server grew by %d MiB for content of %d", grown, size>>20)
	}
	in, err := s.client.Get(t.Context(), hash)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	if n, err := io.Copy(io.Discard, in); err != nil || n != size {
		t.Errorf("%d bytes came back, %v", n, err)
	}
	if r, _ := s.call("PUT", "/api/v1/blobs/"+hex.EncodeToString(sha256.New().Sum(nil)), ""); r.StatusCode != http.StatusNoContent {
		t.Errorf("an empty file: %s", r.Status)
	}
	old, err := filepath.Glob(filepath.Join(s.dir, "blobs", ".new-*"))
	if err != nil || len(old) > 0 {
		t.Errorf("%q is left behind, %v", old, err)
	}
}
