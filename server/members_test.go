package server

import (
	"errors"
	"strings"
	"testing"
	"time"

	"hora/server/client"
)

// TestANodeThatIsRevoked: its link ends at once and it comes back with no token that it has had, nor does another
// machine with its pool's; it is away like each that is silent, and one with a new token is let in.
func TestANodeThatIsRevoked(t *testing.T) {
	c := newCallSite(t, nil)
	ctx := t.Context()
	for _, name := range []string{"lab", "shed"} {
		if _, err := c.client.AddPool(ctx, client.Pool{Name: name, Provider: "static"}); err != nil {
			t.Fatal(err)
		}
	}
	ask := func(pool string) string {
		t.Helper()
		token, err := c.client.JoinToken(ctx, pool, time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		return token.Token
	}
	join, shed := ask("lab"), ask("shed")
	own, ended, err := c.comes("lab", "one", join)
	if err != nil || own == "" {
		t.Fatal(own, err)
	}
	if _, _, err := c.comes("lab", "two", join); err != nil {
		t.Fatal(err)
	}
	c.eventually("the nodes are there", func() bool { return c.pool("lab").Ready == 2 })
	all, err := c.client.Members(ctx)
	if err != nil || len(all) != 2 {
		t.Fatalf("%+v, %v", all, err)
	}
	is := all[0]
	if is.Node != "one" || is.Pool != "lab" || is.State != "ready" || time.Since(is.Joined) > time.Hour {
		t.Errorf("%+v", is)
	}
	if err := c.client.RevokeNode(ctx, "one"); err != nil {
		t.Fatal(err)
	}
	select {
	case <-ended:
	case <-time.After(soon):
		t.Fatal("the node was revoked, and its link goes on")
	}
	for what, token := range map[string]string{"its own": own, "its pool's": join} {
		var f *client.Fault
		if _, _, err := c.comes("lab", "one", token); !errors.As(err, &f) || f.Status != 401 {
			t.Errorf("it comes back with %s token: %v", what, err)
		}
		if f != nil && !strings.Contains(f.Detail, "hora pool token") {
			t.Error(f.Detail)
		}
		if r, err := client.New(c.url, token).Get(ctx, strings.Repeat("0", 64)); !errors.As(err, &f) || f.Status != 401 {
			t.Errorf("it reads content with %s token: %v, %v", what, r, err)
		}
	}
	if nodes, err := c.client.Nodes(ctx); err != nil || len(nodes) != 2 || !nodes[0].Away || nodes[1].Away {
		t.Errorf("the nodes are %+v, %v", nodes, err)
	}
	if _, _, err := c.comes("shed", "three", shed); err != nil {
		t.Errorf("another pool's: %v", err)
	}
	if _, _, err := c.comes("lab", "one", ask("lab")); err != nil {
		t.Errorf("with a token that was made since: %v", err)
	}
	c.eventually("it is back", func() bool { return c.pool("lab").Ready == 2 })
	if err := c.client.RevokeNode(ctx, "nobody"); err == nil || !strings.Contains(err.Error(), "there is no node nobody that has a token: hora node list") {
		t.Error(err)
	}
}

// TestANodeThatComesWhileItIsRevoked is not let in, however far it has come.
func TestANodeThatComesWhileItIsRevoked(t *testing.T) {
	c := newCallSite(t, nil)
	if _, err := c.client.AddPool(t.Context(), client.Pool{Name: "lab", Provider: "static"}); err != nil {
		t.Fatal(err)
	}
	token, err := c.client.JoinToken(t.Context(), "lab", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := c.comes("lab", "one", token.Token); err != nil {
		t.Fatal(err)
	}
	revoked := make(chan error, 1)
	go func() { revoked <- c.client.RevokeNode(t.Context(), "one") }()
	for n := 0; ; n++ { // as who wants to be back
		if _, _, err := c.comes("lab", "one", token.Token); err != nil {
			break
		}
		if n == 10_000 {
			t.Fatal("it is let in again and again")
		}
	}
	if err := <-revoked; err != nil {
		t.Fatal(err)
	}
	if p := c.pool("lab"); p.Ready != 0 {
		t.Errorf("it is revoked, and there: %+v", p)
	}
}
