package bench

import (
	"context"
	"errors"
	"os"
	"os/exec"
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
		r := &runner{
			cfg:      Config{Cores: []int{0}, Limit: limit, Environ: os.Environ()},
			programs: map[string]string{"gloo": fake(t, c.body)},
		}
		got, err := r.peer(context.Background(), "gloo-ring", "allreduce", "shm", 2, []int{4})
		switch {
		case c.want == "" && (err != nil || got[4] != 1.5):
			t.Errorf("%s: %v, %v", c.body, got, err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%s: error %v, want %q", c.body, err, c.want)
		}
	}
}

// TestWhoIsNotStartedAnyMoreIsNotTheCause: on a busy machine the first rank has been killed before the second one
// starts.
func TestWhoIsNotStartedAnyMoreIsNotTheCause(t *testing.T) {
	stopped, stop := context.WithCancel(t.Context())
	stop()
	cmds := []*exec.Cmd{exec.CommandContext(t.Context(), "sh", "-c", "kill -9 $$"), exec.CommandContext(stopped, "true")}
	_, err := together(stopped, cmds, []int{4}, func() {})
	if err == nil || !strings.Contains(err.Error(), "signal: killed") {
		t.Error(err)
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
	k := contestOf(c, nil)
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
			k := contestOf(Combination{"allreduce", "registered", 2, []int{4, 64}, []string{"roofline"}}, nil)
			r.rounds(t.Context(), k, k.sizes(), cfg.Rounds)
			r.remeasure(t.Context(), []*contest{k})
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
	k := contestOf(c, map[string]error{"openmpi": &MissingPeer{"openmpi", "openmpi-bin", errors.New("no mpicc")}})
	k.turns = map[string][]results{"hora/shm": {{4: 2}}, "openmpi": {nil}, "gloo-default": {{4: 6}}}
	row := r.row(k, c, "best", 4)
	if row.Ratio != 3 || row.Failure != "openmpi is missing: it takes the packages openmpi-bin" {
		t.Errorf("%+v", row)
	}
	target := Target{Op: "allgather", Link: "shm", NP: 2, Peer: "best", Steps: []Step{{Goal: 2}}}
	v := (Targets{[]Target{target}}).Check([]Row{row}, 1)
	var out strings.Builder
	if _, err := WriteVerdicts(&out, v); err != nil || !v[0].Reached || !strings.Contains(out.String(), "; openmpi is missing: ") {
		t.Errorf("%v, %+v\n%s", err, v, out.String())
	}
	k.failures["hora/shm"], k.able["hora/shm"] = errors.New("the result is wrong"), nil
	row = r.row(k, c, "best", 4)
	if v := (Targets{[]Target{target}}).Check([]Row{row}, 1); row.Ratio != 0 || v[0].Reached {
		t.Errorf("%+v", v)
	}
}

// TestRowsOfAPeerThatFails keep our own figure and say what the peer lacks.
func TestRowsOfAPeerThatFails(t *testing.T) {
	c := Combination{"allreduce", "shm", 2, []int{4}, []string{"openmpi"}}
	ours := map[string][]results{"hora/shm": {{4: 2}, {4: 3}}, "openmpi": {nil, nil}}
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
		k := contestOf(c, map[string]error{"openmpi": cause.err})
		k.turns = ours
		row := r.row(k, c, "openmpi", 4)
		if err := WriteTable(&out, []Row{row}); err != nil || !strings.Contains(out.String(), cause.want) {
			t.Errorf("%v: %v, want %q in\n%s", cause.err, err, cause.want, out.String())
		}
	}
}

