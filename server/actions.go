package server

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"hora/job"
	"hora/job/schedule"
	"hora/server/backend"
	"hora/server/client"
	"hora/server/environment"
	"hora/server/store"
)

// refusal is what a caller did wrong, with the status that HTTP has for it.
type refusal struct {
	status int
	text   string
}

func (r *refusal) Error() string { return r.text }

// Status is what HTTP calls it.
func (r *refusal) Status() int { return r.status }

func refuse(status int, format string, a ...any) error {
	return &refusal{status, fmt.Sprintf(format, a...)}
}

// defaultProject is that of jobs which name none.
const defaultProject = "default"

// check fills in what a document leaves out and refuses what contradicts itself.
func (s *Server) check(d *client.Document) error {
	if d.Project == "" {
		d.Project = defaultProject
	}
	if d.Pool == "" {
		d.Pool = "default"
	}
	if d.Priority == nil {
		p := 50
		d.Priority = &p
	}
	pools := s.poolNames()
	switch {
	case len(d.Spec.Command) == 0 || d.Spec.Command[0] == "":
		return refuse(422, "there is no command to start: give one, as in hora submit python train.py")
	case !slices.Contains(pools, d.Pool):
		return refuse(409, "there is no pool %s: take one of %s", d.Pool, strings.Join(pools, ", "))
	case !s.opens(d.Pool, d.Project):
		return s.closed(d.Pool, d.Project)
	case d.Fresh && d.Node != "":
		return refuse(422, "node names a node that is there, and fresh asks for one that is made for the job: give one of them")
	case d.Fresh && !slices.Contains(s.poolsThatMake(), d.Pool):
		return refuse(409, "pool %s makes no nodes, and the job asks for fresh ones: leave fresh out, or give a pool of hora pool add --provider local or command", d.Pool)
	case d.Nodes > 0 && d.Spec.NP > 0:
		return refuse(422, "np and nodes each say how many processes there are: give one of them")
	case d.PerNode > 0 && d.Nodes == 0:
		return refuse(422, "per_node says how many processes each of nodes has, and nodes is not given: give both, or np")
	case d.Spec.MinNP > 0 && d.Nodes > 0:
		return refuse(422, "min_np makes a job elastic, and one with nodes has a fixed shape: give np instead of nodes")
	case d.Spec.MinNP > max(d.Spec.NP, 1):
		return refuse(422, "min_np %d is above np %d: lower it, or raise np", d.Spec.MinNP, max(d.Spec.NP, 1))
	}
	for name, value := range d.Tags {
		if err := checkTag(name, value); err != nil {
			return err
		}
	}
	if d.Environment != nil {
		if err := environment.Check(d.Environment); err != nil {
			return refuse(422, "%v", err)
		}
		if environment.Empty(d.Environment) {
			d.Environment = nil
		}
	}
	return refusedFields(&d.Spec)
}

// refusedFields names what the server says itself when it starts a job, and what would lie on a machine that nobody
// knows.
func refusedFields(s *job.Spec) error {
	for _, f := range []struct {
		name  string
		given bool
	}{
		{"hosts", s.Hosts != ""},
		{"hostfile", s.Hostfile != ""},
		{"discover", s.Discover != ""},
		{"slots_per_host", s.SlotsPerHost > 0},
		{"max_np", s.MaxNP > 0 && s.MaxNP != s.NP},
		{"ssh_port", s.SSHPort > 0},
		{"ssh_identity_file", s.SSHIdentityFile != ""},
		{"remote_hora", s.RemoteHora != ""},
		{"dir", s.Dir != ""},
		{"drain_on", s.DrainOn != ""},
		{"coordinator_state", s.CoordinatorState != ""},
		{"events", s.Events != ""},
		{"report", s.Report != ""},
		{"tag_output", s.TagOutput != nil},
		{"prefix_output_with_timestamp", s.Timestamps},
	} {
		if f.given {
			return refuse(422, "the server says %s itself: say what the job needs with np, min_np, nodes, per_node and pool, and leave %s out", f.name, f.name)
		}
	}
	return nil
}

