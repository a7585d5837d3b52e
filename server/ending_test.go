package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"hora/server/client"
	"hora/server/node"
)

// comes has a node of a pool come with a token, as hora node does, until the test ends or the server ends it. What is
// wrong where it does not, in the server's words.
func (c *callSite) comes(pool, name, token string) (own string, ended <-chan struct{}, err error) {
	c.t.Helper()
	conn, in, err := client.New(c.url, token).Upgrade(c.t.Context(), "/node", node.Upgraded)
	if err != nil {
		return "", nil, err
	}
	c.t.Cleanup(func() { conn.Close() })
	hello := node.Hello{Protocol: node.Protocol, Version: "test", Name: name, Pool: pool, Instance: name, Slots: 1}
	if err := json.NewEncoder(conn).Encode(hello); err != nil {
		return "", nil, err
	}
	words := json.NewDecoder(in)
	var w node.Welcome
	if err := words.Decode(&w); err != nil {
		return "", nil, err
	}
	if w.Error != "" {
		return "", nil, errors.New(w.Error)
	}
	over := make(chan struct{})
	go func() {
		defer close(over)
		defer conn.Close()
		for n := 1; ; n++ {
			var word node.Word
			if words.Decode(&word) != nil || word.End {
				return
			}
			if _, err := fmt.Fprintf(conn, "{\"beat\":%d}\n", n); err != nil {
				return
			}
		}
	}()
	return w.Token, over, nil
}

// pool is one as who may do everything sees it.
func (c *callSite) pool(name string) client.Pool {
	c.t.Helper()
	all, err := c.client.Pools(context.Background())
	if err != nil {
		c.t.Fatal(err)
	}
	for _, p := range all {
		if p.Name == name {
			return p
		}
	}
	return client.Pool{}
}

// eventually asks until it is so.
func (c *callSite) eventually(what string, so func() bool) {
	c.t.Helper()
	for end := time.Now().Add(soon); !so(); <-time.After(5 * time.Millisecond) {
		if time.Now().After(end) {
			c.t.Fatalf("not so after %v: %s", soon, what)
		}
	}
}

// TestAnIdleNodeThatCannotBeEnded is tried again until it is gone; meanwhile the pool says so, and has no other in its
// place.
func TestAnIdleNodeThatCannotBeEnded(t *testing.T) {
	asked, answers := make(chan string, 10), make(chan error, 10)
	tokens := make(chan string, 10)
	m := &machinesOf{created: make(chan string, 10), tokens: tokens}
	m.delete = func(name string) error { asked <- name; return <-answers }
	c := newCallSite(t, m)
	pool := client.Pool{
		Name: "cloud", Provider: "command", Min: 1, Max: 1, Node: client.NodeSize{Cores: 1}, Create: "create", Delete: "delete",
	}
	change := func(idle float64, least int) {
		t.Helper()
		pool.Min, pool.Idle = least, idle
		if _, err := c.client.AddPool(t.Context(), pool); err != nil {
			t.Fatal(err)
		}
	}
	change(0, 1)
	name := nextOf(t, m.created, "no node is made")
	if _, _, err := c.comes("cloud", name, nextOf(t, tokens, "it has no token")); err != nil {
		t.Fatal(err)
	}
	c.eventually("the node is there", func() bool { return c.pool("cloud").Ready == 1 })
	change(0.01, 0)
	if is := nextOf(t, asked, "the idle node is not ended"); is != name {
		t.Errorf("node %s is ended, and %s is idle", is, name)
	}
	answers <- &CommandFault{Command: "delete", Err: errors.New("exit status 1"), Said: "the cloud is away, key 123"}
	said := "node " + name + " could not be ended, is tried again each minute, and counts until it is gone: " +
		"the command delete failed: exit status 1: the cloud is away, key 123"
	c.eventually("the pool says so", func() bool { return c.pool("cloud").Warning == said })
	spare := func() (n int) {
		if err := c.s.do(func() { n = c.s.pools["cloud"].spare }); err != nil {
			t.Fatal(err)
		}
		return n
	}
	c.eventually("the schedule counts on no other", func() bool { return spare() == 0 })
	change(0.01, 1)
	c.tends("cloud")
	if p := c.pool("cloud"); p.Starting != 0 {
		t.Errorf("a node could not be ended, the pool has room for one, and another is made: %+v", p)
	}
	if err := c.s.do(func() { c.s.pools["cloud"].ending[name].again = time.Now() }); err != nil { // a minute later
		t.Fatal(err)
	}
	if is := nextOf(t, asked, "it is not tried again"); is != name {
		t.Errorf("node %s is ended, and %s could not be", is, name)
	}
	answers <- nil
	nextOf(t, m.created, "it is gone, and no other is made")
	if n := spare(); n != 1 {
		t.Errorf("it is gone, and the schedule counts on %d nodes", n)
	}
	if p := c.pool("cloud"); strings.Contains(p.Warning, "could not be ended") {
		t.Errorf("it is gone, and the pool says %q", p.Warning)
	}
	if left, err := c.st.Made(t.Context(), ""); err != nil || len(left) != 1 || left[0].Node == name {
		t.Errorf("it is gone, and the store has %+v, %v", left, err)
	}
}