// TestWhatIsInDoubt: what is just below its goal, or just above, and no known shortfall.
func TestWhatIsInDoubt(t *testing.T) {
	steps, known := []Step{{Goal: 2}}, map[int]Known{64: {0.8, "thin air"}}
	goals := Targets{[]Target{
		{Op: "allreduce", Link: "shm", NP: 2, Peer: "gloo", Steps: steps, Known: known},
		{Op: "named", Link: "shm", NP: 2, Peer: "ordered", Only: 4, ExtraUS: 1.5},
	}}
	row := Row{Op: "allreduce", Link: "shm", NP: 2, Bytes: 4, Peer: "gloo"}
	for ratio, want := range map[float64]bool{1: true, 1.88: true, 1.95: true, 2.05: true, 2.1: false, 9: false} {
		if row.Ratio, row.RatioLow = ratio, ratio; goals.Doubtful(row, 1) != want {
			t.Errorf("ratio %v of 2: doubtful is %v", ratio, !want)
		}
	}
	if row.Bytes, row.Ratio, row.RatioLow = 64, 1, 1; goals.Doubtful(row, 1) {
		t.Error("a known shortfall is in doubt")
	}
	named := Row{Op: "named", Link: "shm", NP: 2, Bytes: 4, Peer: "ordered", Ratio: 0.5}
	for extra, want := range map[float64]bool{2: true, 1.5: true, 1: false} {
		if named.HoraUS, named.ExtraHigh = extra, extra; goals.Doubtful(named, 1) != want {
			t.Errorf("%v µs more of 1.5: doubtful is %v", extra, !want)
		}
	}
}

// TestAFailureIsNeverAKnownShortfall: a reason to be slow excuses nothing else.
func TestAFailureIsNeverAKnownShortfall(t *testing.T) {
	target := Target{Op: "allreduce", Link: "shm", NP: 2, Peer: "gloo", Steps: []Step{{Goal: 2}}, Known: map[int]Known{4: {0.8, "thin air"}}}
	goals := Targets{Targets: []Target{target}}
	row := Row{Op: "allreduce", Link: "shm", NP: 2, Bytes: 4, Peer: "gloo", Ratio: 1, RatioLow: 1}
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
	r := &runner{
		cfg:      Config{Cores: []int{0}, Limit: 300 * time.Millisecond, Environ: os.Environ()},
		programs: map[string]string{"openmpi": "openmpi"},
	}
	if _, err := r.peer(t.Context(), "openmpi", "allreduce", "shm", 2, []int{4}); err == nil || !strings.Contains(err.Error(), "it hangs") {
		t.Errorf("%v", err)
	}
	if _, err := os.Stat(tidied); err != nil {
		t.Error("mpirun was killed before it could tidy")
	}
}

