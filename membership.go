package hora

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"hora/elastic/rendezvous"
	"hora/event"
)

// Membership is a process's place in an elastic job, over all of the job's epochs: one
// connection to the coordinator, and one World after another. RunElastic is made of it;
// a framework's own loop can be too. One goroutine joins and leaves; News and Drain may
// be called from any.
type Membership struct {
	cfg    settings
	client *rendezvous.Client
	server *rendezvous.Server

	recording recording // through all epochs in which this process is rank 0

	mu     sync.Mutex // guards what follows; never held over I/O
	world  *World     // the present one, or the one being joined
	number uint64     // its epoch; 0 while it is being joined
	lost   rendezvous.Notice
	held   held
	change uint64 // the epoch that newcomers wait beside
	hosts  hostNews
	drain  string // why this rank is to leave by itself; "" while it is not
	asked  string // why the launcher wants it to; that may be taken back
	over   error  // why no further epoch comes
}

// What News reports, and State.Commit returns.
var (
	// ErrChanged says that the members of the job change: join the next epoch.
	ErrChanged = errors.New("workers come or go: the next epoch begins")
	// ErrDrained says that this worker was asked to leave and has committed.
	ErrDrained = errors.New("this worker was asked to leave the job")
	// ErrFinished says that this worker was started when the others had done the work:
	// nothing is left to do, and nothing is wrong.
	ErrFinished = errors.New("the others have done the work already")
)

// Enroll makes a place in the job that cfg names. Nothing is sent before Join.
func Enroll(cfg Config) (*Membership, error) {
	own, err := settle(cfg)
	if err != nil {
		return nil, fmt.Errorf("join world: %w", err)
	}
	return &Membership{cfg: own}, nil
}

// Join leaves the present epoch, if there is one, and returns the next one's World when
// all of its ranks are there. An epoch that breaks while it begins is followed by
// another attempt.
func (m *Membership) Join(ctx context.Context) (*World, error) {
	m.mu.Lock()
	old := m.world
	m.mu.Unlock()
	limit := m.cfg.joinLimit()
	if old != nil {
		limit = m.cfg.ElasticTimeout
		if err := old.Close(); err != nil {
			m.cfg.Log.Warn("leave an epoch", "cause", err)
		}
		if why := m.Asked(); why != "" { // since the last commit; the others are not to open an epoch with it
			m.farewell(ctx, why)
			return nil, fmt.Errorf("join epoch of job %s: %w: %s", m.cfg.Job, ErrDrained, why)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	began := time.Now()
	for {
		w, err := m.attempt(ctx, old == nil)
		if err == nil {
			m.cfg.Events.Emit(&event.Joined{
				Rank: w.Rank(), Size: w.Size(), Host: w.Host(), Epoch: w.Epoch(),
				Took: time.Since(began),
			})
			return w, nil
		}
		m.mu.Lock()
		over, drain := m.over, m.leaving()
		m.mu.Unlock()
		var no *rendezvous.JoinError
		switch {
		case drain != "":
			m.farewell(context.Background(), drain)
			return nil, fmt.Errorf("%w: %s", ErrDrained, drain)
		case errors.As(err, &no) && no.Finished():
			return nil, fmt.Errorf("join epoch of job %s: %w", m.cfg.Job, ErrFinished)
		case no != nil, m.client == nil, errors.As(err, new(*timelineError)):
		case over != nil:
			err = over
		case ctx.Err() == nil && !errors.As(err, new(*lateError)):
			continue // a rank was lost while the epoch began
		}
		if errors.Is(err, context.DeadlineExceeded) {
			name := "HORA_START_TIMEOUT"
			if old != nil {
				name = "HORA_ELASTIC_TIMEOUT"
			}
			err = fmt.Errorf("%w after %v: look at the output of the missing workers, start them, or raise %s", err, limit, name)
		}
		return nil, fmt.Errorf("join epoch of job %s: %w", m.cfg.Job, err)
	}
}

// farewell tells the coordinator that a worker which was asked to leave while it joined does so: it has not finished,
// nor is it lost.
func (m *Membership) farewell(ctx context.Context, why string) {
	if m.client == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, outlive)
	defer cancel()
	_ = m.client.Drain(ctx, why) // a coordinator that is gone already needs no good-bye
}

// attempt joins one epoch; first says that this process has been in none.
func (m *Membership) attempt(ctx context.Context, first bool) (*World, error) {
	ctx, abort := context.WithCancelCause(ctx)
	defer abort(nil)
	w := newWorld(m.cfg)
	w.member, w.client, w.server = m, m.client, m.server
	w.abort = abort
	m.mu.Lock()
	m.world, m.number = w, 0
	m.mu.Unlock()
	err := w.meet(ctx)
	m.client, m.server = w.client, w.server
	if err == nil {
		m.begin(w)
		limit := m.cfg.StartTimeout + m.cfg.PeerTimeout // one that is silent is lost before
		if !first {
			limit = m.cfg.ElasticTimeout // as ctx has it
		}
		opening, cancel := context.WithTimeout(ctx, limit)
		defer cancel()
		w.group, err = w.open(opening, w.everyone(), 0, groupOptions{name: "world"})
		if err != nil && ctx.Err() == nil && opening.Err() != nil {
			w.Close()
			return nil, &lateError{err, limit}
		}
	}
	if err == nil {
		w.knots.start()
		if err = m.recording.enter(w); err == nil {
			return w, nil
		}
		w.Close()
		return nil, &timelineError{err}
	}
	w.Close()
	if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, context.DeadlineExceeded) {
		err = cause
	}
	return nil, err
}

