// Package server runs jobs for a team: it takes them, keeps them in the store, lets job/schedule decide who runs,
// starts them through a back end, of which it knows what server/backend says, and takes what they say until it is on
// the disk. The HTTP interface stands on the same calls.
//
// One goroutine, the loop, owns the queue and the table of jobs that have not ended; each running attempt has one that
// follows it. Jobs are no children of this process: when it ends they go on, and the next one adopts them. Only
// cmd/horad imports it.
package server

import (
	"context"
	"database/sql"
	"errors"
	"log/slog"
	"sync"
	"time"

	"hora/job"
	"hora/job/schedule"
	"hora/server/backend"
	"hora/server/client"
	"hora/server/store"
)

// Server is open from New to Close.
type Server struct {
	store   *store.Store
	back    backend.Backend
	hosts   backend.Nodes // the back end's that come and go
	key     []byte        // from which the tokens of attempts come
	log     *slog.Logger
	now     func() time.Time
	news    *news
	frames  frames
	meters  meters
	calls   chan func()
	ctx     context.Context
	cancel  context.CancelFunc
	wg      sync.WaitGroup
	machine *schedule.Machine        // the loop's
	live    map[int64]*live          // the loop's
	quotas  map[string]client.Quota  // the loop's
	ahead   []int64                  // the loop's: jobs since the last decision that ask for an environment
	dirty   bool                     // the loop's: something changed since the last decision
	ending  bool                     // the loop's: jobs are being cancelled, and no other starts
	decided time.Time                // the loop's: when that was
	pools   map[string]*pool         // the loop's
	nodes   map[string]schedule.Node // the loop's: what the schedule knows
	joined  map[string]store.Node    // tendPools's: nodes of static pools, as they are written down
	copied  bool                     // the folder is a copy of another server's
	parts   parts                    // the loop's
	makes   Makes
	wants   chan struct{} // a decision may have left jobs that want nodes
	placing sync.RWMutex  // held to change for whose jobs a pool is, and shared while a job is taken
	hooks   *webhooks
	silence time.Duration // that a file of outputs/ may come to nothing for; silentMost where it is none
	expires chan struct{} // how long something is kept has changed
}

// live is a job that has not ended. The loop owns it.
type live struct {
	job       client.Job
	failures  int
	attempts  int
	attempt   *client.Attempt // the one that runs
	taken     uint64
	stop      client.Outcome // why it was told to end
	alone     bool           // it ran out of memory beside others
	lost      int            // attempts in a row that were lost
	finishing bool           // its last record is being written down
	target    int            // slots it is to shrink to
	elastic   elastic
	gang      gang
	seated    []string  // nodes on which parts has it
	beside    time.Time // when another job left a node of its attempt last
	last      *writing  // of what became of it
}

// New opens a server on a store and takes up all jobs that have not ended. From the key come the tokens of attempts,
// which go on with the next server. The back end ends with the server.
func New(
	ctx context.Context, st *store.Store, back backend.Backend, makes Makes, key []byte, log *slog.Logger,
) (*Server, error) {
	s := &Server{
		store: st, back: back, hosts: hostsOf(back), key: key, makes: makes, wants: make(chan struct{}, 1),
		pools: map[string]*pool{}, nodes: map[string]schedule.Node{}, log: log, now: time.Now, news: newNews(),
		calls: make(chan func(), 256), machine: schedule.New(0), live: map[int64]*live{},
		quotas: map[string]client.Quota{}, dirty: true, hooks: newWebhooks(), expires: make(chan struct{}, 1),
	}
	s.ctx, s.cancel = context.WithCancel(context.WithoutCancel(ctx))
	if err := s.openPools(ctx); err != nil {
		return nil, err
	}
	projects, err := st.Projects(ctx)
	if err != nil {
		return nil, err
	}
	for _, p := range projects {
		s.machine.SetUsed(p.Name, p.Used, p.At)
	}
	quotas, err := st.Quotas(ctx)
	if err != nil {
		return nil, err
	}
	for name, q := range quotas {
		s.quotas[name] = q
		s.machine.SetQuota(name, schedule.Quota(q))
	}
	if err := s.adopt(ctx); err != nil {
		return nil, err
	}
	if err := s.openWebhooks(ctx); err != nil {
		return nil, err
	}
	left, err := s.removedBefore(ctx)
	if err != nil {
		return nil, err
	}
	s.wg.Go(s.loop)
	s.wg.Go(func() { s.endAll(left, make(chan struct{})) })
	s.wg.Go(s.tendPools)
	s.wg.Go(s.tendRetention)
	return s, nil
}

// adopt takes up what an earlier server left.
func (s *Server) adopt(ctx context.Context) error {
	all, err := s.store.Lives(ctx)
	if err != nil {
		return err
	}
	for i, l := range all {
		all[i] = nil // it is not needed twice
		e := &live{
			job: l.Job, failures: l.Failures, attempts: l.Numbers, attempt: l.Attempt, taken: l.Taken, stop: l.Stop,
			alone: l.Alone, gang: gang{opened: l.Opened},
		}
		s.live[l.Job.ID] = e
		s.seat(e)
		switch {
		case l.Attempt != nil:
			s.expect(&e.job, e.attempt)
			s.machine.Started(ask(e), held(l.Attempt.Shares), l.Attempt.Started, s.now())
			if n := total(l.Attempt.Shares); n < slotsOf(held(l.Attempt.Shares)) {
				e.target = n
				s.machine.Shrinking(l.Job.ID, backend.Slots(l.Attempt.Shares))
			}
			s.follow(e, true)
		case l.Job.State == job.Queued:
			s.machine.Submit(ask(e))
		}
	}
	rest, err := s.store.Unforgotten(ctx)
	if err != nil {
		return err
	}
	for _, r := range rest {
		s.wg.Go(func() { s.forget(backend.RefOf(r.Job, r.Attempt, r.Pool, r.Shares)) })
	}
	return nil
}

