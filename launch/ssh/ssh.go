// Package ssh reaches other hosts: it starts the system's ssh, copies this program to a host that lacks it, and hears
// the agent through ssh's standard streams. Where a host reaches no address of this one, it forwards a port.
//
// A way has one goroutine, which reads what ssh and the agent say on standard error, and a second one with a forwarded
// port.
package ssh

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"hora/internal/wire"
	"hora/launch/environ"
	"hora/launch/local"
	"hora/launch/logs"
	"hora/launch/machine"
	"hora/launch/protocol"
	"hora/launch/reach"
)

// reached is the word by which the remote script says that it was reached, among whatever a login shell prints.
const reached = "hora-host-ready"

// Options say how other hosts are reached.
type Options struct {
	Program    string // "" means "ssh"
	Port       int    // 0 leaves it to ssh's configuration
	Identity   string // a key file; "" leaves it to ssh's configuration and agent
	Strict     bool   // false accepts keys of hosts never seen before; a changed key is an error always
	RemoteHora string // the program's path on other hosts; "" copies this one into their cache
}

// Config is what ways to other hosts are made of.
type Config struct {
	Options
	Binary  string        // path of the program to copy
	Environ []string      // of this process
	Start   time.Duration // until every host has answered
	Silence time.Duration // a silent host counts as lost
}

// Reach starts agents on other hosts.
type Reach struct {
	cfg     Config
	program *carried    // this program, once a host needs it
	last    *reach.Last // agents outlive this process; nil: they do not
	opened  int         // of those
	beside  atomic.Bool // the job has ranks on this machine too
}

// New returns a Reach that has started nothing.
func New(cfg Config) *Reach { return &Reach{cfg: cfg} }

// Beside says that the job has ranks on this machine too.
func (r *Reach) Beside() { r.beside.Store(true) }

// Way is one host's.
type Way struct {
	reach    *Reach
	host     string
	in       *os.File // to the agent
	out      *os.File // from it
	read     *bufio.Reader
	errs     *logs.Head    // what ssh and the agent say on standard error
	said     chan struct{} // closed when errs is complete
	program  *carried      // what to send to a host that lacks it; nil with --remote-hora
	size     atomic.Int64  // bytes of what is sent of it, once that is known
	copied   atomic.Int64  // how many have been
	process  *os.Process
	greeting protocol.Greeting // the agent's
	tunnel   *tunnel           // to a host that reaches no address of this one; nil otherwise
}

// settle is how long what ssh says on its standard error may come after its end.
const settle = 200 * time.Millisecond

// Open starts ssh to a host.
func (r *Reach) Open(host string) (*Way, error) { return r.open(host, "--remote") }

// open starts ssh to a host, and there the program as an agent that is told some words.
func (r *Reach) open(host, words string) (*Way, error) {
	program, err := r.carry()
	if err != nil {
		return nil, err
	}
	script := "echo " + reached + " have $(uname -sm); exec " + shellWord(r.cfg.RemoteHora) + " __agent " + words
	if program != nil {
		script = program.script(words)
	}
	path, argv, err := r.ssh(host)
	if err != nil {
		return nil, err
	}
	argv = append(argv, "--", host, "exec sh -c '"+script+"'")
	inR, inW, outR, outW, err := local.Pipes()
	if err != nil {
		return nil, err
	}
	defer inR.Close()
	defer outW.Close()
	w := &Way{
		reach: r, host: host, in: inW, out: outR, read: bufio.NewReaderSize(outR, 64<<10), program: program,
		errs: &logs.Head{}, said: make(chan struct{}),
	}
	errR, errW, err := os.Pipe()
	if err == nil {
		defer errW.Close()
		w.process, err = os.StartProcess(path, argv, &os.ProcAttr{
			Env:   r.cfg.Environ,
			Files: []*os.File{inR, outW, errW}, Sys: machine.Detached(),
		})
		if err != nil {
			errR.Close()
			err = protocol.Fault(protocol.ExitSystem, "start ssh to %s: %v", host, err)
		}
	} else {
		err = protocol.Fault(protocol.ExitSystem, "open pipe to ssh: %v: raise the limit with ulimit -n", err)
	}
	if err != nil {
		inW.Close()
		outR.Close()
		return nil, err
	}
	go func() {
		defer close(w.said)
		defer errR.Close()
		io.Copy(w.errs, errR)
	}()
	return w, nil
}

