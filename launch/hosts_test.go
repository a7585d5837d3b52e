package launch

import (
	"context"
	"debug/elf"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"hora/internal/hosttest"
)

// program installs this test binary on a host as a launcher and agent.
func program(t *testing.T, h *hosttest.Host) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return h.Install(self, "launcher")
}

func spoil(t *testing.T, path string, how func(*os.File) error) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err == nil {
		err = how(f)
	}
	if err == nil {
		err = f.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
}

func TestRanksOnHostsOverSSH(t *testing.T) {
	n := hosttest.Up(t, "server1", "server2")
	a, b := n.Hosts[0], n.Hosts[1]
	p := program(t, a)
	// Go listens with MPTCP unless told otherwise: the coordinator must not.
	script := `echo "$RANK/$WORLD_SIZE $HORA_HOST=$(hostname) local $LOCAL_RANK/$LOCAL_WORLD_SIZE $HORA_ADDR $MASTER_ADDR"; stat -c %a $HORA_SECRET_FILE
awk '/^MPTCP/ { n += $3 } END { print "multipath sockets:", n+0 }' /proc/net/protocols`
	bin := filepath.Join(b.Home, ".cache/hora/bin")
	if err := os.MkdirAll(bin, 0o700); err != nil {
		t.Fatal(err)
	}
	old := filepath.Join(bin, "hora-of-last-year")
	if err := os.WriteFile(old, nil, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(old, time.Time{}, time.Now().Add(-365*24*time.Hour)); err != nil {
		t.Fatal(err)
	}
	for round, kind := range []string{"copied", "cached", "spoilt", "cut off"} {
		kept, _ := filepath.Glob(bin + "/hora-*")
		switch kind {
		case "spoilt": // of the same length; it has changed since it was checked
			spoil(t, kept[0], func(f *os.File) error { _, err := f.WriteAt([]byte("spoilt"), 1000); return err })
		case "cut off":
			spoil(t, kept[0], func(f *os.File) error { return f.Truncate(1000) })
		}
		began := time.Now()
		code, out, errs := a.Output(30*time.Second, p, "__launch", "-np=4", "-H=server1:2,server2:2", "sh", "-c", script)
		took := time.Since(began)
		if code != 0 || strings.Count(out, ">:600\n") != 4 || strings.Count(out, ">:multipath sockets: 0\n") != 4 {
			t.Fatalf("exit code %d\n%s%s", code, out, errs)
		}
		for _, want := range []string{
			"[0]<stdout>:0/4 server1=server1 local 0/2 127.0.0.1:", "[3]<stdout>:3/4 server2=server2 local 1/2 10.77.0.1:", " 10.77.0.1\n",
		} {
			if !strings.Contains(out, want) {
				t.Errorf("no %q in\n%s", want, out)
			}
		}
		sent, _ := a.Bytes()
		t.Logf("round %d, program %s: %v, server1 has sent %d bytes", round, kind, took, sent)
	}
	if got, _ := filepath.Glob(b.Home + "/.cache/hora/bin/hora-*"); len(got) != 1 {
		t.Errorf("the cache holds %v", got)
	}
	for _, h := range n.Hosts {
		if left, _ := filepath.Glob(h.Temp + "/hora-*"); len(left) > 0 {
			t.Errorf("%s is left with %v", h.Name, left)
		}
	}
}

// A host of another kind gets the program that lies beside this one for it, runs it, and is told of in words when there
// is none.
func TestAHostOfAnotherKind(t *testing.T) {
	if testing.Short() {
		t.Skip("takes long under the race detector")
	}
	n := hosttest.Up(t, "server1", "server2/aarch64")
	a, b := n.Hosts[0], n.Hosts[1]
	p := program(t, a)
	run := []string{p, "__launch", "-start=60", "-silence=60", "-np=3", "-H=server1:1,server2:2", "sh", "-c", "echo $RANK is $(uname -m)"}
	code, _, errs := a.Output(70*time.Second, run...)
	if want := "reach host server2: it is a Linux aarch64 machine and this hora is built for Linux x86_64: put one for it beside this one as " + filepath.Dir(p) + "/hora-linux-arm64, or install it there"; code != ExitHost || !strings.Contains(errs, want) {
		t.Errorf("exit code %d, no %q in\n%s", code, want, errs)
	}
	other := filepath.Join(a.Home, "hora-linux-arm64")
	cmd := exec.Command("go", "test", "-c", "-o", other, ".")
	cmd.Env = append(os.Environ(), "GOARCH=arm64", "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for range 2 { // copied, then cached
		code, out, errs := a.Output(70*time.Second, run...)
		for _, want := range []string{"[0]<stdout>:0 is x86_64\n", "[1]<stdout>:1 is aarch64\n", "[2]<stdout>:2 is aarch64\n"} {
			if code != 0 || !strings.Contains(out, want) {
				t.Errorf("exit code %d, no %q in\n%s%s", code, want, out, errs)
			}
		}
	}
	kept, _ := filepath.Glob(b.Home + "/.cache/hora/bin/hora-*")
	if len(kept) != 1 {
		t.Fatalf("the cache holds %v", kept)
	}
	if f, err := elf.Open(kept[0]); err != nil || f.Machine != elf.EM_AARCH64 {
		t.Errorf("the cache holds another machine's program: %v", err)
	}
}

func TestFirstFailureOnAnotherHost(t *testing.T) {
	n := hosttest.Up(t, "server1", "server2", "server3")
	a := n.Hosts[0]
	p := program(t, a)
	mark := fmt.Sprintf("HORA_TEST_MARK=hosts-%d", os.Getpid())
	code, _, errs := a.Output(30*time.Second, "env", mark, p, "__launch", "-np=2", "-H=server2:1,server3:1", "sh", "-c",
		detaching+`[ $RANK = 1 ] && { echo "RuntimeError: here" >&2; exit 5; }; sleep 1000`)
	if code != 5 || !strings.Contains(errs, "rank 1 on server3: exit code 5: RuntimeError: here") {
		t.Errorf("exit code %d\n%s", code, errs)
	}
	gone(t, mark, 8*time.Second)
}

func TestHostsThatCannotBeReached(t *testing.T) {
	n := hosttest.Up(t, "server1", "server2", "server3", "server4")
	a := n.Hosts[0]
	p := program(t, a)
	for _, c := range []struct {
		name, hosts string
		start       int // seconds
		want        string
		code        int
		prepare     func()
	}{
		{"unknown", "server1:1,nosuch:1", 2, "reach host nosuch: ", ExitNoHost, func() {}},
		{"refused", "server1:1,server3:1", 2, "it refuses ssh", ExitHost, func() { os.Remove(n.Hosts[2].Home + "/.ssh/authorized_keys") }},
		{"changed key", "server1:1,server2:1", 2, "its ssh host key is not the one known here: if the host was reinstalled, run ssh-keygen -R server2", ExitHost, func() {
			if code, _, errs := a.Output(20*time.Second, p, "__launch", "-np=1", "-H=server2:1", "true"); code != 0 {
				t.Fatal(errs)
			}
			n.Hosts[1].Rekey()
		}},
		// The kernel gives a neighbour up after three seconds: before that the launcher has lost patience, after it ssh
		// tells.
		{"cut", "server1:1,server4:1", 1, "reach host server4: no answer in 1s: look whether it is up, or raise --start-timeout", ExitTimeout, func() { n.Hosts[3].Cable(false) }},
		{"cut, with patience", "server1:1,server4:1", 15, "No route to host: look whether it is up and the network to it works", ExitHost, func() {}},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.prepare()
			np := fmt.Sprintf("-np=%d", strings.Count(c.hosts, ":"))
			code, out, errs := a.Output(20*time.Second, p, "__launch", fmt.Sprintf("-start=%d", c.start), np, "-H="+c.hosts, "true")
			if code != c.code || !strings.Contains(errs, c.want) || strings.Count(strings.TrimSpace(errs), "\n") > 0 {
				t.Errorf("exit code %d, want %d with %q\n%s%s", code, c.code, c.want, out, errs)
			}
		})
	}
}