// Close ends the server; jobs go on.
func (s *Server) Close() {
	s.cancel()
	s.news.close()
	s.back.Close()
	s.wg.Wait()
}

// decideAfter is how far apart decisions are at least.
const decideAfter = 50 * time.Millisecond

// loop owns what the comments say.
func (s *Server) loop() {
	for {
		var later <-chan time.Time
		if s.dirty {
			if wait := decideAfter - time.Since(s.decided); wait <= 0 {
				s.decide()
			} else {
				later = time.After(wait)
			}
		}
		select {
		case f := <-s.calls:
			f()
		case <-later:
		case <-s.ctx.Done():
			return
		}
	}
}

// errEnding is for calls while the server ends.
var errEnding = errors.New("the server is ending: call again when it is back")

// do runs f in the loop and waits for it.
func (s *Server) do(f func()) error {
	done := make(chan struct{})
	select {
	case s.calls <- func() { f(); close(done) }:
	case <-s.ctx.Done():
		return errEnding
	}
	select {
	case <-done:
		return nil
	case <-s.ctx.Done():
		return errEnding
	}
}

// ask is a job as the schedule knows it.
func ask(l *live) schedule.Job {
	d := &l.job.Document
	a := schedule.Ask{
		NP: max(d.Spec.NP, 1), Min: d.Spec.MinNP, Nodes: d.Nodes, PerNode: d.PerNode, Node: d.Node, Memory: d.Memory,
		GPUs: d.Spec.GPUsPerRank, Limit: seconds(d.TimeLimit), Whole: l.alone || d.Whole,
	}
	if d.Fresh {
		a.For = l.job.ID
	}
	if a.Nodes > 0 {
		a.PerNode = max(a.PerNode, 1)
		a.NP = a.Nodes * a.PerNode
	}
	return schedule.Job{
		ID: l.job.ID, Pool: d.Pool, Project: d.Project, Priority: *d.Priority, Queued: l.job.Queued,
		Preemptible: d.Preemptible, Ask: a,
	}
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

func theirShares(all []schedule.Share) []client.Share {
	out := make([]client.Share, len(all))
	for i, s := range all {
		out[i] = client.Share{Node: s.Node, Slots: s.Slots}
	}
	return out
}

// decide lets the schedule decide, and carries it out.
func (s *Server) decide() {
	s.dirty, s.decided = false, time.Now()
	if s.ending {
		return
	}
	now := s.now()
	d := s.machine.Decide(now)
	s.meters.decision(time.Since(s.decided), len(d.Start))
	for _, p := range d.Start {
		l := s.live[p.ID]
		l.attempts++
		l.attempt, l.beside = &client.Attempt{Number: l.attempts, Started: now.UTC()}, time.Time{}
		s.reshare(l, theirShares(p.Shares))
		l.job.State, l.job.Started, l.job.Reason = job.Running, now.UTC(), nil
		if l.job.Document.Environment != nil {
			l.job.State = job.Preparing // until its keeper says that the environment is there
		}
		l.taken, l.stop, l.target, l.elastic, l.gang = 0, "", 0, elastic{}, gang{}
		s.follow(l, false)
	}
	for _, p := range d.Shrink {
		s.resize(s.live[p.ID], p.Shares, true)
	}
	for _, p := range d.Grow {
		s.resize(s.live[p.ID], p.Shares, false)
	}
	for _, id := range d.Preempt {
		s.end(s.live[id], client.Preempted)
	}
	for _, id := range s.ahead {
		if l := s.live[id]; l != nil && l.job.State == job.Queued { // it is made while the job waits
			if d := &l.job.Document; !d.Fresh { // nobody's node that is there will have it
				s.makeAhead(d)
			}
		}
	}
	s.ahead = nil
	if !d.Empty() {
		s.news.wake(0)
	}
	if len(s.pools) > 0 {
		select {
		case s.wants <- struct{}{}:
		default:
		}
	}
}

// end tells a running job to end. The first reason stands. It is told too where that cannot be written down; in the
// loop.
func (s *Server) end(l *live, why client.Outcome) { s.endFor(l, why, string(why)) }

// endFor has the job's story say more of the reason.
func (s *Server) endFor(l *live, why client.Outcome, because string) {
	if l == nil || l.attempt == nil || l.stop != "" {
		return
	}
	l.stop = why
	job, attempt := l.job, l.attempt.Number
	where := backend.RefOf(job.ID, attempt, job.Document.Pool, l.attempt.Shares)
	w := s.write(s.ctx, l, func(tx *sql.Tx) error {
		if err := store.SetStop(tx, job.ID, attempt, why); err != nil {
			return err
		}
		return store.AddHappening(tx, job.ID, client.Happening{
			At: s.now(), Attempt: attempt, Kind: "told", Text: "it was told to end: " + because,
		})
	})
	s.wg.Go(func() {
		<-w.tried
		s.kill(where, why)
	})
}

// kill has a gang end, and who follows its job look at it.
func (s *Server) kill(where backend.Ref, why client.Outcome) {
	if err := s.back.Kill(where, why); err != nil {
		s.log.Warn("end a job", "job", where.Job, "error", err)
	}
	s.news.wake(where.Job)
}
