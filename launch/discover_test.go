package launch

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"hora/event"
)

func TestDiscoveredHosts(t *testing.T) {
	for _, c := range []struct {
		text, want string
		slots      int
	}{
		{"a:2\n\n b:4 \n", "[{a 2} {b 4}]", 0},
		{"a\nb:3", "[{a 8} {b 3}]", 8},
		{"a:0\nb:1\n", "[{b 1}]", 0},
		{"", "[]", 0},
		{"a", `line 1: "a" names no slots, and --slots-per-host is not given`, 0},
		{"a:1\nb:x", `line 2: "b:x" has no number of slots`, 0},
		{"a:-1", "has no number of slots", 0},
		{"-oProxyCommand=x:1", "is no host name", 0},
		{"a:1\na:2", "line 2: host a is there twice", 0},
	} {
		hosts, err := parseDiscovered("./hosts.sh", c.text, c.slots)
		got := fmt.Sprint(hosts)
		if err != nil {
			got = err.Error()
		}
		if !strings.Contains(got, c.want) || err != nil && !strings.HasPrefix(got, "ask ./hosts.sh for hosts: ") {
			t.Errorf("%q: %s, want %s", c.text, got, c.want)
		}
	}
}

func TestDiscoveryScript(t *testing.T) {
	dir := t.TempDir()
	for _, c := range []struct{ script, want string }{
		{"echo $NAME:3; echo noise >&2", "[{here 3}]"},
		{"echo a:1; echo first >&2; echo no permission >&2; exit 3", "exit status 3 (no permission): run it by hand and correct it"},
		{"/no/such/script", "run it by hand"},
	} {
		hosts, err := ScriptHosts(c.script, 0, append(os.Environ(), "NAME=here"))(t.Context())
		if got := fmt.Sprint(hosts, err); !strings.Contains(got, c.want) {
			t.Errorf("%s: %s, want %s", c.script, got, c.want)
		}
	}
	// One that hangs ends with its children when it is no longer wanted.
	mark := filepath.Join(dir, "mark")
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for range tick.C {
			if _, err := os.Stat(mark); err == nil {
				cancel()
				return
			}
		}
	}()
	began := time.Now()
	_, err := ScriptHosts("touch "+mark+"; sleep 1000 & wait", 0, os.Environ())(ctx)
	if err == nil || time.Since(began) > 5*time.Second {
		t.Errorf("%v after %v", err, time.Since(began))
	}
}

func TestTheFirstFailureOfADiscoveryIsFinal(t *testing.T) {
	spec := testSpec([]string{"true"})
	spec.Discovery = &discovery{Find: ScriptHosts("echo broken >&2; exit 1", 0, os.Environ())}
	_, err := run(t.Context(), spec)
	if e, ok := err.(*Error); !ok || e.Code != ExitUsage || !strings.Contains(e.Text, "(broken): run it by hand") {
		t.Errorf("%v", err)
	}
	spec.Discovery = &discovery{Find: ScriptHosts("echo here:1", 0, os.Environ()), Wait: 1200 * time.Millisecond}
	_, err = run(t.Context(), spec)
	if e, ok := err.(*Error); !ok || e.Code != ExitTimeout || !strings.Contains(e.Text, "1 slots were found in 1.2s, and -np is 2") {
		t.Errorf("%v", err)
	}
}

// notes is a listener that calls back on every event but those of operations.
type notes func(string)

func (notes) Operation(*event.Operation) {}
func (f notes) Event(e event.Event)      { f(e.String()) }