func (s *Server) poolNames() []string {
	all := []string{nameOfDefault}
	_ = s.do(func() {
		for name, p := range s.pools {
			if !p.removed {
				all = append(all, name)
			}
		}
	})
	slices.Sort(all[1:])
	return all
}

// Submit takes a job. With a key that has been used before it answers the job which that has made.
func (s *Server) Submit(ctx context.Context, d client.Document, user, key string) (client.Job, error) {
	s.placing.RLock() // until the job is known no pool is closed to its project
	defer s.placing.RUnlock()
	return s.submit(ctx, d, user, key)
}

func (s *Server) submit(ctx context.Context, d client.Document, user, key string) (client.Job, error) {
	if err := s.check(&d); err != nil {
		return client.Job{}, err
	}
	if err := s.checkSecrets(ctx, &d); err != nil {
		return client.Job{}, err
	}
	if err := s.checkCode(ctx, d.Code); err != nil {
		return client.Job{}, err
	}
	lent, with, err := s.lend(ctx, &d)
	if err != nil {
		return client.Job{}, err
	}
	begin := time.Now()
	now := s.now().UTC()
	tags := d.Tags
	d.Tags = nil // the table has them, and they change
	j := client.Job{State: job.Queued, Queued: now, User: user, Document: d}
	if d.Held {
		j.State = job.Paused
	}
	document, err := json.Marshal(j.Document)
	if err != nil {
		return client.Job{}, err
	}
	again, request := int64(0), requestOf(ctx)
	err = s.store.Do(ctx, func(tx *sql.Tx) (err error) {
		if key != "" {
			if again, err = madeBy(tx, key, request); again != 0 || err != nil {
				return err
			}
		}
		if j.ID, err = store.NewJob(tx, &j, document); err != nil {
			return err
		}
		if key != "" {
			if err = store.Key(tx, key, request, j.ID, now); err != nil {
				return err
			}
		}
		if lent != nil {
			if err = with.Lend(tx, j.ID, lent); err != nil {
				return err
			}
		}
		if err = store.SetTags(tx, j.ID, tags, nil); err != nil {
			return err
		}
		if err = s.announce(tx, &j); err != nil {
			return err
		}
		return store.AddHappening(tx, j.ID, client.Happening{At: now, Kind: "submitted", Text: "it was submitted"})
	})
	if err != nil {
		return client.Job{}, err
	}
	if again != 0 {
		return s.Job(ctx, again)
	}
	s.announced()
	err = s.do(func() {
		l := &live{job: j}
		s.live[j.ID] = l
		if j.State == job.Queued {
			s.machine.Submit(ask(l))
			if j.Document.Environment != nil {
				s.ahead = append(s.ahead, j.ID)
			}
		}
		if s.dirty = true; decideAfter-time.Since(s.decided) <= 0 {
			s.decide() // so that the answer says where it runs, or why it waits
		}
		j = s.foreseen(l)
	})
	j.Tags = tags
	s.news.wake(0)
	s.meters.submit(time.Since(begin))
	return j, err
}

// madeBy is the job that a key has made; 0 for none.
func madeBy(tx *sql.Tx, key, request string) (int64, error) {
	id, sent, err := store.ByKey(tx, key)
	if err == nil && id != 0 && sent != "" && request != "" && sent != request {
		return 0, refuse(422, "this %s was sent with another job: take a new one for each job, or send the same again", keyHeader)
	}
	return id, err
}

