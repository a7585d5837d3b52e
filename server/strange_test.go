package server

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"hora/job"
	"hora/server/client"
	"hora/server/store"
)

// listing makes a pool whose list names machines, and says which are ended.
func listing(machines ...string) (m *machinesOf, ended chan string) {
	ended = make(chan string, 100)
	m = &machinesOf{made: machines, created: make(chan string, 100), tokens: make(chan string, 100)}
	m.delete = func(name string) error {
		m.mu.Lock()
		m.made = slices.DeleteFunc(m.made, func(is string) bool { return is == name })
		m.mu.Unlock()
		ended <- name
		return nil
	}
	return m, ended
}

func listed(least int, within float64) client.Pool {
	return client.Pool{
		Name: "cloud", Provider: "command", Min: least, Max: 1, Node: client.NodeSize{Cores: 1}, Idle: 3600,
		Within: within, Create: "create", Delete: "delete", List: "list",
	}
}

// TestAListedMachineIsSomebodys: what a pool's list names and the server has not made may come, for as long as one that
// was made, and who waits is told so. When it has not it is left alone, and takes no room.
func TestAListedMachineIsSomebodys(t *testing.T) {
	t.Parallel() // it waits, most of the time
	m, ended := listing("cloud-1")
	c := newCallSite(t, m)
	if _, err := c.client.AddPool(t.Context(), listed(0, 0)); err != nil {
		t.Fatal(err)
	}
	j, err := c.client.Submit(t.Context(), client.Document{
		Spec: job.Spec{Command: []string{"true"}}, Pool: "cloud",
	}, client.Key())
	if err != nil {
		t.Fatal(err)
	}
	want := "pool cloud makes no node for it now: it needs 1 slot; cloud-1, which this server has not made, may come " +
		"within 10m0s, and there is no room for another beside"
	c.eventually("the job's reason says so", func() bool {
		j, err := c.client.Job(t.Context(), j.ID)
		return err == nil && j.Reason != nil && j.Reason.Text == want
	})
	if _, err := c.client.AddPool(t.Context(), listed(0, 0.01)); err != nil {
		t.Fatal(err)
	}
	if is := nextOf(t, m.created, "no node is made in its place"); is != "cloud-2" {
		t.Errorf("node %s is made", is)
	}
	if is := nextOf(t, ended, "one that was made and does not come is not ended"); is != "cloud-2" {
		t.Errorf("node %s is ended, which this server has not made", is)
	}
	said := "list names cloud-1, which has not come in 10ms: this server has not made it, and leaves it alone"
	if p := c.pool("cloud"); !strings.Contains(p.Warning, said) {
		t.Errorf("the pool says %q", p.Warning)
	}
	if _, err := c.client.Do(t.Context(), j.ID, "cancel"); err != nil {
		t.Fatal(err)
	}
	c.eventually("the pool is removed", func() bool { return c.client.RemovePool(t.Context(), "cloud") == nil })
	for len(ended) > 0 {
		if <-ended == "cloud-1" {
			t.Error("it is ended with the pool")
		}
	}
}

// TestANameThatIsTaken: another server may have made a machine since the list was asked last. No other is made under
// its name, and it is nobody's to end but that one's.
func TestANameThatIsTaken(t *testing.T) {
	t.Parallel() // it waits, most of the time
	m, ended := listing()
	c := newCallSite(t, m)
	pool := listed(0, 0.01)
	if _, err := c.client.AddPool(t.Context(), pool); err != nil {
		t.Fatal(err)
	}
	c.eventually("the list was asked", func() bool {
		known := false
		_ = c.s.do(func() { p := c.s.pools["cloud"]; known = !p.listed.IsZero() && !p.unknown })
		return known
	})
	c.tends("cloud")
	m.mu.Lock()
	m.made = append(m.made, "cloud-1")
	m.mu.Unlock()
	pool.Min = 1
	if _, err := c.client.AddPool(t.Context(), pool); err != nil {
		t.Fatal(err)
	}
	if is := nextOf(t, m.created, "no node is made"); is != "cloud-2" {
		t.Errorf("node %s is made, and there is one", is)
	}
	if is := nextOf(t, ended, "one that was made and does not come is not ended"); is != "cloud-2" {
		t.Errorf("node %s is ended, which this server has not made", is)
	}
}

// TestWhatWasMadeIsEndedByTheNext: a server that is started anew on the same folder ends what the one before has had
// made, and has not come.
func TestWhatWasMadeIsEndedByTheNext(t *testing.T) {
	t.Parallel() // it waits, most of the time
	m, _ := listing()
	c := newCallSite(t, m)
	if _, err := c.client.AddPool(t.Context(), listed(1, 3600)); err != nil {
		t.Fatal(err)
	}
	name := nextOf(t, m.created, "no node is made")
	c.close()
	again, ended := listing(name)
	c = newCallSiteIn(t, c.dir, again)
	if _, err := c.client.AddPool(t.Context(), listed(0, 0.01)); err != nil {
		t.Fatal(err)
	}
	if is := nextOf(t, ended, "it is not ended"); is != name {
		t.Errorf("node %s is ended", is)
	}
}

