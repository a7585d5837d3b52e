package jobtest

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"testing"
	"time"
)

// Process is a started process as a test sees it: usually this test program once more, whose TestMain is something else
// when its environment says so.
type Process struct {
	*exec.Cmd
	In    io.WriteCloser  // its standard input; nil if the Cmd had one
	Lines <-chan string   // of its standard output; closed when that ends
	Ended <-chan struct{} // closed when it has ended: ProcessState is there
	t     testing.TB
}

// Self returns the command that runs this test program with env in addition. Its standard error is this one's.
func Self(t testing.TB, env ...string) *exec.Cmd {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program)
	cmd.Env = append(cmd.Environ(), env...)
	cmd.Stderr = os.Stderr
	return cmd
}

// Start starts cmd, reads what it prints and kills it when the test ends, if it is still there. At most 1,000 lines
// wait for the test; a process that prints more than that waits too.
func Start(t testing.TB, cmd *exec.Cmd) *Process {
	t.Helper()
	p := &Process{Cmd: cmd, t: t}
	var err error
	if cmd.Stdin == nil {
		if p.In, err = cmd.StdinPipe(); err != nil {
			t.Fatal(err)
		}
	}
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	lines, ended := make(chan string, 1000), make(chan struct{})
	p.Lines, p.Ended = lines, ended
	go func() {
		for s := bufio.NewScanner(out); s.Scan(); {
			lines <- s.Text()
		}
		close(lines)
		_ = cmd.Wait() // ProcessState tells
		close(ended)
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		for range lines {
		}
		<-ended
	})
	return p
}

// Next returns the process's next line, or false when it says no more.
func (p *Process) Next(within time.Duration) (line string, ok bool) {
	p.t.Helper()
	select {
	case line, ok = <-p.Lines:
		return line, ok
	case <-time.After(within):
		p.t.Fatalf("process %d said nothing within %v", p.Process.Pid, within)
		return "", false
	}
}

// Tell writes a line to the process's standard input.
func (p *Process) Tell(line string) { _, _ = io.WriteString(p.In, line+"\n") }