// seen is a job as others see it; in the loop.
func (s *Server) seen(l *live) client.Job {
	j := l.job
	j.State = l.state()
	if l.attempt != nil {
		j.Shares = client.Shown(l.attempt.Shares)
		j.Stopping = l.stop == client.Stopped || l.stop == client.Held
	}
	if l.beginning() {
		j.Started = time.Time{}
		j.Reason = &client.Reason{Code: schedule.CodeNext, Text: "it starts with " + slotsOn(j.Shares)}
		return j
	}
	switch j.State {
	case job.Paused:
		j.Reason = &client.Reason{Code: "paused", Text: fmt.Sprintf("it is paused: hora resume %d lets it queue", j.ID)}
	case job.Running, job.Preparing:
		if away := s.awayOf(j.Shares); away != "" && !j.Stopping {
			j.Reason = &client.Reason{Code: codeAway, Text: away + ": the job goes on when that is back, and counts as lost when nothing is heard of it for too long"}
		}
	case job.Queued:
		if r, ok := s.machine.Why(j.ID, s.now()); ok {
			j.Reason = &client.Reason{Code: r.Code, Text: r.Text, Place: r.Place, Start: r.Start}
		}
	}
	return j
}

// codeAway is the reason of a job that runs where nothing is heard of it for now.
const codeAway = "away"

// awayOf names the first of the nodes that is away; in the loop.
func (s *Server) awayOf(all []client.Share) string {
	for _, x := range all {
		if s.machine.Away(x.Node) {
			return "node " + x.Node + " is away"
		}
	}
	return ""
}

// foreseen also says when a job is expected to start; in the loop.
func (s *Server) foreseen(l *live) client.Job {
	j := s.seen(l)
	if j.State == job.Queued && j.Reason != nil {
		if at, known := s.machine.Expect(j.ID, s.now()); known {
			j.Reason.Expected = at.UTC()
		}
	}
	return j
}

// Job answers one job, with why it waits.
func (s *Server) Job(ctx context.Context, id int64) (client.Job, error) {
	j, err := s.store.Job(ctx, id)
	if errors.Is(err, store.ErrNotFound) {
		return j, refuse(404, "there is no job %d: hora jobs --all lists those that there are", id)
	}
	if err != nil || j.State.Ended() {
		return j, err
	}
	err = s.do(func() {
		if l := s.live[id]; l != nil {
			attempts, tags := j.Attempts, j.Tags
			j = s.foreseen(l)
			j.Attempts, j.Tags = attempts, tags
			same := func(x client.Attempt) bool { return x.Number == l.attempt.Number }
			if a := l.attempt; a != nil && !l.beginning() && !slices.ContainsFunc(attempts, same) {
				j.Attempts = append(j.Attempts, *a) // it was written down since
			}
		}
	})
	return j, err
}

// Jobs lists jobs of some projects, of all with nil, the newest first, with why those wait that do.
func (s *Server) Jobs(
	ctx context.Context, states []job.State, projects []string, below int64, limit int,
) ([]client.Job, error) {
	all, err := s.store.Jobs(ctx, states, projects, below, limit)
	if err != nil {
		return nil, err
	}
	err = s.some(len(all), func(i int) {
		if l := s.live[all[i].ID]; l != nil && !all[i].State.Ended() {
			tags := all[i].Tags
			all[i] = s.seen(l)
			all[i].Tags = tags
		}
	})
	return all, err
}

// seenAtOnce is of how many jobs the loop is asked at once: a reason may look at all that wait, and decisions wait for
// it meanwhile.
const seenAtOnce = 20

// some does something for each of n in the loop, a few at a time.
func (s *Server) some(n int, f func(i int)) error {
	for from := 0; from < n; from += seenAtOnce {
		if err := s.do(func() {
			for i := from; i < min(from+seenAtOnce, n); i++ {
				f(i)
			}
		}); err != nil {
			return err
		}
	}
	return nil
}

