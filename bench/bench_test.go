package bench

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestParseSizes(t *testing.T) {
	for text, want := range map[string]int{"4..64Mi": 11, "4,64Ki,1Mi": 3, "1Mi,4,4": 2, "100": 1, "4..64": 2} {
		got, err := ParseSizes(text)
		if err != nil || len(got) != want {
			t.Errorf("%q: %v, %v; want %d sizes", text, got, err, want)
		}
	}
	for _, text := range []string{"", "2", "x", "4..", "8..12", "1Ti", "-4", "99999999Gi"} {
		if got, err := ParseSizes(text); err == nil {
			t.Errorf("%q was read as %v", text, got)
		}
	}
	for _, n := range DefaultSizes() {
		if back, err := parseSize(FormatSize(n)); err != nil || back != n {
			t.Errorf("%d is written %s, which is read as %d, %v", n, FormatSize(n), back, err)
		}
	}
}

// TestGoalsAreTheProjects holds the goals to the sizes they were agreed on: a size
// between two entries takes the larger one's.
func TestGoalsAreTheProjects(t *testing.T) {
	goals, err := ReadTargets("")
	if err != nil {
		t.Fatal(err)
	}
	find := func(op, link, peer string, np int) *Target {
		for i := range goals.Targets {
			if g := &goals.Targets[i]; g.Op == op && g.Link == link && g.Peer == peer && g.NP == np {
				return g
			}
		}
		t.Fatalf("no goal for %s over %s, %d ranks, against %s", op, link, np, peer)
		return nil
	}
	for _, c := range []struct {
		op, link, peer string
		np, bytes      int
		want           float64
	}{
		{"allreduce", "shm", "gloo", 2, 4, 90},
		{"allreduce", "shm", "gloo", 2, 4096, 32},
		{"allreduce", "shm", "gloo", 2, 5000, 13.5},
		{"allreduce", "shm", "gloo", 2, 65536, 6},
		{"allreduce", "shm", "gloo", 2, 262144, 3},
		{"allreduce", "shm", "gloo", 2, 64 << 20, 2},
		{"allreduce", "registered", "gloo", 2, 4, 80},
		{"allreduce", "registered", "gloo", 2, 64 << 20, 5},
		{"allreduce", "shm", "openmpi", 2, 65536, 1.4},
		{"allreduce", "shm", "openmpi", 2, 16 << 20, 1},
		{"allreduce", "shm", "openmpi", 2, 64 << 20, 2},
		{"allreduce", "shm", "openmpi_tuned", 2, 1 << 20, 1},
		{"allreduce", "shm", "impi", 2, 4, 1},
		{"allreduce", "registered", "best", 2, 4096, 1.5},
		{"allreduce", "registered", "best", 2, 16384, 2},
		{"allreduce", "registered", "best", 2, 64 << 20, 1.5},
		{"allreduce", "registered", "roofline", 2, 16 << 20, 0.85},
		{"allreduce", "shm", "openmpi", 4, 4, 1.4},
		{"allreduce", "shm", "gloo", 4, 4, 28},
		{"allreduce", "shm", "gloo", 4, 64 << 20, 2.2},
		{"allreduce", "shm", "best", 4, 4, 1.2},
		{"allreduce", "tcp", "gloo", 2, 4096, 7},
		{"allreduce", "tcp", "gloo", 2, 65536, 2},
		{"allreduce", "tcp", "gloo", 2, 262144, 1.3},
		{"allreduce", "tcp", "gloo", 2, 1 << 20, 1},
		{"allreduce", "tcp", "best", 2, 64 << 20, 1},
		{"allreduce", "tcp", "openmpi", 4, 4, 1},
		{"reducescatter", "shm", "best", 2, 4, 1.3},
		{"allgather", "shm", "best", 2, 65536, 1},
		{"broadcast", "registered", "best", 2, 65536, 1},
		{"alltoall", "registered", "best", 2, 4, 1},
	} {
		if got := find(c.op, c.link, c.peer, c.np).Goal(c.bytes); got != c.want {
			t.Errorf("%s over %s vs %s, %d ranks, %d bytes: goal %v, want %v", c.op, c.link, c.peer, c.np, c.bytes, got, c.want)
		}
	}
	if find("allreduce", "registered", "best", 2).Concerns(1024) {
		t.Error("the goal of registered memory against the best begins at 4 KiB")
	}
	if find("allreduce", "shm", "openmpi_tuned", 2).Mean != 1.3 {
		t.Error("the geometric mean against Open MPI at its best")
	}
	for _, g := range goals.Targets { // those that are not short any more
		stale := map[string][]int{"allreduce shm gloo": {4 << 20, 16 << 20, 64 << 20}, "reducescatter shm best": {1024}, "reducescatter registered best": {1024, 4096}}
		for _, size := range stale[g.Op+" "+g.Link+" "+g.Peer] {
			if _, known := g.Known[size]; known && g.NP == 2 {
				t.Errorf("%s over %s against %s: %d is reached, and is not known to be short", g.Op, g.Link, g.Peer, size)
			}
		}
	}
}

