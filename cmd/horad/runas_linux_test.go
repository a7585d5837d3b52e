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
