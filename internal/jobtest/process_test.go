package jobtest_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"hora"
	"hora/internal/jobtest"
)

// roles are what a process of this test program can be instead of running the tests:
// rank HORA_RANK of a world, which does the role's work.
var roles = map[string]func(ctx context.Context, w *hora.World) error{}

const roleVariable = "HORA_TEST_ROLE"

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == agentArgument {
		os.Exit(beAgent())
	}
	if len(os.Args) > 1 && os.Args[1] == coordinatorArgument {
		os.Exit(beCoordinator())
	}
	if len(os.Args) > 2 && os.Args[1] == launcherArgument {
		os.Exit(beLauncher())
	}
	role := os.Getenv(roleVariable)
	if role == "" {
		if err := os.Chdir("../.."); err != nil { // the tests read, build and start what lies in the repository
			panic(err)
		}
		os.Exit(m.Run())
	}
	if err := play(role); err != nil {
		fmt.Println("failed:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

func play(role string) error {
	ctx := context.Background()
	cfg, err := hora.FromEnv(os.Getenv)
	if err != nil {
		return err
	}
	if f := elasticRoles[role]; f != nil {
		return f(ctx, cfg)
	}
	w, err := hora.Join(ctx, cfg)
	if err != nil {
		return err
	}
	defer w.Close()
	if err := roles[role](ctx, w); err != nil {
		return err
	}
	return w.Leave(ctx)
}

// process is one rank of a job under test.
type process struct {
	t    *testing.T
	rank int
	cmd  *exec.Cmd
	out  lines
	in   *os.File
	done chan struct{}
	err  error
}

// lines collects output and wakes who waits for some.
type lines struct {
	mu   sync.Mutex
	all  bytes.Buffer
	more chan struct{}
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all.Write(p)
	if l.more != nil {
		close(l.more)
		l.more = nil
	}
	return len(p), nil
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.all.String()
}

// until returns the output once it holds want.
func (p *process) until(want string, within time.Duration) string {
	p.t.Helper()
	late := time.After(within)
	for {
		p.out.mu.Lock()
		text := p.out.all.String()
		if p.out.more == nil {
			p.out.more = make(chan struct{})
		}
		more := p.out.more
		p.out.mu.Unlock()
		if strings.Contains(text, want) {
			return text
		}
		select {
		case <-more:
		case <-p.done:
			if text = p.out.String(); strings.Contains(text, want) {
				return text
			}
			p.t.Fatalf("rank %d ended without saying %q:\n%s", p.rank, want, text)
		case <-late:
			p.t.Fatalf("rank %d did not say %q within %v:\n%s", p.rank, want, within, text)
		}
	}
}

// tell writes a line to the rank's standard input.
func (p *process) tell(line string) { fmt.Fprintln(p.in, line) }

// signal sends the rank a signal.
func (p *process) signal(s syscall.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Fatalf("signal rank %d: %v", p.rank, err)
	}
}

// wait is the rank's exit code.
func (p *process) wait(within time.Duration) int {
	p.t.Helper()
	select {
	case <-p.done:
		return p.cmd.ProcessState.ExitCode()
	case <-time.After(within):
		p.t.Fatalf("rank %d did not end within %v:\n%s", p.rank, within, p.out.String())
		return -1
	}
}

// start runs n processes of a role as one world whose rank 0 serves the rendezvous.
func start(t *testing.T, n int, role string, env ...string) []*process {
	t.Helper()
	file := secretFile(t)
	addr := "127.0.0.1:" + strconv.Itoa(jobtest.FreePort(t))
	all := make([]*process, n)
	for r := range all {
		all[r] = startOne(t, r, role, append([]string{
			"HORA_RANK=" + strconv.Itoa(r), "HORA_SIZE=" + strconv.Itoa(n), "HORA_ADDR=" + addr, "HORA_SERVE=1",
			"HORA_SECRET_FILE=" + file,
		}, env...))
	}
	return all
}

func startOne(t *testing.T, rank int, role string, env []string) *process {
	t.Helper()
	p := &process{
		t: t, rank: rank, cmd: jobtest.Self(t, append([]string{roleVariable + "=" + role}, env...)...),
		done: make(chan struct{}),
	}
	p.cmd.Stdout, p.cmd.Stderr = &p.out, &p.out
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	p.cmd.Stdin, p.in = read, write
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	read.Close()
	go func() {
		p.err = p.cmd.Wait()
		close(p.done)
	}()
	t.Cleanup(func() {
		p.cmd.Process.Kill()
		<-p.done
		write.Close()
	})
	return p
}

// succeed waits for all to end well.
func succeed(t *testing.T, all []*process, within time.Duration) {
	t.Helper()
	for _, p := range all {
		if code := p.wait(within); code != 0 {
			t.Errorf("rank %d ended with code %d:\n%s", p.rank, code, p.out.String())
		}
	}
}
