package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"hora/server/client"
)

// TestCommandsAreNotShown: what makes and ends the nodes of a pool, and what it says where it fails, is for who may
// change it; the key in a command stands in no warning and in no log.
func TestCommandsAreNotShown(t *testing.T) {
	ctx := context.Background()
	s := newSite(t, 1)
	out := filepath.Join(t.TempDir(), "log")
	s.kill()
	log, err := os.Create(out)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	s.log = log
	s.up()
	const key, said = "KEY-in-a-command", "KEY-that-it-said"
	if _, err := s.client.AddPool(ctx, client.Pool{
		Name: "cloud", Provider: "command", Min: 1, Max: 1, Node: client.NodeSize{Cores: 1},
		Create: ": --key " + key + "; echo " + said + " >&2; exit 3", Delete: "true " + key, List: "true " + key,
	}); err != nil {
		t.Fatal(err)
	}
	s.role("vera", "speech", "viewer")
	j := s.submit(of("vision"))
	vera, p := s.pass(s.client, client.NewPass{User: "vera"})
	run, _ := s.pass(s.client, client.NewPass{Job: j.ID})
	warning := func(c *client.Client) (is client.Pool) {
		all, err := c.Pools(ctx)
		if err != nil || len(all) != 2 {
			t.Fatalf("%+v, %v", all, err)
		}
		return all[1]
	}
	s.eventually("the pool says that its command has failed", func() bool { return warning(s.client).Warning != "" })
	if is := warning(s.client); is.Warning != "the last node was not made: the command create failed: exit status 3: "+said || !strings.Contains(is.Create+is.Delete+is.List, key) {
		t.Errorf("an administrator sees %+v", is)
	}
	for who, c := range map[string]*client.Client{"a viewer": vera, "a job": run} {
		if is := warning(c); is.Warning != "the last node was not made: the command create failed: exit status 3: administrators of all projects see what it said" || is.Create+is.Delete+is.List != "" {
			t.Errorf("%s sees %+v", who, is)
		}
	}
	get, _, _ := s.browser(p.Token)
	if code, text := get("/pools"); code != 200 || !strings.Contains(text, "the command create failed") || strings.Contains(text, "KEY") {
		t.Errorf("the page of pools: %d %s", code, text)
	}
	s.eventually("the log says so", func() bool { b, _ := os.ReadFile(out); return strings.Contains(string(b), "the command create failed") })
	if b, _ := os.ReadFile(out); strings.Contains(string(b), key) {
		t.Errorf("the server's log has the command:\n%s", b)
	}
}

// TestNodesThatAreListed: a node that the server has had made is ended when it does not come, also by the next server
// after that one was killed; others' machines are left alone, whatever they are called, and the pool says so.
func TestNodesThatAreListed(t *testing.T) {
	t.Parallel() // it waits, most of the time
	s := newSite(t, 1)
	dir := t.TempDir()
	there, gone := filepath.Join(dir, "there"), filepath.Join(dir, "gone")
	const others = "cloud-7\nother-1\ncloud-x\nmachine\n"
	if err := os.WriteFile(there, []byte(others), 0o644); err != nil {
		t.Fatal(err)
	}
	read := func(name string) string { b, _ := os.ReadFile(name); return string(b) }
	add := func(within string) {
		t.Helper()
		create := fmt.Sprintf("echo $HORA_NODE >>%s", there)
		remove := fmt.Sprintf("echo $HORA_NODE >>%s; sed -i /^$HORA_NODE$/d %s", gone, there)
		r := s.hora("pool", "add", "cloud", "--provider", "command", "--min", "2", "--max", "2", "--within", within,
			"--node", "cores=1", "--create", create, "--delete", remove, "--list", "cat "+there)
		if r.code != 0 {
			t.Fatalf("%+v", r)
		}
	}
	add("1h")
	s.eventually("one is made beside what is listed", func() bool { return read(there) == others+"cloud-1\n" })
	s.kill()
	s.up()
	add("1s")
	s.eventually("what was made before the server was started is ended", func() bool {
		return strings.HasPrefix(read(gone), "cloud-1\n")
	})
	s.eventually("the pool tells of the other", func() bool {
		return strings.Contains(s.hora("pool", "list").errs, "list names cloud-7, which has not come in 1s: this server has not made it, and leaves it alone")
	})
	if r := s.hora("pool", "remove", "cloud"); r.code != 0 {
		t.Fatalf("%+v", r)
	}
	s.eventually("others are left", func() bool { return read(there) == others })
	if strings.Contains(read(gone), "cloud-7") {
		t.Errorf("%q are ended", read(gone))
	}
}
