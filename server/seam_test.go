package server_test

import (
	"database/sql"
	"errors"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"hora/job"
	"hora/server/backend"
	"hora/server/client"
	"hora/server/store"
)

// These tests drive the whole of a server on a back end that has no nodes of ours: what passes here another back end
// needs the four calls for, and nothing else.

// TestAJobOnPods goes from its submission to its end; what it said, reported and saved is there, and its pods are gone.
func TestAJobOnPods(t *testing.T) {
	c := newCluster(t, map[string]int{"zone": 2})
	s := newSite(t, c)
	id := s.submit(2, 0)
	g := c.gang(id, 1)
	shares := []client.Share{{Node: "zone", Slots: 2}}
	if !slices.Equal(g.is.Shares, shares) || !slices.Equal(g.is.Document.Spec.Command, []string{"train"}) {
		t.Errorf("it was started as %+v", g.is)
	}
	g.say(0, "epoch 1")
	g.say(1, "epoch 1")
	g.tell(backend.Record{Report: reportOf(0, 1, 0.5)})
	g.tell(backend.Record{Artifact: fileOf("model", "weights")})
	s.becomes("its output is there while it runs", func() bool { return strings.Count(s.wrote(id), "epoch 1") == 2 })
	own := client.New(s.url, g.is.Token)
	if _, err := own.Tag(t.Context(), id, map[string]string{"by": "itself"}, nil); err != nil {
		t.Errorf("with the token that it was started with it says nothing: %v", err)
	}
	if j := s.job(id); j.State != job.Running || len(j.Shares) != 1 || j.Tags["by"] != "itself" {
		t.Errorf("it is %+v", j)
	}
	g.tell(backend.Record{Report: reportOf(0, 2, 0.25)})
	g.exit(0)
	s.ends(id, job.Finished)
	if text := s.wrote(id); text != "1.1 [0] epoch 1\n1.2 [1] epoch 1\n" {
		t.Errorf("it wrote %q", text)
	}
	if is := s.lasts(id); !maps.Equal(is, map[int]float64{0: 0.25}) {
		t.Errorf("it reported %v", is)
	}
	if is := s.kept(id); !maps.Equal(is, map[string]string{"model": "weights"}) {
		t.Errorf("it saved %v", is)
	}
	c.forgotten(id, 1)
}

// TestAJobThatWaitsForPods says why, and starts when the cluster has more; one that is cancelled is killed for that
// reason, and what fails says so.
func TestAJobThatWaitsForPods(t *testing.T) {
	c := newCluster(t, map[string]int{"zone": 2})
	s := newSite(t, c)
	first := s.submit(2, 0)
	c.gang(first, 1)
	second := s.submit(1, 0)
	if j := s.job(second); j.State != job.Queued || j.Reason == nil || j.Reason.Text == "" {
		t.Errorf("there is no room, and it is %s: %+v", j.State, j.Reason)
	}
	c.with(func() { c.zones["zone"] = 3 })
	c.gang(second, 1).exit(3)
	if j := s.ends(second, job.Failed); j.ExitCode != 3 {
		t.Errorf("it ended with %d", j.ExitCode)
	}
	if _, err := s.client.Do(t.Context(), first, "cancel"); err != nil {
		t.Fatal(err)
	}
	s.ends(first, job.Cancelled)
	c.forgotten(first, 1)
	c.mu.Lock()
	defer c.mu.Unlock()
	if why := c.kills[[2]int64{first, 1}]; len(why) == 0 || why[0] != client.Stopped {
		t.Errorf("it was killed as %v", why)
	}
	if why := c.kills[[2]int64{second, 1}]; why != nil {
		t.Errorf("it ended by itself, and was killed as %v", why)
	}
}

// shares waits until a gang was told that it may have these.
func (g *podGang) shares(want ...client.Share) {
	g.c.t.Helper()
	last := []client.Share(nil)
	defer func() {
		if g.c.t.Failed() {
			g.c.t.Logf("it was told %+v last, and not %+v", last, want)
		}
	}()
	g.c.until("it is told so", func() bool {
		last = g.is.Shares
		return slices.Equal(last, want)
	})
}

