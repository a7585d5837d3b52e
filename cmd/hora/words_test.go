package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestWordsThatAreNearlyRight get the right one shown.
func TestWordsThatAreNearlyRight(t *testing.T) {
	dir := t.TempDir()
	for _, c := range []complaint{
		{"run --start-timeout 0 true", 2, `--start-timeout: "0" is not a time above 0: write seconds, or 500ms, 10s, 2m: see`},
		{"run --stall-check-warning-time-seconds soon true", 2, `"soon" is not a time from 0s: write seconds, or 90s, 2m`},
		{"run --env HORA_TIMELINE=/no/tl.json true", 73, "hora: write the timeline: open /no/tl.json: no such file or directory: name a file in a folder that you may write to"},
		{"run --env HOROVOD_TIMELINE=/no/tl.json true", 73, "hora: write the timeline: open /no/tl.json: no such file or directory"},
		{"run --timeline /no/tl.json true", 73, "hora: write the timeline: open /no/tl.json: no such file or directory: name a file in a folder that you may write to"},
		{"run --secret-file " + dir + " true", 2, "hora: --secret-file " + dir + ": it is no regular file: name the file"},
		{"run --restarts 2 no-such-command", 127, "hora: start no-such-command on"},
		{"doctor --start-timeout soon", 2, `hora: --start-timeout "soon" is not a time above 0: write seconds, or 500ms, 10s, 2m: see hora doctor --help`},
		{"doctor --start-timeout -1s", 2, `hora: --start-timeout "-1s" is not a time above 0`},
		{"doctor --jsn", 2, "hora: unknown flag: --jsn: did you mean --json?: see hora doctor --help"},
		{"doctor -np 2", 2, "hora: unknown flag: -np: see hora doctor --help"},
		{"demo --epohs 3", 2, "hora: unknown flag: --epohs: did you mean --epochs?: see hora demo --help"},
		{"rnu -np 2 true", 2, `hora: there is no subcommand "rnu": did you mean hora run?: see hora --help`},
		{"sh -c true", 2, `hora: there is no subcommand "sh": to start it on several processes, write hora run -np 2 sh: see hora --help`},
		{"-np 2 echo hi", 2, "hora: -np is a flag of hora run: did you mean hora run -np 2 echo hi?"},
		{"-np 2 run echo hi", 2, "hora: -np is a flag of hora run: did you mean hora run -np 2 echo hi?"},
		{"--nosuch", 2, "hora: unknown flag: --nosuch: see hora --help"},
		{"version x", 2, `hora: hora version takes flags only, not "x": see hora version --help`},
		{"help nosuch", 2, `hora: there is no subcommand "nosuch": see hora --help`},
		{"help bench nett", 2, `hora: there is no subcommand "nett": did you mean hora bench net?: see hora bench --help`},
		{"bench nett", 2, `hora: there is no subcommand "nett": did you mean hora bench net?: see hora bench --help`},
		{"completion tcsh", 2, `hora: there is no subcommand "tcsh"`},
		{"completion bash x", 2, `see hora completion bash --help`},
	} {
		c.check(t)
	}
}

// TestTimesWithAndWithoutAUnit: every flag of a time takes both, and the workers get seconds.
func TestTimesWithAndWithoutAUnit(t *testing.T) {
	show := "echo $HOROVOD_START_TIMEOUT $HOROVOD_ELASTIC_TIMEOUT $HOROVOD_STALL_CHECK_TIME_SECONDS $HOROVOD_STALL_SHUTDOWN_TIME_SECONDS $HOROVOD_GLOO_TIMEOUT_SECONDS"
	for _, c := range []struct{ times, want string }{
		{"--start-timeout 10 --elastic-timeout 20.5 --stall-check-warning-time-seconds 30 --stall-check-shutdown-time-seconds 0 --gloo-timeout-seconds 50", "10 20.5 30 0 50\n"},
		{"--start-timeout 10s --elastic-timeout 1m --stall-check-warning-time-seconds 1500ms --stall-check-shutdown-time-seconds 2h --gloo-timeout-seconds 1s", "10 60 1.5 7200 1\n"},
	} {
		args := append(append([]string{"run", "--no-tag"}, strings.Fields(c.times)...), "sh", "-c", show)
		if r := horaCommand(t, args...); r.code != 0 || r.out != c.want {
			t.Errorf("%s: %+v, want %q", c.times, r, c.want)
		}
	}
	for _, limit := range []string{"10", "10s"} {
		if r := horaCommand(t, "doctor", "--start-timeout", limit, "-H", ""); r.code > 1 || r.err != "" {
			t.Errorf("%s: %+v", limit, r)
		}
	}
	for _, pauses := range []string{"10 100", "10s 2m"} {
		if r := horaCommand(t, "run", "--dry-run", "--blacklist-cooldown-range", strings.Fields(pauses)[0], strings.Fields(pauses)[1], "true"); r.code != 0 {
			t.Errorf("%s: %+v", pauses, r)
		}
	}
	if r := commandEnv(t, t.TempDir(), []string{"HORA_PEER_TIMEOUT=5s"}, "hora", "run", "true"); r.code != 0 {
		t.Errorf("%+v", r)
	}
}

