package launch

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"time"

	"hora/event"
	"hora/launch/machine"
	"hora/launch/protocol"
)

// route is by which addresses one host reaches the coordinator and rank 0's host, and where its workers listen.
type route struct {
	addr       string
	master     string
	masterPort int
	listen     []string // addresses that every other host reaches; empty: all of the host's, or not known
	dug        bool     // addr is the host's own end of a way that its reach has dug
}

// survey finds the routes of a job's first hosts: it hears their greetings, and asks each what it reaches.
type survey struct {
	spec   *settings
	links  []*link
	events <-chan any
	port   int    // of the coordinator
	door   string // at which it listens; "" is at all addresses
	early  func(s os.Signal, when string) error
}

func (s *survey) tell(e event.Event) { s.spec.Place.Events.Emit(e) }

// routes waits for every agent. On one machine, this one, it is the loopback and nothing need be asked; else it asks
// each host which of our addresses, and of rank 0's host, it reaches.
func (s *survey) routes(ctx context.Context) ([]route, error) {
	limit := time.NewTimer(s.spec.StartTimeout)
	defer limit.Stop()
	if err := s.greetings(ctx, limit.C); err != nil {
		return nil, err
	}
	var names []string
	for _, l := range s.links {
		names = append(names, l.name)
	}
	shared := s.spec.Reach.Door(names)
	mine := machine.OwnAddresses(s.spec.Interfaces)
	if shared != "" {
		for _, name := range s.spec.Interfaces {
			if _, err := net.InterfaceByName(name); err != nil {
				return nil, fault(ExitUsage, "use network interface %s: this host has none of that name: name one of %s", name, list(machine.InterfaceNames()))
			}
		}
	} else if len(mine) == 0 {
		return nil, fault(ExitSystem, "find this host's addresses: no interface that is up has one%s", onlyThese(s.spec.Interfaces))
	}
	port, err := s.links[0].way.Master()
	if err != nil {
		return nil, err
	}
	if shared == "" {
		return s.ask(ctx, port, limit.C)
	}
	return slices.Repeat([]route{sharing(shared, s.port, s.door, port)}, len(s.links)), nil
}

// sharing returns the route of hosts that share an address with this process. Where the coordinator listens at one
// address, all of the job are there, and nothing of it listens to others.
func sharing(shared string, port int, door string, masterPort int) route {
	r := route{addr: machine.WithPort([]string{shared}, port)[0], master: shared, masterPort: masterPort}
	if door != "" {
		r.listen = []string{door}
	}
	return r
}

func onlyThese(names []string) string {
	if len(names) == 0 {
		return ": connect it to the other hosts' network"
	}
	return " among " + strings.Join(names, ", ") + ": give other names to --network-interface"
}

// ask has each host try the addresses of this one, of rank 0's, and of all others.
func (s *survey) ask(ctx context.Context, masterPort int, limit <-chan time.Time) ([]route, error) {
	first := s.links[0]
	masterAddrs := first.way.Stands(s.spec.Interfaces)
	doors := s.doors()
	ours := make([][]string, len(s.links)) // by which each may reach us
	for i, l := range s.links {
		ours[i] = l.way.Doors(s.port, s.spec.Interfaces)
		l.sendJSON(protocol.CmdProbe, slices.Concat(ours[i], masterAddrs, doors.targets))
	}
	answers := make([][]bool, len(s.links))
	out := make([]route, len(s.links))
	for i, l := range s.links {
		ok, err := s.answer(ctx, l, limit)
		if err != nil {
			return nil, err
		}
		if asked := len(ours[i]) + len(masterAddrs) + len(doors.targets); len(ok) != asked {
			return nil, fault(ExitBug, "probe from %s: it answered %d of %d questions", l.called, len(ok), asked)
		}
		answers[i] = ok[len(ours[i])+len(masterAddrs):]
		if to := slices.Index(ok[:len(ours[i])], true); to >= 0 {
			out[i].addr = ours[i][to]
			out[i].master, _, _ = net.SplitHostPort(out[i].addr)
		} else if out[i].addr, err = s.around(ctx, l, ours[i], limit); err != nil {
			return nil, err
		} else {
			out[i].dug = true
		}
		out[i].masterPort = masterPort
		if len(masterAddrs) == 0 {
			continue
		}
		m := slices.Index(ok[len(ours[i]):len(ours[i])+len(masterAddrs)], true)
		if i == 0 {
			m = 0 // itself
		}
		if m < 0 {
			return nil, fault(ExitHost, "host %s reaches none of the addresses of %s (%s): open the ports between them, or name a network with --network-interface", l.called, first.called, strings.Join(masterAddrs, " "))
		}
		out[i].master, _, _ = net.SplitHostPort(masterAddrs[m])
	}
	if len(masterAddrs) == 0 {
		agreeOnMaster(out)
	}
	for i, addrs := range doors.open(answers, len(s.spec.Interfaces) > 0) {
		out[i].listen = addrs
	}
	return out, nil
}

