package hora

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"slices"
	"strings"
	"time"

	"hora/elastic/rendezvous"
	"hora/event"
	"hora/internal/secret"
	"hora/transport/shm"
	"hora/transport/tcp"
)

const (
	defaultStart = 30 * time.Second
	defaultPeer  = 10 * time.Second
	defaultJob   = "hora"
	// defaultElastic is Horovod's.
	defaultElastic = 10 * time.Minute
	// attempt bounds one try to join through files of RunDir that may be an older
	// run's.
	attempt = 250 * time.Millisecond
	// lookAgain is the pause between two tries.
	lookAgain = 5 * time.Millisecond
	// outlive is how long the coordinator of an earlier life may answer at a port.
	outlive = 2 * time.Second
)

// NewSecret makes the secret of a new job.
func NewSecret() Secret { return secret.New() }

// Join makes this process rank cfg.Rank of its world and returns when all ranks are
// there.
func Join(ctx context.Context, cfg Config) (*World, error) {
	began := time.Now()
	own, err := settle(cfg)
	if err != nil {
		return nil, fmt.Errorf("join world: %w", err)
	}
	w := newWorld(own)
	limit := own.joinLimit()
	meeting, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	err = w.meet(meeting)
	if err == nil {
		opening, cancel := own.openingLimit(ctx, meeting)
		defer cancel()
		w.group, err = w.open(opening, w.everyone(), 0, groupOptions{name: "world"})
	}
	if err == nil {
		w.knots.start()
		err = w.recording.enter(w)
	}
	if err != nil {
		w.Close()
		err = fmt.Errorf("join world as rank %d of %d: %w", own.Rank, own.Size, err)
		if errors.Is(err, context.DeadlineExceeded) {
			err = fmt.Errorf("%w after %v: look at the output of the missing ranks, start all %d ranks, or raise HORA_START_TIMEOUT", err, limit, own.Size)
		}
		return nil, err
	}
	own.Events.Emit(&event.Joined{
		Rank: w.Rank(), Size: w.Size(), Host: w.Host(), Epoch: w.Epoch(),
		Took: time.Since(began),
	})
	return w, nil
}

// joinLimit returns how long a rank waits for the first epoch.
func (c *Config) joinLimit() time.Duration { return max(c.JoinTimeout, c.StartTimeout) }

// openingLimit bounds what follows when all ranks are there: by what is left of the meeting, or anew where that may
// have taken long.
func (c *Config) openingLimit(ctx, meeting context.Context) (context.Context, context.CancelFunc) {
	if c.JoinTimeout <= c.StartTimeout {
		return context.WithCancel(meeting)
	}
	return context.WithTimeout(ctx, c.StartTimeout)
}

// settings are a world's own copy of its Config, and what is made from it once: a Membership has the same ones in all
// its worlds.
type settings struct {
	Config  // filled; its Events have the meter before them
	given   *event.Sink
	meter   *meter    // of Progress
	refused *refusals // by this process's listeners
	served  *refusals // heard of by the coordinator, where this process is it
}

// settle makes the settings of a Config that keeps its caller's values.
func settle(cfg Config) (settings, error) {
	s := settings{Config: cfg, given: cfg.Events}
	s.Peers = slices.Clone(cfg.Peers)
	if err := s.fill(); err != nil {
		return settings{}, err
	}
	s.refused, s.served = newRefusals(s.Log), newRefusals(s.Log)
	if s.Timeline != "" && s.Events == nil {
		s.Events = &event.Sink{}
	}
	if s.Progress {
		s.meter = newMeter(&s.Config)
	}
	return s, nil
}

// config returns the Config for a caller: nothing in it belongs to the world.
func (s *settings) config() Config {
	c := s.Config
	c.Peers, c.Events = slices.Clone(c.Peers), s.given
	return c
}

// fill gives every field that is not set its meaning, and finds all faults.
func (c *Config) fill() error {
	if c.Size == 0 {
		c.Size = 1
	}
	if err := c.valid(); err != nil {
		return err
	}
	if c.StartTimeout <= 0 {
		c.StartTimeout = defaultStart
	}
	if c.PeerTimeout <= 0 {
		c.PeerTimeout = defaultPeer
	}
	if c.ElasticTimeout <= 0 {
		c.ElasticTimeout = defaultElastic
	}
	if c.Job == "" {
		c.Job = defaultJob
	}
	if c.Host == "" {
		c.Host, _ = os.Hostname()
		if c.Host == "" {
			c.Host = "localhost"
		}
	}
	if c.HostID == "" {
		c.HostID = hostID()
	}
	if c.Log == nil {
		c.Log = slog.Default()
	}
	if c.Secret.IsZero() && c.SecretFile != "" {
		s, err := secret.Read(c.SecretFile)
		if err != nil {
			return err
		}
		c.Secret = s
	}
	return nil
}