func TestCheck(t *testing.T) {
	goals, err := ReadTargets("")
	if err != nil {
		t.Fatal(err)
	}
	row := func(ratio float64) Row {
		return Row{
			Op: "allreduce", Link: "shm", NP: 2, Bytes: 4, Peer: "gloo", HoraUS: 1, PeerUS: ratio,
			Ratio: ratio, RatioMin: ratio, RatioLow: ratio, RatioHigh: ratio, RatioMax: ratio,
		}
	}
	for _, c := range []struct {
		ratio, slack float64
		reached      bool
	}{{90, 1, true}, {85.6, 1, true}, {85.4, 1, false}, {60.5, 0.7, true}, {59, 0.7, false}} {
		got := goals.Check([]Row{row(c.ratio)}, c.slack)
		if len(got) != 1 || got[0].Reached != c.reached {
			t.Errorf("ratio %v with slack %v: %+v, want reached %v", c.ratio, c.slack, got, c.reached)
		}
	}
	failed := row(0)
	failed.Failure = "gloo: it hangs"
	got := goals.Check([]Row{failed}, 1)
	if len(got) != 1 || got[0].Reached {
		t.Errorf("a failed row: %+v", got)
	}
	got[0].Known = "the reason"
	var out bytes.Buffer
	if short, err := WriteVerdicts(&out, got); err != nil || short != 0 ||
		!strings.Contains(out.String(), "known short") || !strings.Contains(out.String(), "the reason") {
		t.Errorf("a known shortfall: %d short, %v:\n%s", short, err, out.String())
	}
	named := Row{
		Op: "named", Link: "shm", NP: 2, Bytes: 4, Peer: "ordered", HoraUS: 1.6, PeerUS: 0.3, Ratio: 0.19,
		RatioLow: 0.19, ExtraHigh: 1.3,
	}
	if got := goals.Check([]Row{named}, 1); len(got) != 1 || !got[0].Reached {
		t.Errorf("+1.3 µs for named operations: %+v", got)
	}
}

func TestResultsKeepTheSlowestAndRefuseWrongOnes(t *testing.T) {
	rs := results{}
	text := "noise\nresult allreduce 4 2000 1.5 ok\nresult allreduce 4 2000 2.5 ok\nresult allreduce 64 2000 1 ok\n"
	if err := rs.add([]byte(text)); err != nil || rs[4] != 2.5 || rs[64] != 1 {
		t.Errorf("%v, %v", rs, err)
	}
	if err := rs.add([]byte("result allreduce 64 2000 1 wrong\n")); err == nil {
		t.Error("a wrong result was taken for a measurement")
	}
}

