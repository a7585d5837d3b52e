package launch

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"hora/elastic"
	jobs "hora/job"
)

// herePlace is this test program as the launcher.
func herePlace(out *bytes.Buffer) Place {
	self, _ := os.Executable()
	p := Program(self, os.Environ())
	p.LocalName, p.Stdout, p.Stderr = "here", out, out
	return p
}

// TestWhatAJobAndItsPlaceComeTo: sizes, hosts, policies and limits are worked out once, for who calls from anywhere.
func TestWhatAJobAndItsPlaceComeTo(t *testing.T) {
	file := filepath.Join(t.TempDir(), "hosts")
	if err := os.WriteFile(file, []byte("a slots=2\nb slots=3\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	run := []string{"true"}
	for name, c := range map[string]struct {
		spec  jobs.Spec
		place Place
		right func(*settings) bool
	}{
		"alone": {jobs.Spec{}, Place{}, func(s *settings) bool {
			return s.NP == 1 && len(s.Hosts) == 0 &&
				!s.elastic() && s.Bind == BindCore
		}},
		"hosts": {
			jobs.Spec{Hosts: "a:2,b"},
			Place{},
			func(s *settings) bool { return s.NP == 3 && s.Hosts[1].Name == "b" },
		},
		"hostfile": {jobs.Spec{Hostfile: file}, Place{}, func(s *settings) bool { return s.NP == 5 }},
		"hosts found": {
			jobs.Spec{Hosts: "a:2"},
			Place{Hosts: []Host{{Name: "c", Slots: 4}}},
			func(s *settings) bool { return s.NP == 4 && s.Hosts[0].Name == "c" },
		},
		"discovery": {
			jobs.Spec{Discover: "x", MinNP: 2},
			Place{},
			func(s *settings) bool { return s.NP == 2 && s.Discovery != nil && s.ByHost },
		},
		"replace": {
			jobs.Spec{Restarts: 3},
			Place{},
			func(s *settings) bool { return s.OnLoss == elastic.Replace && !s.ByHost },
		},
		"like Horovod": {jobs.Spec{NP: 2, MaxNP: 4}, Place{}, func(s *settings) bool {
			return s.OnLoss == elastic.Continue &&
				s.MinNP == 2 && s.ByHost
		}},
		"limits": {jobs.Spec{StartTimeout: time.Minute, PeerTimeout: 5 * time.Second}, Place{}, func(s *settings) bool {
			return s.StartTimeout == time.Minute && s.Join == time.Minute && s.Silence == 5*time.Second &&
				slices.Contains(s.Env, "HORA_PEER_TIMEOUT=5")
		}},
		"exported": {
			jobs.Spec{},
			Place{Environ: []string{"HORA_START_TIMEOUT=90"}},
			func(s *settings) bool { return s.Join == 90*time.Second && s.StartTimeout == 0 },
		},
		"named":    {jobs.Spec{Name: "night"}, Place{}, func(s *settings) bool { return s.Name == "night" }},
		"nameless": {jobs.Spec{}, Place{}, func(s *settings) bool { return strings.HasPrefix(s.Name, "job-") }},
	} {
		c.spec.Command = run
		if s, err := resolve(&c.spec, &c.place); err != nil || !c.right(s) {
			t.Errorf("%s: %v, %+v", name, err, s)
		}
	}
	for want, c := range map[string]struct {
		spec  jobs.Spec
		place Place
	}{
		"there is no command to start":                      {jobs.Spec{}, Place{}},
		"--min-np 3 is above -np 2: lower it, or raise -np": {jobs.Spec{Command: run, NP: 2, MinNP: 3}, Place{}},
		"--dir /none: there is no such folder":              {jobs.Spec{Command: run, Dir: "/none"}, Place{}},
		"read hostfile /none: no such file or directory":    {jobs.Spec{Command: run, Hostfile: "/none"}, Place{}},
		`HORA_PEER_TIMEOUT: "soon" is not a time above 0`:   {jobs.Spec{Command: run}, Place{Environ: []string{"HORA_PEER_TIMEOUT=soon"}}},
	} {
		_, err := Start(t.Context(), c.spec, c.place)
		if e, ok := err.(*Error); !ok || e.Code != ExitUsage || !strings.HasPrefix(e.Text, want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// TestAJobThatCannotBegin tells so by Wait, has no outcome and no report, and takes a signal without harm.
func TestAJobThatCannotBegin(t *testing.T) {
	place := herePlace(&bytes.Buffer{})
	j, err := Start(t.Context(), jobs.Spec{Command: []string{"true"}, Hosts: "no-such-host.invalid:1"}, place)
	if err != nil {
		t.Fatal(err)
	}
	_, err = j.Wait()
	if e, ok := err.(*Error); !ok || e.Code != ExitNoHost {
		t.Errorf("%v", err)
	}
	j.Signal(os.Interrupt)
	if _, ended := j.Outcome(); ended || j.Report() != nil {
		t.Error("it has an outcome or a report")
	}
}

// TestAJobIsStoppedByItsContext, and tells so to everybody who waits.
func TestAJobIsStoppedByItsContext(t *testing.T) {
	var out bytes.Buffer
	ctx, cancel := context.WithCancel(t.Context())
	j, err := Start(ctx, jobs.Spec{Command: []string{"sleep", "100"}, NP: 2}, herePlace(&out))
	if err != nil {
		t.Fatal(err)
	}
	select {
	case <-j.Done():
		t.Fatal(out.String())
	default:
	}
	cancel()
	ended := make(chan Kind, 2)
	for range 2 {
		go func() {
			o, _ := j.Wait()
			ended <- o.Kind
		}()
	}
	for range 2 {
		if k := <-ended; k != Cancelled && k != 0 {
			t.Errorf("ended as %v\n%s", k, out.String())
		}
	}
}