// change does something to a job that has not ended, and answers it as it is then, once all that has become of it is
// written down. f answers what is to be, where it does not write itself.
func (s *Server) change(
	ctx context.Context, id int64, what string, f func(l *live) (text string, err error),
) (client.Job, error) {
	if _, err := s.Job(ctx, id); err != nil {
		return client.Job{}, err
	}
	var ended job.State
	var last *writing
	var bad error
	if err := s.do(func() {
		l := s.live[id]
		switch {
		case l == nil:
			bad = refuse(409, "job %d has ended: %s comes too late", id, what)
			return
		case l.finishing:
			bad = refuse(409, "job %d is just ending: look again in a moment", id)
			return
		}
		was, text := l.job.State, ""
		if text, bad = f(l); bad != nil {
			return
		}
		if text != "" {
			s.changed(ctx, l, what, text, was)
		}
		last = l.last
		if l.job.State.Ended() {
			ended = l.job.State
			delete(s.live, id)
		}
		s.dirty = true
	}); err != nil || bad != nil {
		return client.Job{}, errors.Join(bad, err)
	}
	if last != nil {
		if err := last.wait(ctx); err != nil {
			return client.Job{}, err
		}
	}
	s.announced()
	if ended != "" {
		s.meters.jobEnded(ended)
	}
	s.news.wake(id)
	s.news.wake(0)
	return s.Job(ctx, id)
}

// changed writes down what somebody has done to a job that was in another state; in the loop.
func (s *Server) changed(ctx context.Context, l *live, what, text string, was job.State) {
	j, attempt, stop := l.job, 0, l.stop
	if l.attempt != nil {
		attempt = l.attempt.Number
	}
	s.write(ctx, l, func(tx *sql.Tx) error {
		document, err := json.Marshal(j.Document)
		if err != nil {
			return err
		}
		if err := store.SetState(tx, &j); err != nil {
			return err
		}
		if err := store.SetDocument(tx, &j, document); err != nil { // its priority may be another
			return err
		}
		if j.State != was {
			if err := s.announce(tx, &j); err != nil {
				return err
			}
		}
		if attempt > 0 {
			if err := store.SetStop(tx, j.ID, attempt, stop); err != nil {
				return err
			}
		}
		return store.AddHappening(tx, j.ID, client.Happening{At: s.now().UTC(), Kind: what, Text: text})
	})
}

// Cancel ends a job.
func (s *Server) Cancel(ctx context.Context, id int64) (client.Job, error) {
	return s.change(ctx, id, "cancel", func(l *live) (string, error) {
		if l.attempt != nil {
			if l.stop != "" && l.stop != client.Stopped { // it is being drained, and is not to queue again
				l.stop = client.Stopped
				where := backend.RefOf(id, l.attempt.Number, l.job.Document.Pool, l.attempt.Shares)
				s.wg.Go(func() { s.kill(where, client.Stopped) }) // nobody waits for what it saves
				return "it was cancelled while it ended", nil
			}
			s.end(l, client.Stopped)
			return "", nil
		}
		s.machine.Withdraw(id)
		l.job.State, l.job.Ended, l.job.ExitCode, l.job.Text = job.Cancelled, s.now().UTC(), 143, "cancelled before it ran"
		return "it was cancelled before it ran", nil
	})
}

// Pause keeps a job from running; one that runs is drained first.
func (s *Server) Pause(ctx context.Context, id int64) (client.Job, error) {
	return s.change(ctx, id, "pause", func(l *live) (string, error) {
		switch {
		case l.job.State == job.Paused:
			return "", nil
		case l.stop == client.Stopped:
			return "", refuse(409, "job %d is being cancelled", id)
		case l.attempt != nil:
			if l.stop == client.Preempted {
				l.stop = client.Held
				return "it stays paused when it has ended", nil
			}
			s.end(l, client.Held)
			return "", nil
		}
		s.machine.Withdraw(id)
		l.job.State = job.Paused
		return "it was paused", nil
	})
}

// Resume lets a paused job queue.
func (s *Server) Resume(ctx context.Context, id int64) (client.Job, error) {
	return s.change(ctx, id, "resume", func(l *live) (string, error) {
		switch {
		case l.stop == client.Held:
			l.stop = client.Preempted
			return "it queues again when it has ended", nil
		case l.job.State != job.Paused:
			return "", nil
		}
		l.job.State = job.Queued
		s.machine.Submit(ask(l))
		return "it queues again", nil
	})
}

