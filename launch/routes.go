package launch

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"hora/event"
)

// route is by which addresses one host reaches the coordinator and rank 0's host, and where its workers listen.
type route struct {
	addr       string
	master     string
	masterPort int
	listen     []string // addresses that every other host reaches; empty: all of the host's, or not known
}

// askRoutes waits for every remote agent, and asks each which of our addresses, and of rank 0's host, it reaches.
func (j *job) askRoutes(ctx context.Context) ([]route, error) {
	limit := time.NewTimer(j.spec.Start)
	defer limit.Stop()
	greetings, err := j.awaitGreetings(ctx, limit.C)
	if err != nil {
		return nil, err
	}
	mine := ownAddrs(j.spec.Interfaces)
	if len(mine) == 0 {
		return nil, fault(ExitSystem, "find this host's addresses: no interface that is up has one%s", onlyThese(j.spec.Interfaces))
	}
	var masterAddrs []string
	masterPort := 0
	if j.links[0].local {
		if masterPort, err = j.claimPort(); err != nil {
			return nil, err
		}
	} else {
		masterPort = greetings[0].Master
		masterAddrs = withPort(pick(greetings[0].Addrs, j.spec.Interfaces), greetings[0].Port)
	}
	coordinator := withPort(mine, j.port)
	doors := j.doors(mine, greetings)
	answers := make([][]bool, len(j.links))
	asked := append(slices.Clone(coordinator), masterAddrs...)
	asked = append(asked, doors.targets...)
	for _, l := range j.links {
		if !l.local {
			l.sendJSON(cmdProbe, asked)
		}
	}
	out := make([]route, len(j.links))
	for i, l := range j.links {
		ok := make([]bool, len(asked))
		if l.local {
			copy(ok[len(coordinator):], reachable(asked[len(coordinator):], time.Second))
			ok[0] = true
		} else if ok, err = j.awaitProbe(ctx, l, limit.C); err != nil {
			return nil, err
		}
		if len(ok) != len(asked) {
			return nil, fault(ExitBug, "probe from %s: it answered %d of %d questions", l.name, len(ok), len(asked))
		}
		ok, answers[i] = ok[:len(asked)-len(doors.targets)], ok[len(asked)-len(doors.targets):]
		to := slices.Index(ok[:len(coordinator)], true)
		if to < 0 {
			if out[i].addr, err = j.around(l, coordinator, limit.C); err != nil {
				return nil, err
			}
		} else {
			out[i] = route{addr: coordinator[to], master: mine[to]}
		}
		out[i].masterPort = masterPort
		if l.local {
			out[i].addr = net.JoinHostPort(j.loopback, strconv.Itoa(j.port))
		}
		if !j.links[0].local {
			m := slices.Index(ok[len(coordinator):], true)
			if i == 0 {
				m = 0 // itself
			}
			if m < 0 {
				return nil, fault(ExitHost, "host %s reaches none of the addresses of %s (%s): open the ports between them, or name a network with --network-interface", l.name, j.links[0].name, strings.Join(masterAddrs, " "))
			}
			out[i].master, _, _ = net.SplitHostPort(masterAddrs[m])
		}
	}
	j.agreeOnMaster(out)
	for i, addrs := range doors.open(answers, len(j.spec.Interfaces) > 0) {
		out[i].listen = addrs
	}
	return out, nil
}

// agreeOnMaster gives rank 0's host one name for all, where it is this one and the others agree.
func (j *job) agreeOnMaster(out []route) {
	if !j.links[0].local {
		return
	}
	for i, l := range j.links {
		if !l.local {
			for k := range out {
				if j.links[k].local {
					out[k].master = out[i].master
				}
			}
			return
		}
	}
}

// around finds a way to the coordinator for a host that reaches none of this host's addresses: through ssh, when no rank
// runs here, since ranks must reach each other without the launcher's help.
func (j *job) around(l *link, coordinator []string, limit <-chan time.Time) (string, error) {
	blocked := fmt.Sprintf("host %s reaches none of this host's addresses (%s)", l.name, strings.Join(coordinator, " "))
	const advice = "open the ports between them, or name a port that is open with --port or a network with --network-interface"
	if slices.ContainsFunc(j.links, func(l *link) bool { return l.local }) {
		return "", fault(ExitHost, "%s: %s", blocked, advice)
	}
	addr, err := j.dig(l, limit)
	if stopped := (*Error)(nil); errors.As(err, &stopped) {
		return "", stopped
	}
	if err != nil {
		return "", fault(ExitHost, "%s, and %v: %s", blocked, err, advice)
	}
	j.event(&event.Note{Text: blocked + ": its workers reach the launcher through ssh"})
	return addr, nil
}

// doors are the addresses at which workers of each host could be reached by those of others.
type doors struct {
	addrs   [][]string // by host, likeliest first
	targets []string   // all of them with ports that are open now; empty when nothing need be asked
}

// doors lists them. Where every host has one address, or there is only one other host's word to ask, nothing is asked
// beyond what the workers find out themselves.
func (j *job) doors(mine []string, greetings []greeting) doors {
	d := doors{addrs: make([][]string, len(j.links))}
	choice := len(j.spec.Interfaces) > 0
	for i, l := range j.links {
		d.addrs[i] = mine
		if !l.local {
			d.addrs[i] = pick(greetings[i].Addrs, j.spec.Interfaces)
		}
		choice = choice || len(d.addrs[i]) > 1
	}
	if !choice {
		return d
	}
	for i, l := range j.links {
		port := j.port
		if !l.local {
			port = greetings[i].Port
		}
		d.targets = append(d.targets, withPort(d.addrs[i], port)...)
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
