package ssh

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"regexp"
	"strconv"
	"strings"

	"hora/launch/logs"
	"hora/launch/machine"
)

// tunnel is a way for the workers of a host that reaches none of this host's addresses to the coordinator: a port on
// that host's loopback that ssh forwards here. It lasts while stdin, which this process alone holds, is open.
type tunnel struct {
	process *os.Process
	stdin   *os.File
	errs    chan struct{} // closed when all that ssh says has been read
}

// allocated is how ssh says which port it was given.
var allocated = regexp.MustCompile(`^Allocated port (\d+) for remote forward`)

// Dig opens a tunnel.
func (w *Way) Dig(ctx context.Context, to int) (string, error) {
	path, argv, err := w.reach.ssh(w.host)
	if err != nil {
		return "", err
	}
	argv = append(argv, "-o", "ControlPath=none", "-o", "ExitOnForwardFailure=yes", "-R", "127.0.0.1:0:127.0.0.1:"+strconv.Itoa(to),
		"--", w.host, "exec cat >/dev/null")
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
			return "", fmt.Errorf("ssh forwards no port either (%s)", sshWords(said.String()))
		case <-t.errs:
			return "", fmt.Errorf("ssh forwards no port either (%s)", sshWords(said.String()))
		case <-ctx.Done():
			return "", fmt.Errorf("ssh forwards no port either in %v", w.reach.cfg.Start)
		}
	}
}

// fill closes the tunnel.
func (t *tunnel) fill() {
	if t == nil {
		return
	}
	t.stdin.Close()
	_ = t.process.Kill()    // it may have ended
	_, _ = t.process.Wait() // killed
	<-t.errs
}