func TestCommandsThatAnotherHostCannotStart(t *testing.T) {
	n := hosttest.Up(t, "server1", "server2")
	a := n.Hosts[0]
	p := program(t, a)
	if err := os.WriteFile(a.Home+"/train", []byte("#!/bin/sh\nsleep 100\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	mark := fmt.Sprintf("HORA_TEST_MARK=unstartable-%d", os.Getpid())
	code, _, errs := a.Output(20*time.Second, "env", mark, p, "__launch", "-np=2", "-H=server1:1,server2:1", "./train")
	if code != ExitNotFound || !strings.Contains(errs, "start ./train on server2: there is no such command") {
		t.Errorf("exit code %d\n%s", code, errs)
	}
	gone(t, mark, 8*time.Second) // what server1 had started
	if err := os.WriteFile(n.Hosts[1].Home+"/train", []byte("#!/bin/sh\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	code, _, errs = a.Output(20*time.Second, "env", mark, p, "__launch", "-np=2", "-H=server1:1,server2:1", "./train")
	if code != ExitNotRunnable || !strings.Contains(errs, "start ./train on server2: it is not executable: run chmod +x") {
		t.Errorf("exit code %d\n%s", code, errs)
	}
	gone(t, mark, 8*time.Second)
	for _, h := range n.Hosts {
		if left, _ := filepath.Glob(h.Temp + "/hora-*"); len(left) > 0 {
			t.Errorf("%s is left with %v", h.Name, left)
		}
	}
}

func TestACutHostIsALoss(t *testing.T) {
	n := hosttest.Up(t, "server1", "server2")
	a, b := n.Hosts[0], n.Hosts[1]
	p := program(t, a)
	mark := fmt.Sprintf("HORA_TEST_MARK=cut-%d", os.Getpid())
	var began time.Time
	cut := make(chan struct{})
	go func() {
		defer close(cut)
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); <-tick.C {
			if _, err := os.Stat(b.Home + "/up"); err == nil {
				break
			}
		}
		began = time.Now()
		b.Cable(false)
	}()
	code, _, errs := a.Output(30*time.Second, "env", mark, p, "__launch", "-silence=2", "-np=2", "-H=server1:1,server2:1", "sh", "-c", "touch $HOME/up; sleep 1000")
	<-cut
	if code != ExitHost || !strings.Contains(errs, "lost host server2: silent for 2s") {
		t.Errorf("exit code %d\n%s", code, errs)
	}
	t.Logf("ended after %v", time.Since(began))
	gone(t, mark, 15*time.Second) // the cut host ends its own part, too
}

// Whoever is killed of those that carry a job over ssh, nothing of it stays on either host.
func TestNothingSurvivesOnAnotherHostEither(t *testing.T) {
	n := hosttest.Up(t, "server1", "server2")
	a, b := n.Hosts[0], n.Hosts[1]
	p := program(t, a)
	for victim, find := range map[string]string{
		"launcher":    "",
		"agent there": "__agent --kept --remote",
		"its keeper":  "__agent --remote",
		"ssh here":    "^ssh -T ",
		"ssh there":   "sshd: .*@notty",
		"agent here":  "launcher __agent$",
	} {
		t.Run(victim, func(t *testing.T) {
			mark := fmt.Sprintf("HORA_TEST_MARK=far-%d-%s", os.Getpid(), strings.ReplaceAll(victim, " ", "-"))
			for _, h := range n.Hosts {
				os.Remove(h.Home + "/up")
			}
			logs := "/tmp/logs-" + strings.ReplaceAll(victim, " ", "-")
			cmd := a.Command(context.Background(), p, "__launch", "-np=2", "-H=server1:1,server2:1", "-logs="+logs, "sh", "-c", detaching+"touch $HOME/up; sleep 1000")
			cmd.Env = append(cmd.Env, mark)
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			tick := time.NewTicker(10 * time.Millisecond)
			defer tick.Stop()
			for deadline := time.Now().Add(20 * time.Second); ; <-tick.C {
				_, here := os.Stat(a.Home + "/up")
				_, there := os.Stat(b.Home + "/up")
				if here == nil && there == nil && len(marked(mark)) >= 8 {
					break
				}
				if time.Now().After(deadline) {
					t.Fatal("the workers did not start")
				}
			}
			if find == "" {
				if err := cmd.Process.Kill(); err != nil {
					t.Fatal(err)
				}
			} else {
				where := b
				if strings.HasSuffix(victim, " here") {
					where = a
				}
				if where.Kill(find) == 0 {
					t.Errorf("there is no process like %q", find)
				}
			}
			_ = cmd.Wait() // its exit code does not matter here
			gone(t, mark, 10*time.Second)
			for _, h := range n.Hosts {
				// The guard, which has no mark, takes the folder away when the others are gone.
				left, _ := filepath.Glob(h.Temp + "/hora-*")
				for end := time.Now().Add(5 * time.Second); len(left) > 0 && time.Now().Before(end); <-tick.C {
					left, _ = filepath.Glob(h.Temp + "/hora-*")
				}
				if len(left) > 0 {
					t.Errorf("%s is left with %v", h.Name, left)
				}
				if victim == "launcher" { // each agent says in its own host's directory why it ended its worker
					file := filepath.Join(h.Temp, filepath.Base(logs), "hora."+h.Name)
					want := "job test on " + h.Name + ": the launcher has ended without a word: its worker here is ended\n"
					if b, err := os.ReadFile(file); err != nil || !strings.HasSuffix(string(b), want) ||
						strings.Count(string(b), "\n") != 1 {
						t.Errorf("the last word on %s: %q, %v", h.Name, b, err)
					}
				}
			}
		})
	}
}