// hostID tells machines, and network namespaces of one machine, apart.
func hostID() string {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		boot, _ = os.ReadFile("/etc/machine-id")
	}
	space, _ := os.Readlink("/proc/self/ns/net")
	name := ""
	if len(boot) == 0 {
		name, _ = os.Hostname()
	}
	return fmt.Sprintf("%s%s %s", name, trimLine(boot), space)
}

func trimLine(b []byte) string {
	for len(b) > 0 && (b[len(b)-1] == '\n' || b[len(b)-1] == ' ') {
		b = b[:len(b)-1]
	}
	return string(b)
}

// meet finds the other ranks: w.members is complete afterwards.
func (w *World) meet(ctx context.Context) error {
	c := &w.cfg
	switch {
	case c.Size == 1 && c.Addr == "":
		w.members = []rendezvous.Member{{Rank: 0, LocalSize: 1, CrossSize: 1, Host: c.Host, HostID: c.HostID}}
		w.number = c.Epoch
		return nil
	case len(c.Peers) > 0:
		return w.meetPeers(ctx)
	case w.client != nil: // of an earlier epoch
		return w.meetAgain(ctx)
	case c.Secret.IsZero():
		return w.meetByFiles(ctx)
	case c.Addr == "":
		return errors.New("nobody said where the ranks meet: set HORA_ADDR to host:port of rank 0's host (mpirun: -x HORA_ADDR)")
	}
	if c.Serve && c.Rank == 0 {
		if err := w.serve(ctx, c.Addr); err != nil {
			return err
		}
	}
	if !c.Serve || c.Rank == 0 {
		return w.meetAt(ctx, c.Addr, c.Secret)
	}
	// What answers at a port that rank 0 serves itself may be an earlier life of the job
	// that is about to end.
	return w.persist(ctx, func() error { return w.meetAt(ctx, c.Addr, c.Secret) })
}

// persist tries again until it works, ctx ends or the coordinator has a final reason.
func (w *World) persist(ctx context.Context, try func() error) error {
	pause := time.NewTimer(0)
	defer pause.Stop()
	var last error
	var refusedSince time.Time // since when the answer is final
	for {
		select {
		case <-ctx.Done():
			return errors.Join(last, context.Cause(ctx))
		case <-pause.C:
		}
		err := try()
		var refused *secret.RefusedError
		var version *secret.VersionError
		var folder *secret.FolderError
		var no *rendezvous.JoinError
		switch {
		case err == nil, errors.As(err, &refused), errors.As(err, &version), errors.As(err, &folder), ctx.Err() != nil:
			return err
		case !errors.As(err, &no) || !no.Final:
			refusedSince = time.Time{}
		case refusedSince.IsZero():
			refusedSince = time.Now()
		case time.Since(refusedSince) > outlive:
			return err
		}
		w.forget()
		last = err
		pause.Reset(lookAgain)
	}
}

// forget gives a coordinator up, and what it said.
func (w *World) forget() {
	if w.client == nil {
		return
	}
	w.cfg.refused.seek()
	w.client.Close() // joins the goroutine that calls notice
	w.client = nil
	w.mu.Lock()
	w.ended = nil
	w.mu.Unlock()
	if w.member != nil {
		w.member.forget()
	}
}

// serve runs the coordinator in this process.
func (w *World) serve(ctx context.Context, addr string) error {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return fmt.Errorf("serve rendezvous: address %q is not host:port", addr)
	}
	if ip := net.ParseIP(host); ip == nil && host != "localhost" {
		host = "" // a name may stand for an address that is not this interface's
	}
	lc := net.ListenConfig{}
	lc.SetMultipathTCP(false)
	ln, err := lc.Listen(ctx, "tcp", net.JoinHostPort(host, port))
	if err != nil {
		return fmt.Errorf("serve rendezvous: %w; choose a free port with HORA_PORT or HORA_ADDR", err)
	}
	w.server = rendezvous.Serve(context.WithoutCancel(ctx), ln, rendezvous.Config{
		Secret: w.cfg.Secret, Job: w.cfg.Job, Host: w.cfg.Host, Size: w.cfg.Size, Silence: w.cfg.PeerTimeout,
		Strangers: w.cfg.served.Strangers,
	})
	return nil
}