// lateError is an epoch whose ranks do not reach each other.
type lateError struct {
	err   error
	after time.Duration
}

func (e *lateError) Error() string {
	return fmt.Sprintf("%v after %v: look whether the ranks reach each other, or raise HORA_START_TIMEOUT", e.err, e.after)
}

// forget takes back what a coordinator said that was given up.
func (m *Membership) forget() {
	m.mu.Lock()
	m.over, m.asked, m.change, m.lost = nil, "", 0, rendezvous.Notice{}
	m.mu.Unlock()
}

// overError is the end of an epoch that lost nobody.
type overError struct {
	epoch uint64
	why   string
}

func (e *overError) Error() string {
	return fmt.Sprintf("epoch %d is over: %s; join the next one", e.epoch, e.why)
}

// lossError returns the end of an epoch as operations report it.
func lossError(n rendezvous.Notice) error {
	if n.Rank < 0 {
		return &overError{n.Epoch, n.Reason}
	}
	return &PeerLostError{Rank: n.Rank, Host: n.Host, Reason: n.Reason}
}

// begin makes w the world that notices of its epoch are for, and tells it what has
// been heard already.
func (m *Membership) begin(w *World) {
	m.mu.Lock()
	m.number = w.number
	lost := m.lost
	m.mu.Unlock()
	if lost.Kind != 0 && lost.Epoch == w.number {
		w.notice(lost)
	}
}

// notice hears from the coordinator. Only the client's reading goroutine calls it.
func (m *Membership) notice(n rendezvous.Notice) {
	n.Reason = event.OneLine(n.Reason)
	m.mu.Lock()
	w, number := m.world, m.number
	switch n.Kind {
	case rendezvous.NoticeLost, rendezvous.NoticeParted:
		m.lost = n
		if number != n.Epoch {
			w = nil
		}
	case rendezvous.NoticeLeft:
		if number != n.Epoch {
			w = nil
		}
	case rendezvous.NoticeHeld:
		m.held.note(n)
		w = nil
	case rendezvous.NoticeChanged:
		m.change, w = n.Epoch, nil
	case rendezvous.NoticeComing, rendezvous.NoticeGoing:
		m.hosts.note(n)
		w = nil
	case rendezvous.NoticeDrain:
		w = nil
		m.asked = n.Reason
		if n.Reason != "" {
			defer m.abandon(n.Reason)
		}
	case rendezvous.NoticeEnd:
		m.over = fmt.Errorf("the job has ended: %s", n.Reason)
	case rendezvous.NoticeCut:
		m.over = errors.New(n.Reason)
	}
	m.mu.Unlock()
	if w != nil {
		w.notice(n)
	}
}

// Drain asks this rank to leave at its next commit, or at once while it waits to join, as the
// launcher's request does.
func (m *Membership) Drain(reason string) {
	m.mu.Lock()
	m.drain = reason
	m.mu.Unlock()
	m.abandon(reason)
}

// abandon gives up waiting to join.
func (m *Membership) abandon(reason string) {
	m.mu.Lock()
	w := m.world
	if m.number > 0 {
		w = nil // it is at work
	}
	m.mu.Unlock()
	if w != nil {
		w.abort(fmt.Errorf("%w: %s", ErrDrained, reason))
	}
}

// Asked returns why this rank is to leave; "" while it is not.
func (m *Membership) Asked() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.leaving()
}

// leaving returns what Asked does, with the lock held.
func (m *Membership) leaving() string { return cmp.Or(m.drain, m.asked) }

