package launch

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync"
	"syscall"
	"time"

	"hora/elastic"
	"hora/elastic/rendezvous"
	"hora/event"
	"hora/internal/secret"
	"hora/launch/machine"
)

// serve starts the coordinator: on the loopback when every host is this machine, now and later.
func (j *job) serve(ctx context.Context) error {
	var names []string
	for _, l := range j.links {
		names = append(names, l.name)
	}
	if j.spec.elastic() { // the rest may follow
		for _, h := range j.spec.Hosts {
			names = append(names, h.Name)
		}
	}
	at := ":"
	if j.spec.Discovery == nil {
		j.door = j.reach.Door(names)
		at = net.JoinHostPort(j.door, "")
	}
	ln, err := machine.Listen(ctx, at+strconv.Itoa(j.spec.Port))
	for end := time.Now().Add(lockWait); j.resuming != nil && errors.Is(err, syscall.EADDRINUSE) &&
		time.Now().Before(end); {
		time.Sleep(lockPause) // the killed launcher's coordinator is about to end
		ln, err = machine.Listen(ctx, at+strconv.Itoa(j.spec.Port))
	}
	if errors.Is(err, syscall.EADDRINUSE) {
		return fault(ExitSystem, "listen for workers on port %d: it is in use: choose another --port, or none", j.spec.Port)
	}
	if errors.Is(err, syscall.EADDRNOTAVAIL) && at != ":" {
		return fault(ExitSystem, "listen for workers: this host has neither 127.0.0.1 nor ::1: bring its loopback interface up, as with ip link set lo up")
	}
	if err != nil {
		return fault(ExitSystem, "listen for workers: %v: free a port, or raise the limit it names", err)
	}
	j.port = ln.Addr().(*net.TCPAddr).Port
	j.refused = secret.NewStrangers(func(r secret.Refused) {
		j.event(&event.Warning{Text: r.String() + "; strangers are kept out, and nothing is lost by it"})
	})
	cfg := rendezvous.Config{
		Secret: j.spec.Secret, Job: j.spec.Job, Host: j.spec.LocalName, Size: j.spec.NP,
		Min: j.spec.Min, Max: j.spec.Max, OnLoss: j.spec.OnLoss, Resets: j.spec.Resets, Silence: j.spec.Silence,
		Reported: true,
		OnOpen: func(epoch uint64, members []elastic.Place) {
			j.size.Store(int64(len(members)))
			j.epoch.Store(epoch)
			j.story.open(epoch, members)
			j.ledger.tell(j)
			j.tellNew(j.event, &event.Opened{Epoch: epoch, Size: len(members), Hosts: ranksOf(members)})
		},
		OnMember: func(p rendezvous.Process) {
			if j.present(p) {
				j.took.Store(p.Rank, true)
				j.drained.Delete(p.Rank) // its predecessor did, when its host was lost
			}
			j.tellNew(j.event, &event.Admitted{Rank: p.Rank})
		},
		OnProgress: func(p event.Progress) { j.event(&p) },
		OnWait:     func(w rendezvous.Wait) { j.waits.Store(&w) },
		OnComplete: func(uint64) { j.complete.Store(true) },
		OnDrain: func(p rendezvous.Process, _ int, _, reason string) {
			if j.present(p) {
				j.drained.Store(p.Rank, event.OneLine(reason))
			}
		},
		Strangers: j.refused,
		OnFault:   func(err error) { j.event(&event.Warning{Host: j.spec.LocalName, Text: err.Error()}) },
	}
	losses(j, &cfg)
	if j.resuming != nil {
		j.lived, j.past = make(chan struct{}), map[int][]severed{}
		cfg.OnLived = sync.OnceFunc(func() { close(j.lived) })
	}
	if j.spec.StateDir == "" {
		j.server = rendezvous.Serve(ctx, ln, cfg)
		return nil
	}
	kept, err := serveApart(ln.(*net.TCPListener), cfg, j.spec, j.post, j.server, j.ledger)
	if err == nil {
		j.server = kept
	}
	return err
}

// ranksOf counts the ranks of each host, in the order of their first ones.
func ranksOf(members []elastic.Place) (hosts []event.Host) {
	at := map[string]int{}
	for _, m := range members {
		i, known := at[m.Host]
		if !known {
			i = len(hosts)
			at[m.Host], hosts = i, append(hosts, event.Host{Name: m.Host})
		}
		hosts[i].Slots++
	}
	return hosts
}

// losses has the coordinator tell what ends epochs, and whom it has lost.
func losses(j *job, cfg *rendezvous.Config) {
	cfg.OnLost = func(epoch uint64, rank int, host, reason string) {
		j.story.lost(epoch, rank, host, reason)
		j.ledger.tell(j)
	}
	cfg.OnCause = func(epoch uint64, rank int, host, reason string) {
		j.story.cause(epoch, rank, host, reason)
		j.ledger.tell(j)
	}
	cfg.OnRecovered = func(rank int, r rendezvous.Recovery) {
		j.story.recovered(rank, r)
		j.ledger.tell(j)
	}
	cfg.OnSevered = func(p rendezvous.Process, since time.Time, reason string, silent bool) {
		if !j.present(p) {
			return
		}
		e := severed{p.Rank, p.Name != "", since, reason, silent}
		if !j.isNew() {
			j.past[p.Rank] = append(j.past[p.Rank], e)
			return
		}
		go j.post(e) // the owner may be handing something to the coordinator
	}
}

// serveApart starts the coordinator as a process of its own.
func serveApart(ln *net.TCPListener, cfg rendezvous.Config, spec *settings, post func(any), before coordinator,
	l *ledger,
) (*kept, error) {
	k := &kept{
		ledger: l, argv: spec.Coordinator, environ: spec.Environ, cfg: cfg,
		setup: setup{
			Secret: spec.Secret.Hex(), Job: cfg.Job, Host: cfg.Host, Size: cfg.Size, Min: cfg.Min, Max: cfg.Max,
			OnLoss: cfg.OnLoss,
			Resets: cfg.Resets, Silence: cfg.Silence, Dir: spec.StateDir, Away: spec.Adopt, Fresh: true,
		},
		restarted: func(why string) {
			spec.Events.Emit(&event.Warning{Host: spec.LocalName, Text: fmt.Sprintf("%s: started again from %s", why, spec.StateDir)})
		},
		lost: func(err error) { go post(outputFault{err}) },
	}
	if past, is := before.(*kept); is {
		k.orders, k.halts, k.setup.Fresh = past.orders, past.halts, false
	}
	return startKept(k, ln)
}
