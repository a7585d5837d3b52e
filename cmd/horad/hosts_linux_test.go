package main

import (
	"bufio"
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"hora/internal/hosttest"
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

// serveOn starts a server on a host, beyond its loopback.
func serveOn(t *testing.T, ctx context.Context, head *hosttest.Host) string {
	t.Helper()
	up := head.Command(ctx, "./hora", "up", "--dir", "srv", "--listen", "0.0.0.0", "--port", "0", "--slots", "1")
	out, err := up.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	up.Stderr = os.Stderr
	if err := up.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	url, found := strings.CutPrefix(strings.TrimSpace(line), "hora: serving ")
	if err != nil || !found || !strings.HasPrefix(url, "https://"+head.Addr) {
		t.Fatalf("the server says %q, %v", line, err)
	}
	return url
}

// TestHostsWithTLS: a server and two nodes on three hosts; a job's folder and outputs go over TLS, its ranks over TCP;
// who expects another authority sends no token; a node whose cable is cut for a moment loses nothing.
func TestHostsWithTLS(t *testing.T) {
	selected(t)
	bin, err := programs()
	if err != nil {
		t.Fatal(err)
	}
	n := hosttest.Up(t, "head", "left", "right")
	for _, h := range n.Hosts {
		h.Install(filepath.Join(bin, "hora"), "hora")
		h.Install(filepath.Join(bin, "horad"), "horad")
	}
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	head := n.Hosts[0]
	url := serveOn(t, ctx, head)
	run := func(h *hosttest.Host, script string) (int, string, string) {
		return h.Output(patience, "sh", "-c", script)
	}
	must := func(h *hosttest.Host, script string) string {
		t.Helper()
		code, out, errs := run(h, script)
		if code != 0 {
			t.Fatalf("%s on %s: exit code %d, %s, %s", script, h.Name, code, out, errs)
		}
		return out
	}
	must(head, "./hora pool add lab")
	offer := strings.Replace(strings.TrimSpace(must(head, "./hora pool token lab")), " hora ", " ./hora ", 1)
	said := &saying{}
	for _, h := range n.Hosts[1:] {
		c := h.Command(ctx, "sh", "-c", "export "+strings.Replace(offer, " ./hora", "; exec ./hora", 1)+" --slots 2")
		c.Stdout, c.Stderr = said, said
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
	}
	both := func() bool { return strings.Count(must(head, "./hora nodes"), "ready") == 3 }
	for end := time.Now().Add(patience); !both(); {
		if time.Now().After(end) {
			t.Fatalf("the nodes are\n%s; they said\n%s", must(head, "./hora nodes"), said)
		}
	}
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
		{bare + "#" + wrong, "and not the pinned " + wrong},
		{bare, "certificate"},
		{strings.Replace(bare, "https", "http", 1), "is not encrypted"},
	} {
		code, _, errs := run(n.Hosts[1], "HORA_TOKEN="+strings.TrimSpace(token)+" ./hora login '"+c.address+"'")
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