// TestADiscoveryThatHangs is ended with what it started: at first the job ends by it, later it goes on with what it
// has.
func TestADiscoveryThatHangs(t *testing.T) {
	dir := t.TempDir()
	here := func(name string) string { return filepath.Join(dir, name) }
	hang := "sleep 1234 & echo $! >>" + here("pids") + "; wait"
	spec := testSpec([]string{"true"})
	spec.Discovery = &discovery{Find: (&Script{
		Command: hang, Environ: os.Environ(),
		Limit: 300 * time.Millisecond,
	}).Find}
	_, err := run(t.Context(), spec)
	if e, ok := err.(*Error); !ok || e.Code != ExitUsage || e.Text != "ask "+strconv.Quote(hang)+" for hosts: no answer in 300ms: make it print what it knows at once" {
		t.Errorf("%v", err)
	}
	later := "if mkdir " + here("asked") + " 2>/dev/null; then echo here:2; else " + hang + "; fi"
	spec = testSpec(nil)
	spec.Discovery = &discovery{Find: (&Script{
		Command: later, Environ: os.Environ(),
		Limit: 300 * time.Millisecond,
	}).Find}
	spec.Place.Events = &event.Sink{}
	said := 0
	defer spec.Place.Events.Add(notes(func(text string) {
		if strings.Contains(text, "for hosts: no answer in 300ms: make it print what it knows at once; going on with the hosts known so far") {
			said++
			os.WriteFile(here("told"), nil, 0o644)
		}
	}))()
	o, out, errs := script(t, spec, "until [ -e "+here("told")+" ]; do sleep 0.05; done; sleep 1.5; echo rank $RANK goes on")
	if o.Kind != Finished || !strings.Contains(out, "rank 0 goes on") || !strings.Contains(out, "rank 1 goes on") || said != 1 {
		t.Errorf("%v, %d complaints\n%s%s", o, said, out, errs)
	}
	pids, err := os.ReadFile(here("pids"))
	if err != nil || len(strings.Fields(string(pids))) < 3 {
		t.Errorf("it was asked %q times: %v", pids, err)
	}
	for _, pid := range strings.Fields(string(pids)) {
		if b, err := os.ReadFile("/proc/" + pid + "/cmdline"); err == nil && strings.Contains(string(b), "1234") {
			t.Errorf("process %s is left", pid)
		}
	}
}

func TestHostsAreAwaitedAndLaterFailuresPassedOver(t *testing.T) {
	dir := t.TempDir()
	count := filepath.Join(dir, "count")
	command := `n=$(cat ` + count + ` 2>/dev/null || echo 0); echo $((n+1)) >` + count + `; case $n in 0) echo here:1;; 1) exit 1;; *) echo here:2;; esac`
	spec := testSpec(nil)
	spec.Discovery = &discovery{Find: ScriptHosts(command, 0, os.Environ())}
	o, out, errs := script(t, spec, "echo rank $RANK on $HORA_HOST")
	if o.Kind != Finished || !strings.Contains(out, "rank 0 on here") || !strings.Contains(out, "rank 1 on here") {
		t.Errorf("%v\n%s%s", o, out, errs)
	}
}

// TestASlowNameServerHoldsUpNobody: while a name that a discovery brings is looked up, the job deals with its workers.
func TestASlowNameServerHoldsUpNobody(t *testing.T) {
	dir := t.TempDir()
	asked, answer := make(chan struct{}), make(chan struct{})
	spec := testSpec(nil)
	spec.NP, spec.Dir, spec.Restarts, spec.MinNP = 2, dir, 5, 1
	spec.IsLocal = func(name string) bool {
		if name == "slow.example" {
			close(asked)
			<-answer
		}
		return true
	}
	spec.Discovery = &discovery{Find: func(context.Context) ([]Host, error) {
		hosts := []Host{{Name: "here", Slots: 2}}
		if _, err := os.Stat(filepath.Join(dir, "more")); err == nil {
			hosts = append(hosts, Host{Name: "slow.example", Slots: 1})
		}
		return hosts, nil
	}}
	spec.Place.Events = &event.Sink{}
	told := make(chan struct{})
	defer spec.Place.Events.Add(notes(func(text string) {
		if strings.Contains(text, "rank 1 on here: exit code 3: the other") {
			close(told)
		}
	}))()
	go func() {
		<-asked
		os.WriteFile(filepath.Join(dir, "fail"), nil, 0o644)
		select {
		case <-told:
		case <-time.After(20 * time.Second):
			t.Error("nobody hears of a worker's end while a name is looked up")
		}
		os.WriteFile(filepath.Join(dir, "end"), nil, 0o644)
		close(answer)
	}()
	o, out, errs := script(t, spec, `[ $RANK = 0 ] && touch more
[ $RANK = 1 ] && { until [ -e fail ]; do sleep 0.02; done; mkdir failed 2>/dev/null && exit 3; }
until [ -e end ]; do sleep 0.02; done`)
	if o.Kind != Finished {
		t.Errorf("%v\n%s%s", o, out, errs)
	}
}