// TestAnElasticJobOnPods gives slots away at its next commit, and not before, and gets them back.
func TestAnElasticJobOnPods(t *testing.T) {
	c := newCluster(t, map[string]int{"zone": 4})
	s := newSite(t, c)
	id := s.submit(4, 2)
	g := c.gang(id, 1)
	g.commits()
	other := s.submit(2, 0)
	g.shares(client.Share{Node: "zone", Slots: 2, Held: 4})
	g.say(0, "on its way") // the server has heard all that came before
	s.becomes("it goes on", func() bool { return strings.Contains(s.wrote(id), "on its way") })
	if j := s.job(other); j.State != job.Queued {
		t.Fatalf("the first job has not given anything away, and the other is %s", j.State)
	}
	g.commits()
	c.with(func() {
		if !g.is.Tell {
			t.Error("a back end that has lost it would start it again: it was to be told something alone")
		}
	})
	c.gang(other, 1).exit(0)
	s.ends(other, job.Finished)
	g.shares(client.Share{Node: "zone", Slots: 4})
	g.commits()
	g.exit(0)
	if j := s.ends(id, job.Finished); len(j.Attempts) != 1 {
		t.Errorf("it had %d attempts", len(j.Attempts))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.kills) != 0 {
		t.Errorf("something was killed: %v", c.kills)
	}
}

// TestPodsThatAreEvicted: a gang that is lost runs again with what it had saved, and eats no restart.
func TestPodsThatAreEvicted(t *testing.T) {
	c := newCluster(t, map[string]int{"zone": 1})
	s := newSite(t, c)
	id := s.submit(1, 0)
	g := c.gang(id, 1)
	g.tell(backend.Record{Artifact: fileOf("checkpoint", "step 7")})
	g.say(0, "step 7")
	c.with(func() { g.lost = true })
	again := c.gang(id, 2)
	if len(again.is.Outputs) != 1 || again.is.Outputs[0].Path != "checkpoint" {
		t.Errorf("it starts again with %+v", again.is.Outputs)
	}
	c.forgotten(id, 1)
	again.say(0, "step 8")
	again.exit(0)
	j := s.ends(id, job.Finished)
	if len(j.Attempts) != 2 || j.Attempts[0].Outcome != client.Lost || j.Attempts[0].Text != "its pods were evicted" {
		t.Errorf("its attempts were %+v", j.Attempts)
	}
	if text := s.wrote(id); text != "1.1 [0] step 7\n2.1 [0] step 8\n" {
		t.Errorf("it wrote %q", text)
	}
}

// TestPodsThatDoNotCome: a job that cannot be started fails with the reason; one whose place is just lost waits.
func TestPodsThatDoNotCome(t *testing.T) {
	c := newCluster(t, map[string]int{"zone": 1})
	s := newSite(t, c)
	c.with(func() { c.pulls = "there is no image train:latest" })
	id := s.submit(1, 0)
	if j := s.ends(id, job.Failed); !strings.Contains(j.Text, "there is no image train:latest") {
		t.Errorf("it ended with %q", j.Text)
	}
	c.forgotten(id, 1)
	c.with(func() { c.pulls, c.refuses = "", errors.New("the quota is used up") })
	id = s.submit(1, 0)
	if j := s.ends(id, job.Failed); j.Text != "it could not be started: the quota is used up" {
		t.Errorf("it ended with %q", j.Text)
	}
	c.with(func() { c.refuses = &backend.Lost{Node: "zone", Patience: time.Minute} })
	id = s.submit(1, 0)
	c.until("it was tried", func() bool { return c.starts[[2]int64{id, 1}] > 0 })
	c.with(func() { c.refuses = nil })
	// However often it was tried meanwhile, up to four times in vain.
	attempt := 0
	c.until("it runs in the end", func() bool {
		for at := range c.gangs {
			attempt = int(at[1])
		}
		return len(c.gangs) == 1
	})
	c.gang(id, attempt).exit(0)
	if j := s.ends(id, job.Finished); j.Attempts[0].Outcome != client.Lost {
		t.Errorf("its attempts were %+v", j.Attempts)
	}
}

