package main

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"hora/bench"
)

func TestBenchCollectivesRefuses(t *testing.T) {
	goals := filepath.Join(t.TempDir(), "goals.json")
	if err := os.WriteFile(goals, []byte("no goals"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args string
		code int
		want string
	}{
		{"--np 0", 2, "0 ranks is not between 1 and 256"},
		{"--np two", 2, `--np "two" is not numbers as 2,4`},
		{"--np 3 --ops allreduce", 2, "give all of --np, --ops, --links and --peers"},
		{"--ops sum", 2, `no operation is called "sum" (there are allreduce,`},
		{"--links infiniband", 2, `no link is called "infiniband"`},
		{"--peers nccl", 2, `no peer is called "nccl"`},
		{"--sizes 3", 2, `read size "3": want a number of bytes from 4`},
		{"--sizes 64Mi..4", 2, "the range holds none of the sizes"},
		{"--rounds 0", 2, "at least one round is needed"},
		{"--format xml", 2, "want table, jsonl, csv or page"},
		{"--slack 0", 2, "want a factor above 0"},
		{"--slack NaN", 2, "want a factor above 0"},
		{"--slack Inf", 2, "want a factor above 0"},
		{"--peers roofline --sizes 4", 2, "no goal names such a combination"},
		{"--slack much", 2, `--slack "much" is not a number`},
		{"--check /no/goals", 2, "read goals: open /no/goals"},
		{"--check " + goals, 2, "read goals of"},
		{"--plot /no/x.svg", 1, "name a file in a folder that you may write to"},
		{"now", 2, "takes flags only"},
		{"--np 2 --ops allreduce --links shm --peers roofline --sizes 512Gi", 1, "nothing was measured: no size of 512Gi fits the memory"},
	} {
		r := horaCommand(t, append([]string{"bench", "collectives"}, strings.Fields(c.args)...)...)
		if r.code != c.code || !strings.Contains(r.last(), c.want) {
			t.Errorf("%s: exit code %d, want %d with %q: %s", c.args, r.code, c.code, c.want, r.err)
		}
	}
}

// benchWithout starts a benchmark against gloo where compiler is the only one, or none.
func benchWithout(t *testing.T, compiler string, args ...string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for _, name := range []string{"taskset", "chrt", "sh", "cat", "chmod", "sleep", "setsid", "true"} {
		path, err := exec.LookPath(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(path, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	if compiler != "" {
		if err := os.WriteFile(filepath.Join(dir, "g++"), []byte(compiler), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	given := append([]string{"bench", "collectives", "--np", "2"}, args...)
	for _, usual := range [][2]string{{"--ops", "allreduce"}, {"--links", "shm"}, {"--peers", "gloo"}, {"--sizes", "4,64"}} {
		if !slices.Contains(args, usual[0]) {
			given = append(given, usual[0], usual[1])
		}
	}
	cmd := exec.Command(self, given...)
	cmd.Env = append(os.Environ(), "HORA_TEST_PROGRAM=1", "PATH="+dir, "XDG_CACHE_HOME="+t.TempDir())
	return cmd
}

// compiled is a compiler whose programs do what body says.
func compiled(body string) string {
	return "#!/bin/sh\nwhile [ $# -gt 0 ]; do [ \"$1\" = -o ] && out=$2; shift; done\ncat > $out <<'end'\n#!/bin/sh\n" + body + "\nend\nchmod +x $out\n"
}

// TestBenchGoesOnWithoutAPeer: our own figures come, and what the peer lacks is named.
func TestBenchGoesOnWithoutAPeer(t *testing.T) {
	for _, c := range []struct{ compiler, want string }{
		{"", "is missing: it takes the packages g++ libgloo-dev"},
		{compiled("echo unhappy >&2; exit 7"), "gloo-ring: exit status 7: unhappy"},
	} {
		cmd := benchWithout(t, c.compiler, "--rounds", "1", "--format", "jsonl")
		var errs bytes.Buffer
		cmd.Stderr = &errs
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%v: %s", err, errs.String())
		}
		d := json.NewDecoder(bytes.NewReader(out))
		rows := 0
		for {
			var r bench.Row
			if err := d.Decode(&r); err == io.EOF {
				break
			} else if err != nil {
				t.Fatalf("%v in %s", err, out)
			}
			rows++
			if r.HoraUS <= 0 || r.PeerUS != 0 || !strings.Contains(r.Failure, c.want) {
				t.Errorf("%+v, want %q", r, c.want)
			}
		}
		if rows != 2 {
			t.Errorf("%d rows, want one for each size:\n%s", rows, out)
		}
	}
}

// benched is what a benchmark against such a gloo gave.
func benched(t *testing.T, gloo string, args ...string) result {
	t.Helper()
	return resultOf(benchWithout(t, compiled(gloo), args...))
}

func resultOf(cmd *exec.Cmd) result {
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	_ = cmd.Run() // its exit code tells
	return result{cmd.ProcessState.ExitCode(), out.String(), errs.String()}
}

// takes is a gloo that says of every size that it took so many microseconds.
func takes(us string) string {
	return "IFS=,; for n in $6; do echo result $5 $n 10 " + us + " ok; done"
}

// TestBenchRows: a row for every size and peer, in order; programs rely on the names of its fields.
func TestBenchRows(t *testing.T) {
	r := benched(t, takes("5e9"), "--sizes", "1Ki,4,64", "--peers", "gloo,openmpi", "--rounds", "2", "--format", "jsonl")
	lines := strings.Split(strings.TrimSpace(r.out), "\n")
	if r.code != 0 || len(lines) != 6 {
		t.Fatalf("exit code %d, %d rows, want 6:\n%s%s", r.code, len(lines), r.out, r.err)
	}
	const fields = "best bytes dtype hora_us link np op peer peer_us ratio ratio_high ratio_low ratio_max ratio_min sched"
	for i, line := range lines {
		var has map[string]any
		var row bench.Row
		if err := errors.Join(json.Unmarshal([]byte(line), &has), json.Unmarshal([]byte(line), &row)); err != nil {
			t.Fatalf("%v in %s", err, line)
		}
		if bytes := []int{4, 64, 1024}[i%3]; row.Op != "allreduce" || row.Link != "shm" || row.NP != 2 ||
			row.Bytes != bytes || row.DType != "float32" || row.HoraUS <= 0 {
			t.Errorf("row %d is %s", i, line)
		}
		if i >= 3 {
			if row.Peer != "openmpi" || row.Ratio != 0 || row.Failure != "is missing: it takes the packages openmpi-bin libopenmpi-dev" {
				t.Errorf("row %d is %s", i, line)
			}
			continue
		}
		delete(has, "paces") // is there where the ranks' cores lay near in one round and far apart in another
		if got := strings.Join(slices.Sorted(maps.Keys(has)), " "); got != fields {
			t.Errorf("a row has the fields %s, want %s", got, fields)
		}
		between := row.PeerUS / row.HoraUS // of the medians of two rounds
		if row.Peer != "gloo" || row.PeerUS != 5e9 || row.RatioMin > row.Ratio || row.Ratio > row.RatioMax ||
			between < row.RatioMin || between > row.RatioMax {
			t.Errorf("row %d is %s", i, line)
		}
	}
}

// TestBenchOtherOperationsAndLinks, as a spreadsheet.
func TestBenchOtherOperationsAndLinks(t *testing.T) {
	r := benched(t, takes("70"), "--ops", "broadcast,barrier", "--links", "tcp,shm", "--sizes", "100", "--rounds", "1", "--format", "csv")
	sheet, err := csv.NewReader(strings.NewReader(r.out)).ReadAll()
	if err != nil || r.code != 0 || len(sheet) != 5 {
		t.Fatalf("%v, exit code %d, %d lines, want 5:\n%s%s", err, r.code, len(sheet), r.out, r.err)
	}
	if got := strings.Join(sheet[0], " "); got != "op link np bytes dtype sched hora_us peer peer_us ratio_min ratio ratio_max failure rounds ratio_low ratio_high unit best dropped" {
		t.Errorf("the head is %s", got)
	}
	for i, want := range []string{"broadcast tcp 2 100 float32", "broadcast shm 2 100 float32", "barrier tcp 2 100 float32", "barrier shm 2 100 float32"} {
		line := sheet[i+1]
		us, err := strconv.ParseFloat(line[6], 64)
		if got := strings.Join(line[:5], " "); got != want || err != nil || us <= 0 || line[8] != "70" || line[12] != "" {
			t.Errorf("line %d is %v, want %s", i, line, want)
		}
	}
}

// TestBenchInAnotherJob: the job's own places are not ours, and its settings are told.
func TestBenchInAnotherJob(t *testing.T) {
	cmd := benchWithout(t, compiled(takes("70")), "--rounds", "1", "--format", "csv")
	cmd.Env = append(cmd.Env, "HORA_RANK=3", "HORA_SIZE=8", "HORA_PEERS=192.0.2.1:1,192.0.2.2:1", "HORA_LISTEN=192.0.2.3:1", "HORA_HOST_ID=other", "HORA_CROSS_SIZE=4",
		"HORA_ALGORITHMS=allreduce:0-=twoshot")
	r := resultOf(cmd)
	sheet, err := csv.NewReader(strings.NewReader(r.out)).ReadAll()
	if err != nil || r.code != 0 || len(sheet) != 3 || !strings.Contains(r.err, "hora is measured with HORA_ALGORITHMS=allreduce:0-=twoshot, as your environment says") {
		t.Fatalf("%v, exit code %d, %d lines, want 3:\n%s%s", err, r.code, len(sheet), r.out, r.err)
	}
	for _, line := range sheet[1:] {
		if line[12] != "" {
			t.Errorf("%v", line)
		}
	}
}

// onOneCore has cmd run on one processor, and chrt be refused if rr is not set.
func onOneCore(t *testing.T, cmd *exec.Cmd, rr bool) *exec.Cmd {
	t.Helper()
	taskset, err := exec.LookPath("taskset")
	if err != nil {
		t.Fatal(err)
	}
	cmd.Args = append([]string{taskset, "-c", strconv.Itoa(usableCores()[0]), cmd.Path}, cmd.Args[1:]...)
	cmd.Path = taskset
	if !rr {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "chrt"), []byte("#!/bin/sh\nexit 1\n"), 0o755); err != nil {
			t.Fatal(err)
		}
		for i, v := range cmd.Env {
			if path, ok := strings.CutPrefix(v, "PATH="); ok {
				cmd.Env[i] = "PATH=" + dir + ":" + path
			}
		}
	}
	return cmd
}

// TestBenchOnOneCoreWithoutPriority: both ranks share it, and the rows say that nothing is
// proved.
func TestBenchOnOneCoreWithoutPriority(t *testing.T) {
	r := resultOf(onOneCore(t, benchWithout(t, compiled(takes("5e9")), "--rounds", "1", "--sizes", "4", "--check", "goals"), false))
	if r.code != 0 || !strings.Contains(r.out, "1 goals: 1 reached, 0 known short, 0 short; measured without SCHED_RR, which proves no figure") {
		t.Errorf("exit code %d:\n%s%s", r.code, r.out, r.err)
	}
	r = resultOf(onOneCore(t, benchWithout(t, compiled(takes("70")), "--rounds", "1", "--format", "csv"), false))
	sheet, err := csv.NewReader(strings.NewReader(r.out)).ReadAll()
	if err != nil || r.code != 0 || len(sheet) != 3 || !strings.Contains(r.err, "SCHED_RR is not allowed here") {
		t.Fatalf("%v, exit code %d, %d lines, want 3:\n%s%s", err, r.code, len(sheet), r.out, r.err)
	}
	for _, line := range sheet[1:] {
		if line[5] != "other" || line[8] != "70" || line[12] != "" {
			t.Errorf("%v", line)
		}
	}
}

// TestBenchOnAFullDisk: where peers cannot be kept their column is missing; a table or a
// picture that cannot be written is an error.
func TestBenchOnAFullDisk(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer full.Close()
	cmd := benchWithout(t, compiled(takes("70")), "--sizes", "4", "--rounds", "1", "--plot", "/dev/full")
	if r := resultOf(cmd); r.code != 1 || !strings.Contains(r.last(), "write the picture: write /dev/full: no space left on device") || !strings.Contains(r.out, "gloo") {
		t.Errorf("%+v", r)
	}
	cmd = benchWithout(t, compiled(takes("70")), "--sizes", "4", "--rounds", "1")
	cmd.Env = append(cmd.Env, "XDG_CACHE_HOME=/dev/full")
	var errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = full, &errs
	_ = cmd.Run() // its exit code tells
	if text := errs.String(); cmd.ProcessState.ExitCode() != 1 || !strings.Contains(text, "hora: write results: ") ||
		!strings.Contains(text, "keep peer gloo: ") {
		t.Errorf("%v: %s", cmd.ProcessState, text)
	}
}

// TestBenchHoldsAgainstGoals, with a picture: what is reached, known to be short and short.
func TestBenchHoldsAgainstGoals(t *testing.T) {
	picture := filepath.Join(t.TempDir(), "x.svg")
	r := benched(t, takes("5e9"), "--rounds", "1", "--check", "goals", "--plot", picture)
	if r.code != 0 || !strings.Contains(r.out, "ratio least/quartiles/most") || !strings.Contains(r.out, "2 goals: 2 reached, 0 known short, 0 short") {
		t.Errorf("exit code %d:\n%s%s", r.code, r.out, r.err)
	}
	svg, err := os.ReadFile(picture)
	if err != nil {
		t.Fatal(err)
	}
	d := xml.NewDecoder(bytes.NewReader(svg))
	var drawn []string
	for {
		token, err := d.Token()
		if err == io.EOF {
			break
		} else if err != nil {
			t.Fatalf("%v in\n%s", err, svg)
		}
		if text, ok := token.(xml.CharData); ok {
			drawn = append(drawn, string(text))
		}
	}
	for _, want := range []string{"allreduce, 2 ranks: µs over bytes", "hora shm", "gloo, loopback TCP"} {
		if !slices.Contains(drawn, want) {
			t.Errorf("the picture lacks %q: %q", want, drawn)
		}
	}
	r = benched(t, takes("0.000001"), "--sizes", "4,64Ki", "--rounds", "1", "--check", "goals")
	if r.code != 1 || !strings.Contains(r.out, "known short down to") || !strings.Contains(r.out, "2 goals: 0 reached, 0 known short, 2 short") || r.last() != "hora: 2 goals are not reached" {
		t.Errorf("a ratio below each floor: exit code %d:\n%s%s", r.code, r.out, r.err)
	}
	goals := filepath.Join(t.TempDir(), "goals.json")
	if err := os.WriteFile(goals, []byte(`{"targets": [{"op": "allreduce", "link": "shm", "np": 2, "peer": "gloo", "steps": [{"goal": 1e9}], "known_short": {"64": {"at_least": 1e-9, "reason": "thin air"}}}]}`), 0o644); err != nil {
		t.Fatal(err)
	}
	r = benched(t, takes("1"), "--sizes", "4,64", "--rounds", "1", "--check", goals)
	if r.code != 1 || !strings.Contains(r.out, "thin air\n2 goals: 0 reached, 1 known short, 1 short") || r.last() != "hora: 1 goal is not reached" {
		t.Errorf("exit code %d:\n%s%s", r.code, r.out, r.err)
	}
}

// TestBenchInterrupted: Ctrl-C, or a word to end, ends a peer that hangs, also what has left
// its process group, and what was measured until then is shown.
func TestBenchInterrupted(t *testing.T) {
	for _, signal := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM} {
		path := filepath.Join(t.TempDir(), "hangs")
		if err := syscall.Mkfifo(path, 0o600); err != nil {
			t.Fatal(err)
		}
		hangs, err := os.OpenFile(path, os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer hangs.Close()
		cmd := benchWithout(t, compiled("setsid sleep 1000 &\necho $$ $! > "+path+"; exec sleep 1000"))
		var out, errs bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &errs
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		late := time.AfterFunc(30*time.Second, func() { cmd.Process.Kill() })
		defer late.Stop()
		if err := hangs.SetReadDeadline(time.Now().Add(30 * time.Second)); err != nil {
			t.Fatal(err)
		}
		left := make([]int, 4) // two of either rank
		if _, err := fmt.Fscan(hangs, &left[0], &left[1], &left[2], &left[3]); err != nil {
			t.Fatalf("%v: %s", err, errs.String())
		}
		if err := cmd.Process.Signal(signal); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait() // its exit code tells
		if got := cmd.ProcessState.ExitCode(); got != 128+int(signal) ||
			strings.Count(out.String(), "interrupted") != 2 ||
			!strings.Contains(errs.String(), "what was measured until then") {
			t.Errorf("%v: exit code %d\n%s%s", signal, got, out.String(), errs.String())
		}
		for _, pid := range left {
			if err := syscall.Kill(pid, 0); err != syscall.ESRCH {
				t.Errorf("%v: process %d of the peer is left: %v", signal, pid, err)
			}
		}
	}
}