// TestATimelineThatNobodyWrites is told of at the end; one that a rank writes is not, nor where the program is to begin
// it.
func TestATimelineThatNobodyWrites(t *testing.T) {
	dir := t.TempDir()
	want := "hora: warning: no rank wrote the timeline tl.json: true has not joined the job: call hora.init(), hvd.init() or, in Go, hora.Join in it\n"
	if r := command(t, dir, "hora", "run", "-np", "2", "--timeline", "tl.json", "true"); r.code != 0 || r.err != want {
		t.Errorf("%+v, want %q", r, want)
	}
	if _, err := os.Stat(filepath.Join(dir, "tl.json")); err == nil {
		t.Error("an empty timeline is left")
	}
	for _, quiet := range []string{"DYNAMIC", "", "/dev/null"} {
		if r := command(t, dir, "hora", "run", "--timeline", quiet, "true"); r.code != 0 || r.err != "" {
			t.Errorf("%q: %+v", quiet, r)
		}
	}
	if r := command(t, dir, "hora", "run", "--timeline", "tl.json", "-np", "2", "sh", "-c", "[ $RANK = 1 ] || echo [] > tl.json"); r.code != 0 || r.err != "" {
		t.Errorf("%+v", r)
	}
	// Whether a path can be written on another host is not for this one to say.
	if r := command(t, dir, "hora", "run", "--timeline", "/no/tl.json", "-H", "no-such-host.invalid:1", "true"); r.code != 68 {
		t.Errorf("%+v", r)
	}
}

func TestVersionAsAFlag(t *testing.T) {
	want := horaCommand(t, "version")
	for _, flag := range []string{"--version", "-v"} {
		if r := horaCommand(t, flag); r != want || r.code != 0 || !strings.HasPrefix(r.out, "hora ") {
			t.Errorf("%s: %+v, want %+v", flag, r, want)
		}
	}
}

// TestACommandInQuotes is several words in one.
func TestACommandInQuotes(t *testing.T) {
	r := horaCommand(t, "run", "echo hi")
	if r.code != 127 || !strings.Contains(r.err, `start "echo hi" on `) || !strings.Contains(r.err, "write the words without quotes around all of them") {
		t.Errorf("%+v", r)
	}
	if r := horaCommand(t, "run", "no-such-command hi"); r.code != 127 || !strings.Contains(r.err, "there is no such command: install it there") {
		t.Errorf("%+v", r)
	}
}

// TestCompletionsHaveNoMarks that only the help reads.
func TestCompletionsHaveNoMarks(t *testing.T) {
	r := horaCommand(t, "__complete", "demo", "--")
	if r.code != 0 || !strings.Contains(r.out, "--epochs\tN passes over the training images") || strings.Contains(r.out, "`") {
		t.Errorf("%+v", r)
	}
	if r := horaCommand(t, "__complete", "help", ""); r.code != 0 || !strings.Contains(r.out, "doctor\n") || strings.Contains(r.out, "demo-worker") {
		t.Errorf("%+v", r)
	}
}

func TestHelpOfASubcommand(t *testing.T) {
	for _, args := range [][]string{{"help", "bench", "net"}, {"bench", "net", "--help"}} {
		if r := horaCommand(t, args...); r.code != 0 || !strings.Contains(r.out, "--start-timeout") || r.err != "" {
			t.Errorf("%v: %+v", args, r)
		}
	}
	if r := horaCommand(t, "bench"); r.code != 0 || !strings.Contains(r.out, "hora bench [command]") {
		t.Errorf("%+v", r)
	}
	if r := horaCommand(t); r.code != 0 || !strings.Contains(r.out, "Available Commands") {
		t.Errorf("%+v", r)
	}
}
