package launch

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"hora/internal/wire"
	jobs "hora/job"
	"hora/launch/reach"
)

// resultPart is a part of rank 0's result, as an agent sends it.
func resultPart(last bool, at int, data string) []byte {
	return append(wire.AppendI64(wire.AppendBool(wire.AppendI64(nil, 0), last), int64(at)), data...)
}

// TestAnotherLauncherGoesOnWithAResult: parts that are said again stand once; a result that was whole is not begun
// anew by its end, and one of the rank's next process takes its place.
func TestAnotherLauncherGoesOnWithAResult(t *testing.T) {
	dir := t.TempDir()
	launcher := func(parts ...[]byte) {
		t.Helper()
		r := results{dir: dir, mark: "0", lasts: true}
		for _, p := range parts {
			if err := r.part(p, 1); err != nil {
				t.Fatal(err)
			}
		}
		r.close()
	}
	is := func(want string) {
		t.Helper()
		b, err := os.ReadFile(filepath.Join(dir, "rank.0"))
		if string(b) != want || (err != nil) != (want == "") {
			t.Errorf("%q, %v: not %q", b, err, want)
		}
	}
	launcher(resultPart(false, 0, "abc"), resultPart(false, 3, "def"))
	is("")
	launcher(resultPart(false, 3, "def"), resultPart(true, 6, "g"))
	is("abcdefg")
	launcher(resultPart(false, 3, "def"), resultPart(true, 6, "g"))
	is("abcdefg")
	launcher(resultPart(false, 0, "longer than the next"), resultPart(false, 0, "ne"), resultPart(true, 2, "xt"))
	is("next")
	launcher(resultPart(true, 0, ""))
	if b, err := os.ReadFile(filepath.Join(dir, "rank.0")); err != nil || len(b) > 0 {
		t.Errorf("%q, %v: not empty", b, err)
	}
	if all, err := os.ReadDir(dir); err != nil || len(all) != 1 {
		t.Errorf("%v, %v: more is left than the result", all, err)
	}
}

// TestWhatIsKeptOfAJobsCall: the folder has a call of its own and none of an earlier job's results; what has arrived
// whole is delivered, also into a folder that has an older one, and stays.
func TestWhatIsKeptOfAJobsCall(t *testing.T) {
	dir, from := t.TempDir(), t.TempDir()
	write := func(path, text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(filepath.Join(from, "call"), "mine")
	write(filepath.Join(dir, callName), "old")
	write(filepath.Join(dir, resultsName, "rank.7"), "old")
	s := &settings{Place: Place{Call: filepath.Join(from, "call"), Results: filepath.Join(from, "out")}}
	if err := s.keepCall(dir); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(from, "call")); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(s.Call); err != nil || string(b) != "mine" {
		t.Errorf("the call is %q, %v", b, err)
	}
	write(filepath.Join(s.Results, "rank.0"), "new")
	write(filepath.Join(s.Results, "rank.1.part-0"), "half")
	write(filepath.Join(from, "out", "rank.0"), "older")
	for range 2 {
		if err := s.handOver(); err != nil {
			t.Fatal(err)
		}
	}
	all, err := os.ReadDir(filepath.Join(from, "out"))
	if err != nil || len(all) != 1 {
		t.Fatalf("%v, %v", all, err)
	}
	for _, path := range []string{filepath.Join(from, "out", "rank.0"), filepath.Join(dir, resultsName, "rank.0")} {
		if b, err := os.ReadFile(path); err != nil || !bytes.Equal(b, []byte("new")) {
			t.Errorf("%s is %q, %v", path, b, err)
		}
	}
}

// TestACallIsKeptAsItWas: the job's folder has a file of its own, private, wherever the caller's name leads, and
// whatever the caller writes there later.
func TestACallIsKeptAsItWas(t *testing.T) {
	dir, from := t.TempDir(), t.TempDir()
	file := filepath.Join(from, "file")
	if err := os.WriteFile(file, []byte("first"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("file", filepath.Join(from, "call")); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"call", "file"} {
		s := &settings{Place: Place{Call: filepath.Join(from, name)}}
		if err := s.keepCall(dir); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte("later"), 0o644); err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile(s.Call)
		if st, bad := os.Lstat(s.Call); err != nil || bad != nil || string(b) != "first" || st.Mode() != 0o600 {
			t.Errorf("%s: %q, %v, %v, %v", name, b, err, st, bad)
		}
		if err := os.WriteFile(file, []byte("first"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// TestResultsWhereTheyAre: to deliver results to where they are, by whatever name, leaves them there.
func TestResultsWhereTheyAre(t *testing.T) {
	dir := t.TempDir()
	from, link := filepath.Join(dir, resultsName), filepath.Join(t.TempDir(), "link")
	file := filepath.Join(from, "rank.0")
	err := errors.Join(os.Mkdir(from, 0o700), os.WriteFile(file, []byte("all"), 0o600), os.Symlink(from, link))
	if err != nil {
		t.Fatal(err)
	}
	other := t.TempDir() // it has the same file
	if err := os.Link(file, filepath.Join(other, "rank.0")); err != nil {
		t.Fatal(err)
	}
	for _, to := range []string{from, link, other} {
		if _, err := (&EndedError{dir: dir, results: true}).Deliver(to); err != nil {
			t.Error(err)
		}
		for _, path := range []string{file, filepath.Join(to, "rank.0")} {
			if b, err := os.ReadFile(path); string(b) != "all" {
				t.Errorf("delivered to %s: %s is %q, %v", to, path, b, err)
			}
		}
	}
}

// TestACallerKeepsNothingWhereTheJobDoes: a call or a folder of results that the job's own would take the place of is
// refused, by whatever name, before anything there changes; others may be in its folder.
func TestACallerKeepsNothingWhereTheJobDoes(t *testing.T) {
	dir := t.TempDir()
	alias := filepath.Join(t.TempDir(), "alias")
	err := errors.Join(os.Mkdir(filepath.Join(dir, resultsName), 0o700), os.Symlink(dir, alias))
	for _, name := range []string{callName, "launcher", "mine", filepath.Join(resultsName, "rank.0")} {
		err = errors.Join(err, os.WriteFile(filepath.Join(dir, name), []byte("mine"), 0o600))
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, under := range []string{dir, alias} {
		for _, name := range []string{callName, "launcher", filepath.Join(resultsName, "rank.0")} {
			call := filepath.Join(under, name)
			s := in(dir, Place{Call: call})
			if _, err := s.openLedger(); err == nil || !strings.HasPrefix(err.Error(), "--call "+call+": ") {
				t.Errorf("%v", err)
			}
			if b, err := os.ReadFile(call); string(b) != "mine" {
				t.Errorf("%s is %q, %v", call, b, err)
			}
		}
		results := filepath.Join(under, resultsName)
		s := in(dir, Place{Results: results})
		if _, err := s.openLedger(); err == nil || !strings.HasPrefix(err.Error(), "--results "+results+": ") {
			t.Errorf("%v", err)
		}
		s = &settings{Place: Place{Call: filepath.Join(under, "mine"), Results: filepath.Join(under, "out")}}
		if err := s.unmixed(dir); err != nil {
			t.Error(err)
		}
	}
}

// in returns the settings of a job that can be adopted by a folder.
func in(dir string, place Place) *settings {
	place.Lasts, place.Reach = true, lastingReach{}
	return &settings{Spec: jobs.Spec{CoordinatorState: dir}, Place: place}
}

// lastingReach is one that a job can be adopted with, and does nothing.
type lastingReach struct{ Reach }

func (lastingReach) Last(reach.Last) {}
