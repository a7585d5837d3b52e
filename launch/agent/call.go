package agent

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"hora/internal/wire"
	"hora/launch/environ"
	"hora/launch/protocol"
)

// call is what all workers of the host are handed as a private file, as far as it has come.
type call struct {
	path    string // "" where there is none
	file    *os.File
	left    int64             // bytes that have not come yet
	waiting []protocol.Worker // to be started then
}

// open begins the file of a call of so many bytes, -1 for none.
func (c *call) open(dir string, size int64) (err error) {
	if size < 0 {
		return nil
	}
	if dir == "" {
		return errors.New("there is no private folder without a secret")
	}
	c.path, c.left = filepath.Join(dir, "call"), size
	c.file, err = os.OpenFile(c.path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err == nil && size == 0 {
		err = c.file.Close()
	}
	return err
}

// callPart takes more of it; the last part starts the workers.
func (a *agent) callPart(b []byte) {
	c := &a.call
	if c.left <= 0 || a.ending.stopping {
		return
	}
	_, err := c.file.Write(b)
	if c.left -= int64(len(b)); c.left <= 0 && err == nil {
		err = c.file.Close()
	}
	if err != nil {
		a.fail(protocol.ExitSystem, fmt.Sprintf("keep the call on %s: %v: free space there, or set TMPDIR to a directory with room", a.plan.Host, err))
		return
	}
	if c.left > 0 {
		return
	}
	workers := c.waiting
	c.waiting = nil
	for _, w := range workers {
		if !a.startWorker(w, time.Now()) {
			return
		}
	}
}

// callEnv tells a worker where the call is, and where to leave its result.
func (a *agent) callEnv(env []string) (out []string, result string) {
	if a.call.path != "" {
		env = environ.Merge(env, []string{"HORA_CALL=" + a.call.path})
	}
	if a.plan.Results && a.private.dir != "" {
		a.started++
		result = filepath.Join(a.private.dir, fmt.Sprintf("result.%d", a.started))
		env = environ.Merge(env, []string{"HORA_RESULT=" + result})
	}
	return env, result
}

// passResult passes on what an ended worker has left, before its end is told.
func (a *agent) passResult(p *proc) {
	if p.sending {
		return
	}
	p.sending = true
	go func() {
		if err := p.sendResult(a.out); err != nil {
			a.warn("read what rank %d has left: %v", p.rank, err)
		}
		a.events <- passed{p}
	}()
}

func (p *proc) sendResult(out *protocol.Writer) error {
	f, err := os.OpenFile(p.result, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	defer os.Remove(p.result)
	if st, err := f.Stat(); err != nil || !st.Mode().IsRegular() {
		return fmt.Errorf("%s is no file", p.result)
	}
	buf := make([]byte, protocol.Part)
	for at := int64(0); ; {
		n, err := io.ReadFull(f, buf)
		last := errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
		if err != nil && !last {
			return err
		}
		b := wire.AppendI64(wire.AppendBool(wire.AppendI64(nil, int64(p.rank)), last), at)
		at += int64(n)
		if !out.Bulk(protocol.SayResult, append(b, buf[:n]...)) || last {
			return nil
		}
	}
}
