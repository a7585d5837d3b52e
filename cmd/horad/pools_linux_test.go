package main

import (
	"cmp"
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"hora/job"
	"hora/server/client"
	"hora/server/snapshot"
)

// eventually asks until it is so, within the patience of these tests.
func (s *site) eventually(what string, so func() bool) {
	s.t.Helper()
	end := time.Now().Add(patience)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !so() {
		if time.Now().After(end) {
			nodes, _ := s.client.Nodes(context.Background())
			pools, _ := s.client.Pools(context.Background())
			s.t.Fatalf("not so after %v: %s; the nodes are %+v, the pools %+v", patience, what, nodes, pools)
		}
		<-tick.C
	}
}

// ready are the nodes of a pool that are there.
func (s *site) ready(pool string) (names []string) {
	all, err := s.client.Nodes(context.Background())
	if err != nil {
		s.t.Fatal(err)
	}
	for _, n := range all {
		if n.Pool == pool && !n.Away {
			names = append(names, n.Name)
		}
	}
	return names
}

// joining starts a node of a pool.
func (s *site) joining(name, pool string, more ...string) *exec.Cmd {
	s.t.Helper()
	token, err := s.client.JoinToken(context.Background(), pool, time.Hour)
	if err != nil {
		s.t.Fatal(err)
	}
	args := []string{
		"node", "--pool", pool, "--name", name, "--server", token.Server,
		"--dir", filepath.Join(s.dir, "..", name), "--slots", "2",
	}
	c := exec.Command(filepath.Join(s.bin, "hora"), append(args, more...)...)
	c.Env, c.Stderr = append(s.env(), "HORA_TOKEN="+token.Token), cmp.Or(s.nodes, os.Stderr)
	if err := c.Start(); err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() {
		_ = c.Process.Signal(syscall.SIGTERM)
		_ = c.Wait()
	})
	s.eventually(name+" is there", func() bool { return strings.Contains(strings.Join(s.ready(pool), " "), name) })
	return c
}

func (s *site) text(id int64) string { return s.hora("logs", fmt.Sprint(id)).out }

// TestLocalPool: nodes come when a job waits, a gang runs on two of them, idle ones beyond min end, and a job beyond
// the pool says never.
func TestLocalPool(t *testing.T) {
	s := newSite(t, 1)
	r := s.hora("pool", "add", "two", "--provider", "local", "--max", "2", "--node", "cores=2,memory=1GiB", "--idle", "1s")
	if r.code != 0 || !strings.Contains(r.out, "pool two: 0 to 2 nodes by local") || !strings.Contains(r.errs, "they share them") {
		t.Fatalf("hora pool add: %+v", r)
	}
	d := shell(4, `echo "rank $HORA_RANK of $HORA_SIZE on $HORA_CROSS_RANK of $HORA_CROSS_SIZE"; echo kept >outputs/r$HORA_RANK`)
	d.Pool = "two"
	j := s.until(s.submit(d).ID, ended)
	if j.State != job.Finished {
		t.Fatalf("the job ended as %+v: %s", j, s.text(j.ID))
	}
	text := s.text(j.ID)
	for _, want := range []string{"rank 0 of 4 on 0 of 2", "rank 3 of 4 on 1 of 2"} {
		if !strings.Contains(text, want) {
			t.Errorf("the job on two nodes wrote %q and not %q", text, want)
		}
	}
	s.onWholeNodes()
	far := shell(5, "true")
	far.Pool = "two"
	waits := s.submit(far)
	s.eventually("it says never", func() bool {
		j, err := s.client.Job(context.Background(), waits.ID)
		return err == nil && j.State == job.Queued && j.Reason != nil && j.Reason.Code == "never"
	})
	if r := s.hora("pool", "remove", "two"); r.code == 0 || !strings.Contains(r.errs, "cancel it, or wait") {
		t.Errorf("a pool that a job waits for was removed: %+v", r)
	}
	s.hora("cancel", fmt.Sprint(waits.ID))
	s.until(waits.ID, ended)
	s.eventually("the idle nodes end", func() bool { return len(s.ready("two")) == 0 })
	s.eventually("their folders go", func() bool {
		all, _ := os.ReadDir(filepath.Join(s.dir, "nodes"))
		return len(all) == 0
	})
	if r := s.hora("pool", "add", "two", "--provider", "local", "--min", "1", "--max", "2", "--node", "cores=1"); r.code != 0 {
		t.Fatalf("%+v", r)
	}
	s.eventually("min is held", func() bool { return len(s.ready("two")) == 1 })
	d = shell(1, "while :; do sleep 0.05; done")
	d.Pool = "two"
	taken := s.submit(d).ID
	s.until(taken, in(job.Running))
	s.eventually("another one is there beside the one that was taken", func() bool { return len(s.ready("two")) == 2 })
	s.hora("cancel", fmt.Sprint(taken))
	s.until(taken, ended)
	if r := s.hora("pool", "remove", "two"); r.code != 0 || len(s.ready("two")) != 0 {
		t.Errorf("hora pool remove: %+v", r)
	}
}

