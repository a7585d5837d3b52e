package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"hora/job"
	"hora/server/client"
	"hora/server/node"
)

const stranger = 54321 // a user whom no machine has

// TestRunAs: on a node of root's jobs run as another user, own what they have, and neither read what is root's nor lead
// the node to it.
func TestRunAs(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root starts what is another user's")
	}
	s := newSite(t, 1)
	base := s.open()
	ctx := context.Background()
	if r := s.hora("pool", "add", "lab"); r.code != 0 {
		t.Fatalf("%+v", r)
	}
	s.nodeAs("lab", base)
	if _, err := s.client.SetSecret(ctx, "default", "TOKEN", []byte("s3cr3t-value")); err != nil {
		t.Fatal(err)
	}
	precious := filepath.Join(base, "precious")
	for name, text := range map[string]string{precious: "only root's", filepath.Join(base, "kept"): "kept"} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	script := fmt.Sprintf(`echo "is $(id -u):$(id -g):$(id -G) $HOME $USER"; stat -c '%%u %%a %%n' "$HORA_SECRETS"/TOKEN; cat train.txt >outputs/seen
cat %[1]s && echo bad; cat %[2]s/token && echo bad; touch %[3]s/node/x && echo bad; cd ..; rm -f stop; ln -s %[3]s/kept stop; echo ready; sleep 3
mv work/outputs work/before; ln -s %[3]s work/outputs; echo moved; sleep 20`, precious, s.dir, base)
	folder := t.TempDir()
	if err := os.WriteFile(filepath.Join(folder, "train.txt"), []byte("goes along"), 0o600); err != nil {
		t.Fatal(err)
	}
	r := s.horaIn(folder, "submit", "--pool", "lab", "--secret", "TOKEN", "sh", "-c", script)
	id, err := strconv.ParseInt(strings.TrimSpace(r.out), 10, 64)
	if err != nil {
		t.Fatalf("%+v", r)
	}
	var said []string
	if _, err := s.client.Follow(ctx, id, client.Following{Rank: 0, Line: func(l client.Line) {
		if said = append(said, l.Text); l.Text == "moved" {
			s.throughLinks(base, id)
		}
	}}); err != nil {
		t.Fatal(err)
	}
	if j, err := s.client.Job(ctx, id); err != nil || j.State != job.Cancelled {
		t.Errorf("it was cancelled, and is %+v %v", j, err)
	}
	text := strings.Join(said, "\n")
	home := filepath.Join(base, "node", "home")
	for _, want := range []string{
		fmt.Sprintf("is %d:%d:%d %s", stranger, stranger, stranger, home),
		fmt.Sprintf("%d 600 ", stranger), "ready", "moved",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no line has %q in\n%s", want, text)
		}
	}
	if strings.Contains(text, "bad") || strings.Contains(text, "only root's") {
		t.Errorf("the job reads or writes what is root's:\n%s", text)
	}
	if b, err := os.ReadFile(filepath.Join(base, "kept")); string(b) != "kept" {
		t.Errorf("a link of the job's led the node to write %q: %v", b, err)
	}
	all, err := s.client.Artifacts(ctx, id)
	if err != nil || len(all) != 1 || all[0].Path != "seen" {
		t.Errorf("what came back: %+v %v", all, err)
	}
	s.wrongRunAs(base)
}

// made stands for an interpreter that makes an environment, as whoever runs it.
const made = `#!/bin/sh
cat >/dev/null
mkdir -p "$3/environments/e/bin"
id -u >"$3/environments/e/by"
touch "$3/environments/e/complete"
echo '{"environment": "e", "lock": ["x==1"], "site": {}}' >"$3/requests/$4.json"
`

// TestRunAsOnSeveralNodes: so do jobs of a server of root's that makes its nodes itself: on its own node with packages,
// a gang on two nodes, whose outputs come back, and an elastic job on both, which is paused and goes on.
func TestRunAsOnSeveralNodes(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root starts what is another user's")
	}
	selected(t)
	bin, err := programs()
	if err != nil {
		t.Fatal(err)
	}
	s := &site{t: t, home: t.TempDir(), bin: bin, slots: 1, more: []string{"--run-as", fmt.Sprintf("%d:%[1]d", stranger)}}
	base := s.open()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for to, from := range map[string]string{"horad": filepath.Join(bin, "horad"), "counts": self} {
		b, err := os.ReadFile(from)
		if err == nil {
			err = os.WriteFile(filepath.Join(base, to), b, 0o755)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(base, "python"), []byte(made), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", base+":"+os.Getenv("PATH"))
	s.bin, s.dir = base, filepath.Join(base, "server")
	s.start()

	r := s.hora("submit", "--no-code", "--pip", "x", "sh", "-c", `echo "is $(id -u), made by $(cat $VIRTUAL_ENV/by)"`)
	if said := s.hora("logs", "-f", "1"); r.code != 0 || !strings.Contains(said.out, fmt.Sprintf("is %d, made by %[1]d", stranger)) {
		t.Errorf("%+v\n%+v", r, said)
	}

	if r := s.hora("pool", "add", "two", "--provider", "local", "--max", "2", "--node", "cores=1", "--idle", "1m"); r.code != 0 {
		t.Fatalf("%+v", r)
	}
	gang := shell(2, `echo "rank $HORA_RANK is $(id -u):$(id -G)"; echo x >outputs/by.$HORA_RANK`)
	gang.Pool = "two"
	id := s.submit(gang).ID
	if j := s.until(id, ended); j.State != job.Finished || len(j.Attempts[0].Shares) != 2 {
		t.Errorf("%+v", j)
	}
	for rank := range 2 {
		if want := fmt.Sprintf("rank %d is %d:%[2]d", rank, stranger); !strings.Contains(s.text(id), want) {
			t.Errorf("no line has %q in\n%s", want, s.text(id))
		}
	}
	to := t.TempDir()
	if r := s.hora("artifacts", fmt.Sprint(id), "--to", to); r.code != 0 {
		t.Errorf("%+v", r)
	}
	if all, _ := filepath.Glob(filepath.Join(to, "by.*")); len(all) != 2 {
		t.Errorf("of two ranks' outputs came %q", all)
	}

	c := &counting{site: s, enough: filepath.Join(base, "enough")}
	d := shell(2, fmt.Sprintf("echo I am $(id -u); %s=%s exec %s/counts", countsIn, c.enough, base))
	d.Pool, d.Spec.MinNP = "two", 1
	c.id = s.submit(d).ID
	c.by(2)
	if r := c.hora("pause", fmt.Sprint(c.id)); r.code != 0 {
		t.Fatalf("%+v", r)
	}
	c.until(c.id, in(job.Paused))
	if r := c.hora("resume", fmt.Sprint(c.id)); r.code != 0 {
		t.Fatalf("%+v", r)
	}
	c.until(c.id, in(job.Running))
	if err := os.WriteFile(c.enough, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if j := c.until(c.id, ended); j.State != job.Finished || strings.Contains(c.text(c.id), "I am 0") {
		t.Errorf("%+v\n%s", j, c.text(c.id))
	}
}

// open makes a folder whose way is open to all, with the programs in it.
func (s *site) open() string {
	s.t.Helper()
	base, err := os.MkdirTemp("", "hora-run-as-")
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { os.RemoveAll(base) })
	b, err := os.ReadFile(filepath.Join(s.bin, "hora"))
	if err == nil {
		err = os.Chmod(base, 0o755)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(base, "hora"), b, 0o755)
	}
	if err != nil {
		s.t.Fatal(err)
	}
	return base
}

