package main

import (
	"os"
	"path/filepath"
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
