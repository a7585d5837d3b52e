// Package hosttest makes several hosts of one machine for tests: network namespaces on a switch of their own, each with
// its address, host name, home and temporary directory and ssh server.
//
// It changes nothing outside its namespaces and the test's temporary directory, and everything in them ends with the
// test. It needs root and says so in a skip otherwise. A Switch adds a second network on which packets between two
// hosts are delayed, limited, lost or cut by direction. Goroutines: one waits for each program it started, and the
// Switch's.
package hosttest

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Host is one of them.
type Host struct {
	Name    string
	Addr    string
	Via     string // its address on the Switch, when there is one
	Home    string // its home directory, as seen from outside
	Temp    string // its /tmp, as seen from outside
	pid     int    // of the process that holds its namespaces
	net     *Net
	port    string // its interface's name on the switch
	machine string // what its uname says, when that is not this machine's
}

// Net is a switch with hosts.
type Net struct {
	Hosts  []*Host
	dir    string
	home   string // where each host sees its home
	holder int    // of the switch's namespace
	slurm  string // the cluster's files, when there is one
	t      testing.TB
}

// Up makes hosts of these names that reach each other by ssh as the user that runs the test. A host named
// "name/aarch64" runs programs of that kind of machine under qemu, and its uname says so.
func Up(t testing.TB, names ...string) *Net {
	t.Helper()
	need(t)
	u, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	n := &Net{t: t, dir: t.TempDir(), home: u.HomeDir}
	n.holder = n.hold("--net")
	n.run(n.holder, "ip", "link", "add", "sw", "type", "bridge")
	n.run(n.holder, "ip", "link", "set", "sw", "up")
	n.keys()
	hosts := "127.0.0.1 localhost\n"
	for i, name := range names {
		name, _, _ = strings.Cut(name, "/")
		hosts += fmt.Sprintf("10.77.0.%d %s\n", i+1, name)
	}
	n.write("etc/hosts", hosts)
	n.write("etc/resolv.conf", "")
	n.write("etc/nsswitch.conf", "passwd: files\ngroup: files\nhosts: files\n")
	for i, name := range names {
		n.Hosts = append(n.Hosts, n.host(i, name))
	}
	for _, h := range n.Hosts {
		h.await()
	}
	return n
}

// need skips the test where hosts cannot be made.
func need(t testing.TB) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: hosts are network namespaces")
	}
	for _, p := range []string{"ip", "nsenter", "unshare", "/usr/sbin/sshd", "ssh", "ssh-keygen", "hostname", "mount"} {
		if _, err := exec.LookPath(p); err != nil {
			t.Skipf("needs root and %s: hosts are network namespaces with ssh servers", p)
		}
	}
}

// hold starts a process that does nothing in namespaces of its own, and returns once they are there.
func (n *Net) hold(flags ...string) int {
	n.t.Helper()
	return n.holdBy(exec.Command("unshare", append(flags, "sh", "-c", "echo up; exec sleep 100000")...))
}

func (n *Net) holdBy(cmd *exec.Cmd) int {
	n.t.Helper()
	out, err := cmd.StdoutPipe()
	if err != nil {
		n.t.Fatal(err)
	}
	n.start(cmd)
	if _, err := io.ReadFull(out, make([]byte, 3)); err != nil {
		n.t.Fatalf("make namespaces: %v", err)
	}
	return cmd.Process.Pid
}

// start starts a program that is ended with the test.
func (n *Net) start(cmd *exec.Cmd) {
	n.t.Helper()
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Setpgid = true
	if err := cmd.Start(); err != nil {
		n.t.Fatalf("start %v: %v", cmd.Args, err)
	}
	n.t.Cleanup(func() {
		syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		_ = cmd.Wait() // killed
	})
}

// run runs a program in the namespaces of pid.
func (n *Net) run(pid int, argv ...string) {
	n.t.Helper()
	args := append([]string{"-t", strconv.Itoa(pid), "--net"}, argv...)
	if pid != n.holder {
		args = append(spaces(pid), argv...)
	}
	if out, err := exec.Command("nsenter", args...).CombinedOutput(); err != nil {
		n.t.Fatalf("%v: %v: %s", argv, err, out)
	}
}

func (n *Net) write(name, text string) string {
	n.t.Helper()
	path := filepath.Join(n.dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		n.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		n.t.Fatal(err)
	}
	if strings.HasPrefix(name, "etc/") {
		if err := os.Chmod(path, 0o644); err != nil {
			n.t.Fatal(err)
		}
	}
	return path
}