// agreeOnMaster gives rank 0's host, which is this one, one name for all: the loopback's means it to nobody elsewhere.
func agreeOnMaster(out []route) {
	inside := func(r route) bool {
		ip := net.ParseIP(r.master)
		return ip != nil && ip.IsLoopback()
	}
	far := slices.IndexFunc(out, func(r route) bool { return !inside(r) })
	for k := range out {
		if far >= 0 && inside(out[k]) {
			out[k].master = out[far].master
		}
	}
}

// greetings waits until every host has answered, and otherwise names all that have not.
func (s *survey) greetings(ctx context.Context, limit <-chan time.Time) error {
	waiting := map[*link]bool{}
	for _, l := range s.links {
		waiting[l] = true
	}
	var faults []*Error
	var soon <-chan time.Time // the others' last chance, once one host has failed
	tick := time.NewTicker(firstWord / 4)
	defer tick.Stop()
	var patience patience
	for len(waiting) > 0 {
		select {
		case e := <-s.events:
			switch e := e.(type) {
			case greeted:
				e.l.host, e.l.heard = e.host, time.Now()
				delete(waiting, e.l)
			case linkEnd:
				e.l.ended = true
				faults = append(faults, e.why.Fault)
				delete(waiting, e.l)
				if soon == nil {
					soon = time.After(time.Second)
				}
			}
		case now := <-tick.C:
			if patience.due(now) {
				over := now.Sub(patience.began)
				s.tell(&event.Delay{Text: s.awaited(waiting), Over: over, Limit: s.spec.StartTimeout})
			}
		case <-soon:
			return joinFaults(faults)
		case <-limit:
			for _, l := range s.links {
				if waiting[l] {
					faults = append(faults, fault(ExitTimeout, "reach host %s: no answer in %v: look whether it is up, or raise --start-timeout", l.called, s.spec.StartTimeout))
				}
			}
			return joinFaults(faults)
		case sig := <-s.spec.Signals:
			if err := s.early(sig, "while hosts were being reached"); err != nil {
				return err
			}
		case <-ctx.Done():
			return fault(1, "stopped while hosts were being reached")
		}
	}
	if len(faults) > 0 {
		return joinFaults(faults)
	}
	return nil
}

// awaited says what the hosts that have not answered do.
func (s *survey) awaited(waiting map[*link]bool) string {
	var silent, verbs, parts []string
	busy := map[string][]string{} // by verb
	for _, l := range s.links {
		if !waiting[l] {
			continue
		}
		verb, share := l.way.Doing()
		if verb == "" {
			silent = append(silent, l.called)
			continue
		}
		if busy[verb] == nil {
			verbs = append(verbs, verb)
		}
		busy[verb] = append(busy[verb], fmt.Sprintf("%s (%s)", l.called, share))
	}
	for _, verb := range verbs {
		parts = append(parts, verb+" "+list(busy[verb]))
	}
	if len(silent) > 0 {
		parts = append(parts, "no answer yet from "+list(silent))
	}
	return strings.Join(parts, "; ")
}

// joinFaults makes one sentence of what keeps several hosts away.
func joinFaults(faults []*Error) error {
	texts := make([]string, len(faults))
	for i, f := range faults {
		texts[i] = f.Text
	}
	return &Error{Code: faults[0].Code, Text: strings.Join(texts, "; ")}
}

