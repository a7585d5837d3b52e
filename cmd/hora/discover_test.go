package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"hora"
	"hora/job"
	"hora/launch"
)

// trainElastic adds until a file says that it is enough, and tells of every world it was in.
func trainElastic(ctx context.Context, cfg hora.Config) error {
	state := hora.NewState()
	steps := 0
	state.Int("steps", &steps)
	return hora.RunElastic(ctx, cfg, state, func(ctx context.Context, w *hora.World) error {
		fmt.Printf("world of %d as rank %d on %s, pid %d, step %d\n", w.Size(), w.Rank(), w.Host(), os.Getpid(), steps)
		pause := time.NewTicker(5 * time.Millisecond)
		defer pause.Stop()
		for {
			<-pause.C
			enough := []float64{0}
			if _, err := os.Stat(os.Getenv("ENOUGH")); err == nil && w.Rank() == 0 {
				enough[0] = 1
			}
			if err := hora.Allreduce(ctx, w.Group(), enough, hora.Sum); err != nil {
				return err
			}
			steps++
			if enough[0] > 0 {
				return nil
			}
			if err := state.Commit(); err != nil {
				return err
			}
		}
	})
}

// follow passes lines on until want lines with such a text have come, and returns the last of them.
func follow(t *testing.T, lines <-chan string, text string, want int) string {
	t.Helper()
	limit := time.After(40 * time.Second)
	var seen []string
	for n := 0; ; {
		select {
		case l, ok := <-lines:
			if !ok {
				t.Fatalf("it ended without %d times %q:\n%s", want, text, strings.Join(seen, "\n"))
			}
			seen = append(seen, l)
			if strings.Contains(l, text) {
				if n++; n == want {
					return l
				}
			}
		case <-limit:
			t.Fatalf("%d times %q instead of %d:\n%s", n, text, want, strings.Join(seen, "\n"))
		}
	}
}