// TestACompetitorThatLacksAnOperation is named, and nothing is put in its place.
func TestACompetitorThatLacksAnOperation(t *testing.T) {
	for _, c := range []struct {
		peer, op  string
		np, bytes int
		want      string
	}{
		{"gloo", "named", 2, 4, "gloo-default: it has no operation named"},
		{"openmpi", "plan", 2, 4, "openmpi: it has no operation plan"},
		{"openmpi_tuned", "plan", 2, 4, "it has no operation plan"},
		{"impi", "plan", 2, 4, "impi: it has no operation plan"},
		{"roofline", "broadcast", 2, 4, "an allreduce of two ranks"},
		{"ordered", "alltoall", 2, 4, "ordered: it is an allreduce and has no alltoall"},
		{"gloo_spin", "alltoall", 2, 4, "synchronous mode has no alltoall"},
		{"gloo_spin", "allreduce", 3, 4, "a core for each rank"},
		{"gloo_spin", "allreduce", 2, 16 << 20, "wait for each other for ever above 4Mi"},
		{"gloo_spin", "allreduce", 2, 4 << 20, "interrupted"},
		{"best", "alltoall", 3, 4, "interrupted"}, // nobody misses there what one of many has not
	} {
		r := &runner{cfg: Config{
			Cores: []int{0, 1}, Environ: os.Environ(), Self: []string{"true"}, Say: t.Logf,
			Plan: Plan{Rounds: 1},
		}, programs: map[string]string{}}
		combo := Combination{Op: c.op, Link: "shm", NP: c.np, Sizes: []int{c.bytes}, Peers: []string{c.peer}}
		k := contests([]Combination{combo}, 2, nil)[0]
		if c.want != "interrupted" {
			for name := range k.able {
				if !strings.HasPrefix(name, "hora") && len(k.able[name]) > 0 {
					t.Errorf("%s of %s would be run", name, c.op)
				}
			}
		}
		if row := r.row(k, combo, c.peer, c.bytes); !strings.Contains(row.Failure, c.want) &&
			!(c.peer == "best" && row.Ratio == 0) {
			t.Errorf("%s of %s: %q, want %q", c.op, c.peer, row.Failure, c.want)
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

// TestEverySettingOfAPeer that the best is chosen from is run as it is named.
func TestEverySettingOfAPeer(t *testing.T) {
	r := &runner{cfg: Config{Cores: []int{0, 1}, Impi: "/impi"}, programs: map[string]string{"openmpi": "program", "impi": "program"}}
	const tcp, noreads = "--mca btl tcp,self --mca btl_tcp_if_include lo ", "--mca btl_vader_single_copy_mechanism none "
	const large = noreads + "--mca btl_vader_eager_limit 65536 --mca btl_vader_max_send_size 131072 "
	const rule = "--mca coll_tuned_use_dynamic_rules 1 --mca coll_tuned_allreduce_algorithm "
	const five, ucx = rule + "5 --mca coll_tuned_allreduce_algorithm_segmentsize 524288 ", "--mca pml ucx --mca pml_ucx_tls any --mca pml_ucx_devices any "
	for _, c := range []struct{ which, link, want string }{
		{"openmpi", "shm", ""},
		{"openmpi", "tcp", tcp},
		{"openmpi-noreads", "shm", noreads},
		{"openmpi-noreads-larger", "registered", large},
		{"openmpi-ring", "shm", five},
		{"openmpi-ring", "tcp", tcp + five},
		{"openmpi-ring-noreads", "shm", five + noreads},
		{"openmpi-ring-noreads-larger", "shm", five + large},
		{"openmpi-rabenseifner", "shm", rule + "6 "},
		{"openmpi-rabenseifner-noreads-larger", "shm", rule + "6 " + large},
		{"openmpi-ucx", "shm", ucx},
		{"openmpi-ucx-tcp", "tcp", ucx},
	} {
		cmd := r.mpirun(t.Context(), c.which, "allreduce", c.link, 2, []int{4})
		if got, want := strings.Join(cmd.Args, " "), "mpirun --allow-run-as-root -np 2 --bind-to core "+c.want+"program allreduce 4"; got != want {
			t.Errorf("%s over %s: %s, want %s", c.which, c.link, got, want)
		}
		if env := strings.Join(cmd.Env, " "); strings.Contains(env, "UCX_TLS=tcp,self UCX_NET_DEVICES=lo") != (c.which == "openmpi-ucx-tcp") {
			t.Errorf("%s over %s: %s", c.which, c.link, env)
		}
	}
	for _, c := range []struct{ op, link, peer, want string }{
		{"allreduce", "registered", "openmpi_tuned", "openmpi openmpi-noreads openmpi-noreads-larger openmpi-ring openmpi-ring-noreads openmpi-ring-noreads-larger " +
			"openmpi-rabenseifner openmpi-rabenseifner-noreads-larger openmpi-ucx"},
		{"allreduce", "tcp", "openmpi_tuned", "openmpi openmpi-ring openmpi-rabenseifner openmpi-ucx-tcp"},
		{"alltoall", "shm", "openmpi_tuned", "openmpi openmpi-noreads openmpi-noreads-larger openmpi-ucx"},
		{"allreduce", "shm", "gloo", "gloo-ring gloo-bcube gloo-halving"},
		{"allreduce", "shm", "gloo_spin", "gloo_spin-ring gloo_spin-chunked gloo_spin-bcube gloo_spin-halving"},
		{"allreduce", "shm", "openmpi", "openmpi"},
		{"allgather", "tcp", "best", "openmpi openmpi-ucx-tcp impi gloo-default gloo_spin-default"},
	} {
		if got := strings.Join(configurations(c.op, c.link, []string{c.peer}), " "); got != c.want {
			t.Errorf("%s of %s over %s is chosen from %s, want %s", c.op, c.peer, c.link, got, c.want)
		}
	}
	for _, c := range []struct {
		link string
		np   int
		want string
	}{
		{"registered", 2, "I_MPI_FABRICS=shm I_MPI_PIN_PROCESSOR_LIST=0,1"},
		{"tcp", 2, "I_MPI_FABRICS=ofi FI_PROVIDER=tcp FI_TCP_IFACE=lo I_MPI_COLL_INTRANODE=pt2pt I_MPI_PIN_PROCESSOR_LIST=0,1"},
		{"shm", 4, "I_MPI_FABRICS=shm I_MPI_PIN=0"},
	} {
		cmd := r.hydra(t.Context(), "allreduce", c.link, c.np, []int{4})
		if got := strings.Join(cmd.Args, " "); got != "/impi/bin/mpiexec.hydra -n "+strconv.Itoa(c.np)+" program allreduce 4" {
			t.Errorf("Intel MPI: %s", got)
		}
		if got := strings.Join(cmd.Env, " "); got != "I_MPI_ROOT=/impi LD_LIBRARY_PATH=/impi/lib I_MPI_HYDRA_BOOTSTRAP=fork "+c.want {
			t.Errorf("Intel MPI over %s, %d ranks: %s", c.link, c.np, got)
		}
	}
}

// TestASettingDropsOut of the rows in which it took more than twice the best's time in its
// better round of two, is listed there, and is not run again. The peers of two links are run
// once a round for both.
func TestASettingDropsOut(t *testing.T) {
	bin := t.TempDir()
	count := filepath.Join(bin, "count")
	withPrograms(t, map[string]string{"mpirun": `echo run >>` + count + `
us=10; case "$*" in *"pml ucx"*) us=4;; *vader_eager*) us=8.1; [ -e ` + bin + `/lucky ] && us=7.9;; *vader_single*) us=90;; esac
for last; do :; done; IFS=,; for n in $last; do echo result broadcast $n 10 $us ok; done`})
	ours := fake(t, `IFS=,; for n in $3; do echo result $1 $n 10 2 ok; done`)
	cfg := Config{Plan: Plan{Rounds: 4}, Environ: os.Environ(), Self: []string{ours}, Say: t.Logf}
	r := &runner{cfg: cfg, programs: map[string]string{"openmpi": "program"}}
	k := contests([]Combination{
		{"broadcast", "shm", 2, []int{4, 64}, []string{"openmpi", "openmpi_tuned"}},
		{"broadcast", "registered", 2, []int{4}, []string{"openmpi_tuned"}},
	}, 2, nil)
	if len(k) != 1 {
		t.Fatalf("%d contests of links that the same peers are compared to", len(k))
	}
	r.rounds(t.Context(), k[0], k[0].sizes(), 1)
	if err := os.WriteFile(filepath.Join(bin, "lucky"), nil, 0o600); err != nil { // its better round counts
		t.Fatal(err)
	}
	r.rounds(t.Context(), k[0], k[0].sizes(), 3)
	text, _ := os.ReadFile(count)
	if got := strings.Count(string(text), "run"); got != 2*4+2*3 { // the one without reads is out after two rounds
		t.Errorf("mpirun ran %d times:\n%s", got, text)
	}
	for _, row := range r.rows(k[0]) {
		best, dropped := "openmpi-ucx 4", "openmpi-noreads 0.04"
		if row.Peer == "openmpi" {
			best, dropped = "", ""
		}
		if got := strings.Join(row.Best, ";"); got != best {
			t.Errorf("%s %d over %s: best %q, want %q", row.Peer, row.Bytes, row.Link, got, best)
		}
		if got := strings.Join(row.Dropped, ";"); got != dropped {
			t.Errorf("%s %d over %s: dropped %q, want %q", row.Peer, row.Bytes, row.Link, got, dropped)
		}
	}
	var page strings.Builder
	if err := (Targets{}).WritePage(&page, r.rows(k[0])); err != nil || !strings.Contains(page.String(), "- broadcast registered, 2 ranks vs openmpi_tuned, 4: openmpi-noreads 0.04") {
		t.Errorf("%v: the page does not list it:\n%s", err, page.String())
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

// contestOf is that of one combination, on one core.
func contestOf(c Combination, missing map[string]error) *contest {
	return contests([]Combination{c}, 1, missing)[0]
}

// TestFloors: a known shortfall fails below its floor, and one that is reached says so; what
// counts is the quartile on the slow side, and the mean of a row is that of its ratios.
func TestFloors(t *testing.T) {
	target := Target{
		Op: "allreduce", Link: "shm", NP: 2, Peer: "gloo", Mean: 3, Steps: []Step{{Goal: 2}},
		Known: map[int]Known{4: {0.8, "thin air"}, 0: {1.5, "all of it"}},
	}
	goals := Targets{[]Target{target}}
	for _, c := range []struct {
		low, ratio, slack float64
		want              string
	}{
		{0.01, 0.01, 1, "short       allreduce over shm, 2 ranks, 4 vs gloo: ratio 0.01 (0.01 to 0.01), goal ≥ 2.00, known short down to 0.80\n1 goals: 0 reached, 0 known short, 1 short"},
		{0.7, 0.79, 1, "1 goals: 0 reached, 0 known short, 1 short"},
		{0.7, 0.79, 0.9, "known short"},
		{0.3, 1.35, 0.7, "reached"}, // a guard goes by the median
		{0.3, 1.32, 0.7, "known short"},
		{0.7, 0.81, 1, "known short allreduce over shm, 2 ranks, 4 vs gloo: ratio 0.81 (0.70 to 0.81), goal ≥ 2.00\n            thin air\n"},
		{1.89, 2.5, 1, "known short"}, // a quarter of the rounds are short
		{1.91, 2.5, 1, "reached     allreduce over shm, 2 ranks, 4 vs gloo: ratio 2.50 (1.91 to 2.50), goal ≥ 2.00\n            it was known to be short and is not: its entry can leave known_short\n1 goals: 1 reached (1 that were known to be short), 0 known short, 0 short\n"},
	} {
		row := Row{
			Op: "allreduce", Link: "shm", NP: 2, Bytes: 4, Peer: "gloo", RatioLow: c.low, Ratio: c.ratio,
			RatioHigh: c.ratio, Sched: "rr",
		}
		var out strings.Builder
		short, err := WriteVerdicts(&out, goals.Check([]Row{row}, c.slack))
		if err != nil || !strings.Contains(out.String(), c.want) || (short > 0) != strings.Contains(out.String(), "1 short") {
			t.Errorf("%+v: %d, %v:\n%s", c, short, err, out.String())
		}
	}
	var rows []Row
	for i, n := range DefaultSizes() {
		ratio := []float64{2, 8}[i%2]
		rows = append(rows, Row{
			Op: "allreduce", Link: "shm", NP: 2, Bytes: n, Peer: "gloo", RatioLow: ratio,
			Ratio: ratio, RatioHigh: ratio,
		})
	}
	all := goals.Check(rows, 1)
	// 2 to the power of 21/11
	if v := all[len(all)-1]; v.Sizes != 11 || !v.Reached || v.Row.Ratio < 3.75 || v.Row.Ratio > 3.76 {
		t.Errorf("the mean: %+v", v)
	}
	for i := range rows {
		rows[i].Ratio = 2
	}
	all = goals.Check(rows, 1)
	if v := all[len(all)-1]; v.Reached || v.Known != "all of it" {
		t.Errorf("a mean that is short: %+v", v)
	}
	if all = goals.Check(rows[1:], 1); len(all) != 10 {
		t.Errorf("%d verdicts of ten sizes: their mean is not that of eleven", len(all))
	}
}

// TestPythonTakesTheSameSettings: mpi4py runs under the flags that the C program runs under.
func TestPythonTakesTheSameSettings(t *testing.T) {
	text, err := os.ReadFile("python_bench.py")
	if err != nil {
		t.Fatal(err)
	}
	wanted := 0
	for _, s := range mpiSettings {
		if s.only == "tcp" {
			continue
		}
		wanted++
		if line := strconv.Quote(s.name) + ": " + strconv.Quote(strings.Join(s.args,
			" ")) + ","; !strings.Contains(string(text), line) {
			t.Errorf("python_bench.py lacks %s", line)
		}
	}
	if got := strings.Count(string(text), `    "openmpi`); got != wanted {
		t.Errorf("python_bench.py has %d settings of Open MPI, want %d", got, wanted)
	}
}

// TestIntelMPIMayBeMissing: its row says so and fails nothing, and one of the best's says that
// it is of fewer; a failure of its, or of ours, is none of these.
func TestIntelMPIMayBeMissing(t *testing.T) {
	c := Combination{"allreduce", "shm", 2, []int{4}, []string{"impi", "best"}}
	goals := Targets{[]Target{
		{Op: "allreduce", Link: "shm", NP: 2, Peer: "impi", Steps: []Step{{Goal: 1}}},
		{Op: "allreduce", Link: "shm", NP: 2, Peer: "best", Steps: []Step{{Goal: 1}}},
	}}
	r := &runner{cfg: Config{Plan: Plan{Rounds: 1}}}
	for _, x := range []struct {
		cause error
		ours  float64
		want  string
	}{
		{&MissingPeer{"impi", "impi-rt impi-devel", errors.New("no mpi.h")}, 2, "2 goals: 1 reached, 0 known short, 0 short, 1 against a peer that is missing here"},
		{errors.New("exit status 7"), 2, "2 goals: 1 reached, 0 known short, 1 short"},
		{&MissingPeer{"impi", "impi-rt impi-devel", errors.New("no mpi.h")}, 0, "2 goals: 0 reached, 0 known short, 2 short"},
	} {
		k := contestOf(c, map[string]error{"impi": x.cause})
		k.turns = map[string][]results{"hora/shm": {{4: x.ours}}, "openmpi": {{4: 3}}}
		var out strings.Builder
		if _, err := WriteVerdicts(&out, goals.Check(r.rows(k), 1)); err != nil ||
			!strings.Contains(out.String(), x.want) {
			t.Errorf("%v: %v, want %q in\n%s", x.cause, err, x.want, out.String())
		}
		if x.ours > 0 && !strings.Contains(out.String(), "; impi") {
			t.Errorf("the best's row does not say who was not among them:\n%s", out.String())
		}
	}
}

// TestWhoSaysWhyWasFirst: a rank that aborts since its peer has gone is not what is told, but the peer's own words.
func TestWhoSaysWhyWasFirst(t *testing.T) {
	cmds := []*exec.Cmd{
		exec.Command("sh", "-c", "echo connection closed >&2; kill -ABRT $$"),
		exec.Command("sh", "-c", "echo the result is wrong >&2; exit 3"),
	}
	_, err := together(t.Context(), cmds, []int{4}, func() {})
	if err == nil || !strings.Contains(err.Error(), "the result is wrong") {
		t.Fatal(err)
	}
}
