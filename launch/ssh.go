package launch

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"

	"hora/event"
)

// reached is the word by which the remote script says that it was reached, among whatever a login shell prints.
const reached = "hora-host-ready"

// startRemote starts ssh to a host, with in and out as the agent's standard streams.
func (j *job) startRemote(l *link, in, out *os.File) error {
	program, err := j.carry()
	if err != nil {
		return err
	}
	l.program = program
	script := "echo " + reached + " have $(uname -sm); exec " + shellWord(j.spec.SSH.RemoteHora) + " __agent --remote"
	if program != nil {
		script = program.script()
	}
	path, argv, err := j.ssh(l.name)
	if err != nil {
		return err
	}
	argv = append(argv, "--", l.name, "exec sh -c '"+script+"'")
	errR, errW, err := os.Pipe()
	if err != nil {
		return fault(ExitSystem, "open pipe to ssh: %v: raise the limit with ulimit -n", err)
	}
	defer errW.Close()
	l.process, err = os.StartProcess(path, argv, &os.ProcAttr{Env: j.spec.Environ, Files: []*os.File{in, out, errW}, Sys: detached()})
	if err != nil {
		errR.Close()
		return fault(ExitSystem, "start ssh to %s: %v", l.name, err)
	}
	l.writer = newPipeWriter(l.in, l.in, true)
	l.errs = &cappedText{}
	l.said = make(chan struct{})
	go func() {
		defer close(l.said)
		defer errR.Close()
		io.Copy(l.errs, errR)
	}()
	return nil
}

// ssh is the system's ssh and its command line up to the host's name.
func (j *job) ssh(host string) (path string, argv []string, err error) {
	name := j.spec.SSH.Program
	if name == "" {
		name = "ssh"
	}
	path, err = exec.LookPath(name)
	if err != nil {
		return "", nil, fault(ExitSystem, "reach host %s: there is no %s program here: install openssh-client", host, name)
	}
	// ssh has a little more patience than the launcher, whose sentence names the flag.
	argv = []string{
		name, "-T", "-x", "-o", "BatchMode=yes", "-o", "PasswordAuthentication=no", "-o", "StrictHostKeyChecking=accept-new",
		"-o", "ConnectTimeout=" + strconv.Itoa(int(j.spec.Start/time.Second)+5), "-o", "EscapeChar=none",
		"-o", "ServerAliveInterval=" + strconv.Itoa(max(int(j.spec.Silence/time.Second), 1)), "-o", "ServerAliveCountMax=2",
	}
	if j.spec.SSH.Port > 0 {
		argv = append(argv, "-p", strconv.Itoa(j.spec.SSH.Port))
	}
	if j.spec.SSH.Identity != "" {
		argv = append(argv, "-i", j.spec.SSH.Identity)
	}
	return path, argv, nil
}

// shellWord guards a path against the remote shell; bootstrap's quoting allows no single quote.
func shellWord(s string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "`", "\\`", "$", `\$`, "'", "").Replace(s) + `"`
}

func onlyThese(names []string) string {
	if len(names) == 0 {
		return ": connect it to the other hosts' network"
	}
	return " among " + strings.Join(names, ", ") + ": give other names to --network-interface"
}

// awaitGreetings waits until every remote host has answered, and otherwise names all that have not.
func (j *job) awaitGreetings(ctx context.Context, limit <-chan time.Time) ([]greeting, error) {
	got := make([]greeting, len(j.links))
	waiting := map[*link]bool{}
	for _, l := range j.links {
		if !l.local {
			waiting[l] = true
		}
	}
	var faults []*Error
	var soon <-chan time.Time // the others' last chance, once one host has failed
	tick := time.NewTicker(firstWord / 4)
	defer tick.Stop()
	var patience patience
	for len(waiting) > 0 {
		select {
		case e := <-j.events:
			switch e := e.(type) {
			case greeted:
				if e.g.Version != protocolVersion {
					return nil, fault(ExitHost, "reach host %s: its hora speaks version %q and this one %q: install the same hora there, or leave --remote-hora away", e.l.name, e.g.Version, protocolVersion)
				}
				got[e.l.index], e.l.addrs = e.g, e.g.Addrs
				e.l.heard = time.Now()
				delete(waiting, e.l)
			case linkEnd:
				e.l.ended = true
				if e.l.local {
					return nil, fault(ExitSystem, "start the agent on %s: %s", e.l.name, e.l.explain(e.err))
				}
				faults = append(faults, j.unreached(e.l, e.err))
				delete(waiting, e.l)
				if soon == nil {
					soon = time.After(time.Second)
				}
			}
		case now := <-tick.C:
			if patience.due(now) {
				j.event(&event.Delay{Text: j.awaitedHosts(waiting), Over: now.Sub(patience.began), Limit: j.spec.Start})
			}
		case <-soon:
			return nil, joinFaults(faults)
		case <-limit:
			for _, l := range j.links {
				if waiting[l] {
					faults = append(faults, fault(ExitTimeout, "reach host %s: no answer in %v: look whether it is up, or raise --start-timeout", l.name, j.spec.Start))
				}
			}
			return nil, joinFaults(faults)
		case s := <-j.spec.Signals:
			if err := j.early(s, "while hosts were being reached"); err != nil {
				return nil, err
			}
		case <-ctx.Done():
			return nil, fault(1, "stopped while hosts were being reached")
		}
	}
	if len(faults) > 0 {
		return nil, joinFaults(faults)
	}
	return got, nil
}

