package agent

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"hora/internal/secret"
	"hora/launch/machine"
	"hora/launch/protocol"
)

// A front is what ssh starts on a host whose agent outlives it: a process that leads from its standard streams to the
// agent's socket. On Linux that has an abstract name, which lies in no folder and ends with the agent. A front knows
// nothing: the launcher at the one end and the agent at the other prove the secret to each other.

// frontWait is how long an agent may take to listen, and to end once its socket has.
const frontWait = 10 * time.Second

// Stay starts an agent by the words of its command line, as what waits for launchers at a name, and leads to it until
// either end has gone. The first line of in is the job's secret, for the agent alone. Stay returns the agent's exit
// code.
func Stay(words []string, name string, wait time.Duration, in io.Reader, out io.Writer) (int, error) {
	ln, err := net.ListenUnix("unix", socketOf(name))
	if err != nil {
		return protocol.ExitSystem, fmt.Errorf("listen for launchers: %w", err)
	}
	ln.SetUnlinkOnClose(false)
	process, err := daemon(words, ln, wait, in)
	ln.Close()
	if err != nil {
		return protocol.ExitSystem, fmt.Errorf("start the agent %s: %w", words[0], err)
	}
	ended := make(chan int, 1)
	go func() {
		code := protocol.ExitBug
		if state, err := process.Wait(); err == nil && state.ExitCode() >= 0 {
			code = state.ExitCode()
		}
		ended <- code
	}()
	gone, err := lead(name, in, out)
	if err != nil || gone {
		return 0, err
	}
	select {
	case code := <-ended: // what it had to say on standard error has been said
		return code, nil
	case <-time.After(frontWait):
		return 0, nil
	}
}

// Return leads to an agent that waits for launchers at a name.
func Return(name string, in io.Reader, out io.Writer) (int, error) {
	if _, err := lead(name, in, out); err != nil {
		return protocol.ExitHost, err
	}
	return 0, nil
}

// socketOf returns where an agent waits. Where the kernel is not Linux that is a file, which its last front removes.
func socketOf(name string) *net.UnixAddr {
	if runtime.GOOS != "linux" {
		return &net.UnixAddr{Name: filepath.Join(os.TempDir(), "hora-"+name), Net: "unix"}
	}
	return &net.UnixAddr{Name: "@hora-" + name, Net: "unix"}
}

// daemon starts the agent in a session of its own. It has this process's standard error, and nothing else of ssh's.
func daemon(words []string, ln *net.UnixListener, wait time.Duration, in io.Reader) (*os.Process, error) {
	line := make([]byte, 2*secret.Bytes+1)
	if _, err := io.ReadFull(in, line); err != nil {
		return nil, fmt.Errorf("read the job's secret: %w", err)
	}
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer r.Close()
	_, err = w.Write(line)
	door, derr := ln.File()
	null, nerr := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err = errors.Join(err, w.Close(), derr, nerr); err != nil {
		return nil, err
	}
	defer door.Close()
	defer null.Close()
	words = append(words, LastFlag+"="+strconv.Itoa(3)+","+wait.String())
	return os.StartProcess(words[0], words, &os.ProcAttr{
		Files: []*os.File{r, null, os.Stderr, door}, Sys: machine.Detached(),
	})
}

// lead copies in both directions until one end has gone, and says whether it was the launcher's.
func lead(name string, in io.Reader, out io.Writer) (launcher bool, err error) {
	conn, err := net.DialUnix("unix", nil, socketOf(name))
	if err != nil {
		if strings.Contains(err.Error(), "refused") {
			err = errors.New("no agent of this job waits here any more")
		}
		return false, err
	}
	defer conn.Close()
	ends := make(chan bool, 2)
	go func() {
		_, _ = io.Copy(conn, in) // whichever end has gone
		ends <- true
	}()
	go func() {
		_, _ = io.Copy(out, conn)
		ends <- false
	}()
	launcher = <-ends
	if !launcher && runtime.GOOS != "linux" {
		_ = os.Remove(socketOf(name).Name) // the agent has ended
	}
	return launcher, nil
}
