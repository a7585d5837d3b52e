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
func (m *meeting) serve(ctx context.Context, hosts []string) error {
	at := ":"
	if m.spec.Discovery == nil {
		m.door = m.spec.Reach.Door(hosts)
		at = net.JoinHostPort(m.door, "")
	}
	ln, err := m.listen(ctx, at+strconv.Itoa(m.spec.Port))
	if errors.Is(err, syscall.EADDRINUSE) {
		return fault(ExitSystem, "listen for workers on port %d: it is in use: choose another --port, or none", m.spec.Port)
	}
	if errors.Is(err, syscall.EADDRNOTAVAIL) && at != ":" {
		return fault(ExitSystem, "listen for workers: this host has neither 127.0.0.1 nor ::1: bring its loopback interface up, as with ip link set lo up")
	}
	if err != nil {
		return fault(ExitSystem, "listen for workers: %v: free a port, or raise the limit it names", err)
	}
	m.port = ln.Addr().(*net.TCPAddr).Port
	m.refused = secret.NewStrangers(func(r secret.Refused) {
		m.record.event(&event.Warning{Text: r.String() + "; strangers are kept out, and nothing is lost by it"})
	})
	cfg := m.config()
	if m.spec.CoordinatorState == "" {
		m.server = rendezvous.Serve(ctx, ln, cfg)
		return nil
	}
	kept, err := serveApart(ln.(*net.TCPListener), cfg, m)
	if err == nil {
		m.server = kept
	}
	return err
}

// listen opens the coordinator's port. An heir waits until the killed launcher's coordinator has ended.
func (m *meeting) listen(ctx context.Context, at string) (net.Listener, error) {
	ln, err := machine.Listen(ctx, at)
	taken := func() bool { return errors.Is(err, syscall.EADDRINUSE) }
	for end := time.Now().Add(lockWait); m.lived != nil && taken() && time.Now().Before(end); {
		time.Sleep(lockPause)
		ln, err = machine.Listen(ctx, at)
	}
	return ln, err
}

// config returns what a coordinator is made of, and what becomes of all that it says.
func (m *meeting) config() rendezvous.Config {
	cfg := rendezvous.Config{
		Secret: m.spec.Secret, Job: m.spec.Name, Host: m.spec.LocalName, Size: m.spec.NP,
		Min: m.spec.MinNP, Max: m.spec.MaxNP, OnLoss: m.spec.OnLoss, Resets: m.spec.ResetLimit, Silence: m.spec.Silence,
		Reported: true,
		OnOpen: func(epoch uint64, members []elastic.Place) {
			m.size.Store(int64(len(members)))
			m.epoch.Store(epoch)
			m.record.story.open(epoch, members)
			m.keepNew()
			m.tellNew(&event.Opened{Epoch: epoch, Size: len(members), Hosts: ranksOf(members)})
		},
		OnMember: func(p rendezvous.Process) {
			if m.crew.present(p) {
				m.took.Store(p.Rank, true)
				m.drained.Delete(p.Rank) // its predecessor did, when its host was lost
			}
			m.tellNew(&event.Admitted{Rank: p.Rank})
		},
		OnProgress: func(p event.Progress) { m.record.event(&p) },
		OnWait:     func(w rendezvous.Wait) { m.waits.Store(&w) },
		OnComplete: func(uint64) { m.complete.Store(true) },
		OnDrain: func(p rendezvous.Process, _ int, _, reason string) {
			if m.crew.present(p) {
				m.drained.Store(p.Rank, event.OneLine(reason))
			}
		},
		OnSevered: m.severed,
		Strangers: m.refused,
		OnFault: func(err error) {
			m.record.event(&event.Warning{Host: m.spec.LocalName, Text: err.Error()})
		},
	}
	m.losses(&cfg)
	if m.lived != nil {
		cfg.OnLived = sync.OnceFunc(func() { close(m.lived) })
	}
	return cfg
}

// losses has the coordinator tell what ends epochs.
func (m *meeting) losses(cfg *rendezvous.Config) {
	cfg.OnLost = func(epoch uint64, rank int, host, reason string) {
		m.record.story.lost(epoch, rank, host, reason)
		m.keepNew()
	}
	cfg.OnCause = func(epoch uint64, rank int, host, reason string) {
		m.record.story.cause(epoch, rank, host, reason)
		m.keepNew()
	}
	cfg.OnRecovered = func(rank int, r rendezvous.Recovery) {
		m.record.story.recovered(rank, r)
		m.keepNew()
	}
}

// severed hears whom the coordinator has lost.
func (m *meeting) severed(p rendezvous.Process, since time.Time, reason string, silent bool) {
	if !m.crew.present(p) {
		return
	}
	e := severed{p.Rank, p.Name != "", since, reason, silent}
	if !m.isNew() {
		m.past[p.Rank] = append(m.past[p.Rank], e)
		return
	}
	go m.mail.post(e) // the owner may be handing something to the coordinator
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

// serveApart starts a meeting's coordinator as a process of its own.
func serveApart(ln *net.TCPListener, cfg rendezvous.Config, m *meeting) (*kept, error) {
	spec := m.spec
	k := &kept{
		ledger: m.record.ledger, argv: spec.Coordinator, environ: spec.Environ, cfg: cfg,
		setup: setup{
			Secret: spec.Secret.Hex(), Job: cfg.Job, Host: cfg.Host, Size: cfg.Size, Min: cfg.Min, Max: cfg.Max,
			OnLoss: cfg.OnLoss,
			Resets: cfg.Resets, Silence: cfg.Silence, Dir: spec.CoordinatorState, Away: spec.Adopt, Fresh: true,
		},
		restarted: func(why string) {
			spec.Place.Events.Emit(&event.Warning{
				Host: spec.LocalName, Text: fmt.Sprintf("%s: started again from %s", why, spec.CoordinatorState),
			})
		},
		lost: func(err error) { go m.mail.post(outputFault{err}) },
	}
	if past, is := m.server.(*kept); is {
		k.orders, k.halts, k.setup.Fresh = past.orders, past.halts, false
	}
	return startKept(k, ln)
}