func TestWorkersFollowDiscoveredHosts(t *testing.T) {
	dir := t.TempDir()
	hosts, enough := filepath.Join(dir, "hosts"), filepath.Join(dir, "enough")
	at := func(text string) {
		t.Helper()
		if err := os.WriteFile(hosts+".new", []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(hosts+".new", hosts); err != nil {
			t.Fatal(err)
		}
	}
	at("localhost:1\n")
	lines, wait := followed(t, enough, "run", "-np", "1", "--discover", "cat "+hosts, "--blacklist-cooldown-range", "1", "2", "--verbose")
	follow(t, lines, "world of 1 as rank 0 on localhost", 1)
	at("localhost:1\n127.0.0.1:2\n")
	follow(t, lines, "world of 3 as ", 3)
	at("127.0.0.1:1\nlocalhost:1\n")
	follow(t, lines, "world of 2 as ", 2)
	at("127.0.0.1:0\nlocalhost:2\n") // one moves
	l := follow(t, lines, "world of 2 as rank 1 on localhost", 1)
	syscall.Kill(pidOf(t, l), syscall.SIGKILL)
	follow(t, lines, "localhost: rank", 1)                  // banned
	follow(t, lines, "a new worker starts on localhost", 1) // and tried again
	follow(t, lines, "world of 2 as ", 2)
	if err := os.WriteFile(enough, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	wait()
}

// followed starts a job whose workers train until the file enough is there. wait returns the lines that nobody has read
// when it has ended well.
func followed(t *testing.T, enough string, args ...string) (lines chan string, wait func() []string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 90*time.Second)
	t.Cleanup(cancel)
	args = append(args, "--env", "HORA_TEST_PROGRAM=", "--env", "HORA_TEST_WORKER=elastic", "--env", "ENOUGH="+enough, self(t))
	cmd := exec.CommandContext(ctx, self(t), args...)
	cmd.Env = append(os.Environ(), "HORA_TEST_PROGRAM=1")
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	cmd.Stdout, cmd.Stderr = w, w
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	w.Close()
	lines = make(chan string, 1000)
	go func() {
		defer close(lines)
		for s := bufio.NewScanner(r); s.Scan(); {
			lines <- s.Text()
		}
	}()
	return lines, func() (rest []string) {
		for l := range lines {
			rest = append(rest, l)
		}
		if err := cmd.Wait(); err != nil {
			t.Errorf("%v\n%s", err, strings.Join(rest, "\n"))
		}
		return rest
	}
}

// followBoth passes lines on until two texts have come, whichever is first.
func followBoth(t *testing.T, lines <-chan string, a, b string) {
	t.Helper()
	either := make(chan string, 1000)
	go func() {
		defer close(either)
		for a, b := a, b; a != "" || b != ""; {
			l, ok := <-lines
			if !ok {
				return
			}
			switch {
			case a != "" && strings.Contains(l, a):
				a, l = "", "one of both: "+l
			case b != "" && strings.Contains(l, b):
				b, l = "", "one of both: "+l
			}
			either <- l
		}
	}()
	follow(t, either, "one of both: ", 2)
}

// pidOf is the process of a line that tells of a world.
func pidOf(t *testing.T, line string) (pid int) {
	t.Helper()
	if _, err := fmt.Sscanf(line[strings.Index(line, "pid "):], "pid %d,", &pid); err != nil {
		t.Fatal(line)
	}
	return pid
}

// TestWhatAFailedWorkerTakesAway: its slot, so that the other worker of its host goes on, or its host, whose other
// worker then leaves, since enough are left elsewhere.
func TestWhatAFailedWorkerTakesAway(t *testing.T) {
	for _, c := range []struct {
		argv []string
		host bool
	}{
		{[]string{"run", "-np", "2", "--discover"}, false},
		{[]string{"run", "-np", "2", "--host-discovery-script"}, true},
	} {
		t.Run(strings.Join(c.argv, " "), func(t *testing.T) {
			enough := filepath.Join(t.TempDir(), "enough")
			lines, wait := followed(t, enough, append(c.argv, "echo localhost:2; echo 127.0.0.1:2", "--restarts", "4")...)
			syscall.Kill(pidOf(t, follow(t, lines, "world of 4 as rank 1 on localhost", 1)), syscall.SIGKILL)
			if c.host {
				follow(t, lines, "warning: localhost: rank 1: killed by signal 9 (SIGKILL): it is not used any more", 1)
				follow(t, lines, "world of 2 as rank 0 on 127.0.0.1", 1)
			} else {
				followBoth(t, lines, "warning: slot 1 of localhost: rank 1: killed by signal 9 (SIGKILL): it is not used any more", "world of 3 as rank 0 on localhost")
				<-time.After(1500 * time.Millisecond) // in which a host that is given up would be left
			}
			if err := os.WriteFile(enough, nil, 0o644); err != nil {
				t.Fatal(err)
			}
			rest := strings.Join(wait(), "\n")
			if !c.host && strings.Contains(rest, "world of 2") {
				t.Errorf("the host's other worker has left\n%s", rest)
			}
			if !strings.Contains(rest, ", 1 restart used, 3 left") {
				t.Errorf("the story does not count the failure\n%s", rest)
			}
		})
	}
}

// TestHowManyAnElasticHorovodrunBegins: with all slots of the hosts that it names, up to the most that may run.
func TestHowManyAnElasticHorovodrunBegins(t *testing.T) {
	for args, want := range map[string]string{
		"horovodrun -np 2 --min-np 2 -H localhost:2,127.0.0.1:2 true":            "np: 4\n",
		"horovodrun -np 2 --min-np 1 --max-np 3 -H localhost:2,127.0.0.1:2 true": "np: 3\n",
		"horovodrun -np 2 -H localhost:2,127.0.0.1:2 true":                       "np: 2\n",
		"horovodrun -np 2 --min-np 2 true":                                       "np: 2\n",
		"run -np 2 --min-np 2 -H localhost:2,127.0.0.1:2 true":                   "np: 2\n",
	} {
		argv := strings.Fields(args)
		o := &options{given: map[string]bool{}, table: job.Fields(), horovod: argv[0] == horovodrunCommand}
		words, err := normalise(o.table, argv[1:], false)
		fs := pflag.NewFlagSet("x", pflag.ContinueOnError)
		define(fs, o.table, o)
		if err == nil {
			err = fs.Parse(words)
		}
		hosts, parsed := launch.HostsOf(&o.spec)
		o.settle()
		o.widen(hosts)
		if got := string(o.spec.YAML()); err != nil || parsed != nil || !strings.Contains(got, want) {
			t.Errorf("%s: %v, %v\n%s", args, err, parsed, got)
		}
	}
}

// TestWhoseFlagsMakeAJobElastic: horovodrun's elastic flags, and its name, mean what they mean there.
func TestWhoseFlagsMakeAJobElastic(t *testing.T) {
	for _, c := range []struct {
		args   string
		policy job.OnLoss
		byHost bool
	}{
		{"run -np 2", "", false},
		{"run -np 2 --restarts 2", job.Replace, false},
		{"run -np 2 --discover x", "", false}, // the launcher makes it continue
		{"run -np 2 --on-loss continue", job.Continue, false},
		{"run -np 2 --discover x --blacklist host", "", true},
		{"run -np 2 --min-np 1", job.Continue, true},
		{"run -np 2 --max-num-proc 4 --restarts 1", job.Continue, true},
		{"run -np 2 --reset-limit 2", job.Continue, true},
		{"run -np 2 --elastic-timeout 9", job.Continue, true},
		{"run -np 2 --slots-per-host 2 --discover x", job.Continue, true},
		{"run -np 2 --host-discovery-script x", job.Continue, true},
		{"run -np 2 --restarts 2 --blacklist-cooldown-range 1 2", job.Continue, true},
		{"run -np 2 --restarts 2 --blacklist-cooldown-range 1 2 --on-loss replace", job.Replace, true},
		{"run -np 2 --min-np 1 --blacklist slot", job.Continue, false},
		{"horovodrun -np 2", "", true},
		{"horovodrun -np 2 --restarts 1", job.Replace, true},
		{"horovodrun -np 2 --restarts 1 --blacklist slot", job.Replace, false},
	} {
		table := job.Fields()
		argv := strings.Fields(c.args)
		o := &options{given: map[string]bool{}, table: table, horovod: argv[0] == horovodrunCommand}
		args, err := normalise(table, append(argv[1:], "command"), false)
		fs := pflag.NewFlagSet("x", pflag.ContinueOnError)
		define(fs, table, o)
		if err == nil {
			err = fs.Parse(args)
		}
		o.settle()
		if got := o.spec.AfterLoss(); err != nil || got != c.policy || o.spec.TakesHost() != c.byHost {
			t.Errorf("%s: %q, by host %v, %v", c.args, got, o.spec.TakesHost(), err)
		}
	}
}
