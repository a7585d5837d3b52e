package launch

import (
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"hora/internal/hosttest"
)

func TestWorkersListenWhereAllOthersReachThem(t *testing.T) {
	d := doors{addrs: [][]string{{"10.0.0.1"}, {"10.9.0.2", "10.0.0.2"}, {"10.0.0.3", "10.8.0.3"}}, targets: make([]string, 5)}
	for _, c := range []struct {
		name   string
		lost   [][2]int // asker, target
		forced bool
		want   string
	}{
		{"all reach all", nil, false, "[[] [] []]"},
		{"one address only one host sees", [][2]int{{0, 1}}, false, "[[] [10.0.0.2] []]"},
		{"its own answer does not count", [][2]int{{1, 1}, {2, 3}}, false, "[[] [] []]"},
		{"nobody's address serves all", [][2]int{{0, 1}, {2, 2}}, false, "[[] [] []]"},
		{"forced", [][2]int{{0, 4}}, true, "[[10.0.0.1] [10.9.0.2 10.0.0.2] [10.0.0.3]]"},
		{"forced where nothing serves", [][2]int{{0, 1}, {2, 2}}, true, "[[10.0.0.1] [10.9.0.2 10.0.0.2] [10.0.0.3 10.8.0.3]]"},
	} {
		answers := make([][]bool, 3)
		for i := range answers {
			answers[i] = slices.Repeat([]bool{true}, 5)
		}
		for _, l := range c.lost {
			answers[l[0]][l[1]] = false
		}
		if got := fmt.Sprint(d.open(answers, c.forced)); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}

func TestAddressesThatOthersDoNotReachAreNotUsed(t *testing.T) {
	n := hosttest.Up(t, "server1", "server2")
	a, b := n.Hosts[0], n.Hosts[1]
	p := program(t, a)
	// An interface of server2 with an address that nobody else has a way to.
	if code, _, errs := b.Output(5*time.Second, "sh", "-c", "ip link add aaa type veth peer name bbb && ip addr add 10.1.0.1/24 dev aaa && ip link set aaa up && ip link set bbb up"); code != 0 {
		t.Fatal(errs)
	}
	show := `echo "$RANK listens at $HORA_LISTEN"`
	code, out, errs := a.Output(30*time.Second, p, "__launch", "-np=2", "-H=server1:1,server2:1", "sh", "-c", show)
	if code != 0 || !strings.Contains(out, "0 listens at \n") || !strings.Contains(out, "1 listens at 10.77.0.2:0\n") {
		t.Errorf("exit code %d\n%s%s", code, out, errs)
	}
	code, out, errs = a.Output(30*time.Second, p, "__launch", "-interfaces=eth0", "-np=2", "-H=server1:1,server2:1", "sh", "-c", show)
	if code != 0 || !strings.Contains(out, "0 listens at 10.77.0.1:0\n") || !strings.Contains(out, "1 listens at 10.77.0.2:0\n") {
		t.Errorf("exit code %d\n%s%s", code, out, errs)
	}
}

func TestAPortInUseIsNamed(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	port := ln.Addr().(*net.TCPAddr).Port
	spec := testSpec([]string{"true"})
	spec.NP, spec.Port = 1, port
	_, err = run(t.Context(), spec)
	want := fmt.Sprintf("listen for workers on port %d: it is in use: choose another --port, or none", port)
	if e, ok := err.(*Error); !ok || e.Text != want || e.Code != ExitSystem {
		t.Errorf("%v, want %q", err, want)
	}
}