// nodeAs starts a node that is root's, whose jobs are a stranger's.
func (s *site) nodeAs(pool, base string) {
	s.t.Helper()
	token, err := s.client.JoinToken(context.Background(), pool, time.Hour)
	if err != nil {
		s.t.Fatal(err)
	}
	c := exec.Command(filepath.Join(base, "hora"), "node", "--pool", pool, "--name", "n1", "--dir", filepath.Join(base, "node"), "--slots", "1",
		"--run-as", fmt.Sprintf("%d:%d", stranger, stranger), "--server", s.url)
	c.Env, c.Stderr = append(s.env(), "HORA_TOKEN="+token.Token), os.Stderr
	if err := c.Start(); err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() {
		_ = c.Process.Kill()
		_ = c.Wait()
	})
}

// throughLinks asks the node for what the job has left links to, while it runs, and ends it.
func (s *site) throughLinks(base string, id int64) {
	who, err := node.FindUser(fmt.Sprintf("%d:%d", stranger, stranger))
	if err != nil {
		s.t.Error(err)
		return
	}
	l := &node.Local{Dir: filepath.Join(base, "node", node.AttemptsName), User: who}
	if f, err := l.Output(id, 1, "precious"); err == nil {
		f.Close()
		s.t.Error("the node reads what is root's through a link of the job's")
	}
	// Its keeper does not hear it, so the node writes it down.
	address := filepath.Join(l.Folder(id, 1), "address")
	if err := os.Rename(address, address+".was"); err != nil {
		s.t.Error(err)
	}
	if err := l.Kill(id, 1, client.Stopped); err != nil {
		s.t.Error(err)
	}
	if err := os.Rename(address+".was", address); err != nil {
		s.t.Error(err)
	}
	if r := s.hora("cancel", fmt.Sprint(id)); r.code != 0 {
		s.t.Errorf("%+v", r)
	}
}

// wrongRunAs is refused in one sentence.
func (s *site) wrongRunAs(base string) {
	s.t.Helper()
	for _, c := range []struct{ who, dir, says string }{
		{"nobody-of-that-name", base, "this machine has no such user"},
		{"root", base, "is root itself"},
		{"54321:0", base, "is in root's group"},
		{"54321:54321", filepath.Join(s.t.TempDir(), "closed"), "give a --dir on whose way each folder is open to all"},
		{"54322", filepath.Join(base, "node-2"), "is of user 54321, for whom jobs ran there"},
		{"", filepath.Join(base, "node-2"), "is of user 54321, for whom jobs ran there"},
	} {
		if at := filepath.Join(c.dir, node.AttemptsName); strings.HasSuffix(c.dir, "-2") {
			if err := os.MkdirAll(filepath.Join(at, "1.1"), 0o755); err != nil {
				s.t.Fatal(err)
			}
			if err := os.Chown(at, stranger, stranger); err != nil {
				s.t.Fatal(err)
			}
		}
		args := []string{"node", "--pool", "lab", "--name", "n2", "--dir", c.dir, "--server", s.url, "--run-as=" + c.who}
		x := exec.Command(filepath.Join(base, "hora"), args...)
		x.Env = append(s.env(), "HORA_TOKEN=x")
		out, err := x.CombinedOutput()
		text := strings.TrimSpace(string(out))
		if err == nil || !strings.Contains(text, c.says) || strings.Contains(text, "\n") {
			s.t.Errorf("--run-as %q: %v %s", c.who, err, text)
		}
	}
	x := exec.Command("setpriv", "--reuid=54321", "--regid=54321", "--clear-groups",
		filepath.Join(base, "hora"), "node", "--pool", "lab", "--name", "n3", "--dir", filepath.Join(base, "n3"), "--server", s.url, "--run-as", "54322")
	if out, err := x.CombinedOutput(); err == nil || !strings.Contains(string(out), "--run-as is for nodes that root has started") {
		s.t.Errorf("not as root: %v %s", err, out)
	}
}
