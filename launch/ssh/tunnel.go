package ssh

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strconv"
	"strings"
	"syscall"

	"hora/launch/logs"
	"hora/launch/machine"
)

// tunnel is a way for the workers of a host that reaches none of this host's addresses to the coordinator: a port on
// that host's loopback that ssh forwards here. A tunnel lasts while stdin, which this process alone holds, is open.
type tunnel struct {
	process *os.Process
	stdin   *os.File
	errs    chan struct{} // closed when all that ssh says has been read
}

// allocated is how ssh says which port it was given.
var allocated = regexp.MustCompile(`^Allocated port (\d+) for remote forward`)

// dug is the word by which the remote end says that it was reached. ssh has given up before where it was given no port.
const dug = "hora-tunnel"

// Dig opens a tunnel. One that was open before is opened again whatever has come since.
func (w *Way) Dig(ctx context.Context, to, at int) (string, error) {
	if at == 0 && w.reach.beside.Load() {
		return "", errors.New("ranks run on this machine, to which no tunnel would lead")
	}
	w.tunnel.fill()
	w.tunnel = nil
	path, argv, err := w.reach.ssh(w.host)
	if err != nil {
		return "", err
	}
	argv = append(argv, "-o", "ControlPath=none", "-o", "ExitOnForwardFailure=yes", "-R",
		fmt.Sprintf("127.0.0.1:%d:127.0.0.1:%d", at, to), "--", w.host, "echo "+dug+"; exec cat >/dev/null")
	inR, inW, err := os.Pipe()
	if err != nil {
		return "", err
	}
	defer inR.Close()
	errR, errW, err := os.Pipe()
	if err != nil {
		inW.Close()
		return "", err
	}
	defer errW.Close()
	t := &tunnel{stdin: inW, errs: make(chan struct{})}
	t.process, err = os.StartProcess(path, argv, &os.ProcAttr{
		Env:   w.reach.cfg.Environ,
		Files: []*os.File{inR, errW, errW}, Sys: machine.Detached(),
	})
	if err != nil {
		inW.Close()
		errR.Close()
		return "", err
	}
	w.tunnel = t
	refusal := "ssh forwards no port either"
	if at > 0 {
		refusal = fmt.Sprintf("ssh does not forward port %d", at)
	}
	port := make(chan string, 1)
	failed := make(chan struct{}, 1)
	said := &logs.Head{}
	go func() {
		defer close(t.errs)
		defer errR.Close()
		lines := bufio.NewScanner(errR)
		for lines.Scan() {
			if m := allocated.FindSubmatch(lines.Bytes()); m != nil {
				port <- string(m[1])
				continue
			}
			if lines.Text() == dug { // what ssh itself says comes before it
				if at > 0 {
					port <- strconv.Itoa(at)
				}
				continue
			}
			fmt.Fprintln(said, lines.Text())
			if strings.Contains(lines.Text(), "forwarding failed") { // ssh itself stays
				select {
				case failed <- struct{}{}:
				default:
				}
			}
		}
		_, _ = io.Copy(io.Discard, errR) // after a line beyond measure
	}()
	for {
		select {
		case p := <-port:
			return "127.0.0.1:" + p, nil
		case <-failed:
			return "", fmt.Errorf("%s (%s)", refusal, sshWords(said.String()))
		case <-t.errs:
			return "", fmt.Errorf("%s (%s)", refusal, sshWords(said.String()))
		case <-ctx.Done():
			return "", fmt.Errorf("%s in %v", refusal, w.reach.cfg.Start)
		}
	}
}

// fill closes the tunnel.
func (t *tunnel) fill() {
	if t == nil {
		return
	}
	t.stdin.Close()
	// With what it came through, which has its output too. It may have ended.
	_ = syscall.Kill(-t.process.Pid, syscall.SIGKILL)
	_, _ = t.process.Wait() // killed
	<-t.errs
}