// onWholeNodes asks for nodes and processes on each of them, as one types it.
func (s *site) onWholeNodes() {
	t := s.t
	t.Helper()
	r := s.hora("submit", "--pool", "two", "--nodes", "2", "--per-node", "2", "--no-code", "--follow", "--", "sh", "-c",
		`echo "rank $HORA_RANK, $HORA_LOCAL_RANK of $HORA_LOCAL_SIZE on $HORA_CROSS_RANK of $HORA_CROSS_SIZE"`)
	if r.code != 0 || !strings.Contains(r.errs, ": 2 slots on each of 2 nodes of pool two;") {
		t.Errorf("%+v", r)
	}
	for _, want := range []string{
		"[0]<stdout>:rank 0, 0 of 2 on 0 of 2\n", "[1]<stdout>:rank 1, 1 of 2 on 0 of 2\n",
		"[2]<stdout>:rank 2, 0 of 2 on 1 of 2\n", "[3]<stdout>:rank 3, 1 of 2 on 1 of 2\n",
	} {
		if !strings.Contains(r.out, want) {
			t.Errorf("two processes on each of two nodes wrote %q and not %q", r.out, want)
		}
	}
	for _, wrong := range [][]string{{"--per-node", "2"}, {"--nodes", "0"}, {"--nodes", "2", "-np", "4"}} {
		if r := s.hora(append(append([]string{"submit", "--no-code"}, wrong...), "true")...); r.code == 0 {
			t.Errorf("hora submit %v: %+v", wrong, r)
		}
	}
}

