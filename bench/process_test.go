package bench

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// fake is a program that does what body says.
func fake(t *testing.T, body string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "fake")
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+body+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestPeersThatDoNotDoTheirWork: what crashes, hangs or computes something else is named.
func TestPeersThatDoNotDoTheirWork(t *testing.T) {
	for _, c := range []struct{ body, want string }{
		{"echo unhappy >&2; exit 7", "exit status 7: unhappy"},
		{"kill -9 $$", "signal: killed"},
		{"exec sleep 1000", "it hangs"},
		{"echo result allreduce 4 10 1.5 wrong", "the result is wrong"},
		{"echo result allreduce many 10 1.5 ok", "not a size and a time"},
		{"echo result allreduce 4 10 NaN ok", "not a size and a time"},
		{"echo result allreduce 4 10 Inf ok", "not a size and a time"},
		{"echo result allreduce 4 10 -1.5 ok", "not a size and a time"},
		{"echo hello", "it ended well without a result of 4"},
		{"head -c 9000000 /dev/zero; echo; echo result allreduce 4 10 1.5 ok", ""},
		{"echo panic: no such thing >&2; echo; echo gs 0x0 >&2; exit 2", "exit status 2: panic: no such thing"},
		{"echo mpirun noticed that rank 1 is dead >&2; echo ------- >&2; exit 137", "exit status 137: mpirun noticed that rank 1 is dead"},
		{"echo result allreduce 4 10 1.5 ok", ""},
	} {
		limit := time.Minute
		if c.want == "it hangs" {
			limit = 300 * time.Millisecond
		}
		r := &runner{cfg: Config{Cores: []int{0}, Limit: limit, Environ: os.Environ()}, programs: map[string]string{"gloo": fake(t, c.body)}}
		got, err := r.peer(context.Background(), "gloo-ring", "allreduce", "shm", 2, []int{4})
		switch {
		case c.want == "" && (err != nil || got[4] != 1.5):
			t.Errorf("%s: %v, %v", c.body, got, err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%s: error %v, want %q", c.body, err, c.want)
		}
	}
}

// TestAPeerThatFailsAtOneSize keeps its other sizes, in the rounds that follow too, and the
// run goes on. What it leaves running is swept away.
func TestAPeerThatFailsAtOneSize(t *testing.T) {
	// The first argument is a list of sizes for the roofline, the third one for us.
	programs := map[string]string{"roofline": fake(t, `IFS=,; for n in $1; do [ $n = 64 ] && exec sleep 1000; echo result roofline $n 10 3 ok; done`)}
	ours := fake(t, `IFS=,; for n in $3; do v=ok; [ $n = 256 ] && v=wrong; echo result $1 $n 10 2 $v; done`)
	swept := 0
	cfg := Config{
		Plan: Plan{Rounds: 3}, Cores: []int{0}, Limit: 3 * time.Second, Environ: os.Environ(), Self: []string{ours},
		Say: t.Logf, Sweep: func() { swept++ },
	}
	r := &runner{cfg: cfg, programs: programs}
	c := Combination{"allreduce", "registered", 2, []int{4, 64, 128, 256}, []string{"roofline"}}
	var out strings.Builder
	k := newContest(c, nil)
	r.rounds(t.Context(), k, c.Sizes, cfg.Rounds)
	rows := r.rows(k)
	if err := WriteTable(&out, rows); err != nil {
		t.Fatal(err)
	}
	if rows[0].Ratio != 1.5 || rows[0].Failure != "" {
		t.Errorf("a size before the one that hangs:\n%s", out.String())
	}
	for _, row := range rows[1:3] {
		if row.HoraUS != 2 || row.Ratio != 0 || !strings.Contains(row.Failure, "roofline: no end after") {
			t.Errorf("the size that hangs, and the one behind it:\n%s", out.String())
		}
	}
	if rows[3].Ratio != 0 || !strings.Contains(rows[3].Failure, "hora: verify allreduce of 256: the result is wrong") {
		t.Errorf("a wrong result of our own:\n%s", out.String())
	}
	if swept != 2 {
		t.Errorf("swept %d times after two failures", swept)
	}
}

// TestAShortRowIsMeasuredAgain: with further rounds, which count beside the first ones, and
// a failure in them is one of the row's.
func TestAShortRowIsMeasuredAgain(t *testing.T) {
	counted := `c=$0.count; echo x >>$c; n=$(wc -l <$c);`
	for _, c := range []struct {
		name, theirs string
		want         string // of 4 bytes
		ratio        float64
	}{
		{"a slow moment", `us=2; [ $n -gt 3 ] && us=6;`, "9 rounds", 3},
		{"slow always", `us=2;`, "9 rounds", 1},
		{"fails", `us=2; [ $n -gt 5 ] && exit 7;`, "5 rounds  roofline: exit status 7", 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			theirs := fake(t, counted+c.theirs+` IFS=,; for n in $1; do v=$us; [ $n = 64 ] && v=10; echo result roofline $n 10 $v ok; done`)
			ours := fake(t, `IFS=,; for n in $3; do echo result $1 $n 10 2 ok; done`)
			cfg := Config{
				Plan: Plan{Rounds: 3}, Cores: []int{0}, Environ: os.Environ(), Self: []string{ours}, Say: t.Logf,
				Again: func(row Row) bool { return row.Ratio < 2 },
			}
			r := &runner{cfg: cfg, programs: map[string]string{"roofline": theirs}}
			k := newContest(Combination{"allreduce", "registered", 2, []int{4, 64}, []string{"roofline"}}, nil)
			r.rounds(t.Context(), k, k.Sizes, cfg.Rounds)
			r.again(t.Context(), []*contest{k})
			var out strings.Builder
			rows := r.rows(k)
			if err := WriteTable(&out, rows); err != nil {
				t.Fatal(err)
			}
			if rows[0].Ratio != c.ratio || !strings.Contains(out.String(), c.want) {
				t.Errorf("ratio %v with %q is wanted of the first row:\n%s", c.ratio, c.want, out.String())
			}
			if rows[1].Ratio != 5 || rows[1].Rounds != 0 {
				t.Errorf("a row that was not short is left alone: %+v", rows[1])
			}
		})
	}
}

