package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"hora/job"
	"hora/server/client"
)

// wire is a way to the server that can be cut: what is on it then stays on it, and nothing is refused, as where a
// switch has died.
type wire struct {
	net.Listener
	to   string
	mu   sync.Mutex
	cut  bool
	ends []net.Conn
}

func newWire(t *testing.T, to string) *wire {
	w := &wire{Listener: must(net.Listen("tcp", "127.0.0.1:0")), to: to}
	t.Cleanup(func() {
		w.Close()
		w.mu.Lock()
		defer w.mu.Unlock()
		for _, c := range w.ends {
			c.Close()
		}
	})
	go func() {
		for {
			a, err := w.Accept()
			if err != nil {
				return
			}
			b, err := net.Dial("tcp", to)
			if err != nil {
				a.Close()
				continue
			}
			w.mu.Lock()
			w.ends = append(w.ends, a, b)
			w.mu.Unlock()
			go w.pass(a, b)
			go w.pass(b, a)
		}
	}()
	return w
}

func (w *wire) pass(from, to net.Conn) {
	b := make([]byte, 1<<16)
	for {
		n, err := from.Read(b)
		w.mu.Lock()
		cut := w.cut
		w.mu.Unlock()
		if cut {
			_, _ = io.Copy(io.Discard, from) // what comes is taken and given to nobody
			return
		}
		if n > 0 {
			if _, err := to.Write(b[:n]); err != nil {
				return
			}
		}
		if err != nil {
			to.Close()
			return
		}
	}
}

func (w *wire) set(cut bool) {
	w.mu.Lock()
	w.cut = cut
	w.mu.Unlock()
}

// beating is a job that says ten times a second, in a file that all of its attempts share, that it runs; the second
// attempt ends soon.
func beating(file string) client.Document {
	d := shell(1, fmt.Sprintf(`n=0; while [ $n -lt 600 ]; do echo $HORA_SERVER_ATTEMPT >>%s; n=$((n+1)); sleep 0.1; [ $HORA_SERVER_ATTEMPT = 1 ] || [ $n -lt 20 ] || exit 0; done`, file))
	d.Pool = "lab"
	return d
}

// alone sees to it that no attempt runs beside a later one.
func alone(t *testing.T, file string) {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if text := strings.ReplaceAll(string(b), "\n", ""); !strings.Contains(text, "12") || strings.Contains(text, "21") {
		t.Errorf("attempts ran as %s: the first is to have ended before the second begins", text)
	}
}

// patientSite is a server with a pool of machines, and so much patience with them.
func patientSite(t *testing.T, patience string) *site {
	s := newSite(t, 1)
	s.kill()
	s.port, s.more = s.url[strings.LastIndex(s.url, ":")+1:], []string{"--patience", patience}
	s.up()
	if r := s.hora("pool", "add", "lab"); r.code != 0 {
		t.Fatalf("%+v", r)
	}
	return s
}

// fenced is a server with a node that is reached over a wire, and a job that runs there.
func fenced(t *testing.T) (s *site, w *wire, one *exec.Cmd, file string, j client.Job) {
	s = patientSite(t, "6s")
	w = newWire(t, strings.TrimPrefix(s.url, "http://"))
	one = s.joining("one", "lab", "--server", "http://"+w.Addr().String())
	file = filepath.Join(t.TempDir(), "beats")
	j = s.submit(beating(file))
	s.eventually("the job runs", func() bool { b, _ := os.ReadFile(file); return len(b) > 0 })
	return s, w, one, file, j
}

// TestANodeThatIsCutOff ends what it runs before the server lets it run elsewhere.
func TestANodeThatIsCutOff(t *testing.T) {
	t.Parallel() // they wait, most of the time
	s, w, _, file, j := fenced(t)
	w.set(true)
	s.joining("two", "lab")
	if j = s.until(j.ID, ended); j.State != job.Finished {
		t.Errorf("%+v", j)
	}
	alone(t, file)
	if j, _ = s.client.Job(context.Background(), j.ID); len(j.Attempts) != 2 || j.Attempts[0].Outcome != client.Lost ||
		j.Attempts[1].Shares[0].Node != "two" {
		t.Errorf("%+v", j.Attempts)
	}
}

// TestANodeWhoseProgramIsGone: what keeps a job ends it by itself, since the node's own program was killed.
func TestANodeWhoseProgramIsGone(t *testing.T) {
	t.Parallel() // they wait, most of the time
	s, _, one, file, j := fenced(t)
	if err := one.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	s.joining("two", "lab")
	if j = s.until(j.ID, ended); j.State != job.Finished {
		t.Errorf("%+v", j)
	}
	alone(t, file)
}

// TestAServerThatIsAwayForLong gives nobody up: the job goes on beyond its patience, and is taken up where it was.
func TestAServerThatIsAwayForLong(t *testing.T) {
	t.Parallel() // they wait, most of the time
	s := patientSite(t, "3s")
	s.joining("one", "lab")
	gate := filepath.Join(t.TempDir(), "gate")
	d := shell(1, "until [ -e "+gate+" ]; do sleep 0.05; done")
	d.Pool = "lab"
	j := s.submit(d)
	s.until(j.ID, in(job.Running))
	s.kill()
	<-time.After(5 * time.Second)
	s.up()
	s.eventually("the node is back", func() bool { return len(s.ready("lab")) == 1 })
	if err := os.WriteFile(gate, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if j = s.until(j.ID, ended); j.State != job.Finished {
		t.Errorf("%+v", j)
	}
	if j, _ = s.client.Job(context.Background(), j.ID); len(j.Attempts) != 1 {
		t.Errorf("%+v", j.Attempts)
	}
}
