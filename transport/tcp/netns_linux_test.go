package tcp

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
)

// hosts makes two network namespaces joined by a cable and returns their names and
// addresses, and a function that pulls the cable.
func hosts(t *testing.T) (names, addrs [2]string, pull func()) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	if _, err := exec.LookPath("ip"); err != nil {
		t.Skip("needs root and the ip command")
	}
	ip := func(args ...string) error {
		out, err := exec.Command("ip", args...).CombinedOutput()
		if err != nil {
			return fmt.Errorf("ip %s: %w: %s", strings.Join(args, " "), err, out)
		}
		return nil
	}
	id := os.Getpid() % 100000
	ends := [2]string{fmt.Sprintf("ht%da", id), fmt.Sprintf("ht%db", id)}
	t.Cleanup(func() {
		_ = ip("-n", names[0], "link", "del", ends[0]) // before the namespace: that alone frees it later
		for _, n := range names {
			_ = ip("netns", "del", n)
		}
	})
	for i, end := range ends {
		names[i] = end
		addrs[i] = fmt.Sprintf("10.79.77.%d", i+1)
		if err := ip("netns", "add", end); err != nil {
			if i == 0 {
				t.Skipf("needs root with the right to make network namespaces: %v", err)
			}
			t.Fatal(err)
		}
	}
	steps := [][]string{{"-n", names[0], "link", "add", ends[0], "type", "veth", "peer", "name", ends[1], "netns", names[1]}}
	for i, n := range names {
		steps = append(steps, []string{"-n", n, "addr", "add", addrs[i] + "/24", "dev", ends[i]},
			[]string{"-n", n, "link", "set", ends[i], "up"}, []string{"-n", n, "link", "set", "lo", "up"})
	}
	for _, s := range steps {
		if err := ip(s...); err != nil {
			t.Fatal(err)
		}
	}
	return names, addrs, func() {
		if err := ip("-n", names[0], "link", "set", ends[0], "down"); err != nil {
			t.Fatal(err)
		}
	}
}

func inside(name string, cmd *exec.Cmd) {
	path, _ := exec.LookPath("ip")
	cmd.Args = append([]string{"ip", "netns", "exec", name, cmd.Path}, cmd.Args[1:]...)
	cmd.Path = path
}

// Four ranks on two hosts; the cable between the hosts is pulled. No connection
// ends, nothing arrives: every rank names one on the other side.
func TestPulledCableIsNoticedOnBothSides(t *testing.T) {
	names, addrs, pull := hosts(t)
	procs := spawn(t, 4, func(s *rankSpec) {
		s.PeerTimeout, s.Listen = time.Second, addrs[s.Rank/2]+":0"
	}, func(rank int, cmd *exec.Cmd) { inside(names[rank/2], cmd) })
	pull()
	begun := time.Now()
	for r, p := range procs {
		line := p.next(t, 5*time.Second)
		first, second := 2, 3
		if r >= 2 {
			first, second = 0, 1
		}
		named := strings.Contains(line, fmt.Sprintf("lost rank %d on", first)) || strings.Contains(line, fmt.Sprintf("lost rank %d on", second))
		if !strings.HasPrefix(line, "failed") || !named || !strings.Contains(line, "silent for 1s") {
			t.Errorf("rank %d: %s", r, line)
		}
	}
	if d := time.Since(begun); d > 5*time.Second {
		t.Errorf("took %v", d)
	}
}

// A joined process in which nothing happens uses less than half a percent of a core.
func TestIdleProcessUsesNoProcessor(t *testing.T) {
	procs := spawn(t, 4, func(s *rankSpec) { s.IdleRank = s.Rank }, nil)
	used := func() time.Duration {
		var sum time.Duration
		for _, p := range procs {
			b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.Cmd.Process.Pid))
			if err != nil {
				t.Fatal(err)
			}
			f := strings.Fields(string(b[strings.LastIndexByte(string(b), ')')+1:]))
			var user, system int64
			fmt.Sscan(f[11], &user)
			fmt.Sscan(f[12], &system)
			sum += time.Duration(user+system) * 10 * time.Millisecond
		}
		return sum
	}
	before := used()
	begun := time.Now()
	<-time.After(4 * time.Second)
	share := float64(used()-before) / float64(time.Since(begun)) / float64(len(procs))
	if share > 0.005 {
		t.Errorf("an idle rank uses %.2f %% of a core", 100*share)
	}
	t.Logf("%.3f %% of a core each", 100*share)
	for _, p := range procs {
		p.Cmd.Process.Signal(syscall.SIGKILL)
	}
}

func TestCoresAreCountedFromTheKernelsList(t *testing.T) {
	for list, want := range map[string]int{"0": 1, "0-1": 2, "0-3,6,8-9": 7, "": 0, "x": 0, "3-1": 0} {
		if n := countCores(list); n != want {
			t.Errorf("%q: %d cores, want %d", list, n, want)
		}
	}
	if onlineCores() < 1 {
		t.Error("no cores")
	}
}