// TestStaticPool: a node joins with a token, runs jobs with their code and outputs, comes back with its own token to a
// server that was killed, and a job there goes on; one that is gone for good is lost and its job queues again.
func TestStaticPool(t *testing.T) {
	t.Parallel() // it waits, most of the time
	s := newSite(t, 1)
	s.more = []string{"--patience", "8s"}
	s.kill()
	s.up()
	if r := s.hora("pool", "add", "lab"); r.code != 0 {
		t.Fatalf("%+v", r)
	}
	if r := s.hora("pool", "token", "nowhere"); r.code == 0 || !strings.Contains(r.errs, "hora pool add nowhere") {
		t.Errorf("a token of no pool: %+v", r)
	}
	one := s.joining("one", "lab")
	code := t.TempDir()
	if err := os.WriteFile(filepath.Join(code, "said"), []byte("from the folder\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	r := s.horaIn(code, "submit", "--pool", "lab", "--follow", "-np", "2", "sh", "-c", "cat said; echo out >outputs/file")
	if r.code != 0 || strings.Count(r.out+r.errs, "from the folder") != 2 {
		t.Fatalf("a job on a node that joined: %+v", r)
	}
	jobs, err := s.client.Jobs(context.Background(), nil, "", "", 10)
	if err != nil || len(jobs.Jobs) != 1 {
		t.Fatalf("the jobs are %+v, %v", jobs, err)
	}
	id := fmt.Sprint(jobs.Jobs[0].ID)
	back := t.TempDir()
	if r := s.hora("artifacts", id, "--to", back); r.code != 0 {
		t.Fatalf("%+v", r)
	}
	if b, err := os.ReadFile(filepath.Join(back, "file")); err != nil || string(b) != "out\n" {
		t.Errorf("outputs/file came back as %q, %v", b, err)
	}

	gate := filepath.Join(t.TempDir(), "gate")
	d := shell(1, `echo before; until [ -e `+gate+` ]; do sleep 0.05; done; echo after`)
	d.Pool = "lab"
	j := s.submit(d)
	s.until(j.ID, in(job.Running))
	port := s.url[strings.LastIndex(s.url, ":")+1:]
	s.kill()
	s.port = port
	s.up()
	s.eventually("the node is back", func() bool { return len(s.ready("lab")) == 1 })
	if err := os.WriteFile(gate, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if j = s.until(j.ID, ended); j.State != job.Finished || len(j.Attempts) != 1 ||
		strings.Count(s.text(j.ID), "before\n") != 1 || !strings.HasSuffix(s.text(j.ID), "after\n") {
		t.Errorf("after a kill of the server the job is %+v and wrote %q", j, s.text(j.ID))
	}

	d = shell(1, `echo started; [ -n "$HORA_SERVER_ATTEMPT" ] && [ $HORA_SERVER_ATTEMPT -gt 1 ] || exec sleep 60`)
	d.Pool = "lab"
	j = s.submit(d)
	s.until(j.ID, in(job.Running))
	s.eventually("it has begun", func() bool { return strings.Contains(s.text(j.ID), "started") })
	if err := one.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = one.Wait()
	s.joining("other", "lab")
	if j = s.until(j.ID, ended); j.State != job.Finished || len(j.Attempts) != 2 {
		t.Errorf("after a node was lost the job is %+v", j)
	}
	if r := s.hora("job", fmt.Sprint(j.ID)); !strings.Contains(r.out, "node one was lost: nothing was heard of it for 8s") {
		t.Errorf("its story is %s", r.out)
	}
}

// TestANameIsOfOnePool: while a node is away, and after the server was killed, no other machine comes under its name,
// of another pool or with a token of its own: it would be handed the jobs that run there, and their secrets.
func TestANameIsOfOnePool(t *testing.T) {
	s := newSite(t, 1)
	for _, name := range []string{"lab", "shed"} {
		if r := s.hora("pool", "add", name); r.code != 0 {
			t.Fatalf("%+v", r)
		}
	}
	if _, err := s.client.SetSecret(context.Background(), "default", "KEY", []byte("only-for-lab")); err != nil {
		t.Fatal(err)
	}
	one := s.joining("one", "lab")
	end := filepath.Join(s.dir, "end")
	d := shell(1, "until [ -e "+end+" ]; do sleep 0.05; done")
	d.Pool, d.Secrets = "lab", []string{"KEY"}
	j := s.submit(d)
	s.until(j.ID, in(job.Running))
	_ = one.Process.Signal(syscall.SIGTERM)
	_ = one.Wait()
	s.kill()
	s.up()
	for _, of := range [][2]string{
		{"shed", "node one is one of pool lab"}, {"lab", "node one has jobs, and comes back from its own folder"},
	} {
		pool, words := of[0], of[1]
		token, err := s.client.JoinToken(context.Background(), pool, time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		dir := filepath.Join(t.TempDir(), "one")
		s.extra = []string{"HORA_TOKEN=" + token.Token}
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		c := exec.CommandContext(ctx, filepath.Join(s.bin, "hora"), "node", "--pool", pool, "--name", "one", "--dir", dir, "--server", s.url)
		c.Env = s.env()
		s.extra = nil
		said, _ := c.CombinedOutput()
		if !strings.Contains(string(said), words) || !strings.Contains(string(said), "another --name") {
			j, err := s.client.Job(context.Background(), j.ID)
			t.Fatalf("a node of pool %s was answered %q; the job is %+v, %v", pool, said, j, err)
		}
		if found := contains(t, dir, "only-for-lab"); len(found) > 0 {
			t.Errorf("it was handed another's secret: %v", found)
		}
	}
	s.joining("one", "lab")
	s.staysBehind()
	if err := os.WriteFile(end, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if j := s.until(j.ID, ended); j.State != job.Finished {
		t.Errorf("the job ended as %+v", j)
	}
}

// staysBehind looks that nothing of a server, of a node and of who uses them goes along with a job that is submitted
// from a folder above theirs, a home for example.
func (s *site) staysBehind() {
	s.t.Helper()
	to := filepath.Join(s.dir, "..", "copied")
	if r, err := exec.Command(filepath.Join(s.bin, "horad"), "backup", s.dir, to).CombinedOutput(); err != nil {
		s.t.Fatalf("%v: %s", err, r)
	}
	secret := 0
	for _, dir := range []string{s.home, filepath.Dir(s.dir)} {
		m, err := snapshot.Take(dir, snapshot.Limit)
		if err != nil {
			s.t.Fatal(err)
		}
		for _, f := range m.Files {
			s.t.Errorf("%s of %s would go along with a job", f.Path, dir)
		}
		_ = filepath.WalkDir(dir, func(p string, d fs.DirEntry, _ error) error {
			if n := filepath.Base(p); n == "token" || n == "secrets.key" || n == "current" {
				secret++
			}
			return nil
		})
	}
	if secret < 4 {
		s.t.Errorf("%d files with secrets are there: it looked in the wrong folders", secret)
	}
}

// TestNodesAreRefused: each in one sentence that says what to do.
func TestNodesAreRefused(t *testing.T) {
	s := newSite(t, 1)
	for _, name := range []string{"lab", "shed"} {
		if r := s.hora("pool", "add", name); r.code != 0 {
			t.Fatalf("%+v", r)
		}
	}
	s.joining("one", "lab")
	ask := func(pool string) string {
		token, err := s.client.JoinToken(context.Background(), pool, time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		return token.Token
	}
	owner, err := os.ReadFile(filepath.Join(s.dir, "token"))
	if err != nil {
		t.Fatal(err)
	}
	brief, err := s.client.JoinToken(context.Background(), "lab", time.Second)
	if err != nil {
		t.Fatal(err)
	}
	s.eventually("the token expires", func() bool { return time.Now().After(brief.Expires) })
	token := ask("lab")
	for _, c := range []struct {
		name, token, want string
		args              []string
	}{
		{"none", "", "has no token yet: hora pool token lab", nil},
		{"foreign", strings.Repeat("a", 64), "does not know this token", nil},
		{"owner", string(owner), "does not know this token", nil},
		{"late", brief.Token, "has expired", nil},
		{"one", token, "there is a node one already", nil},
		{"astray", ask("shed"), "the token is for pool shed and not for lab", nil},
		{"clear", token, "is not encrypted", []string{"--server", "http://192.0.2.1:8470"}},
		{"odd", token, "is no fingerprint", []string{"--server", "https://192.0.2.1:8470#abc"}},
		{"many", token, "--slots 0", []string{"--slots", "0"}},
	} {
		args := []string{"node", "--pool", "lab", "--name", c.name, "--dir", filepath.Join(t.TempDir(), c.name), "--server", s.url}
		s.extra = []string{"HORA_TOKEN=" + c.token}
		r := s.hora(append(args, c.args...)...)
		s.extra = nil
		if r.code == 0 || !strings.Contains(r.errs, c.want) || strings.Count(r.errs, "\n") != 1 {
			t.Errorf("node %s was answered %+v and not in one line with %q", c.name, r, c.want)
		}
	}
	api := client.New(s.url, token)
	if _, err := api.Nodes(context.Background()); err == nil {
		t.Error("a node's token opens more than a node's door")
	}
	for _, c := range []struct {
		want string
		args []string
	}{
		{"another name", []string{"add", "default"}},
		{"leave min, max, idle, within and node out", []string{"add", "x", "--max", "2"}},
		{"give --max", []string{"add", "x", "--provider", "local", "--node", "cores=1"}},
		{"lower it, or raise max", []string{"add", "x", "--provider", "local", "--node", "cores=1", "--min", "3", "--max", "2"}},
		{"say how many cores", []string{"add", "x", "--provider", "local", "--max", "2"}},
		{"give --create and --delete", []string{"add", "x", "--provider", "command", "--max", "2", "--node", "cores=1"}},
		{"none of cores, memory and gpus", []string{"add", "x", "--node", "core=1"}},
		{"hora pool list", []string{"remove", "nowhere"}},
		{"it has add, list, remove and token", []string{"ad"}},
	} {
		if r := s.hora(append([]string{"pool"}, c.args...)...); r.code == 0 || !strings.Contains(r.errs, c.want) {
			t.Errorf("hora pool %v was answered %+v and not with %q", c.args, r, c.want)
		}
	}
}

// TestCommandPool: the user's commands make nodes and end them, and what is told of a command that fails is its last
// line.
func TestCommandPool(t *testing.T) {
	s := newSite(t, 1)
	dir := t.TempDir()
	create := fmt.Sprintf(`HOME=%[1]s setsid %[2]s/hora node --pool $HORA_POOL --name $HORA_NODE --slots 1 --dir %[1]s/$HORA_NODE >%[1]s/log 2>&1 </dev/null & echo $! >%[1]s/pid.$HORA_NODE`, dir, s.bin)
	remove := fmt.Sprintf(`echo $HORA_NODE >>%s/gone`, dir)
	if r := s.hora("pool", "add", "cloud", "--provider", "command", "--max", "1", "--idle", "1s", "--node", "cores=1", "--create", create, "--delete", remove); r.code != 0 {
		t.Fatalf("%+v", r)
	}
	d := shell(1, "echo here")
	d.Pool = "cloud"
	if j := s.until(s.submit(d).ID, ended); j.State != job.Finished {
		t.Errorf("the job ended as %+v", j)
	}
	s.eventually("the idle node is ended", func() bool {
		b, _ := os.ReadFile(filepath.Join(dir, "gone"))
		return string(b) == "cloud-1\n"
	})
	if r := s.hora("pool", "add", "bad", "--provider", "command", "--min", "1", "--max", "1", "--node", "cores=1", "--create", "echo no quota >&2; exit 3", "--delete", "true"); r.code != 0 {
		t.Fatalf("%+v", r)
	}
	s.eventually("the failure is told", func() bool { return strings.Contains(s.hora("pool", "list").errs, "exit status 3: no quota") })
	d.Pool = "bad"
	waits := s.submit(d).ID
	s.waits(waits, "nodes", "making one has failed, and is tried again: ")
	s.waits(waits, "nodes", "the command create failed: exit status 3")
	s.hora("cancel", fmt.Sprint(waits))
	s.until(waits, ended)

	slow := fmt.Sprintf(`echo $HORA_NODE >>%s/made`, dir) // a machine that has not come when its pool is removed
	if r := s.hora("pool", "add", "slow", "--provider", "command", "--min", "1", "--max", "1", "--node", "cores=1", "--create", slow, "--delete", remove); r.code != 0 {
		t.Fatalf("%+v", r)
	}
	s.eventually("it is made", func() bool { b, _ := os.ReadFile(filepath.Join(dir, "made")); return string(b) == "slow-1\n" })
	if r := s.hora("pool", "remove", "slow"); r.code != 0 {
		t.Fatalf("%+v", r)
	}
	s.eventually("it is ended", func() bool {
		b, _ := os.ReadFile(filepath.Join(dir, "gone"))
		return strings.Contains(string(b), "slow-1\n")
	})

	// One that does not come in the pool's time is ended, and said.
	late := []string{"pool", "add", "late", "--provider", "command", "--min", "1", "--max", "1", "--node", "cores=1", "--create", "true"}
	if r := s.hora(append(late, "--delete", remove, "--within", "soon")...); r.code != 2 || !strings.Contains(r.errs, `--within "soon" is not`) {
		t.Errorf("%+v", r)
	}
	if r := s.hora(append(late, "--delete", remove, "--within", "1s")...); r.code != 0 {
		t.Fatalf("%+v", r)
	}
	s.eventually("it is given up", func() bool {
		b, _ := os.ReadFile(filepath.Join(dir, "gone"))
		return strings.Contains(string(b), "late-1\n") &&
			strings.Contains(s.hora("pool", "list").errs, "node late-1 was made and has not come in 1s")
	})
}

// TestAPoolThatIsChanged: its nodes are ended by the commands that made them, by the next server too; those of another
// provider when they have no job.
func TestAPoolThatIsChanged(t *testing.T) {
	s := newSite(t, 1)
	s.port = s.url[strings.LastIndex(s.url, ":")+1:] // nodes come back to it
	dir := t.TempDir()
	add := func(name, with string, more ...string) {
		t.Helper()
		create := fmt.Sprintf(`HOME=%[1]s setsid %[2]s/hora node --pool $HORA_POOL --name $HORA_NODE --slots 1 --dir %[1]s/$HORA_NODE >%[1]s/log 2>&1 </dev/null &`, dir, s.bin)
		remove := fmt.Sprintf(`echo "$HORA_NODE by %s" >>%s/gone`, with, dir)
		args := append([]string{"pool", "add", name, "--provider", "command", "--max", "1", "--node", "cores=1"}, more...)
		if r := s.hora(append(args, "--create", create, "--delete", remove)...); r.code != 0 {
			t.Fatalf("%+v", r)
		}
	}
	gone := func(line string) func() bool {
		return func() bool {
			b, _ := os.ReadFile(filepath.Join(dir, "gone"))
			return strings.Contains(string(b), line+"\n")
		}
	}
	add("cloud", "the first", "--min", "1")
	add("other", "the first", "--min", "1")
	s.eventually("the nodes are there", func() bool { return len(s.ready("cloud")) == 1 && len(s.ready("other")) == 1 })
	add("cloud", "the second", "--min", "1")
	s.kill()
	s.up()
	s.eventually("the node is back", func() bool { return len(s.ready("cloud")) == 1 })
	add("cloud", "the second", "--min", "0", "--idle", "1s")
	s.eventually("it is ended by what made it", gone("cloud-1 by the first"))
	if r := s.hora("pool", "add", "other"); r.code != 0 {
		t.Fatalf("%+v", r)
	}
	s.eventually("the node of another provider is ended", gone("other-1 by the first"))
	if gone("cloud-1 by the second")() {
		t.Error("it is ended twice")
	}
}

// TestPoolsExample runs examples/72-pools as its first lines say.
func TestPoolsExample(t *testing.T) {
	s := newSite(t, 1)
	dir := filepath.Join("..", "..", "examples", "72-pools")
	if r := s.hora("pool", "add", "two", "--provider", "local", "--max", "2", "--node", "cores=2,memory=1GiB", "--idle", "1m"); r.code != 0 {
		t.Fatalf("%+v", r)
	}
	r := s.horaIn(dir, "submit", "--file", "job.yaml", "--follow")
	if r.code != 0 || strings.Count(r.out, "on node 0:") != 2 || strings.Count(r.out, "on node 1:") != 2 {
		t.Fatalf("%+v", r)
	}
	to, sum := t.TempDir(), 0
	if r := s.hora("artifacts", "1", "--to", to); r.code != 0 {
		t.Fatalf("%+v", r)
	}
	for rank := range 4 {
		b, err := os.ReadFile(filepath.Join(to, fmt.Sprintf("primes.%d", rank)))
		var n int
		if _, bad := fmt.Sscan(string(b), &n); err != nil || bad != nil {
			t.Errorf("rank %d left %q: %v", rank, b, err)
		}
		sum += n
	}
	if sum != 4203 {
		t.Errorf("%d primes below 40,000, and there are 4203", sum)
	}
}

// TestEachNodeGetsWhatWasSaved: an attempt goes on from what the ranks of the one before had in outputs/, on all of its
// nodes, and what one of them writes anew comes back: what the first one was given does not stand for it.
func TestEachNodeGetsWhatWasSaved(t *testing.T) {
	t.Parallel() // it waits, most of the time
	s := newSite(t, 1)
	if r := s.hora("pool", "add", "two", "--provider", "local", "--max", "2", "--node", "cores=1", "--idle", "1m"); r.code != 0 {
		t.Fatalf("%+v", r)
	}
	d := shell(0, `if [ $HORA_SERVER_ATTEMPT -gt 1 ]; then
	cat outputs/by.0 outputs/by.1 || exit 9
	echo "saved again" >outputs/by.$HORA_RANK
	exit 0
fi
echo "saved by $HORA_RANK" >outputs/by.$HORA_RANK; sleep 1; exit 7`)
	d.Pool, d.Nodes, d.PerNode, d.Retries = "two", 2, 1, 1
	j := s.until(s.submit(d).ID, ended)
	if text := s.text(j.ID); j.State != job.Finished || strings.Count(text, "saved by 0") != 2 || strings.Count(text, "saved by 1") != 2 {
		t.Errorf("%+v wrote %q", j, text)
	}
	to := t.TempDir()
	if r := s.hora("artifacts", "--to", to, fmt.Sprint(j.ID)); r.code != 0 {
		t.Fatalf("%+v", r)
	}
	for _, name := range []string{"by.0", "by.1"} {
		if b, err := os.ReadFile(filepath.Join(to, name)); string(b) != "saved again\n" {
			t.Errorf("%s came back as %q, %v", name, b, err)
		}
	}
}

// nodesOfItsOwn are the nodes of local pools whose processes are there.
func (s *site) nodesOfItsOwn() (names []string) {
	s.t.Helper()
	all, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		s.t.Fatal(err)
	}
	for _, name := range all {
		b, _ := os.ReadFile(name) // it may have ended
		words := strings.Split(string(b), "\x00")
		if i := slices.Index(words, "--name"); i > 0 && slices.Contains(words, "node") && strings.Contains(string(b), s.dir) {
			names = append(names, words[i+1])
		}
	}
	return names
}

// TestIdleNodesEndWithTheServer that gets a signal; one with a job goes on with it, and the next server takes both up.
func TestIdleNodesEndWithTheServer(t *testing.T) {
	s := newSite(t, 1)
	if r := s.hora("pool", "add", "two", "--provider", "local", "--min", "1", "--max", "2", "--node", "cores=1"); r.code != 0 {
		t.Fatalf("%+v", r)
	}
	d := shell(1, "while [ ! -f outputs/go ]; do sleep 0.05; done; echo the end")
	d.Pool = "two"
	j := s.until(s.submit(d).ID, in(job.Running))
	s.eventually("one node is idle beside the job's", func() bool { return len(s.ready("two")) == 2 && len(s.nodesOfItsOwn()) == 2 })
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := s.cmd.Wait(); err != nil {
		t.Errorf("the server ended with %v", err)
	}
	s.eventually("the idle node has ended", func() bool {
		return slices.Equal(s.nodesOfItsOwn(), []string{j.Shares[0].Node})
	})
	s.up()
	go1, err := filepath.Glob(filepath.Join(s.dir, "nodes", j.Shares[0].Node, "*", "*", "work", "outputs"))
	if err != nil || len(go1) != 1 {
		t.Fatalf("%q, %v", go1, err)
	}
	if err := os.WriteFile(filepath.Join(go1[0], "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if j := s.until(j.ID, ended); j.State != job.Finished || len(j.Attempts) != 1 {
		t.Errorf("the job ended as %+v", j)
	}
}