// TestARowSaysWhoFailedBesideIt: one of those that the best is chosen from is missing, or
// we were wrong in a later round.
func TestARowSaysWhoFailedBesideIt(t *testing.T) {
	r := &runner{}
	c := Combination{"allgather", "shm", 2, []int{4}, []string{"best"}}
	k := newContest(c, map[string]error{"openmpi": &MissingPeer{"openmpi", "openmpi-bin", errors.New("no mpicc")}})
	k.turns = map[string][]results{"hora": {{4: 2}}, "openmpi": {nil}, "gloo-default": {{4: 6}}}
	row := r.row(k, "best", 4)
	if row.Ratio != 3 || row.Failure != "openmpi is missing: it takes the packages openmpi-bin" {
		t.Errorf("%+v", row)
	}
	target := Target{Op: "allgather", Link: "shm", NP: 2, Peer: "best", Steps: []Step{{Goal: 2}}}
	v := (Targets{[]Target{target}}).Check([]Row{row}, 1)
	var out strings.Builder
	if _, err := WriteVerdicts(&out, v); err != nil || !v[0].Reached || !strings.Contains(out.String(), "; openmpi is missing: ") {
		t.Errorf("%v, %+v\n%s", err, v, out.String())
	}
	k.failures["hora"], k.able["hora"] = errors.New("the result is wrong"), nil
	row = r.row(k, "best", 4)
	if v := (Targets{[]Target{target}}).Check([]Row{row}, 1); row.Ratio != 0 || v[0].Reached {
		t.Errorf("%+v", v)
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
		k := newContest(c, map[string]error{"openmpi": cause.err})
		k.turns = ours
		row := r.row(k, "openmpi", 4)
		if err := WriteTable(&out, []Row{row}); err != nil || !strings.Contains(out.String(), cause.want) {
			t.Errorf("%v: %v, want %q in\n%s", cause.err, err, cause.want, out.String())
		}
	}
}