// answer waits for a host's word on which addresses it reaches.
func (s *survey) answer(ctx context.Context, l *link, limit <-chan time.Time) ([]bool, error) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	var patience patience
	patience.due(time.Now())
	for l.answers == nil {
		select {
		case e := <-s.events:
			switch e := e.(type) {
			case probed:
				e.l.answers = e.ok
			case linkEnd:
				e.l.ended = true
				return nil, e.why.Fault
			}
		case now := <-tick.C:
			if patience.due(now) {
				s.tell(&event.Delay{
					Text: fmt.Sprintf("waiting for host %s to say which addresses it reaches", l.called), Over: now.Sub(patience.began),
					Limit: s.spec.StartTimeout,
				})
			}
		case sig := <-s.spec.Signals:
			if err := s.early(sig, "while hosts were being reached"); err != nil {
				return nil, err
			}
		case <-limit:
			return nil, fault(ExitTimeout, "host %s did not say in %v which addresses it reaches: look whether it is overloaded, or raise --start-timeout", l.called, s.spec.StartTimeout)
		case <-ctx.Done():
			return nil, fault(1, "stopped while hosts were being reached")
		}
	}
	return l.answers, nil
}

// around finds a way to the coordinator for a host that reaches none of this host's addresses: one that its reach digs.
func (s *survey) around(ctx context.Context, l *link, tried []string, limit <-chan time.Time) (string, error) {
	blocked := fmt.Sprintf("host %s reaches none of this host's addresses (%s)", l.called, strings.Join(tried, " "))
	const advice = "open the ports between them, or name a port that is open with --port or a network with --network-interface"
	addr, err := s.dig(ctx, l, limit)
	if stopped := (*Error)(nil); errors.As(err, &stopped) {
		return "", stopped
	}
	if err != nil {
		return "", fault(ExitHost, "%s, and %v: %s", blocked, err, advice)
	}
	s.tell(&event.Note{Text: blocked + ": its workers reach the launcher through " + l.host.Digs})
	return addr, nil
}

func (s *survey) dig(ctx context.Context, l *link, limit <-chan time.Time) (addr string, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	dug := make(chan struct{})
	go func() {
		defer close(dug)
		addr, err = l.way.Dig(ctx, s.port, 0)
	}()
	var stopped error
	for {
		select {
		case <-dug:
			if stopped != nil {
				err = stopped
			}
			return addr, err
		case sig := <-s.spec.Signals:
			if stop := s.early(sig, "while hosts were being reached"); stop != nil {
				stopped = stop
				cancel()
			}
		case <-limit:
			cancel()
		}
	}
}

// doors are the addresses at which workers of each host could be reached by those of others.
type doors struct {
	addrs   [][]string // by host, likeliest first
	targets []string   // all of them with ports that are open now; empty when nothing need be asked
}

// doors lists them. Where every host has one address, or there is only one other host's word to ask, nothing is asked
// beyond what the workers find out themselves.
func (s *survey) doors() doors {
	d := doors{addrs: make([][]string, len(s.links))}
	choice := len(s.spec.Interfaces) > 0
	for i, l := range s.links {
		d.addrs[i] = machine.Pick(l.host.Addrs, s.spec.Interfaces)
		choice = choice || len(d.addrs[i]) > 1
	}
	if !choice {
		return d
	}
	for i, l := range s.links {
		port := l.host.Port
		if port == 0 {
			port = s.port
		}
		d.targets = append(d.targets, machine.WithPort(d.addrs[i], port)...)
	}
	return d
}

// open says where the workers of each host should listen: at the addresses that every other host reached, when that is
// a choice among several or an interface was forced; else nowhere in particular. answers are by asking host and target.
func (d *doors) open(answers [][]bool, forced bool) [][]string {
	out := make([][]string, len(d.addrs))
	if len(d.targets) == 0 {
		return out
	}
	at := 0
	for h, addrs := range d.addrs {
		var good []string
		for k, a := range addrs {
			all := true
			for asker := range answers {
				all = all && (asker == h || answers[asker][at+k])
			}
			if all {
				good = append(good, a)
			}
		}
		at += len(addrs)
		switch {
		case len(good) == 0 && forced:
			out[h] = addrs // the workers' own error will name them
		case len(good) > 0 && (forced || len(good) < len(addrs)):
			out[h] = good
		}
	}
	return out
}