// tends has a pool be looked after once.
func (c *callSite) tends(name string) {
	c.t.Helper()
	var todo []func()
	if err := c.s.do(func() { todo = c.s.tend(c.s.pools[name]) }); err != nil {
		c.t.Fatal(err)
	}
	for _, f := range todo {
		f()
	}
}

// TestWhatIsGoneIsNotEnded: a machine that could not be ended, and is not among those that there are, is forgotten.
func TestWhatIsGoneIsNotEnded(t *testing.T) {
	p := newPool(&client.Pool{Name: "cloud"})
	for _, name := range []string{"cloud-1", "cloud-2", "cloud-3"} {
		p.ending[name] = &departure{why: errors.New("no such machine")}
	}
	p.ending["cloud-3"].tried = true
	if gone := p.goneBut([]string{"cloud-2"}); len(gone) != 1 || gone[0] != "cloud-1" || p.stuck() != 2 {
		t.Errorf("%v are gone, %d are not", gone, p.stuck())
	}
}

// TestWhatIsNotListedIsGone: a machine that was ended by hand cannot be ended any more, and is not tried again, whether
// its pool is there or was removed: the pool's list says so, also with an empty answer.
func TestWhatIsNotListedIsGone(t *testing.T) {
	t.Parallel() // it waits, most of the time
	for what, end := range map[string]func(c *callSite, pool client.Pool) error{
		"idle": func(c *callSite, pool client.Pool) error {
			pool.Min, pool.Idle = 0, 0.01
			_, err := c.client.AddPool(t.Context(), pool)
			return err
		},
		"removed": func(c *callSite, pool client.Pool) error { return c.client.RemovePool(t.Context(), pool.Name) },
	} {
		t.Run(what, func(t *testing.T) {
			asked, tokens := make(chan string, 10), make(chan string, 10)
			m := &machinesOf{created: make(chan string, 10), tokens: tokens}
			m.delete = func(name string) error { asked <- name; return errors.New("no such machine") }
			c := newCallSite(t, m)
			pool := client.Pool{
				Name: "cloud", Provider: "command", Min: 1, Max: 1, Idle: 3600, Node: client.NodeSize{Cores: 1},
				Create: "create", Delete: "delete", List: "list",
			}
			if _, err := c.client.AddPool(t.Context(), pool); err != nil {
				t.Fatal(err)
			}
			name := nextOf(t, m.created, "no node is made")
			if _, _, err := c.comes("cloud", name, nextOf(t, tokens, "it has no token")); err != nil {
				t.Fatal(err)
			}
			c.eventually("the node is there", func() bool { return c.pool("cloud").Ready == 1 })
			m.mu.Lock()
			m.made = nil
			m.mu.Unlock()
			if err := end(c, pool); err != nil {
				t.Fatal(err)
			}
			if is := nextOf(t, asked, "the node is not ended"); is != name {
				t.Errorf("node %s is ended, and %s is to be", is, name)
			}
			c.eventually("it is forgotten", func() bool {
				left, err := c.st.Made(t.Context(), "")
				return err == nil && len(left) == 0
			})
			if p := c.pool("cloud"); p.Warning != "" {
				t.Errorf("the pool says %q", p.Warning)
			}
		})
	}
}