// Greet hears the remote script, copies the program there if it is asked to, and hears the agent.
func (w *Way) Greet() (*reach.Host, error) {
	if err := w.greet(w.read); err != nil {
		return nil, err
	}
	for {
		kind, body, err := wire.ReadMessage(w.read, nil, protocol.Limit)
		if err != nil {
			return nil, err
		}
		var g protocol.Greeting
		if kind != protocol.SayHello || json.Unmarshal(body, &g) != nil {
			continue // a warning may come before it
		}
		if g.Version != protocol.Version {
			return nil, fmt.Errorf("%w %q and this one %q: install the same hora there, or leave --remote-hora away", errVersion, g.Version, protocol.Version)
		}
		w.greeting = g
		return &reach.Host{
			Machine: strings.Join(g.Addrs, ","), Addrs: g.Addrs, Port: g.Port, Digs: "ssh",
			Silence: w.reach.cfg.Silence,
		}, nil
	}
}

// errVersion is an agent that speaks another version of the protocol.
var errVersion = errors.New("its hora speaks version")

func (w *Way) Read(p []byte) (int, error)  { return w.read.Read(p) }
func (w *Way) Write(p []byte) (int, error) { return w.in.Write(p) }

// Finish closes the agent's input, through ssh.
func (w *Way) Finish() error { return w.in.Close() }

// Kill ends ssh.
func (w *Way) Kill() { _ = w.process.Kill() } // it may have ended by itself

// Abandon ends ssh too: nobody knows whether the host is there.
func (w *Way) Abandon() { w.Kill() }

// End waits for ssh.
func (w *Way) End(err error) *reach.Lost {
	if !errors.Is(err, io.EOF) {
		w.Kill() // it says what is not understood
	}
	state, werr := w.process.Wait()
	cause := local.Ended(state, werr, err)
	select {
	case <-w.said:
	case <-time.After(settle): // a shared ssh connection in the background holds it open
	}
	if errors.Is(cause, errVersion) {
		return &reach.Lost{Text: cause.Error(), Fault: protocol.Fault(protocol.ExitHost, "reach host %s: %v", w.host, cause)}
	}
	said := w.errs.String()
	lost := &reach.Lost{Text: sshWords(said)}
	if lost.Text == "" {
		lost.Text = fmt.Sprintf("ssh ended early (%v)", cause)
	}
	if sshWords(said) != "" || errors.Is(cause, io.EOF) {
		lost.Fault = w.reach.cfg.fault(w.host, said)
	} else {
		lost.Fault = protocol.Fault(protocol.ExitHost, "reach host %s: %v", w.host, cause)
	}
	return lost
}

// Close gives back the pipe and closes the tunnel.
func (w *Way) Close() {
	w.out.Close()
	w.tunnel.fill()
}

// Doing returns the copy of the program, while that lasts.
func (w *Way) Doing() (verb, share string) {
	if n, size := w.copied.Load(), w.size.Load(); n > 0 && n < size {
		return "copying hora to", fmt.Sprintf("%.1f of %.1f MB", float64(n)/1e6, float64(size)/1e6)
	}
	return "", ""
}

// Doors returns all of this machine's addresses.
func (w *Way) Doors(port int, interfaces []string) []string {
	return machine.WithPort(machine.OwnAddresses(interfaces), port)
}

// Stands returns the host's addresses.
func (w *Way) Stands(interfaces []string) []string {
	return machine.WithPort(machine.Pick(w.greeting.Addrs, interfaces), w.greeting.Port)
}

// Master returns the port that the agent has claimed.
func (w *Way) Master() (int, error) { return w.greeting.Master, nil }

// Environ returns all but what is another launcher's, or this machine's.
func (w *Way) Environ(all []string) []string { return environ.Inherited(all, false) }

// ssh returns the system's ssh and its command line up to the host's name.
func (r *Reach) ssh(host string) (path string, argv []string, err error) {
	name := r.cfg.Program
	if name == "" {
		name = "ssh"
	}
	path, err = exec.LookPath(name)
	if err != nil {
		return "", nil, protocol.Fault(protocol.ExitSystem, "reach host %s: there is no %s program here: install openssh-client", host, name)
	}
	// ssh has a little more patience than the launcher, whose sentence names the flag.
	argv = []string{
		name, "-T", "-x", "-o", "BatchMode=yes", "-o", "PasswordAuthentication=no", "-o", "StrictHostKeyChecking=accept-new",
		"-o", "ConnectTimeout=" + strconv.Itoa(int(r.cfg.Start/time.Second)+5), "-o", "EscapeChar=none",
		"-o", "ServerAliveInterval=" + strconv.Itoa(max(int(r.cfg.Silence/time.Second), 1)), "-o", "ServerAliveCountMax=2",
	}
	if r.cfg.Port > 0 {
		argv = append(argv, "-p", strconv.Itoa(r.cfg.Port))
	}
	if r.cfg.Identity != "" {
		argv = append(argv, "-i", r.cfg.Identity)
	}
	return path, argv, nil
}

// shellWord guards a path against the remote shell; bootstrap's quoting allows no single quote.
func shellWord(s string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "`", "\\`", "$", `\$`, "'", "").Replace(s) + `"`
}
