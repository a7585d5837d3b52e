package local

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"syscall"
	"time"

	"hora/internal/secret"
	"hora/internal/wire"
	"hora/launch/agent"
	"hora/launch/machine"
	"hora/launch/protocol"
	"hora/launch/reach"
)

// Last has agents that are opened from now on wait for another launcher when this one dies.
func (r *Reach) Last(l reach.Last) { r.last = &l }

// Lasts says whether they do.
func (r *Reach) Lasts() bool { return r.last != nil }

// LastingWay leads to such an agent, by a socket in the job's folder.
type LastingWay struct {
	*Way
	name string // of the socket
	conn net.Conn
	back protocol.Back
}

// OpenLasting starts such an agent, or finds the way to one that is there.
func (r *Reach) OpenLasting(host string, in *reach.Input) (*LastingWay, error) {
	w := &LastingWay{Way: &Way{reach: r, host: host}, name: fmt.Sprintf("agent.%d", r.opened)}
	r.opened++
	if r.last.Resume {
		return w, nil
	}
	if err := r.openGuard(); err != nil {
		return nil, err
	}
	ln, err := r.listen(w.name)
	if err != nil {
		return nil, err
	}
	defer ln.Close()
	say, null, err := r.streams()
	if err != nil {
		return nil, err
	}
	defer say.Close()
	defer null.Close()
	files := []*os.File{say, null, os.Stderr}
	argv := slices.Clone(r.cfg.Self)
	if in != nil {
		files = append(files, in.File)
		argv = append(argv, "--stdin="+strconv.Itoa(in.Rank))
	}
	argv = append(argv, fmt.Sprintf("%s=%d,%v", agent.LastFlag, len(files), r.last.Wait))
	files = append(files, ln)
	if r.guard != nil {
		argv = append(argv, fmt.Sprintf("%s=%d", guardFlag, len(files)))
		files = append(files, r.guard.w)
	}
	w.process, err = os.StartProcess(argv[0], argv, &os.ProcAttr{
		Env: r.cfg.Environ, Files: files, Sys: machine.Detached(),
	})
	if err != nil {
		return nil, protocol.Fault(protocol.ExitSystem, "start the agent %s: %v", argv[0], err)
	}
	r.guard.say("agent %d", w.process.Pid)
	return w, nil
}

// streams returns such an agent's standard input, which is the secret, and its output.
func (r *Reach) streams() (in, out *os.File, err error) {
	in, w, err := os.Pipe()
	if err == nil {
		_, err = io.WriteString(w, r.last.Secret.Hex()+"\n")
		if err = errors.Join(err, w.Close()); err == nil {
			out, err = os.OpenFile(os.DevNull, os.O_WRONLY, 0)
		}
		if err == nil {
			return in, out, nil
		}
		in.Close()
	}
	return nil, nil, protocol.Fault(protocol.ExitSystem, "open pipe to an agent: %v: raise the limit with ulimit -n", err)
}

// socket calls use with a name of a socket in the job's folder that is short enough for the system, however long the
// folder's is.
func (r *Reach) socket(name string, use func(path string) error) error {
	if runtime.GOOS != "linux" {
		return use(filepath.Join(r.last.Dir, name))
	}
	dir, err := os.Open(r.last.Dir)
	if err != nil {
		return err
	}
	defer dir.Close()
	return use(fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), name))
}

// listen opens the socket.
func (r *Reach) listen(name string) (f *os.File, err error) {
	_ = os.Remove(filepath.Join(r.last.Dir, name)) // of an ended job
	err = r.socket(name, func(path string) error {
		ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
		if err != nil {
			return err
		}
		defer ln.Close()
		ln.SetUnlinkOnClose(false)
		f, err = ln.File()
		return err
	})
	if err != nil {
		return nil, protocol.Fault(protocol.ExitSystem, "listen for launchers in %s: %v: give --coordinator-state another folder", r.last.Dir, err)
	}
	return f, nil
}

// Greet connects and proves the secret.
func (w *LastingWay) Greet() (*reach.Host, error) {
	last := w.reach.last
	end := time.Now().Add(30 * time.Second)
	err := w.reach.socket(w.name, func(path string) (err error) {
		w.conn, err = net.Dial("unix", path)
		return err
	})
	if err != nil {
		return nil, err
	}
	back, err := Return(w.conn, last.Secret, w.host, end)
	if err != nil {
		w.conn = nil
		return nil, err
	}
	w.back = *back
	return w.Way.Greet()
}

// Return proves the secret to an agent that outlives its launchers, wherever it is, and hears what it says of itself.
// An error closes the connection.
func Return(conn secret.Conn, s secret.Secret, host string, end time.Time) (*protocol.Back, error) {
	me := secret.Identity{Purpose: agent.LastingPurpose, Rank: secret.Anyone, Peer: secret.Anyone, Host: host}
	if _, err := secret.Client(conn, s, me, end); err != nil {
		return nil, err
	}
	var back protocol.Back
	_ = conn.SetDeadline(end)
	kind, body, err := wire.ReadMessage(conn, nil, protocol.Limit)
	_ = conn.SetDeadline(time.Time{})
	greets := err == nil && kind == protocol.SayBack && json.Unmarshal(body, &back) == nil
	if err == nil && (!greets || back.Version != protocol.Version) {
		err = fmt.Errorf("it speaks version %q of hora's messages and this one %q: adopt the job with the hora that started it", back.Version, protocol.Version)
	}
	if err != nil {
		conn.Close()
		return nil, err
	}
	return &back, nil
}

// Back returns what the agent has said of itself.
func (w *LastingWay) Back() *protocol.Back { return &w.back }

// Read ends with the agent.
func (w *LastingWay) Read(p []byte) (int, error) {
	n, err := w.conn.Read(p)
	if errors.Is(err, syscall.ECONNRESET) {
		err = io.EOF
	}
	return n, err
}

func (w *LastingWay) Write(p []byte) (int, error) { return w.conn.Write(p) }

// Finish says that no other launcher will come.
func (w *LastingWay) Finish() error {
	if w.conn == nil {
		return nil
	}
	_, err := w.conn.Write(wire.AppendMessage(nil, protocol.CmdLeave, nil))
	return err
}

// Kill ends the agent.
func (w *LastingWay) Kill() {
	if w.process != nil {
		_ = w.process.Kill() // it may have ended by itself
	} else if w.back.Pid > 0 {
		_ = syscall.Kill(w.back.Pid, syscall.SIGKILL)
	}
}

// End waits for the process, whosever child it is.
func (w *LastingWay) End(err error) *reach.Lost {
	if w.conn == nil {
		w.Kill() // nobody would tell it anything
	}
	if w.process != nil {
		return w.Way.End(err)
	}
	end := time.Now().Add(10 * time.Second)
	for w.back.Pid > 0 && syscall.Kill(w.back.Pid, 0) == nil && time.Now().Before(end) {
		time.Sleep(10 * time.Millisecond)
	}
	if w.reach.cfg.Temp != "" && w.back.Pid > 0 {
		agent.Forget(w.reach.cfg.Temp, w.back.Pid)
	}
	text := fmt.Sprintf("its agent cannot be reached any more (%v): the job has ended with it: start it again", err)
	return &reach.Lost{Text: text, Fault: protocol.Fault(protocol.ExitHost, "lost host %s: %s", w.host, text)}
}

// Close gives back the connection, the socket and the port.
func (w *LastingWay) Close() {
	if w.conn != nil {
		w.conn.Close()
	}
	_ = os.Remove(filepath.Join(w.reach.last.Dir, w.name))
	if w.claim != nil {
		w.claim.Close()
	}
}