// joinFaults makes one sentence of what keeps several hosts away.
func joinFaults(faults []*Error) error {
	texts := make([]string, len(faults))
	for i, f := range faults {
		texts[i] = f.Text
	}
	return &Error{Code: faults[0].Code, Text: strings.Join(texts, "; ")}
}

// awaitProbe waits for a host's word on which addresses it reaches.
func (j *job) awaitProbe(ctx context.Context, l *link, limit <-chan time.Time) ([]bool, error) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	var patience patience
	patience.due(time.Now())
	for {
		if l.answers != nil {
			return l.answers, nil
		}
		select {
		case e := <-j.events:
			switch e := e.(type) {
			case probed:
				e.l.answers = e.ok
			case linkEnd:
				e.l.ended = true
				return nil, j.unreached(e.l, e.err)
			}
		case now := <-tick.C:
			if patience.due(now) {
				j.event(&event.Delay{Text: fmt.Sprintf("waiting for host %s to say which addresses it reaches", l.name), Over: now.Sub(patience.began), Limit: j.spec.Start})
			}
		case s := <-j.spec.Signals:
			if err := j.early(s, "while hosts were being reached"); err != nil {
				return nil, err
			}
		case <-limit:
			return nil, fault(ExitTimeout, "host %s did not say in %v which addresses it reaches: look whether it is overloaded, or raise --start-timeout", l.name, j.spec.Start)
		case <-ctx.Done():
			return nil, fault(1, "stopped while hosts were being reached")
		}
	}
}

// ownAddrs lists this host's addresses, the likeliest for other hosts first: IPv4 before IPv6, real interfaces before
// bridges of containers; loopback and link-local ones never. names restricts the interfaces.
func ownAddrs(names []string) []string { return pick(listAddrs(), names) }

func interfaceNames() []string {
	var names []string
	ifs, _ := net.Interfaces()
	for _, i := range ifs {
		names = append(names, i.Name)
	}
	return names
}

// listAddrs is "interface address" for each address of each interface that is up.
func listAddrs() []string {
	var out []string
	ifs, _ := net.Interfaces()
	for _, i := range ifs {
		if i.Flags&net.FlagUp == 0 {
			continue
		}
		addrs, _ := i.Addrs()
		for _, a := range addrs {
			n, ok := a.(*net.IPNet)
			if ok && !n.IP.IsLoopback() && !n.IP.IsLinkLocalUnicast() {
				out = append(out, i.Name+" "+n.IP.String())
			}
		}
	}
	return out
}

// pick orders and filters such a list.
func pick(list, names []string) []string {
	type entry struct {
		addr  string
		worth int
	}
	var es []entry
	for _, s := range list {
		name, addr, ok := strings.Cut(s, " ")
		ip := net.ParseIP(addr)
		if !ok || ip == nil || len(names) > 0 && !slices.Contains(names, name) {
			continue
		}
		worth := 0
		if ip.To4() == nil {
			worth++
		}
		for _, virtual := range []string{"docker", "br-", "virbr", "veth", "cni", "flannel", "cali", "podman", "lxc"} {
			if strings.HasPrefix(name, virtual) {
				worth += 2
			}
		}
		es = append(es, entry{addr, worth})
	}
	slices.SortStableFunc(es, func(a, b entry) int { return a.worth - b.worth })
	out := make([]string, len(es))
	for i, e := range es {
		out[i] = e.addr
	}
	return out
}

func withPort(addrs []string, port int) []string {
	out := make([]string, len(addrs))
	for i, a := range addrs {
		out[i] = net.JoinHostPort(a, strconv.Itoa(port))
	}
	return out
}