// TestWhatIsInDoubt: what is just below its goal, or just above, and no known shortfall.
func TestWhatIsInDoubt(t *testing.T) {
	steps, known := []Step{{Goal: 2}}, map[int]Known{64: {Reason: "thin air"}}
	goals := Targets{[]Target{
		{Op: "allreduce", Link: "shm", NP: 2, Peer: "gloo", Steps: steps, Known: known},
		{Op: "named", Link: "shm", NP: 2, Peer: "ordered", Only: 4, ExtraUS: 1.5},
	}}
	row := Row{Op: "allreduce", Link: "shm", NP: 2, Bytes: 4, Peer: "gloo"}
	for ratio, want := range map[float64]bool{1: true, 1.88: true, 1.95: true, 2.05: true, 2.1: false, 9: false} {
		if row.Ratio = ratio; goals.Doubtful(row, 1) != want {
			t.Errorf("ratio %v of 2: doubtful is %v", ratio, !want)
		}
	}
	if row.Bytes, row.Ratio = 64, 1; goals.Doubtful(row, 1) {
		t.Error("a known shortfall is in doubt")
	}
	named := Row{Op: "named", Link: "shm", NP: 2, Bytes: 4, Peer: "ordered", Ratio: 0.5}
	for extra, want := range map[float64]bool{2: true, 1.5: true, 1: false} {
		if named.HoraUS = extra; goals.Doubtful(named, 1) != want {
			t.Errorf("%v µs more of 1.5: doubtful is %v", extra, !want)
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
	row.Ratio, row.Failure = 0, "hora: exit status 2"
	if v := goals.Check([]Row{row}, 1); v[0].Reached || v[0].Known != "" {
		t.Errorf("%+v", v)
	}
}

// TestMpirunMayTidy: what it hangs at ends it with a signal that lets it remove the memory
// its ranks share; what does not heed that is swept away.
func TestMpirunMayTidy(t *testing.T) {
	dir := t.TempDir()
	tidied := filepath.Join(dir, "tidied")
	withPrograms(t, map[string]string{"mpirun": "trap ': > " + tidied + "; exit 1' TERM; while :; do sleep 0.01; done"})
	r := &runner{cfg: Config{Cores: []int{0}, Limit: 300 * time.Millisecond, Environ: os.Environ()}, programs: map[string]string{"openmpi": "openmpi"}}
	if _, err := r.peer(t.Context(), "openmpi", "allreduce", "shm", 2, []int{4}); err == nil || !strings.Contains(err.Error(), "it hangs") {
		t.Errorf("%v", err)
	}
	if _, err := os.Stat(tidied); err != nil {
		t.Error("mpirun was killed before it could tidy")
	}
}

// TestACompetitorThatLacksAnOperation is named, and nothing is put in its place.
func TestACompetitorThatLacksAnOperation(t *testing.T) {
	r := &runner{cfg: Config{Cores: []int{0}, Environ: os.Environ(), Self: []string{"/no/such/program"}}, programs: map[string]string{}}
	for _, c := range []struct{ peer, op, want string }{
		{"gloo-default", "named", "it has no operation named"},
		{"openmpi", "plan", "it has no operation plan"},
		{"openmpi_rule", "plan", "it has no operation plan"},
		{"roofline", "broadcast", "an allreduce of two ranks"},
		{"ordered", "alltoall", "has no alltoall"},
	} {
		_, err := r.turn(t.Context(), Combination{Op: c.op, Link: "shm", NP: 2, Sizes: []int{4}}, c.peer)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s of %s: %v, want %q", c.op, c.peer, err, c.want)
		}
	}
}

// TestMpirunBindsWhereTheOthersAreBound, also where this process may not run on all cores.
func TestMpirunBindsWhereTheOthersAreBound(t *testing.T) {
	for _, c := range []struct {
		cores []int
		np    int
		want  string
	}{
		{[]int{0, 1, 2}, 2, "--bind-to core"},
		{[]int{0, 1, 2}, 1, "--bind-to core"},
		{[]int{1}, 1, "--cpu-list 1 --bind-to cpu-list:ordered"},
		{[]int{2, 5, 6}, 2, "--cpu-list 2,5 --bind-to cpu-list:ordered"},
		{[]int{2, 5}, 3, "--oversubscribe --bind-to none --mca mpi_yield_when_idle 1"},
	} {
		r := &runner{cfg: Config{Cores: c.cores}, programs: map[string]string{"openmpi": "openmpi"}}
		got := strings.Join(r.mpirun(t.Context(), "openmpi", "allreduce", "shm", c.np, []int{4}).Args, " ")
		if want := "mpirun --allow-run-as-root -np " + strconv.Itoa(c.np) + " " + c.want + " openmpi allreduce 4"; got != want {
			t.Errorf("%d ranks on %v: %s, want %s", c.np, c.cores, got, want)
		}
	}
}

// TestTunedOpenMPITakesTheRule of the best segmented ring, and TCP alone where TCP is measured.
func TestTunedOpenMPITakesTheRule(t *testing.T) {
	r := &runner{cfg: Config{Cores: []int{0, 1}}, programs: map[string]string{"openmpi": "openmpi"}}
	const want = "--mca btl tcp,self --mca btl_tcp_if_include lo --mca coll_tuned_use_dynamic_rules 1 " +
		"--mca coll_tuned_allreduce_algorithm 5 --mca coll_tuned_allreduce_algorithm_segmentsize 524288 openmpi allreduce 4"
	if got := strings.Join(r.mpirun(t.Context(), "openmpi_rule", "allreduce", "tcp", 2, []int{4}).Args, " "); !strings.HasSuffix(got, want) {
		t.Errorf("%s, want %s at its end", got, want)
	}
	c := Combination{Op: "allreduce", Link: "registered", NP: 2}
	for peer, want := range map[string]string{
		"openmpi_tuned": "openmpi openmpi_rule", "gloo": "gloo-ring gloo-bcube gloo-halving", "openmpi": "openmpi", "best": "openmpi gloo-ring gloo-bcube gloo-halving",
	} {
		if got := strings.Join(configurations(c, []string{peer}), " "); got != want {
			t.Errorf("%s is chosen from %s, want %s", peer, got, want)
		}
	}
}

// TestBandwidthsAreThoseOfNCCLTests: bytes are the whole, and a bus carries what n ranks have to.
func TestBandwidthsAreThoseOfNCCLTests(t *testing.T) {
	for op, want := range map[string]float64{"allreduce": 1.5, "reducescatter": 0.75, "allgather": 0.75, "alltoall": 0.75, "broadcast": 1, "reduce": 1} {
		row := Row{Op: op, NP: 4, Bytes: 2000, HoraUS: 2} // 1 GB/s
		if row.AlgBW() != 1 || row.BusBW() != want {
			t.Errorf("%s: %v and %v GB/s, want 1 and %v", op, row.AlgBW(), row.BusBW(), want)
		}
	}
}
