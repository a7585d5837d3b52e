package bench

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// fake is a peer's program that does what body says.
func fake(t *testing.T, body string) map[string]string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "gloo")
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+body+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	return map[string]string{"gloo": path}
}

// TestPeersThatDoNotDoTheirWork: what crashes, hangs or computes something else is named.
func TestPeersThatDoNotDoTheirWork(t *testing.T) {
	for _, c := range []struct{ body, want string }{
		{"echo unhappy >&2; exit 7", "exit status 7: unhappy"},
		{"kill -9 $$", "signal: killed"},
		{"exec sleep 1000", "it hangs"},
		{"echo result allreduce 4 10 1.5 wrong", "the result is wrong"},
		{"echo result allreduce many 10 1.5 ok", "not a size and a time"},
		{"echo result allreduce 4 10 1.5 ok", ""},
	} {
		limit := time.Minute
		if c.want == "it hangs" {
			limit = 300 * time.Millisecond
		}
		r := &runner{cfg: Config{Cores: []int{0}, Limit: limit, Environ: os.Environ()}, programs: fake(t, c.body)}
		got, err := r.peer(context.Background(), "gloo-ring", "allreduce", "shm", 2, []int{4})
		switch {
		case c.want == "" && (err != nil || got[4] != 1.5):
			t.Errorf("%s: %v, %v", c.body, got, err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%s: error %v, want %q", c.body, err, c.want)
		}
	}
}

// TestRowsOfAPeerThatFails keep our own figure and say what the peer lacks.
func TestRowsOfAPeerThatFails(t *testing.T) {
	c := Combination{"allreduce", "shm", 2, []int{4}, []string{"openmpi"}}
	ours := map[string][]results{"hora": {{4: 2}, {4: 3}}, "openmpi": {nil, nil}}
	r := &runner{}
	var out strings.Builder
	for _, cause := range []struct {
		err  error
		want string
	}{
		{&MissingPeer{"openmpi", "openmpi-bin", errors.New("no mpicc")}, "2.50 openmpi        is missing: it takes the packages openmpi-bin"},
		{errors.New("exit status 7"), "2.50 openmpi        openmpi: exit status 7"},
		{nil, "2.50 openmpi        interrupted"},
	} {
		out.Reset()
		row := r.row(c, "openmpi", 4, ours, map[string]error{"openmpi": cause.err})
		if err := WriteTable(&out, []Row{row}); err != nil || !strings.Contains(out.String(), cause.want) {
			t.Errorf("%v: %v, want %q in\n%s", cause.err, err, cause.want, out.String())
		}
	}
}

// TestAFailureIsNeverAKnownShortfall: a reason to be slow excuses nothing else.
func TestAFailureIsNeverAKnownShortfall(t *testing.T) {
	target := Target{Op: "allreduce", Link: "shm", NP: 2, Peer: "gloo", Steps: []Step{{Goal: 2}}, Known: map[int]Known{4: {Reason: "thin air"}}}
	goals := Targets{Targets: []Target{target}}
	row := Row{Op: "allreduce", Link: "shm", NP: 2, Bytes: 4, Peer: "gloo", Ratio: 1}
	if v := goals.Check([]Row{row}, 1); v[0].Reached || v[0].Known != "thin air" {
		t.Errorf("%+v", v)
	}
	row.Failure = "hora: exit status 2"
	if v := goals.Check([]Row{row}, 1); v[0].Reached || v[0].Known != "" {
		t.Errorf("%+v", v)
	}
}
