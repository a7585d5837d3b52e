package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"hora/internal/hosttest"
)

// A host whose ssh server is at another port and takes another key than ssh's own is reached with the flags for that;
// without them the launcher says what would help, with the port and the key in it.
func TestAnotherPortAndAnotherKey(t *testing.T) {
	if testing.Short() {
		t.Skip("takes long under the race detector")
	}
	n := hosttest.Up(t, "server1", "server2")
	a, b := n.Hosts[0], n.Hosts[1]
	program := a.Install(self(t), "hora")
	home := filepath.Dir(program)
	on := func(h *hosttest.Host, script string) {
		t.Helper()
		if code, _, errs := h.Output(10*time.Second, "sh", "-ec", script); code != 0 {
			t.Fatal(errs)
		}
	}
	// The server at port 22 takes no key any more, that at 2222 the one in server1's folder "keys".
	on(a, `mkdir keys; ssh-keygen -q -t ed25519 -N "" -f keys/train`)
	public, err := os.ReadFile(filepath.Join(a.Home, "keys/train.pub"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(b.Home, ".ssh/other_keys"), public, 0o600); err != nil {
		t.Fatal(err)
	}
	on(b, `rm .ssh/authorized_keys; ssh-keygen -q -t ed25519 -N "" -f .ssh/other_host_key`)
	serve := `/usr/sbin/sshd -f /dev/null -p 2222 -h $HOME/.ssh/other_host_key -o AuthorizedKeysFile=$HOME/.ssh/other_keys -o UsePAM=no -o PidFile=$HOME/sshd.pid -o StrictModes=no -o UseDNS=no
until ss -Hltn | grep -q ':2222 '; do sleep 0.02; done`
	on(b, serve)
	run := func(flags ...string) result {
		t.Helper()
		args := append([]string{"env", "HORA_TEST_PROGRAM=1", program, "run", "-np", "2", "-H", "server1:1,server2:1"}, flags...)
		code, out, errs := a.Output(40*time.Second, append(args, "sh", "-c", `echo "$RANK on $(hostname)"`)...)
		return result{code, out, errs}
	}
	refused := func(r result, advice string) {
		t.Helper()
		if r.code != 69 || !strings.Contains(r.last(), "reach host server2: it refuses ssh (") || !strings.HasSuffix(r.last(), ": set up a key with "+advice) {
			t.Errorf("%+v, want advice %q", r, advice)
		}
	}
	refused(run(), "ssh-keygen -t ed25519 and ssh-copy-id server2")
	refused(run("--ssh-port", "2222"), "ssh-keygen -t ed25519 and ssh-copy-id -p 2222 server2")
	refused(run("-i", home+"/keys/train"), "ssh-copy-id -i "+home+"/keys/train server2")
	for _, flags := range [][]string{{"-p", "2222", "-i", "keys/train"}, {"--ssh-port=2222", "--ssh-identity-file=keys/train"}} {
		if r := run(flags...); r.code != 0 || r.out != "[0]<stdout>:0 on server1\n[1]<stdout>:1 on server2\n" && r.out != "[1]<stdout>:1 on server2\n[0]<stdout>:0 on server1\n" {
			t.Errorf("%v: %+v", flags, r)
		}
	}
	code, out, errs := a.Output(40*time.Second, "env", "HORA_TEST_PROGRAM=1", program, "doctor", "-H", "server2", "-p", "2222")
	if code != 1 || !strings.Contains(out, "→ ssh-keygen -t ed25519; ssh-copy-id -p 2222 server2\n") {
		t.Errorf("doctor: exit code %d\n%s%s", code, out, errs)
	}
	// The advice about a host key that has changed is what ssh-keygen takes: it then works again.
	on(b, `kill $(cat sshd.pid); rm .ssh/other_host_key*; ssh-keygen -q -t ed25519 -N "" -f .ssh/other_host_key
until ! ss -Hltn | grep -q ':2222 '; do sleep 0.02; done; `+serve)
	r := run("-p", "2222", "-i", "keys/train")
	_, advice, _ := strings.Cut(r.last(), "if the host was reinstalled, run ")
	if r.code != 69 || advice != "ssh-keygen -R '[server2]:2222'" {
		t.Fatalf("%+v", r)
	}
	on(a, advice)
	if r := run("-p", "2222", "-i", "keys/train"); r.code != 0 {
		t.Errorf("after %s: %+v", advice, r)
	}
	if r := run("-p", "2223", "-i", "keys/train"); r.code != 69 || !strings.Contains(r.last(), "start sshd at port 2223 there, or correct --ssh-port") {
		t.Errorf("%+v", r)
	}
}

// TestANameOfTheUsersSSHConfiguration, which nobody else knows, is a host like others; and each host costs one ssh
// session, whether the program is there already or not.
func TestANameOfTheUsersSSHConfiguration(t *testing.T) {
	if testing.Short() {
		t.Skip("takes long under the race detector")
	}
	n := hosttest.Up(t, "server1", "server2", "server3")
	a, b := n.Hosts[0], n.Hosts[1]
	program := a.Install(self(t), "hora")
	if code, _, errs := b.Output(10*time.Second, "sh", "-ec", `/usr/sbin/sshd -f /dev/null -p 2222 -h $HOME/.ssh/host_key -o AuthorizedKeysFile=$HOME/.ssh/authorized_keys -o UsePAM=no -o PidFile=none -o StrictModes=no -o UseDNS=no
until ss -Hltn | grep -q ':2222 '; do sleep 0.02; done`); code != 0 {
		t.Fatal(errs)
	}
	for name, text := range map[string]string{
		".ssh/config": "Host trainer\n  HostName " + b.Addr + "\n  Port 2222\n",
		"bin/ssh":     "#!/bin/sh\necho \"$*\" >>$HOME/sessions\nexec /usr/bin/ssh \"$@\"\n",
	} {
		path := filepath.Join(a.Home, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for _, round := range []string{"copied", "cached"} {
		os.Remove(filepath.Join(a.Home, "sessions"))
		code, out, errs := a.Output(40*time.Second, "env", "HORA_TEST_PROGRAM=1", "PATH="+filepath.Dir(program)+"/bin:/usr/sbin:/usr/bin:/sbin:/bin", program,
			"run", "-H", "server1:1,trainer:1,server3:1", "sh", "-c", `echo "$HORA_HOST is $(hostname), sessions at 2222: $(ss -Htn state established sport = :2222 | wc -l)"`)
		for _, want := range []string{"[1]<stdout>:trainer is server2, sessions at 2222: 1\n", "[2]<stdout>:server3 is server3, sessions at 2222: 0\n"} {
			if code != 0 || !strings.Contains(out, want) {
				t.Errorf("%s: exit code %d, no %q in\n%s%s", round, code, want, out, errs)
			}
		}
		b, err := os.ReadFile(filepath.Join(a.Home, "sessions"))
		if err != nil || strings.Count(string(b), "\n") != 2 || strings.Count(string(b), " trainer ") != 1 ||
			strings.Count(string(b), " server3 ") != 1 {
			t.Errorf("%s: ssh was started with\n%s%v", round, b, err)
		}
	}
}

// With --remote-hora nothing is copied: the host's own program is the agent.
func TestAProgramThatIsThereAlready(t *testing.T) {
	if testing.Short() {
		t.Skip("takes long under the race detector")
	}
	n := hosttest.Up(t, "server1", "server2")
	a, b := n.Hosts[0], n.Hosts[1]
	program := a.Install(self(t), "hora")
	if err := os.Mkdir(filepath.Join(b.Home, "my tools"), 0o755); err != nil {
		t.Fatal(err)
	}
	there := b.Install(self(t), "my tools/hora")
	run := func(path string) result {
		t.Helper()
		code, out, errs := a.Output(40*time.Second, "env", "HORA_TEST_PROGRAM=1", program, "run", "--no-tag", "-H", "server2:1", "--remote-hora", path, "sh", "-c", "readlink /proc/$PPID/exe")
		return result{code, out, errs}
	}
	if r := run(there); r.code != 0 || r.out != there+"\n" {
		t.Errorf("%+v, want %s", r, there)
	}
	if left, _ := filepath.Glob(filepath.Join(b.Home, ".cache/hora/bin/*")); len(left) > 0 {
		t.Errorf("copied: %v", left)
	}
	for path, why := range map[string]string{"/no/such/hora": "not found", "/etc/passwd": "Permission denied"} {
		r := run(path)
		if want := "hora: reach host server2: --remote-hora " + path + " cannot be started there ("; r.code != 69 ||
			!strings.HasPrefix(r.last(), want) || !strings.Contains(r.last(), why) || strings.Count(r.err, "\n") != 1 {
			t.Errorf("%+v, want %s… %s", r, want, why)
		}
	}
}

// The secret of a file is the job's, on every host.
func TestASecretOfOnesOwn(t *testing.T) {
	if testing.Short() {
		t.Skip("takes long under the race detector")
	}
	n := hosttest.Up(t, "server1", "server2")
	a := n.Hosts[0]
	program := a.Install(self(t), "hora")
	for _, h := range n.Hosts {
		h.Install(self(t), "worker")
	}
	const secret = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"
	if err := os.WriteFile(filepath.Join(a.Home, "secret"), []byte(secret+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	code, out, errs := a.Output(40*time.Second, "env", "HORA_TEST_PROGRAM=1", program, "run", "-np", "2", "-H", "server1:1,server2:1", "--secret-file", "secret",
		"--env", "HORA_TEST_PROGRAM=", "--env", "HORA_TEST_WORKER=1", "sh", "-c", `grep -cx `+secret+` "$HORA_SECRET_FILE"; exec ./worker`)
	if code != 0 || strings.Count(out, ">:1\n") != 2 || strings.Count(out, " sums 3;") != 2 {
		t.Errorf("exit code %d\n%s%s", code, out, errs)
	}
}
