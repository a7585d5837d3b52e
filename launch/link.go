package launch

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"hora/internal/wire"
)

// link is the launcher's end of one host's agent.
type link struct {
	index   int
	name    string
	local   bool
	in      *os.File      // to the agent
	out     *os.File      // from it
	errs    *cappedText   // what ssh and a remote agent say on standard error; nil for local ones
	program *carried      // what to send to a host that lacks it; nil with --remote-hora
	size    atomic.Int64  // bytes of what is sent of it, once that is known
	copied  atomic.Int64  // how many have been
	said    chan struct{} // closed when errs is complete; nil for local ones
	writer  *pipeWriter
	process *os.Process
	tunnel  *tunnel // to a host that reaches no address of this one; nil otherwise
	reader  sync.WaitGroup
	addrs   []string // of its interfaces, "eth0 10.0.0.1"; nil for local ones
	answers []bool   // of the probe
	planned bool
	born    time.Time // of a host that came while the job ran
	asked   []string  // the addresses of the probe, for such a host
	waiting []awaited // to be started once it has answered
	lost    bool      // the job goes on without it
	ended   bool      // its reader has ended
	done    bool      // it has said that nothing is left
	heard   time.Time
	mute    bool
	cause   string // why it was given up, when it was
}

// openLinks starts an agent for every host that has a rank, all at once.
func (j *job) openLinks() error {
	if err := j.openGuard(); err != nil {
		return err
	}
	used := 0
	for _, s := range j.seats {
		used = max(used, s.Host+1)
	}
	for h := range used {
		l := &link{index: h, name: j.hosts[h].Name}
		l.local = j.isLocal(l.name)
		if err := j.startAgent(l); err != nil {
			return err
		}
		j.links = append(j.links, l)
	}
	j.out.faults = func(err error) { j.events <- outputFault{err} }
	for _, l := range j.links {
		l.reader.Add(1)
		go j.read(l)
	}
	return nil
}

func (j *job) startAgent(l *link) error {
	inR, inW, err := os.Pipe()
	if err != nil {
		return fault(ExitSystem, "open pipe to an agent: %v: raise the limit with ulimit -n", err)
	}
	outR, outW, err := os.Pipe()
	if err != nil {
		inR.Close()
		inW.Close()
		return fault(ExitSystem, "open pipe to an agent: %v: raise the limit with ulimit -n", err)
	}
	defer inR.Close()
	defer outW.Close()
	l.in, l.out = inW, outR
	files := []*os.File{inR, outW, os.Stderr}
	argv := j.spec.Self
	if l.local {
		if l.index == j.inputHost() {
			files = append(files, j.spec.Stdin)
			argv = append(append([]string(nil), argv...), "--stdin="+strconv.Itoa(j.spec.StdinRank))
		}
	} else {
		return j.startRemote(l, inR, outW)
	}
	if j.guard != nil {
		argv = append(slices.Clone(argv), fmt.Sprintf("%s=%d", guardFlag, len(files)))
		files = append(files, j.guard.w)
	}
	l.process, err = os.StartProcess(argv[0], argv, &os.ProcAttr{
		Env: j.spec.Environ, Files: files, Sys: detached(),
	})
	if err != nil {
		inW.Close()
		outR.Close()
		return fault(ExitSystem, "start the agent %s: %v", argv[0], err)
	}
	j.guard.say("agent %d", l.process.Pid)
	l.writer = newPipeWriter(l.in, l.in, false)
	return nil
}

// read is a link's reading goroutine: it writes output itself and passes all else to the owner.
func (j *job) read(l *link) {
	defer l.reader.Done()
	var buf []byte
	rd := bufio.NewReaderSize(l.out, 64<<10)
	var fault error
	if !l.local {
		if fault = l.greet(rd); fault != nil {
			l.in.Close()
			l.writer.release()
		}
	}
	for {
		kind, body, err := wire.ReadMessage(rd, buf, agentLimit)
		if fault != nil && !errors.Is(fault, io.EOF) {
			err = fault
			l.kill()
		}
		if err != nil {
			state, werr := l.process.Wait()
			if werr == nil && !errors.Is(err, io.EOF) {
				werr = err
			}
			if werr == nil && !state.Success() {
				werr = errors.New(state.String())
			}
			if werr == nil {
				werr = io.ErrUnexpectedEOF
			}
			if l.said != nil {
				select {
				case <-l.said:
				case <-time.After(settle): // a shared ssh connection in the background holds it open
				}
			}
			j.events <- linkEnd{l, werr}
			return
		}
		switch kind {
		case sayOutput:
			d := wire.NewDecoder(body)
			rank, stream, data := d.Int(0, j.out.ranks()-1), d.U8(), d.Bytes(agentLimit)
			if d.Done() == nil && stream < 2 {
				j.out.write(rank, int(stream), data)
			}
			buf = body[:0]
		case sayHello:
			var g greeting
			if decodeJSON(body, &g) == nil {
				j.events <- greeted{l, g}
			}
		case sayProbed:
			var ok []bool
			if decodeJSON(body, &ok) == nil {
				j.events <- probed{l, ok}
			}
		default:
			j.events <- said{l: l, kind: kind, body: body}
			buf = nil
		}
	}
}

func (l *link) send(kind uint8, body []byte) { l.writer.send(kind, body) }
func (l *link) sendJSON(kind uint8, v any) {
	l.planned = l.planned || kind == cmdPlan
	l.writer.sendJSON(kind, v)
}

// hangUp closes our end after what is queued is written; the agent, or ssh, then ends.
func (l *link) hangUp() {
	l.writer.finish()
}

type greeted struct {
	l *link
	g greeting
}

type probed struct {
	l  *link
	ok []bool
}

// cappedText keeps the first 16 KiB of a text. Safe for concurrent use.
type cappedText struct {
	mu sync.Mutex // guards b
	b  []byte
}

func (c *cappedText) Write(p []byte) (int, error) {
	c.mu.Lock()
	c.b = append(c.b, p[:min(len(p), 16<<10-len(c.b))]...)
	c.mu.Unlock()
	return len(p), nil
}

func (c *cappedText) String() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return string(c.b)
}

// kill ends the process that the link runs over.
func (l *link) kill() {
	if !l.ended && l.process != nil {
		_ = l.process.Kill() // it may have ended by itself
	}
}

// explain says why a link ended.
func (l *link) explain(err error) string {
	if l.cause != "" {
		return l.cause
	}
	text := ""
	if l.errs != nil {
		text = sshWords(l.errs.String())
	}
	switch {
	case l.local:
		return fmt.Sprintf("its agent ended early (%v): look for what killed it, e.g. in dmesg", err)
	case text != "":
		return text
	}
	return fmt.Sprintf("ssh ended early (%v)", err)
}

// closeLinks ends what is left of the agents and joins their readers.
func (j *job) closeLinks() {
	// Readers may still post; nobody else listens now.
	drained := make(chan struct{})
	stop := make(chan struct{})
	go func() {
		defer close(drained)
		for {
			select {
			case <-j.events:
			case <-stop:
				return
			}
		}
	}()
	for _, l := range j.links {
		l.writer.finish()
		if !l.local && !l.done {
			l.kill()
		}
	}
	for _, l := range j.links {
		l.reader.Wait()
		l.writer.close()
		l.out.Close()
		l.tunnel.fill()
		if l.local && !l.done && j.spec.Temp != "" {
			forgetSecrets(j.spec.Temp, l.process.Pid)
		}
	}
	close(stop)
	<-drained
}
