package agent

import (
	"bytes"
	"cmp"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"hora/internal/wire"
	"hora/launch/environ"
	"hora/launch/machine"
	"hora/launch/protocol"
)

// start forks the plan's workers.
func (a *agent) start() {
	p := a.plan
	if err := a.private.keep(a.cfg.Temp, a.cfg.Secret); err != nil {
		a.fail(protocol.ExitSystem, err.Error())
		return
	}
	dir := p.Dir
	if p.Own {
		dir = a.cfg.Home
	} else if st, err := os.Stat(dir); dir != "" && (err != nil || !st.IsDir()) {
		a.warn("directory %s is not on %s: workers start in %s", dir, p.Host, a.cfg.Home)
		dir = a.cfg.Home
	}
	shares, crowded := machine.Shares(machine.Cores(filepath.Join(a.cfg.Root, "/sys"), machine.AllowedCPUs()),
		p.Total, p.Bind)
	if crowded && p.Bind == machine.BindCore && p.First == 0 {
		a.warn("%s has fewer hardware threads than its %d ranks: they share all of them and run slower", p.Host, p.Total)
	}
	if n := tooMany(p.Environ, shares[0]); n > 0 && p.First == 0 {
		a.warn("OMP_NUM_THREADS=%d for each of the %d ranks of %s is more than its cores, and ranks are not bound: threads wait asleep "+
			"(OMP_WAIT_POLICY=passive); OMP_NUM_THREADS=%d fits", n, p.Total, p.Host, shares[0].Cores)
	}
	a.shares, a.at = shares[p.First:], dir
	a.oom = openOOM(a.cfg.Root)
	if err := a.call.open(a.private.dir, p.Call); err != nil {
		a.fail(protocol.ExitSystem, fmt.Sprintf("keep the call on %s: %v", p.Host, err))
		return
	}
	for _, w := range p.Workers {
		if !a.startWorker(w, time.Now()) {
			return
		}
	}
	sweepDead(a.cfg.Temp)
}

// startWorker forks one worker of the plan, on the cores of its rank, once the call and its devices are there, which
// are awaited since some time.
func (a *agent) startWorker(w protocol.Worker, since time.Time) bool {
	p := a.plan
	if a.call.left > 0 {
		a.call.waiting = append(a.call.waiting, w)
		return true
	}
	share := machine.Share{Cores: 1} // of a slot that the host did not have at first
	if w.Slot < len(a.shares) {
		share = a.shares[w.Slot]
	}
	env := environ.Merge(p.Environ, w.Env)
	if a.private.dir != "" {
		env = environ.Merge(env, []string{"HORA_SECRET_FILE=" + filepath.Join(a.private.dir, "secret")})
	}
	env = threads(env, share)
	env = environ.Default(env, "PYTHONUNBUFFERED", "1")
	if p.Own {
		env = networkNames(env)
	}
	env, locks, dealt := a.deal(w, env, since)
	if !dealt {
		return true // and the others start meanwhile
	}
	env, result := a.callEnv(env)
	name := cmp.Or(w.Process, rand.Text())
	env = environ.Merge(env, []string{"PWD=" + a.at, "HORA_PROCESS=" + name})
	path, err := look(p.Command[0], a.at, env)
	if err == nil {
		err = a.fork(&proc{rank: w.Rank, name: name, result: result, devices: locks}, path, p.Command, env, share.CPUs)
	}
	if port, bad := strconv.Atoi(environ.Lookup(env, "MASTER_PORT")); p.Apart && w.Rank == 0 && bad == nil {
		a.store.await(port)
	}
	if err != nil {
		release(locks)
		code, why := refusal(p.Command[0], path, a.at, err)
		a.fail(code, fmt.Sprintf("start %s on %s: %s", protocol.CommandName(p.Command[0]), p.Host, why))
	}
	return err == nil
}