// TestACopyBesideTheOriginal: a copy of a server's folder that is started while that server runs ends none of its
// machines, and makes none under their names; one that comes to it is its own.
func TestACopyBesideTheOriginal(t *testing.T) {
	t.Parallel() // it waits, most of the time
	m, lost := listing()
	c := newCallSite(t, m)
	if _, err := c.client.AddPool(t.Context(), listed(1, 3600)); err != nil {
		t.Fatal(err)
	}
	name := nextOf(t, m.created, "no node is made")
	own, _, err := c.comes("cloud", name, nextOf(t, m.tokens, "it has no token"))
	if err != nil {
		t.Fatal(err)
	}
	c.eventually("the node is there", func() bool { return c.pool("cloud").Ready == 1 })
	restored := func(machines ...string) (*callSite, *machinesOf, chan string) {
		t.Helper()
		to := filepath.Join(t.TempDir(), "restored")
		if _, err := store.Backup(c.dir, to, func() {}); err != nil {
			t.Fatal(err)
		}
		m, ended := listing(machines...)
		return newCallSiteIn(t, to, m), m, ended
	}

	other, made, ended := restored(name)
	said := name + " may come, and is not ended if it does not: this server's folder is a copy of another's, which has made it"
	if p := other.pool("cloud"); p.Warning != said {
		t.Errorf("the pool says %q", p.Warning)
	}
	if _, err := other.client.AddPool(t.Context(), listed(1, 0.01)); err != nil {
		t.Fatal(err)
	}
	anew, number := nextOf(t, made.created, "it makes no node"), 0
	if _, err := fmt.Sscanf(anew, "cloud-%d", &number); err != nil || number < 1e8 {
		t.Errorf("it makes node %s, which the other may make", anew)
	}
	if is := nextOf(t, ended, "what it makes is not ended"); is != anew {
		t.Errorf("node %s is ended, and it has made %s", is, anew)
	}
	if err := other.client.RemovePool(t.Context(), "cloud"); err != nil {
		t.Fatal(err)
	}
	other.close()
	if made.mu.Lock(); !slices.Contains(made.made, name) {
		t.Errorf("node %s is ended", name)
	}
	made.mu.Unlock()

	other, _, ended = restored(name) // the original is no more, and its nodes come here
	if _, _, err := other.comes("cloud", name, own); err != nil {
		t.Fatal(err)
	}
	other.eventually("the node is there", func() bool { return other.pool("cloud").Ready == 1 })
	pool := listed(0, 3600)
	pool.Idle = 0.01
	if _, err := other.client.AddPool(t.Context(), pool); err != nil {
		t.Fatal(err)
	}
	if is := nextOf(t, ended, "one that has come is not ended when it is idle"); is != name {
		t.Errorf("node %s is ended", is)
	}
	if len(lost) > 0 {
		t.Errorf("the original has ended %s", <-lost)
	}
}

// TestOthersMachinesHoldNobodyBack: a machine of another server's that is listed is nobody's who waits here, while
// there is room for one more.
func TestOthersMachinesHoldNobodyBack(t *testing.T) {
	t.Parallel() // it waits, most of the time
	m, ended := listing("cloud-1")
	c := newCallSite(t, m)
	pool := listed(0, 0)
	pool.Max = 2
	if _, err := c.client.AddPool(t.Context(), pool); err != nil {
		t.Fatal(err)
	}
	j, err := c.client.Submit(t.Context(), client.Document{
		Spec: job.Spec{Command: []string{"true"}}, Pool: "cloud",
	}, client.Key())
	if err != nil {
		t.Fatal(err)
	}
	if is := nextOf(t, m.created, "none is made though there is room"); is != "cloud-2" {
		t.Errorf("node %s is made", is)
	}
	c.tends("cloud")
	select {
	case is := <-m.created:
		t.Errorf("node %s is made beside", is)
	case is := <-ended:
		t.Errorf("node %s is ended", is)
	default:
	}
	if _, err := c.client.Do(t.Context(), j.ID, "cancel"); err != nil {
		t.Fatal(err)
	}
}

// failingLate makes machines whose command fails when they have come.
type failingLate struct {
	*machinesOf
	comes func(name, token string)
}

func (f failingLate) Create(p *client.Pool, name, token string) error {
	f.comes(name, token)
	if err := f.machinesOf.Create(p, name, token); err != nil {
		return err
	}
	return errors.New("no answer by ssh")
}

// TestAMachineThatCameIsOursToEnd: where the command that made it fails in its end the machine is there, and ended as
// any.
func TestAMachineThatCameIsOursToEnd(t *testing.T) {
	t.Parallel() // it waits, most of the time
	m, ended := listing()
	m.tokens = nil
	var c *callSite
	f := failingLate{m, func(name, token string) {
		if _, _, err := c.comes("cloud", name, token); err != nil {
			t.Error(err)
		}
		c.eventually("the node is there", func() bool { return c.pool("cloud").Ready == 1 })
	}}
	c = newCallSite(t, f)
	pool := listed(1, 0)
	if _, err := c.client.AddPool(t.Context(), pool); err != nil {
		t.Fatal(err)
	}
	made := nextOf(t, m.created, "none is made")
	pool.Min, pool.Idle = 0, 0.01
	c.eventually("it is known as made", func() bool {
		making := true
		_ = c.s.do(func() { making = c.s.pools["cloud"].making[made] })
		return !making
	})
	if _, err := c.client.AddPool(t.Context(), pool); err != nil {
		t.Fatal(err)
	}
	if is := nextOf(t, ended, "it is not ended"); is != made {
		t.Errorf("node %s is ended, not %s", is, made)
	}
}
