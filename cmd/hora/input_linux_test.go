package main

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// asks says whether its input is a terminal, and reads a line of it.
const asks = `test -t 0 && echo "rank $RANK: typed"; printf "name? "; read x && echo "rank $RANK: hello $x"; true`

// typing runs the program on a terminal where somebody answers each prompt once; what the terminal shows.
func typing(t *testing.T, answer string, args ...string) string {
	t.Helper()
	master, slave := terminal(t)
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, self(t), args...)
	cmd.Env = append(os.Environ(), "HORA_TEST_PROGRAM=1")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, slave
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	slave.Close()
	var seen []byte
	answered := false
	buf := make([]byte, 4096)
	for {
		n, err := master.Read(buf)
		seen = append(seen, buf[:n]...)
		if !answered && bytes.HasSuffix(seen, []byte("\nname? ")) { // a prompt has no line end, and nothing before it
			answered = true
			if _, err := master.WriteString(answer + "\n"); err != nil {
				t.Error(err)
			}
		}
		if err != nil {
			break // the terminal's last writer has ended
		}
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("%v: %v\n%s", args, err, seen)
	}
	return string(seen)
}

func TestOneRankHasTheTerminal(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		args          string
		with, without []string
	}{
		{args: "-np 1", with: []string{"rank 0: typed", "rank 0: hello Bob"}},
		{args: "-np 2 --stdin 1", with: []string{"rank 1: typed", "rank 1: hello Bob", "[0]<stdout>:name?"}, without: []string{"rank 0: "}},
		{args: "-np 2 --stdin 0", with: []string{"rank 0: typed", "rank 0: hello Bob", "[1]<stdout>:name?"}, without: []string{"rank 1: "}},
		{args: "-np 2", with: []string{"[0]<stdout>:name?", "[1]<stdout>:name?"}, without: []string{"typed", "hello"}},
		{args: "-np 1 --max-np 2", with: []string{"[0]<stdout>:name?"}, without: []string{"typed", "hello"}},
	} {
		t.Run(c.args, func(t *testing.T) {
			t.Parallel()
			shown := typing(t, "Bob", append(append([]string{"run"}, strings.Fields(c.args)...), "sh", "-c", asks)...)
			for _, text := range c.with {
				if !strings.Contains(shown, text) {
					t.Errorf("the terminal lacks %q:\n%s", text, shown)
				}
			}
			for _, text := range c.without {
				if strings.Contains(shown, text) {
					t.Errorf("the terminal shows %q:\n%s", text, shown)
				}
			}
		})
	}
}

func TestAFileGoesToTheRankThatIsNamed(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "input")
	if err := os.WriteFile(path, []byte("Bob\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ args, reads string }{{"", "0"}, {"--stdin 0", "0"}, {"--stdin 1", "1"}, {"--stdin=1 -H localhost:1,127.0.0.1:1", "1"}} {
		in, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.CommandContext(
			t.Context(), self(t),
			append(append([]string{"run", "-np", "2"}, strings.Fields(c.args)...), "sh", "-c", asks)...,
		)
		cmd.Env = append(os.Environ(), "HORA_TEST_PROGRAM=1")
		cmd.Stdin = in
		out, err := cmd.CombinedOutput()
		in.Close()
		if err != nil || strings.Count(string(out), "hello Bob") != 1 || !strings.Contains(string(out), "rank "+c.reads+": hello Bob\n") {
			t.Errorf("%s: %v\n%s", c.args, err, out)
		}
	}
}

func TestWhoCannotHaveTheInput(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		args string
		code int
		say  string
	}{
		{"-np 2 --stdin 2 true", 2, "--stdin 2: the ranks are 0 to 1: name one of them"},
		{"-np 2 --stdin=-1 true", 2, `--stdin: "-1" is not a whole number from 0`},
		{"-np 2 --stdin 1 -H localhost:1,nosuch.invalid:1 true", 2, "--stdin 1: rank 1 runs on nosuch.invalid, and this machine's input stays here: name a rank of this machine, or start the ranks by hand"},
	} {
		if r := horaCommand(t, append([]string{"run"}, strings.Fields(c.args)...)...); r.code != c.code ||
			!strings.Contains(r.last(), c.say) {
			t.Errorf("%s: exit code %d\n%s", c.args, r.code, r.err)
		}
	}
}

// A Python program that asks for input where there is none ends in words that name neither hora nor a cure.
func TestWhoAsksForInputInVainHearsHowToDebug(t *testing.T) {
	t.Parallel()
	for _, words := range []string{"EOFError: EOF when reading a line", "bdb.BdbQuit"} {
		r := horaCommand(t, "run", "-np", "2", "sh", "-c", `[ $RANK = 0 ] || exec sleep 9; echo "Traceback (most recent call last):
  File
`+words+`" >&2; exit 1`)
		if want := words + ": rank 0 reads nothing here: give it this terminal with --stdin 0, or start every rank by hand in a terminal of its own, this one as HORA_RANK=0 HORA_SIZE=2 sh -c '["; r.code != 1 || !strings.Contains(r.last(), want) {
			t.Errorf("exit code %d\n%s", r.code, r.err)
		}
	}
	if r := horaCommand(t, "run", "-np", "1", "sh", "-c", "echo bdb.BdbQuit >&2; exit 1"); !strings.Contains(r.last(), "start it from a terminal, or by hand as HORA_RANK=0 HORA_SIZE=1 sh") {
		t.Errorf("%s", r.err)
	}
	if r := horaCommand(t, "run", "-np", "1", "sh", "-c", "echo ValueError: EOF >&2; exit 1"); strings.Contains(r.last(), "by hand") {
		t.Errorf("%s", r.err)
	}
}