// TestAServerThatIsStartedAgainOverPods takes up what runs, and what has ended meanwhile: no line twice, none missing,
// and nothing is started anew. One that is elastic is told its shares, which it may not have heard.
func TestAServerThatIsStartedAgainOverPods(t *testing.T) {
	c := newCluster(t, map[string]int{"zone": 4})
	s := newSite(t, c)
	ids := []int64{s.submit(1, 0), s.submit(1, 0), s.submit(2, 1)}
	var all []*podGang
	for _, id := range ids {
		g := c.gang(id, 1)
		g.say(0, "before")
		s.becomes("it is heard", func() bool { return strings.Contains(s.wrote(id), "before") })
		all = append(all, g)
	}
	all[2].commits()
	s.close()
	for _, g := range all {
		g.say(0, "meanwhile")
	}
	all[1].exit(0)
	s.up()
	s.ends(ids[1], job.Finished)
	c.until("the elastic one is told", func() bool { return c.starts[[2]int64{ids[2], 1}] == 2 })
	for _, g := range []*podGang{all[0], all[2]} {
		g.say(0, "after")
		g.exit(0)
	}
	for i, want := range []string{
		"1.1 [0] before\n1.2 [0] meanwhile\n1.3 [0] after\n", "1.1 [0] before\n1.2 [0] meanwhile\n",
		"1.1 [0] before\n1.2 [0] meanwhile\n1.3 [0] after\n",
	} {
		if j := s.ends(ids[i], job.Finished); len(j.Attempts) != 1 {
			t.Errorf("job %d had %d attempts", ids[i], len(j.Attempts))
		}
		if text := s.wrote(ids[i]); text != want {
			t.Errorf("job %d wrote %q", ids[i], text)
		}
		c.forgotten(ids[i], 1)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if a, b := c.starts[[2]int64{ids[0], 1}], c.starts[[2]int64{ids[1], 1}]; a != 1 || b != 1 {
		t.Errorf("they ran, and were started %d and %d times", a, b)
	}
	if len(c.kills) != 0 {
		t.Errorf("something was killed: %v", c.kills)
	}
}

// TestZonesOfAnElasticJob: what has ended in one zone is started there again, and at last the job goes on without; what
// each zone has comes with the end.
func TestZonesOfAnElasticJob(t *testing.T) {
	c := newCluster(t, map[string]int{"east": 2, "west": 2})
	s := newSite(t, c)
	id := s.submit(4, 2)
	g := c.gang(id, 1)
	c.mu.Lock()
	first, second := g.is.Shares[0].Node, ""
	if len(g.is.Shares) == 2 {
		second = g.is.Shares[1].Node
	}
	c.mu.Unlock()
	if second == "" {
		g.commits() // it begins where there is room at once, and grows into the other zone
		second = map[string]string{"east": "west", "west": "east"}[first]
	}
	g.shares(client.Share{Node: first, Slots: 2}, client.Share{Node: second, Slots: 2})
	g.commits()
	g.see(backend.Record{Parted: &backend.Parted{Node: second, Exit: &backend.Exit{Code: 1, Text: "out of disk"}}})
	g.shares(client.Share{Node: first, Slots: 2}, client.Share{Node: second, Slots: 2, Coming: 1})
	g.commits()
	// What the zone had is taken when it is left, and what it has in the end goes before that.
	g.see(backend.Record{From: second, Artifact: fileOf("shard", "early")})
	s.becomes("it is kept", func() bool { return s.kept(id)["shard"] == "early" })
	c.with(func() { delete(c.zones, second) })
	gone := &backend.Lost{Node: second, Patience: time.Minute}
	g.see(backend.Record{Parted: &backend.Parted{Node: second, Coming: 1, Err: gone}})
	g.shares(client.Share{Node: first, Slots: 2}, client.Share{Node: second, Coming: 2})
	g.commits()
	if text := s.story(id); !strings.Contains(text, gone.Error()+"; it goes on with 2 slots") {
		t.Errorf("its story is %q", text)
	}
	c.with(func() {
		missing := &backend.Missing{Reports: true, Late: true, Err: errors.New("the log was cut")}
		g.left = []backend.Record{
			{At: time.Now(), From: second, Report: reportOf(2, 9, 0.125)},
			{At: time.Now(), From: second, Missing: missing},
			{At: time.Now(), From: second, Artifact: fileOf("shard", "late")},
			{At: time.Now(), From: second, Artifact: fileOf("model", "another")},
		}
	})
	g.tell(backend.Record{Artifact: fileOf("model", "weights")})
	g.exit(0)
	s.ends(id, job.Finished)
	if is := s.kept(id); !maps.Equal(is, map[string]string{"model": "weights", "shard": "late"}) {
		t.Errorf("it saved %v", is)
	}
	if is := s.lasts(id); is[2] != 0.125 {
		t.Errorf("it reported %v", is)
	}
	if text := s.story(id); !strings.Contains(text, "what ranks reported on node "+second+" is not all there: the log was cut") {
		t.Errorf("its story is %q", text)
	}
}

// TestAGangOfZonesThatCannotBegin ends with what one of its zones says, and with that zone's last words.
func TestAGangOfZonesThatCannotBegin(t *testing.T) {
	c := newCluster(t, map[string]int{"east": 1, "west": 1})
	s := newSite(t, c)
	id := s.submit(2, 0)
	g := c.gang(id, 1)
	c.mu.Lock()
	second := g.is.Shares[1].Node
	c.mu.Unlock()
	g.see(backend.Record{Parted: &backend.Parted{
		Node: second, Exit: &backend.Exit{Code: 4, Text: "no such file"},
		Said: []backend.Line{{At: time.Now().UTC(), Rank: -1, Text: "look here"}},
	}})
	j := s.ends(id, job.Failed)
	if want := "its part on node " + second + " failed: no such file"; j.Text != want || j.ExitCode != 4 {
		t.Errorf("it ended with %d: %q", j.ExitCode, j.Text)
	}
	if text := s.wrote(id); !strings.Contains(text, "the last that node "+second+" wrote:") || !strings.Contains(text, "look here") {
		t.Errorf("it wrote %q", text)
	}
}

// TestPodsHaveNoPools: what is about nodes that come and go is refused with the reason; pools that a folder has from a
// server with nodes are left alone.
func TestPodsHaveNoPools(t *testing.T) {
	s := newSite(t, newCluster(t, map[string]int{"zone": 1}))
	s.close()
	st, err := store.Open(s.dir)
	if err != nil {
		t.Fatal(err)
	}
	local := client.Pool{Name: "local", Provider: "local", Min: 1, Max: 1, Node: client.NodeSize{Cores: 1}}
	err = st.Do(t.Context(), func(tx *sql.Tx) error { return store.SetPool(tx, &local) })
	if err = errors.Join(err, st.Close()); err != nil {
		t.Fatal(err)
	}
	s.up()
	refused := func(what string, err error) {
		t.Helper()
		f := (*client.Fault)(nil)
		if !errors.As(err, &f) || f.Status != http.StatusUnprocessableEntity || !strings.Contains(f.Detail, "no nodes can be added") {
			t.Errorf("%s: %v", what, err)
		}
	}
	_, err = s.client.AddPool(t.Context(), client.Pool{Name: "more", Provider: "static"})
	refused("a pool is added", err)
	_, err = s.client.JoinToken(t.Context(), "default", time.Hour)
	refused("a machine may join", err)
	all, err := s.client.Pools(t.Context())
	if err != nil || len(all) != 1 || all[0].Ready != 1 {
		t.Errorf("the pools are %+v, %v", all, err)
	}
}