// keys makes the ssh key of the user and that of the hosts.
func (n *Net) keys() {
	n.t.Helper()
	for _, k := range []string{"user", "host"} {
		out, err := exec.Command("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "test", "-f", filepath.Join(n.dir, k)).CombinedOutput()
		if err != nil {
			n.t.Fatalf("make key: %v: %s", err, out)
		}
	}
}

func (n *Net) host(i int, name string) *Host {
	n.t.Helper()
	name, machine, _ := strings.Cut(name, "/")
	h := &Host{Name: name, machine: machine, Addr: fmt.Sprintf("10.77.0.%d", i+1), net: n, port: fmt.Sprintf("port%d", i)}
	h.Home, h.Temp = filepath.Join(n.dir, name, "home"), filepath.Join(n.dir, name, "tmp")
	for _, d := range []string{h.Temp, filepath.Join(h.Home, ".ssh")} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			n.t.Fatal(err)
		}
	}
	key, err := os.ReadFile(filepath.Join(n.dir, "user"))
	if err != nil {
		n.t.Fatal(err)
	}
	public, err := os.ReadFile(filepath.Join(n.dir, "user.pub"))
	if err != nil {
		n.t.Fatal(err)
	}
	n.write(filepath.Join(name, "home/.ssh/id_ed25519"), string(key))
	n.write(filepath.Join(name, "home/.ssh/authorized_keys"), string(public))
	hostKey, err := os.ReadFile(filepath.Join(n.dir, "host"))
	if err != nil {
		n.t.Fatal(err)
	}
	n.write(filepath.Join(name, "home/.ssh/host_key"), string(hostKey))
	h.pid = n.holdHost(machine != "")
	n.t.Cleanup(h.empty)
	n.run(n.holder, "ip", "link", "add", h.port, "type", "veth", "peer", "name", "eth0", "netns", strconv.Itoa(h.pid))
	n.run(n.holder, "ip", "link", "set", h.port, "master", "sw", "up")
	script := fmt.Sprintf(`set -e
hostname %[1]s
ip link set lo up
ip addr add %[2]s/24 dev eth0
ip link set eth0 up
for f in hosts resolv.conf nsswitch.conf; do mount --bind %[3]s/etc/$f "$(readlink -f /etc/$f)"; done
mount -t tmpfs none /run
mkdir -p /run/sshd
mount -t tmpfs none /dev/shm
mount --bind %[4]s %[5]s
mount --bind %[6]s /tmp
`, name, h.Addr, n.dir, h.Home, n.home, h.Temp)
	n.run(h.pid, "sh", "-c", script)
	if machine != "" {
		h.emulate()
	}
	n.start(exec.Command("nsenter", append(h.spaces(), "/usr/sbin/sshd", "-D", "-f", "/dev/null",
		"-h", n.home+"/.ssh/host_key", "-o", "ListenAddress="+h.Addr, "-o", "AuthorizedKeysFile="+n.home+"/.ssh/authorized_keys",
		"-o", "UsePAM=no", "-o", "PidFile=none", "-o", "StrictModes=no", "-o", "UseDNS=no", "-o", "MaxStartups=100")...))
	return h
}

// empty ends whatever is left in the host's network: sessions of ssh outlive their server.
func (h *Host) empty() {
	for _, pid := range h.processes() {
		syscall.Kill(pid, syscall.SIGKILL)
	}
}

// processes lists what runs in the host's network, but for the process that holds it.
func (h *Host) processes() []int {
	mine, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/net", h.pid))
	ours, _ := os.Readlink("/proc/self/ns/net")
	if err != nil || mine == ours {
		return nil
	}
	var all []int
	spaces, _ := filepath.Glob("/proc/[0-9]*/ns/net")
	for _, path := range spaces {
		if at, err := os.Readlink(path); err != nil || at != mine {
			continue
		}
		if pid, err := strconv.Atoi(strings.Split(path, "/")[2]); err == nil && pid != h.pid && pid != os.Getpid() {
			all = append(all, pid)
		}
	}
	return all
}

// Kill sends SIGKILL to the host's processes whose command line matches an extended regular expression, and says how
// many there were.
func (h *Host) Kill(pattern string) int {
	h.net.t.Helper()
	found := h.like(pattern)
	for _, pid := range found {
		syscall.Kill(pid, syscall.SIGKILL)
	}
	return len(found)
}

// Count says how many of the host's processes have a command line like that.
func (h *Host) Count(pattern string) int { return len(h.like(pattern)) }

func (h *Host) like(pattern string) []int {
	re := regexp.MustCompile(pattern)
	var found []int
	for _, pid := range h.processes() {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		if err == nil && re.MatchString(strings.TrimSpace(strings.ReplaceAll(string(b), "\x00", " "))) {
			found = append(found, pid)
		}
	}
	return found
}

