package main

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"hora/internal/hosttest"
)

// A launcher behind a firewall, that starts workers elsewhere: by the port that is let through, else through ssh, else
// with a word on what to open.
func TestALauncherBehindAFirewall(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("takes long under the race detector")
	}
	n := hosttest.Up(t, "desk", "server1", "server2")
	desk := n.Hosts[0]
	program, worker := desk.Install(self(t), "hora"), ""
	for _, h := range n.Hosts {
		worker = h.Install(self(t), "worker")
	}
	desk.Firewall(22, 29400)
	for _, c := range []struct {
		name, flags, hosts string
		code               int
		out, err           string
		before             func()
	}{
		{"by a port that is open", "--port 29400", "server1:1,server2:1", 0, " sums 3;", "", func() {}},
		{"through ssh", "--verbose", "server1:1,server2:1", 0, " sums 3;", "host server1 reaches none of this host's addresses (10.77.0.1:", func() {}},
		{"with ranks here", "--verbose", "desk:1,server1:1", 69, "", "open the ports between them, or name a port that is open with --port", func() {}},
		{"when ssh forwards nothing", "--verbose", "server1:1,server2:1", 69, "", "and ssh forwards no port either (", func() {
			for _, h := range n.Hosts[1:] {
				path := filepath.Join(h.Home, ".ssh/authorized_keys")
				key, err := os.ReadFile(path)
				if err == nil {
					err = os.WriteFile(path, append([]byte("no-port-forwarding "), key...), 0o600)
				}
				if err != nil {
					t.Fatal(err)
				}
			}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.before()
			argv := append([]string{"env", "HORA_TEST_PROGRAM=1", program, "run", "-np", "2", "-H", c.hosts}, strings.Fields(c.flags)...)
			code, out, errs := desk.Output(60*time.Second, append(argv, "--env", "HORA_TEST_PROGRAM=", "--env", "HORA_TEST_WORKER=1", worker)...)
			if code != c.code || c.code == 0 && !met(out, 2) || !strings.Contains(out, c.out) ||
				!strings.Contains(errs, c.err) {
				t.Errorf("exit code %d, want %d with %q and %q\n%s%s", code, c.code, c.out, c.err, out, errs)
			}
			if strings.Contains(errs, "through ssh") != (c.name == "through ssh") {
				t.Errorf("it said\n%s", errs)
			}
			if left := desk.Count("^ssh "); left != 0 {
				t.Errorf("%d ssh processes are left", left)
			}
		})
	}
}

// TestAJobThroughATunnelIsAdopted: whoever takes over a job whose workers reach the launcher by a port that ssh
// forwards has ssh forward the same port again, whether the dead launcher's ssh was killed with it or not. Where
// something else holds the port by then, one sentence says so.
func TestAJobThroughATunnelIsAdopted(t *testing.T) {
	if testing.Short() {
		t.Skip("takes long under the race detector")
	}
	o := newOverSSH(t)
	o.desk.Firewall(22)
	begin := func() *lively {
		t.Helper()
		return o.beginOn(30, "server1:1,server2:1", "--verbose")
	}
	for _, all := range []bool{false, true} {
		l := begin()
		if !strings.Contains(l.text(), "its workers reach the launcher through ssh") {
			t.Fatalf("it said\n%s", l.text())
		}
		o.sever(l, all)
		second := o.run(30, "--adopt", "state", "--verbose")
		second.await("the workers of host server1 reach the launcher through ssh again")
		o.sever(second, !all)
		o.release()
		heir := o.run(30, "--adopt", "state")
		if code, _ := heir.end(); code != 0 {
			t.Fatalf("exit code %d\n%s\nthe second said\n%s", code, heir.text(), second.text())
		}
		for rank, h := range o.others {
			if want := fmt.Sprintf("[%d]<stdout>:rank %d of 2 on %s sums 3;", rank, rank, h.Name); !strings.Contains(heir.text(), want) {
				t.Errorf("no %q in\n%s", want, heir.text())
			}
			if b, err := os.ReadFile(filepath.Join(h.Home, "pids")); err != nil || strings.Count(string(b), "\n") != 1 {
				t.Errorf("rank %d was started again: %q, %v", rank, b, err)
			}
		}
		o.gone(10 * time.Second)
	}
	o.sever(begin(), true)
	defer o.hold(o.others[0]).Close()
	heir := o.run(30, "--adopt", "state")
	want := "the workers of host server1 know the launcher by a port of their own host, and ssh does not forward port "
	if code, last := heir.end(); code != 69 || !strings.Contains(last, want) {
		t.Errorf("exit code %d\n%s", code, heir.text())
	}
	o.gone(10 * time.Second)
}

// hold takes the port of a host's loopback that its workers know the launcher by, as soon as ssh's end there lets go.
func (o *overSSH) hold(h *hosttest.Host) net.Listener {
	o.t.Helper()
	b, err := os.ReadFile(filepath.Join(o.desk.Home, "state", "launcher"))
	if err != nil {
		o.t.Fatal(err)
	}
	at := regexp.MustCompile(`"Addr":"(127\.0\.0\.1:\d+)"`).FindSubmatch(b)
	if at == nil {
		o.t.Fatalf("no port of a host's own in %s", b)
	}
	end := time.After(10 * time.Second)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		var ln net.Listener
		h.Do(func() error {
			ln, err = net.Listen("tcp", string(at[1]))
			return nil
		})
		if err == nil {
			return ln
		}
		select {
		case <-tick.C:
		case <-end:
			o.t.Fatal(err)
		}
	}
}
