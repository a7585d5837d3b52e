// Package local reaches this machine: an agent is a process of its own whose standard streams are pipes to the
// launcher. It can be handed the launcher's standard input.
//
// A way has no goroutine; the job's own guard, which ends what is left when launcher and agents are killed together,
// is a process.
package local

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"

	"hora/launch/agent"
	"hora/launch/environ"
	"hora/launch/machine"
	"hora/launch/protocol"
	"hora/launch/reach"
)

// Config is what agents on this machine are made of.
type Config struct {
	Self    []string // argv of an agent
	Guard   string   // the program whose first argument __guard makes it a guard, "" for none
	Temp    string   // where agents keep the secret; what a killed one leaves is removed
	Environ []string // of this process
}

// Reach starts agents on this machine.
type Reach struct {
	cfg    Config
	guard  *guard
	addrs  func() []string
	last   *reach.Last // agents outlive this process; nil: they do not
	opened int         // of those
}

// New returns a Reach that has started nothing.
func New(cfg Config) *Reach { return &Reach{cfg: cfg, addrs: sync.OnceValue(machine.Addresses)} }

// Way is one agent's.
type Way struct {
	reach   *Reach
	host    string
	in      *os.File // to the agent
	out     *os.File // from it
	process *os.Process
	claim   io.Closer // on a port for rank 0's server; may be nil
	done    bool      // its output has been read to its end after a farewell
}

// Open starts an agent.
func (r *Reach) Open(host string, in *reach.Input) (*Way, error) {
	if err := r.openGuard(); err != nil {
		return nil, err
	}
	inR, inW, outR, outW, err := Pipes()
	if err != nil {
		return nil, err
	}
	defer inR.Close()
	defer outW.Close()
	w := &Way{reach: r, host: host, in: inW, out: outR}
	files := []*os.File{inR, outW, os.Stderr}
	argv := slices.Clone(r.cfg.Self)
	if in != nil {
		files = append(files, in.File)
		argv = append(argv, "--stdin="+strconv.Itoa(in.Rank))
	}
	if r.guard != nil {
		argv = append(argv, fmt.Sprintf("%s=%d", guardFlag, len(files)))
		files = append(files, r.guard.w)
	}
	w.process, err = os.StartProcess(argv[0], argv, &os.ProcAttr{
		Env: r.cfg.Environ, Files: files,
		Sys: machine.Detached(),
	})
	if err != nil {
		inW.Close()
		outR.Close()
		return nil, protocol.Fault(protocol.ExitSystem, "start the agent %s: %v", argv[0], err)
	}
	r.guard.say("agent %d", w.process.Pid)
	return w, nil
}

// Pipes opens the two pipes of an agent's standard streams.
func Pipes() (inR, inW, outR, outW *os.File, err error) {
	inR, inW, err = os.Pipe()
	if err == nil {
		if outR, outW, err = os.Pipe(); err != nil {
			inR.Close()
			inW.Close()
		}
	}
	if err != nil {
		err = protocol.Fault(protocol.ExitSystem, "open pipe to an agent: %v: raise the limit with ulimit -n", err)
	}
	return inR, inW, outR, outW, err
}

// Begun starts the guard.
func (r *Reach) Begun(warn func(string)) { r.startGuard(warn) }

// Close ends the guard.
func (r *Reach) Close() { r.guard.close() }

// Refuse says whether there are too few devices here for ranks that are each to get n. names are of the hosts that
// stand for this machine.
func (r *Reach) Refuse(ranks, n int, names []string) error {
	ids := environ.Devices(r.cfg.Environ)
	if n == 0 || ids == nil || ranks*n <= len(ids) {
		return nil
	}
	return protocol.Fault(protocol.ExitUsage, "--gpus-per-rank %d: %d ranks on %s need %d devices, and %s=%s names %d: start fewer ranks, or give each fewer",
		n, ranks, strings.Join(names, " and "), ranks*n, environ.VisibleDevices, strings.Join(ids, ","), len(ids))
}

// Cores says for each of some ranks here to which cores it would be bound.
func (r *Reach) Cores(ranks int, bind machine.Bind) []string {
	out := make([]string, ranks)
	if ranks == 0 {
		return out
	}
	shares, _ := machine.Shares(machine.Cores("/sys", machine.AllowedCPUs()), ranks, bind)
	for i := range out {
		out[i] = "all"
		if cpus := shares[i].CPUs; cpus != nil {
			out[i] = machine.FormatList(cpus)
		}
	}
	return out
}

// Greet speaks for the agent: what there is to say of this machine is known here.
func (w *Way) Greet() (*reach.Host, error) {
	h := &reach.Host{
		Machine: strings.Join(w.reach.addrs(), ","), Addrs: w.reach.addrs(),
		Devices: environ.Devices(w.reach.cfg.Environ),
	}
	if h.Machine == "" {
		h.Machine = "this one"
	}
	return h, nil
}

func (w *Way) Read(p []byte) (int, error)  { return w.out.Read(p) }
func (w *Way) Write(p []byte) (int, error) { return w.in.Write(p) }

// Finish closes the agent's input.
func (w *Way) Finish() error { return w.in.Close() }

// Kill ends the agent.
func (w *Way) Kill() { _ = w.process.Kill() } // it may have ended by itself

// Abandon leaves the agent to the end of its input.
func (w *Way) Abandon() {}

// End waits for the process.
func (w *Way) End(err error) *reach.Lost {
	state, werr := w.process.Wait()
	if err = Ended(state, werr, err); errors.Is(err, io.ErrUnexpectedEOF) {
		w.done = true
	}
	if w.reach.cfg.Temp != "" && (state == nil || !state.Success()) {
		agent.Forget(w.reach.cfg.Temp, w.process.Pid)
	}
	text := fmt.Sprintf("its agent ended early (%v): look for what killed it, e.g. in dmesg", err)
	return &reach.Lost{Text: text, Fault: protocol.Fault(protocol.ExitSystem, "start the agent on %s: %s", w.host, text)}
}

// Ended says why a process of a way ended: state and werr are of waiting for it, err is of the last read.
func Ended(state *os.ProcessState, werr, err error) error {
	switch {
	case werr != nil:
		return werr
	case !errors.Is(err, io.EOF):
		return err
	case !state.Success():
		return errors.New(state.String())
	}
	return io.ErrUnexpectedEOF
}

// Close gives back the pipe and the port.
func (w *Way) Close() {
	w.out.Close()
	if w.claim != nil {
		w.claim.Close()
	}
}

// Doing returns nothing: the process is there at once.
func (w *Way) Doing() (verb, share string) { return "", "" }

// Doors returns the loopback's address.
func (w *Way) Doors(port int, _ []string) []string {
	return []string{net.JoinHostPort(machine.Loopback(), strconv.Itoa(port))}
}

// Stands returns nothing: it is this machine.
func (w *Way) Stands([]string) []string { return nil }

// Dig fails: who does not reach the loopback reaches nothing.
func (w *Way) Dig(_ context.Context, _, _ int) (string, error) {
	return "", errors.New("it is this machine itself")
}

// Master claims a port of this machine.
func (w *Way) Master() (int, error) {
	port, claim, err := machine.ClaimPort()
	if err != nil {
		return 0, protocol.Fault(protocol.ExitSystem, "%v", err)
	}
	w.claim = claim
	return port, nil
}

// Environ returns all but what is another launcher's.
func (w *Way) Environ(all []string) []string { return environ.Inherited(all, true) }
