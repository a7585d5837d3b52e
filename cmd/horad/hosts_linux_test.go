package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"hora/internal/hosttest"
	"hora/server/client"
)

// saying is what a program has said so far.
type saying struct {
	mu  sync.Mutex
	all bytes.Buffer
}

func (s *saying) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.all.Write(b)
}

func (s *saying) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.all.String()
}

// laboratory is a server on a host, beyond its loopback, with nodes of two slots on the other hosts in pool "lab".
type laboratory struct {
	*hosttest.Net
	t    *testing.T
	head *hosttest.Host
	url  string
}

func newLaboratory(t *testing.T, flags ...string) *laboratory {
	t.Helper()
	selected(t)
	bin, err := programs()
	if err != nil {
		t.Fatal(err)
	}
	l := &laboratory{Net: hosttest.Up(t, "head", "left", "right"), t: t}
	for _, h := range l.Hosts {
		h.Install(filepath.Join(bin, "hora"), "hora")
		h.Install(filepath.Join(bin, "horad"), "horad")
	}
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	l.head = l.Hosts[0]
	l.url = l.serve(ctx, flags)
	l.must(l.head, "./hora pool add lab")
	offer := strings.Replace(strings.TrimSpace(l.must(l.head, "./hora pool token lab")), " hora ", " ./hora ", 1)
	said := &saying{}
	for _, h := range l.Hosts[1:] {
		c := h.Command(ctx, "sh", "-c", "export "+strings.Replace(offer, " ./hora", "; exec ./hora", 1)+" --slots 2")
		c.Stdout, c.Stderr = said, said
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
	}
	for end := time.Now().Add(patience); strings.Count(l.must(l.head, "./hora nodes"), "ready") != 3; {
		if time.Now().After(end) {
			t.Fatalf("the nodes are\n%s; they said\n%s", l.must(l.head, "./hora nodes"), said)
		}
	}
	return l
}

