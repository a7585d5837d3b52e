package server

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"hora/server/client"
)

// machinesOf makes nodes that never come by themselves, and ends them as delete says.
type machinesOf struct {
	mu      sync.Mutex // guards made
	made    []string
	created chan string
	tokens  chan string // of those that were made, where somebody wants them
	delete  func(name string) error
}

func (m *machinesOf) Create(_ *client.Pool, name, token string) error {
	m.mu.Lock()
	m.made = append(m.made, name)
	m.mu.Unlock()
	m.created <- name
	if m.tokens != nil {
		m.tokens <- token
	}
	return nil
}

func (m *machinesOf) Delete(_ *client.Pool, name string) error { return m.delete(name) }

func (m *machinesOf) List(*client.Pool) ([]string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return append([]string(nil), m.made...), nil
}

// nextOf waits for a node's name.
func nextOf(t *testing.T, from chan string, what string) string {
	t.Helper()
	select {
	case name := <-from:
		return name
	case <-time.After(soon):
		t.Fatal(what)
		return ""
	}
}

// TestARemovedPoolStaysRemoved: once its nodes are being ended the pool is gone for good, whoever leaves, and a server
// that is started anew ends what is left of it.
func TestARemovedPoolStaysRemoved(t *testing.T) {
	begun, goOn := make(chan string, 10), make(chan error, 10)
	m := &machinesOf{created: make(chan string, 10), delete: func(name string) error { begun <- name; return <-goOn }}
	c := newCallSite(t, m)
	pool := client.Pool{
		Name: "cloud", Provider: "command", Min: 1, Max: 1, Node: client.NodeSize{Cores: 1}, Create: "create", Delete: "delete",
	}
	if _, err := c.client.AddPool(t.Context(), pool); err != nil {
		t.Fatal(err)
	}
	name := nextOf(t, m.created, "no node is made")
	ctx, leave := context.WithCancel(t.Context())
	answer := make(chan error, 1)
	go func() { answer <- c.s.RemovePool(ctx, "cloud") }()
	if is := nextOf(t, begun, "the pool's node is not ended"); is != name {
		t.Errorf("node %s is ended, and %s was made", is, name)
	}
	leave()
	if all, err := c.st.Pools(t.Context()); err != nil || len(all) != 0 {
		t.Errorf("its node is being ended, and the store has the pools %+v, %v", all, err)
	}
	goOn <- errors.New("the cloud is away")
	if err := <-answer; err != nil && !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	goOn <- errors.New("the cloud is still away") // should it be tried again before the server ends
	c.close()

	again := &machinesOf{created: make(chan string, 10), delete: func(name string) error { begun <- name; return nil }}
	c = newCallSiteIn(t, c.dir, again)
	if is := nextOf(t, begun, "a server that was started anew does not end the node of the pool that was removed"); is != name {
		t.Errorf("node %s is ended, and %s was left", is, name)
	}
	for end := time.Now().Add(soon); ; <-time.After(5 * time.Millisecond) {
		left, err := c.st.Made(t.Context(), "")
		if err == nil && len(left) == 0 {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("the node is gone, and is kept as %+v, %v", left, err)
		}
	}
	if all, err := c.s.Pools(t.Context()); err != nil || len(all) != 1 {
		t.Errorf("there are the pools %+v, %v", all, err)
	}
}