// await waits until the host's ssh server answers.
func (h *Host) await() {
	h.net.t.Helper()
	out, err := exec.Command("nsenter", "-t", strconv.Itoa(h.pid), "--net", "sh", "-c",
		"i=0; until ss -Hltn | grep -q '"+h.Addr+":22 '; do i=$((i+1)); [ $i -gt 200 ] && exit 1; sleep 0.02; done").CombinedOutput()
	if err != nil {
		h.net.t.Fatalf("ssh server of %s does not answer: %v: %s", h.Name, err, out)
	}
}

// Install copies a program into the host's home and returns its path there.
func (h *Host) Install(program, name string) string {
	h.net.t.Helper()
	b, err := os.ReadFile(program)
	if err != nil {
		h.net.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(h.Home, name), b, 0o755); err != nil {
		h.net.t.Fatal(err)
	}
	return filepath.Join(h.net.home, name)
}

// Command is a program that runs on the host, in its home, when started. Its environment is small and plain.
func (h *Host) Command(ctx context.Context, argv ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "nsenter", append(append(h.spaces(), "--wdns="+h.net.home), argv...)...)
	cmd.Env = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=" + h.net.home, "LANG=C.UTF-8"}
	return cmd
}

// Output runs a program on the host to its end.
func (h *Host) Output(limit time.Duration, argv ...string) (code int, stdout, stderr string) {
	h.net.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	cmd := h.Command(ctx, argv...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	_ = cmd.Run() // its exit code tells
	if ctx.Err() != nil {
		h.net.t.Errorf("%v on %s did not end in %v; it said %q", argv, h.Name, limit, errs.String())
	}
	return cmd.ProcessState.ExitCode(), out.String(), errs.String()
}

// Cable connects or cuts the host's cable. A cut one loses every packet without a word.
func (h *Host) Cable(connected bool) {
	h.net.t.Helper()
	state := "down"
	if connected {
		state = "up"
	}
	h.net.run(h.net.holder, "ip", "link", "set", h.port, state)
}

// Firewall lets nobody open a connection to the host but to these TCP ports. Packets to others are lost without a word.
func (h *Host) Firewall(ports ...int) {
	h.net.t.Helper()
	open := make([]string, len(ports))
	for i, p := range ports {
		open[i] = strconv.Itoa(p)
	}
	h.net.run(h.pid, "nft", "add table inet wall; flush table inet wall; add chain inet wall in { type filter hook input priority 0; };"+
		" add rule inet wall in iifname eth0 tcp flags & (syn | ack) == syn tcp dport != { "+strings.Join(open, ", ")+" } drop")
}

// Rate limits what the host receives over its cable, in megabits a second.
func (h *Host) Rate(mbit int) {
	h.net.t.Helper()
	h.net.run(h.net.holder, "tc", "qdisc", "replace", "dev", h.port, "root", "tbf", "rate", strconv.Itoa(mbit)+"mbit", "burst", "64kb", "latency", "400ms")
}

// Rekey gives the host another ssh host key for connections from now on.
func (h *Host) Rekey() {
	h.net.t.Helper()
	path := filepath.Join(h.Home, ".ssh/host_key")
	os.Remove(path)
	if out, err := exec.Command("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", path).CombinedOutput(); err != nil {
		h.net.t.Fatalf("make key: %v: %s", err, out)
	}
	h.net.run(h.pid, "sh", "-c", "kill -HUP $(ss -Hltnp | sed -n 's/.*"+h.Addr+":22 .*pid=\\([0-9]*\\).*/\\1/p')")
	public, err := os.ReadFile(path + ".pub")
	if err != nil {
		h.net.t.Fatal(err)
	}
	// The server begins anew only some time after the signal: until then the old one listens, and then nobody.
	key := strings.Fields(string(public))[1]
	out, err := exec.Command("nsenter", "-t", strconv.Itoa(h.pid), "--net", "sh", "-c",
		"i=0; until ssh-keyscan -T 1 -t ed25519 "+h.Addr+" 2>/dev/null | grep -qF '"+key+"'; do "+
			"i=$((i+1)); [ $i -gt 200 ] && exit 1; sleep 0.02; done").CombinedOutput()
	if err != nil {
		h.net.t.Fatalf("the ssh server of %s does not show its new key: %v: %s", h.Name, err, out)
	}
}

// Bytes is how many bytes the host's network interface has sent and received.
func (h *Host) Bytes() (sent, received int64) {
	h.net.t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/net/dev", h.pid))
	if err != nil {
		h.net.t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		if name, rest, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "eth0" {
			f := strings.Fields(rest)
			received, _ = strconv.ParseInt(f[0], 10, 64)
			sent, _ = strconv.ParseInt(f[8], 10, 64)
		}
	}
	return sent, received
}
