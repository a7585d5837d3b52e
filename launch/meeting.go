package launch

import (
	"sync"
	"sync/atomic"
	"time"

	"hora/elastic"
	"hora/elastic/rendezvous"
	"hora/event"
	"hora/internal/secret"
)

// meeting is the workers' meeting as the launcher knows it: the coordinator, and what has been heard of it.
type meeting struct {
	spec    *settings
	crew    *crew
	record  *record
	mail    *mailbox
	server  coordinator
	refused *secret.Strangers // tells of strangers, once for the whole job
	port    int               // of the coordinator
	door    string            // at which it listens; "" is at all addresses
	absent  map[int]bool      // by rank: what the coordinator has been told of it
	// by rank: a process that it has been told of, and that has not taken part yet
	coming map[int]onItsWay
	lived  chan struct{}     // of an adopted job: closed when the coordinator has told again what it had
	past   map[int][]severed // by rank: whom it has told of as severed before that
	// Written by the coordinator's goroutine:
	epoch    atomic.Uint64                   // the last that opened
	size     atomic.Int64                    // of that epoch
	complete atomic.Bool                     // every worker has done its work
	waits    atomic.Pointer[rendezvous.Wait] // for whom an epoch waits
	took     sync.Map                        // rank -> its present process has been a member
	// rank -> why it left before the work was done, until its process has ended
	drained sync.Map
}

// onItsWay is a process that is being started beside an epoch.
type onItsWay struct {
	process string
	since   time.Time // when it was ordered
}

// met is what the coordinator had said, when an entry was written, that matters to who lives through it.
type met struct {
	Epoch    uint64 `json:"epoch,omitempty"`
	Size     int64  `json:"size,omitempty"`
	Complete bool   `json:"complete,omitempty"`
}

// sofar returns that of the present moment.
func (m *meeting) sofar() met { return met{m.epoch.Load(), m.size.Load(), m.complete.Load()} }

// was puts the meeting back to an earlier moment.
func (m *meeting) was(then met) {
	m.size.Store(then.Size)
	m.epoch.Store(then.Epoch)
	m.complete.Store(then.Complete)
}

// opened returns the news of the present epoch. The size is stored before the epoch.
func (m *meeting) opened() elastic.News {
	epoch := m.epoch.Load()
	return elastic.Opened{Epoch: epoch, Size: int(m.size.Load())}
}

// resumes has the coordinator tell first what it had told an earlier launcher.
func (m *meeting) resumes() { m.lived, m.past = make(chan struct{}), map[int][]severed{} }

// isNew says whether what the coordinator tells is heard for the first time.
func (m *meeting) isNew() bool {
	select {
	case <-m.lived:
		return true
	default:
		return m.lived == nil
	}
}

func (m *meeting) tellNew(e event.Event) {
	if m.isNew() {
		m.record.event(e)
	}
}

// keepNew keeps the story of the epochs, where this launcher and none before it hears it first.
func (m *meeting) keepNew() {
	if m.isNew() {
		m.record.keepStory()
	}
}

// anew forgets what a rank's last process has said: another is started.
func (m *meeting) anew(rank int) {
	m.drained.Delete(rank)
	m.took.Delete(rank)
}

// latecomer says whether the present process of a rank was started for work that is done by now: it was never a member
// of an epoch, and no epoch follows. However it ends, the job is none the worse.
func (m *meeting) latecomer(rank int) bool {
	_, took := m.took.Load(rank)
	return !took && m.complete.Load()
}

// onlyLatecomers says whether nobody else is left.
func (m *meeting) onlyLatecomers(alive []bool) bool {
	for rank, is := range alive {
		if is && !m.latecomer(rank) {
			return false
		}
	}
	return true
}

// exit returns what the roster hears of a worker's end.
func (m *meeting) exit(o *Outcome) elastic.Exit {
	e := elastic.Exit{Rank: o.Rank, Cause: o.Cause(), Words: o.Kind == Failed && o.Last != "", Killed: o.Kind == Killed}
	switch {
	case o.Kind == Finished:
		e.How = elastic.Success
	case m.latecomer(o.Rank) || o.Kind == Drained && m.complete.Load():
		e.How = elastic.Excused
	case o.Kind == Drained:
		e.How = elastic.Farewell
	}
	return e
}

// tellAbsent tells the coordinator without whom the first epoch opens, when that changes.
func (m *meeting) tellAbsent(r *elastic.Roster) {
	if m.server == nil || m.spec.OnLoss != elastic.Continue || m.epoch.Load() > 0 {
		return
	}
	for rank := range m.crew.alive {
		if is := r.Absent(rank); is != m.absent[rank] {
			m.absent[rank] = is
			m.server.Absent(rank, is)
		}
	}
}

// comeLimit is how long members wait for newcomers that are on their way, and newcomers for each other.
const comeLimit = time.Minute

// tellComing tells the coordinator of a process that is being started beside the members of an epoch.
func (m *meeting) tellComing(o elastic.Start) {
	if m.server == nil || m.spec.OnLoss != elastic.Continue || m.epoch.Load() == 0 {
		return
	}
	if before, is := m.coming[o.Rank]; is { // its host was lost before it was known to run
		m.server.Coming(o.Rank, before.process, false, false)
	}
	process := m.crew.process(o.Rank)
	m.coming[o.Rank] = onItsWay{process, time.Now()}
	m.server.Coming(o.Rank, process, true, o.New)
}

// tellCome takes back what the coordinator was told of processes that take part by now, or are waited for no longer.
func (m *meeting) tellCome(r *elastic.Roster) {
	for rank, is := range m.coming {
		if _, took := m.took.Load(rank); took || !r.Seated(rank) || time.Since(is.since) > comeLimit {
			delete(m.coming, rank)
			m.server.Coming(rank, is.process, false, false)
		}
	}
}

// noMoreEpochs has the coordinator let nobody wait for an epoch that cannot come: those that were asked to end leave
// one after the other, each at its commit, and the last ones have lost the others by then.
func (m *meeting) noMoreEpochs(why string) {
	if m.spec.elastic() && !m.complete.Load() {
		m.server.Drain(-1, "", why)
	}
}
