package main

import (
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