// meetAt joins through the coordinator at addr.
func (w *World) meetAt(ctx context.Context, addr string, s Secret) error {
	w.cfg.Secret = s
	w.cfg.refused.seek()
	if err := w.listen(ctx); err != nil {
		return err
	}
	c := &w.cfg
	hear := w.notice
	if w.member != nil {
		hear = w.member.notice
	}
	dial, cancel := context.WithTimeout(ctx, c.StartTimeout) // ctx may leave more, for ranks that are late
	defer cancel()
	client, err := rendezvous.Dial(dial, addr, s, rendezvous.Hello{
		Job: c.Job, Rank: c.Rank, Size: c.Size, Host: c.Host, Process: c.Process, OnNotice: hear,
		Beat: min(time.Second, c.PeerTimeout/4), Progress: c.meter.tell(),
	})
	if err != nil {
		return err
	}
	w.client = client
	c.refused.found(client.Refused)
	return w.take(ctx)
}

// meetAgain joins the next epoch over the connection of the last one.
func (w *World) meetAgain(ctx context.Context) error {
	if err := w.listen(ctx); err != nil {
		return err
	}
	return w.take(ctx)
}

// take waits for an epoch and takes its members in.
func (w *World) take(ctx context.Context) error {
	c, client := &w.cfg, w.client
	me := rendezvous.Member{
		Rank: c.Rank, LocalRank: c.LocalRank, LocalSize: c.LocalSize, CrossRank: c.CrossRank, CrossSize: c.CrossSize,
		Host: c.Host, HostID: c.HostID, Pid: os.Getpid(),
	}
	if w.memory != nil {
		me.Unix = w.memory.Addr()
	}
	if w.listener != nil {
		me.Addrs = w.listener.Addrs()
	}
	epoch, err := client.Join(ctx, me)
	if err != nil {
		return err
	}
	moved := c.Rank != epoch.Rank || c.Size != epoch.Size // who died before the first epoch is not in it
	c.Rank, c.Size, w.number = epoch.Rank, epoch.Size, epoch.Number
	w.members = epoch.Members
	if len(w.members) < epoch.Size {
		if w.members, err = client.Members(ctx, missingRanks(epoch)...); err != nil {
			return err
		}
		w.members = append(w.members, epoch.Members...)
	}
	slices.SortFunc(w.members, func(a, b rendezvous.Member) int { return a.Rank - b.Rank })
	for i, m := range w.members {
		if m.Rank != i {
			return fmt.Errorf("the coordinator knows no rank %d", i)
		}
	}
	if w.member != nil || moved { // places change from epoch to epoch
		m := &w.members[c.Rank]
		c.LocalRank, c.LocalSize, c.CrossRank, c.CrossSize = m.LocalRank, m.LocalSize, m.CrossRank, m.CrossSize
	}
	return nil
}

func missingRanks(e rendezvous.Epoch) []int {
	have := make([]bool, e.Size)
	for _, m := range e.Members {
		have[m.Rank] = true
	}
	var list []int
	for r, ok := range have {
		if !ok {
			list = append(list, r)
		}
	}
	return list
}

// listen opens what other ranks will connect to.
func (w *World) listen(ctx context.Context) error {
	c := &w.cfg
	if c.Links != "tcp" && w.memory == nil {
		l, err := shm.Listen(c.Secret, shm.ListenConfig{
			Addr: w.socket, Job: c.Job, Host: c.Host, Log: c.Log,
			Strangers: c.refused.Strangers,
		})
		var no *shm.UnavailableError
		switch {
		case err == nil:
			w.memory = l
		case !errors.As(err, &no) || c.Links == "shm":
			return err
		}
	}
	if c.Links != "shm" && w.listener == nil && w.node == nil {
		var at []string
		switch {
		case c.Listen != "":
			at = strings.Split(c.Listen, ",")
		case c.alone():
			at = []string{net.JoinHostPort(loopback, "0")}
		}
		l, err := tcp.Listen(ctx, at...)
		if err != nil {
			return err
		}
		w.listener = l
	}
	return nil
}

// notice hears news of the epoch from the coordinator.
func (w *World) notice(n rendezvous.Notice) {
	n.Reason = event.OneLine(n.Reason)
	switch n.Kind {
	case rendezvous.NoticeParted:
		w.learn(n.Rank, n.Reason)
		w.parted(n, time.Now())
	case rendezvous.NoticeLost:
		w.learn(n.Rank, n.Reason)
		if w.member != nil {
			w.lost(lossError(n)) // survivors join again instead of ending, so the first word is the cause
			return
		}
		// The links know first whose loss was the cause: a rank that gives up because of
		// another is soon lost too.
		time.AfterFunc(lastWord, func() { w.lost(&PeerLostError{Rank: n.Rank, Host: n.Host, Reason: n.Reason}) })
	case rendezvous.NoticeLeft: // it may have been the first to have made a group that others are about to have made
		time.AfterFunc(lastWord, func() { w.left(n.Rank, n.Host) })
	case rendezvous.NoticeHeld:
		w.mu.Lock()
		w.held.note(n)
		w.mu.Unlock()
	case rendezvous.NoticeEnd:
		w.lost(fmt.Errorf("the job has ended: %s", n.Reason))
	}
}
