package launch

import (
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	jobs "hora/job"
	"hora/launch/protocol"
	"hora/launch/reach"
)

// once is a reach to agents that end with their launcher.
type once struct{ reach.Reach }

// refusal is what whoever wants to adopt a job from dir is told.
func refusal(t *testing.T, dir string) string {
	t.Helper()
	a, err := Find(dir)
	if err == nil {
		t.Fatalf("%+v can be adopted", a)
	}
	return err.Error()
}

// TestAJobWhoseHostsAreReachedOnceSaysSo to whoever would adopt it, and its own start does not suffer from it.
func TestAJobWhoseHostsAreReachedOnceSaysSo(t *testing.T) {
	dir := t.TempDir()
	s := &settings{
		Spec: jobs.Spec{CoordinatorState: dir}, Place: Place{Lasts: true, Reach: once{}, Keep: []byte("{}")},
		Hosts: []Host{{Name: "a"}, {Name: "b"}},
	}
	if l, err := s.openLedger(); err != nil || l != nil {
		t.Fatalf("%v, and a ledger %v", err, l)
	}
	if why := refusal(t, dir); !strings.Contains(why, "its hosts cannot be reached again") {
		t.Error(why)
	}
}

// TestAJobWhoseStateCannotBeKeptIsAdoptedByNobody: a disk too full for one entry ends the story, and everybody is told.
func TestAJobWhoseStateCannotBeKeptIsAdoptedByNobody(t *testing.T) {
	dir := t.TempDir()
	l, err := lockLedger(dir, os.O_CREATE)
	if err != nil {
		t.Fatal(err)
	}
	said := 0
	l.failed = func(error) { said++ }
	l.write(&entry{Kind: entryJob, Head: &head{Version: protocol.Version, Routes: []headRoute{{}}}})
	full(t, 1024, func() {
		l.write(&entry{Kind: entrySaid, Text: strings.Repeat("long ", 1000)})
		l.write(&entry{Kind: entrySaid})
	})
	l.end(&Outcome{}) // this can be written, and must not be: the story would lack what came before
	why := refusal(t, dir)
	if said != 1 || !strings.Contains(why, "its state could not be kept (") || !strings.Contains(why, "file too large") {
		t.Errorf("told %d times: %s", said, why)
	}
}

// full calls f while no file of this process can be longer than limit.
func full(t *testing.T, limit uint64, f func()) {
	t.Helper()
	quiet := make(chan os.Signal, 16)
	signal.Notify(quiet, syscall.SIGXFSZ) // else it ends the process
	defer signal.Stop(quiet)
	var was syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &was); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: limit, Max: was.Max}); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &was); err != nil {
			t.Fatal(err)
		}
	}()
	f()
}

// FuzzLedger: whatever stands in a ledger, reading it ends in a head or a sentence.
func FuzzLedger(f *testing.F) {
	const begun = `{"kind":"job","at":0,"Head":{"Version":"` + protocol.Version + `","Routes":[{}]}}` + "\n"
	for _, text := range []string{
		"", "{", "null\n", begun, begun + `{"kind":"said","Link":0,"N":1,"say":1,"body":"AA=="}` + "\n" + `{"kind":"st`,
		begun + `{"kind":"order","order":{"N":7,"Kind":3,"Rank":-1,"Is":true}}` + "\n", begun + `{"kind":"order"}` + "\n",
		begun + `{"kind":"said","Link":-1}` + "\n", begun + `{"kind":"end","code":3,"text":"x"}` + "\n",
		`{"kind":"alone","text":"x"}` + "\n",
	} {
		f.Add([]byte(text))
	}
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, text []byte) {
		if err := os.WriteFile(filepath.Join(dir, "launcher"), text, 0o600); err != nil {
			t.Fatal(err)
		}
		l, err := lockLedger(dir, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer l.file.Close()
		h, err := l.read(dir)
		if (h == nil) == (err == nil) {
			t.Fatalf("%+v, %v", h, err)
		}
		for _, e := range l.past {
			if err == nil && (e.Link < 0 || e.Link >= len(h.Routes)) {
				t.Fatalf("%+v speaks of a host that there is not", e)
			}
		}
	})
}

// TestAnHeirsKeysReachTheHosts: of the environment ssh's agent of keys is the heir's, where it has one; all else is the
// job's.
func TestAnHeirsKeysReachTheHosts(t *testing.T) {
	its := []string{"SSH_AUTH_SOCK=/old", "A=1"}
	for _, c := range []struct{ own, want []string }{
		{[]string{"A=2", "SSH_AUTH_SOCK=/new"}, []string{"A=1", "SSH_AUTH_SOCK=/new"}},
		{[]string{"A=2"}, its},
	} {
		if got := keyed(its, c.own); !slices.Equal(got, c.want) {
			t.Errorf("%q beside %q: %q, want %q", its, c.own, got, c.want)
		}
	}
}