// Recovered tells the job's report, when all ranks of the present epoch have the same state again, what the end of the
// one before cost this rank: the time since it knew, the steps that are done again (-1 where nobody counts them), and
// why.
func (m *Membership) Recovered(took time.Duration, steps int, cause string) {
	m.mu.Lock()
	w := m.world
	m.mu.Unlock()
	if w == nil {
		return
	}
	if m.client != nil {
		m.client.Recovered(rendezvous.Recovery{Epoch: w.Epoch(), Took: took, Steps: steps})
	}
	m.cfg.Events.Emit(&event.Recovered{Rank: w.Rank(), Size: w.Size(), Epoch: w.Epoch(), Cause: cause, Took: took})
}

// News returns why the present epoch is to be left at once: ErrDrained, ErrChanged or the
// end of the job; nil while there is nothing. It costs a lock and no system call.
func (m *Membership) News() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case m.over != nil:
		return m.over
	case m.leaving() != "":
		return fmt.Errorf("%w: %s", ErrDrained, m.leaving())
	case m.number > 0 && m.change == m.number:
		return ErrChanged
	case m.number > 0 && m.lost.Epoch == m.number:
		return lossError(m.lost)
	}
	return nil
}

// hostNews is what the members of an epoch have heard of workers that are about to come or go.
type hostNews struct {
	epoch         uint64
	coming, going bool
}

func (h *hostNews) note(n rendezvous.Notice) {
	if h.epoch != n.Epoch {
		*h = hostNews{epoch: n.Epoch}
	}
	h.coming = h.coming || n.Kind == rendezvous.NoticeComing
	h.going = h.going || n.Kind == rendezvous.NoticeGoing
}

// HostNews says whether workers are on their way to the present epoch's members, and whether some of those were asked
// to leave. Unlike News it does not ask to act: News says so when the newcomers have come, and the leaving ends the
// epoch. Who joins the next epoch meanwhile waits for those that are on their way. It costs a lock and no system call.
func (m *Membership) HostNews() (coming, going bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.number == 0 || m.hosts.epoch != m.number {
		return false, false
	}
	return m.hosts.coming, m.hosts.going
}

// broken reports whether err is how this rank heard that the present epoch is over. A
// rank that has seen a loss before the coordinator is right too: asking for the next
// epoch ends this one. A fault of the training's own is none, even if others are lost in
// the same moment: they may well have met the same fault.
func (m *Membership) broken(err error) bool {
	var peer *PeerLostError
	var over *overError
	var operation *OperationError
	if errors.As(err, &peer) || errors.As(err, &over) {
		return true
	}
	if !errors.As(err, &operation) && !errors.Is(err, ErrClosed) {
		return false
	}
	m.mu.Lock()
	w := m.world
	m.mu.Unlock()
	t := time.NewTimer(lastWord) // the coordinator's word may be on its way
	defer t.Stop()
	select {
	case <-w.broken:
		return true
	case <-t.C:
		return false
	}
}

// alone reports a place that no coordinator knows of.
func (m *Membership) alone() bool { return m.client == nil }

// Finish waits until every rank of the epoch has finished, and is false when the epoch
// broke before that: then all ranks are asked to join the next one.
func (m *Membership) Finish(ctx context.Context) (bool, error) {
	if m.alone() {
		return true, nil
	}
	return m.client.Finish(ctx)
}

// Leave ends the membership on purpose. drained says that the rank leaves before the
// work is done: it is then replaced, or the others go on without it.
func (m *Membership) Leave(ctx context.Context, drained string) error {
	m.cfg.refused.leave()
	if m.client != nil {
		// A coordinator that is gone already needs no good-bye.
		if drained != "" {
			_ = m.client.Drain(ctx, drained)
		} else {
			_ = m.client.Leave(ctx)
		}
	}
	m.mu.Lock()
	w := m.world
	m.mu.Unlock()
	err := m.Close()
	if w != nil {
		m.cfg.Events.Emit(&event.Left{Rank: w.Rank()})
	}
	return err
}

// Close ends the membership without a word: the rank counts as lost. It may be called
// again.
func (m *Membership) Close() error {
	m.mu.Lock()
	w := m.world
	m.mu.Unlock()
	var faults []error
	if w != nil {
		faults = append(faults, w.Close())
	}
	m.recording.leave()
	m.cfg.refused.leave()
	m.cfg.served.leave()
	if m.client != nil {
		faults = append(faults, m.client.Close())
	}
	if m.server != nil {
		faults = append(faults, m.server.Close())
	}
	return errors.Join(faults...)
}