// Priority gives a job another priority.
func (s *Server) Priority(ctx context.Context, id int64, priority int) (client.Job, error) {
	return s.change(ctx, id, "priority", func(l *live) (string, error) {
		was := *l.job.Document.Priority
		l.job.Document.Priority = &priority
		s.machine.SetPriority(id, priority) // of one that runs too: it counts for who gives way
		return fmt.Sprintf("its priority is %d and was %d", priority, was), nil
	})
}

// Nodes lists the nodes.
func (s *Server) Nodes() ([]client.Node, error) {
	var all []client.Node
	at := map[string]int{}
	for _, n := range s.capacity() {
		at[n.Name] = len(all)
		all = append(all, client.Node{
			Name: n.Name, Pool: n.Pool, Slots: n.Slots, Free: n.Slots, Memory: n.Memory, GPUs: n.GPUs, Away: n.Closed,
			Warning: s.hosts.Shared(n.Name),
		})
	}
	err := s.do(func() {
		for _, l := range s.live {
			if l.attempt == nil {
				continue
			}
			for _, x := range l.attempt.Shares {
				if x.Slots = max(x.Slots, x.Held); x.Slots == 0 {
					continue
				}
				if i, there := at[x.Node]; there {
					all[i].Free -= x.Slots
					all[i].Jobs++
				}
			}
		}
	})
	return all, err
}

// About says how the server is.
func (s *Server) About(version string) (client.About, error) {
	a := client.About{Version: version, API: 1}
	err := s.do(func() {
		for _, l := range s.live {
			switch l.state() {
			case job.Queued:
				a.Queued++
			case job.Paused:
				a.Paused++
			default:
				a.Running++
			}
		}
	})
	return a, err
}

// unheardLonger is how long what runs on a node that is not there is waited for before the server ends without it.
const unheardLonger = 5 * time.Second

// CancelAll ends all jobs that run, and answers when none does or the context has ended. Those that wait go on waiting,
// also for the room that this makes, until the server has ended; so does one that was ending anyway and queues again.
// Where the context ends first they may start again. Those on a node that is away are told to end when that comes back,
// to this server or to the next one, and are not waited for: left says how many.
func (s *Server) CancelAll(ctx context.Context) (left int, err error) {
	defer func() {
		if err != nil {
			_ = s.do(func() { s.ending, s.dirty = false, true })
		}
	}()
	var ids []int64
	if err := s.do(func() {
		s.ending = true
		for id, l := range s.live {
			if l.attempt != nil {
				ids = append(ids, id)
			}
		}
	}); err != nil {
		return 0, err
	}
	for _, id := range ids {
		if _, err := s.Cancel(ctx, id); err != nil && ctx.Err() == nil {
			s.log.Warn("cancel a job", "job", id, "error", err)
		}
	}
	began, look := time.Now(), time.NewTicker(time.Second)
	defer look.Stop()
	for _, id := range ids {
		for {
			news := s.news.of(id)
			runs, gone := false, false
			if err := s.do(func() {
				l := s.live[id]
				if runs = l != nil && l.attempt != nil; runs {
					gone = s.hasNodes() && slices.ContainsFunc(l.attempt.Shares, s.notThere)
				}
			}); err != nil {
				return 0, err
			}
			if !runs {
				break
			}
			if gone && time.Since(began) > unheardLonger {
				left++
				break
			}
			select {
			case <-news:
			case <-look.C:
			case <-ctx.Done():
				return 0, ctx.Err()
			}
		}
	}
	return left, nil
}

// notThere says whether nothing is heard of the node of a part of a job; in the loop.
func (s *Server) notThere(x client.Share) bool {
	n, there := s.nodes[x.Node]
	return backend.Holds(x) && (!there || n.Closed)
}