// fork starts one worker with pipes for its output.
func (a *agent) fork(p *proc, path string, argv, env []string, cpus []int) error {
	var in *os.File
	var err error
	switch {
	case p.rank == a.cfg.InputRank && a.cfg.Input != nil:
		in = a.cfg.Input
	default:
		if in, err = os.Open(os.DevNull); err != nil {
			return err
		}
		defer in.Close()
	}
	or, ow, err := os.Pipe()
	if err != nil {
		return err
	}
	defer ow.Close()
	er, ew, err := os.Pipe()
	if err != nil {
		or.Close()
		return err
	}
	defer ew.Close()
	pid, err := a.forker.fork(path, argv, a.at, env, [3]uintptr{in.Fd(), ow.Fd(), ew.Fd()}, cpus)
	if err != nil {
		or.Close()
		er.Close()
		return err
	}
	p.pid, p.pipes = pid, 2
	a.procs[pid] = p
	a.pipes[or], a.pipes[er] = false, false
	a.live++
	a.children.more()
	go a.forward(p, or, 0)
	go a.forward(p, er, 1)
	a.out.Send(protocol.SayStarted, wire.AppendI64(wire.AppendI64(nil, int64(p.rank)), int64(pid)))
	return nil
}

// pipeHolds bounds what a pipe may hold: as much as the system lets its owner ask for.
const pipeHolds = 1 << 20

// A pipe that brings line upon line is left alone for a breath before what it holds is passed on, so that lines that
// are printed in a row come as one piece: each piece wakes the agent, the launcher and whoever reads that. A piece a
// line cost 8 ranks on 2 cores 15 % of their time at 8,000 lines a second. In a breath a worker's lines seldom fill
// the pipe; where as much has come at once as no print says, a file is being copied. A line by itself goes at once:
// somebody may act on it.
const (
	breath  = 5 * time.Millisecond
	noPrint = protocol.Chunk / 4
	chatty  = 100 * time.Millisecond // after lines in a row
)

// forward passes one pipe on until its last writer has closed it. When it is told that no worker is left, it passes on
// what the pipe holds, and waits no longer: somebody outside the job may have been handed its other end.
func (a *agent) forward(p *proc, r *os.File, stream uint8) {
	defer r.Close()
	buf := make([]byte, protocol.Chunk)
	var err error
	var last, until time.Time // when something came, and until when more of it is awaited
	for err == nil {
		var n int
		n, err = r.Read(buf)
		now := time.Now()
		switch {
		case n == 0:
			continue
		case n < noPrint && now.Before(until):
			time.Sleep(breath)
			if n += held(r, buf[n:]); bytes.Count(buf[:n], []byte{'\n'}) > 1 {
				until = now.Add(chatty)
			}
		case now.Sub(last) < breath:
			until = now.Add(chatty)
		}
		last = now
		a.out.Output(p.rank, stream, buf[:n])
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		_ = r.SetReadDeadline(time.Time{})
		for n, left := 1, pipeHolds; n > 0 && left > 0; left -= n {
			if n = held(r, buf); n > 0 {
				a.out.Output(p.rank, stream, buf[:n])
			}
		}
	}
	a.events <- pipeEnd{p, r}
}

// held reads what a pipe holds, and does not wait for more.
func held(r *os.File, buf []byte) (n int) {
	raw, err := r.SyscallConn()
	if err != nil {
		return 0
	}
	_ = raw.Read(func(fd uintptr) bool {
		n, err = syscall.Read(int(fd), buf)
		return true
	})
	return max(n, 0)
}

// look finds a program as a shell would, with the worker's PATH and directory.
func look(name, dir string, env []string) (string, error) {
	if strings.ContainsRune(name, '/') {
		path := name
		if !filepath.IsAbs(path) {
			path = filepath.Join(dir, path)
		}
		return path, runnable(path)
	}
	var denied error
	for _, d := range filepath.SplitList(environ.Lookup(env, "PATH")) {
		if d == "" {
			d = "."
		}
		path := filepath.Join(d, name)
		if !filepath.IsAbs(path) {
			path = filepath.Join(dir, path)
		}
		switch err := runnable(path); {
		case err == nil:
			return path, nil
		case errors.Is(err, fs.ErrPermission): // a folder of that name hides nothing
			denied = err
		}
	}
	if denied != nil {
		return "", denied
	}
	return "", exec.ErrNotFound
}

func runnable(path string) error {
	st, err := os.Stat(path)
	switch {
	case err != nil:
		return err
	case st.IsDir():
		return errFolder
	case st.Mode()&0o111 == 0:
		return fs.ErrPermission
	}
	return nil
}