func (l *laboratory) serve(ctx context.Context, flags []string) string {
	l.t.Helper()
	up := l.head.Command(ctx, append([]string{"./hora", "up", "--dir", "srv", "--listen", "0.0.0.0", "--port", "0"}, flags...)...)
	out, err := up.StdoutPipe()
	if err != nil {
		l.t.Fatal(err)
	}
	up.Stderr = os.Stderr
	if err := up.Start(); err != nil {
		l.t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	url, found := strings.CutPrefix(strings.TrimSpace(line), "hora: serving ")
	if err != nil || !found || !strings.HasPrefix(url, "https://"+l.head.Addr) {
		l.t.Fatalf("the server says %q, %v", line, err)
	}
	return url
}

func (l *laboratory) run(h *hosttest.Host, script string) (code int, out, errs string) {
	return h.Output(patience, "sh", "-c", script)
}

func (l *laboratory) must(h *hosttest.Host, script string) string {
	l.t.Helper()
	code, out, errs := l.run(h, script)
	if code != 0 {
		l.t.Fatalf("%s on %s: exit code %d, %s, %s", script, h.Name, code, out, errs)
	}
	return out
}

// TestHostsWithTLS: a server and two nodes on three hosts; a job's folder and outputs go over TLS, its ranks over TCP;
// who expects another authority sends no token; a node whose cable is cut for a moment loses nothing.
func TestHostsWithTLS(t *testing.T) {
	n := newLaboratory(t, "--slots", "1")
	head, url, must := n.head, n.url, n.must
	got := must(head, `mkdir -p w && cd w && echo went along >f && ../hora submit --pool lab -np 4 --follow --start-timeout 30s sh -c 'cat f; echo "rank $HORA_RANK on $(hostname)"; echo $HORA_RANK >outputs/r$HORA_RANK'`)
	for _, want := range []string{"on left", "on right"} {
		if strings.Count(got, "went along") != 4 || strings.Count(got, want) != 2 {
			t.Errorf("the job on two hosts wrote\n%s", got)
		}
	}

	token := must(head, "cat srv/token")
	bare, pin, _ := strings.Cut(url, "#")
	wrong := strings.Repeat("0", len(pin))
	for _, c := range []struct{ address, want string }{
		{bare + "#" + wrong, "and not the pinned " + wrong + ": somebody stands between, or it was made anew: compare with what hora up prints there, and log in again\n"},
		{bare, "give the whole address that hora up prints, with # and the fingerprint after it, as hora login '" + bare + "#...'"},
		{strings.Replace(bare, "https", "http", 1), "is not encrypted"},
	} {
		code, _, errs := n.run(n.Hosts[1], "HORA_TOKEN="+strings.TrimSpace(token)+" ./hora login '"+c.address+"'")
		if code == 0 || !strings.Contains(errs, c.want) {
			t.Errorf("hora login %s exits with %d and says %q, not %q", c.address, code, errs, c.want)
		}
	}
	must(n.Hosts[1], "HORA_TOKEN="+strings.TrimSpace(token)+" ./hora login '"+url+"'")
	if got := must(n.Hosts[1], "./hora jobs --all"); !strings.Contains(got, "finished") {
		t.Errorf("from another host the jobs are\n%s", got)
	}

	n.Hosts[1].Cable(false)
	n.Hosts[1].Cable(true)
	must(head, "./hora submit --pool lab -np 4 --follow true")
	must(head, "./hora down --now")
}

// jobFile is an elastic job that anybody may run anywhere.
const jobFile = `command: [%s]
np: 4
min_np: 2
env: {TEST_ENOUGH: %s}
`

// TestOneJobFile runs the same file on the server's own machine, on nodes that it makes itself, and on hosts of their
// own over TLS; there it goes on without a host that is cut off, and with it when it is back, and loses no step.
func TestOneJobFile(t *testing.T) {
	t.Parallel() // it waits, most of the time
	n := newLaboratory(t, "--slots", "4", "--patience", "4s")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	counts := ""
	for _, h := range n.Hosts {
		counts = h.Install(self, "counts")
	}
	n.must(n.head, "./hora pool add boxes --provider local --max 2 --node cores=2")
	n.must(n.head, "mkdir w && cd w && cat >job.yaml <<'EOF'\n"+fmt.Sprintf(jobFile, counts, "/etc/hosts")+"EOF")
	for _, pool := range []string{"default", "boxes", "lab"} {
		if got := n.must(n.head, "cd w && ../hora submit --file job.yaml --pool "+pool+" --follow"); !strings.Contains(got, "step 1 by ") ||
			!strings.Contains(got, "enough") { // by two, where a second node is not there yet
			t.Errorf("in pool %s it wrote\n%s", pool, got)
		}
	}

	n.must(n.head, "cd w && sed -i s:/etc/hosts:"+filepath.Dir(counts)+"/enough: job.yaml")
	id := strings.TrimSpace(n.must(n.head, "cd w && ../hora submit --file job.yaml --pool lab"))
	by := func(ranks int) {
		t.Helper()
		for end := time.Now().Add(patience); ; {
			all := aStep.FindAllStringSubmatch(n.must(n.head, "./hora logs "+id), -1)
			if len(all) > 0 && all[len(all)-1][2] == fmt.Sprint(ranks) {
				return
			}
			if time.Now().After(end) {
				t.Fatalf("it does not count with %d:\n%s%s", ranks, n.must(n.head, "./hora job "+id), n.must(n.head, "./hora nodes"))
			}
		}
	}
	by(4)
	var j client.Job
	if err := json.Unmarshal([]byte(n.must(n.head, "./hora job "+id+" --json")), &j); err != nil || len(j.Shares) != 2 {
		t.Fatalf("%+v %v", j, err)
	}
	cut := n.Hosts[2]
	if j.Shares[0].Node == cut.Name {
		cut = n.Hosts[1] // the first of its nodes keeps it
	}
	cut.Cable(false)
	by(2)
	cut.Cable(true)
	by(4)
	for _, h := range n.Hosts {
		n.must(h, "touch enough")
	}
	n.must(n.head, "./hora wait "+id)
	missingSteps(t, n.must(n.head, "./hora logs "+id))
	n.must(n.head, "./hora down --now")
}