func TestFormats(t *testing.T) {
	rows := []Row{
		{
			Op: "allreduce", Link: "shm", NP: 2, Bytes: 1 << 20, DType: "float32", Sched: "rr", HoraUS: 100,
			Peer: "gloo", PeerUS: 200, RatioMin: 1.9, Ratio: 2, RatioMax: 2.1,
		},
		{Op: "allreduce", Link: "shm", NP: 2, Bytes: 4, Peer: "gloo", Failure: "gloo: install libgloo-dev"},
	}
	if got := rows[0].AlgBW(); got < 10.4 || got > 10.5 {
		t.Errorf("algbw %v GB/s, want 10.49", got)
	}
	var table, lines, sheet, picture bytes.Buffer
	for _, err := range []error{
		WriteTable(&table, rows), WriteJSONL(&lines, rows), WriteCSV(&sheet, rows),
		WritePlot(&picture, rows),
	} {
		if err != nil {
			t.Error(err)
		}
	}
	for name, want := range map[string]string{"table": "install libgloo-dev", "jsonl": `"hora_us":100`, "csv": "op,link,np,bytes", "svg": "hora shm"} {
		text := map[string]string{
			"table": table.String(), "jsonl": lines.String(), "csv": sheet.String(),
			"svg": picture.String(),
		}[name]
		if !strings.Contains(text, want) {
			t.Errorf("%s lacks %q:\n%s", name, want, text)
		}
	}
}

// TestGoalsThatSayNothing are refused: each would be reached by anything.
func TestGoalsThatSayNothing(t *testing.T) {
	for row, want := range map[string]string{
		`"op": "allreduce", "link": "shm", "np": 2, "peer": "gloo"`:                                                                                        "a row takes steps",
		`"op": "allreduce", "link": "shm", "np": 2, "peer": "gloo", "steps": [{"to": 4, "goal": 2}, {"gaol": 2}]`:                                          "a row takes steps",
		`"op": "allreduce", "link": "shm", "np": 2, "peer": "glue", "steps": [{"goal": 2}]`:                                                                `no peer is called "glue"`,
		`"op": "alreduce", "link": "shm", "np": 2, "peer": "gloo", "steps": [{"goal": 2}]`:                                                                 `no operation is called "alreduce"`,
		`"op": "plan", "link": "shm", "np": 2, "peer": "ordered", "at_most": 1.05`:                                                                         "extra_us where the peer is ordered",
		`"op": "allreduce", "link": "shm", "np": 2, "peer": "gloo", "steps": [{"goal": 2}], "known_short": {"4": {"reason": "thin air"}}`:                  "takes a reason and at_least",
		`"op": "allreduce", "link": "shm", "np": 2, "peer": "gloo", "steps": [{"goal": 2}], "known_short": {"4": {"at_least": 1}}`:                         "takes a reason and at_least",
		`"op": "allreduce", "link": "shm", "np": 2, "peer": "gloo", "steps": [{"goal": 2}], "known_short": {"4": {"at_least": 2, "reason": "thin air"}}`:   "a ratio below the goal",
		`"op": "allreduce", "link": "shm", "np": 2, "peer": "gloo", "steps": [{"goal": 2}], "known_short": {"0": {"at_least": 0.5, "reason": "thin air"}}`: "a ratio below the goal",
		`"link": "shm", "np": 2, "peer": "gloo", "steps": [{"goal": 2}]`:                                                                                   "lacks op, link, peer or np",
	} {
		path := filepath.Join(t.TempDir(), "goals.json")
		if err := os.WriteFile(path, []byte(`{"targets": [{`+row+`}]}`), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := ReadTargets(path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", row, err, want)
		}
	}
	upTo := Target{Steps: []Step{{To: 4096, Goal: 2}}}
	if !upTo.Concerns(4096) || upTo.Concerns(4097) {
		t.Error("a size above all steps has no goal")
	}
}

// TestPagesSayHowPeersRan: whoever reads a ratio knows over what gloo ran and how Open MPI was
// set.
func TestPagesSayHowPeersRan(t *testing.T) {
	pages, err := filepath.Glob("results/*.md")
	if err != nil || len(pages) < 5 {
		t.Fatalf("%v, %v", pages, err)
	}
	for _, path := range append(pages, "../README.md") {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		page := strings.ToLower(string(text))
		if strings.Contains(page, "gloo") && !strings.Contains(page, "loopback tcp") {
			t.Errorf("%s does not say that gloo ran over loopback TCP", path)
		}
		if mpi := strings.Contains(page, "openmpi") || strings.Contains(page, "mpi4py") || strings.Contains(page, "gloo and open mpi"); mpi &&
			!strings.Contains(page, "its defaults") && !strings.Contains(page, "best of its settings") && !strings.Contains(page, "the setting that is best") {
			t.Errorf("%s does not say how Open MPI was set", path)
		}
	}
}
