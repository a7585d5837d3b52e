package main

import (
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"hora/event"
)

// offer starts an agent that says what its machine is called.
func (g *gathering) offer(node, slots string) *lasting {
	g.t.Helper()
	at := g.await("listening", 1, 30*time.Second)[0].(*event.Listening)
	l := &lasting{cmd: g.process(nil, "agent", "--hub", strings.Join(at.Addrs, ","), "--node", node, "--slots", slots)}
	l.begin(g.t)
	io.WriteString(l.in, g.secret.Hex()+"\n")
	g.agents = append(g.agents, l)
	return l
}

// TestSlotsComeAndGo: of agents that offer more, a job uses what its limits say, and follows them: a node is given away
// at the next commit, comes back on the agent that is still there, and both grow in place.
func TestSlotsComeAndGo(t *testing.T) {
	limits, enough := filepath.Join(t.TempDir(), "limits"), filepath.Join(t.TempDir(), "enough")
	set := func(text string) {
		if err := os.WriteFile(limits+".new", []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(limits+".new", limits); err != nil {
			t.Fatal(err)
		}
	}
	set("a:1\nb:1\n")
	g := gather(t, nil, "-np", "2", "--min-np", "1", "--max-np", "4", "--limits", limits, "--bind", "none", "--env", "HORA_TEST_WORKER=elastic", "--env", "ENOUGH="+enough, "--", self(t))
	agents := []*lasting{g.offer("a", "4"), g.offer("b", "4")}
	epochs := 0
	until := func(want ...event.Host) {
		t.Helper()
		for {
			epochs++
			e := g.await("opened", epochs, 30*time.Second)[epochs-1].(*event.Opened)
			slices.SortFunc(e.Hosts, func(a, b event.Host) int { return strings.Compare(a.Name, b.Name) })
			if slices.Equal(e.Hosts, want) {
				return
			}
		}
	}
	until(event.Host{Name: "a", Slots: 1}, event.Host{Name: "b", Slots: 1})
	set("a:1\n")
	until(event.Host{Name: "a", Slots: 1})
	set("a:1\nb:1\n")
	until(event.Host{Name: "a", Slots: 1}, event.Host{Name: "b", Slots: 1})
	set("a:2\nb:2\n")
	until(event.Host{Name: "a", Slots: 2}, event.Host{Name: "b", Slots: 2})
	set("b:2\n") // the hub's own machine may go too
	until(event.Host{Name: "b", Slots: 2})
	if err := os.WriteFile(enough, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if code := g.hub.code(t, 60*time.Second); code != 0 {
		t.Errorf("exit code %d: %s", code, g.hub.said())
	}
	for _, l := range agents {
		if code := l.code(t, 10*time.Second); code != 0 {
			t.Errorf("an agent ends with %d: %s", code, l.said())
		}
	}
	g.nothingLeft(3 * time.Second)
}
