package rendezvous

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"syscall"
	"time"

	"hora/elastic"
)

// How workers end: by their word, by their connection, by their launcher's report, or by silence.

// gone handles the end of a connection.
func (d *desk) gone(c *conn, reason string) {
	c.gone = true
	for id, key := range c.gets {
		d.unwait(c, id, key)
	}
	if !c.joined || c.left {
		if !c.left && c.asked != "" && d.started[c.hello.Rank] == c && c.hello.Rank >= 0 {
			d.asks[c.hello.Rank] = ask{c.hello.Process, c.asked} // it may not have heard so, and dials anew
		}
		d.forget(c)
		return
	}
	if r, ok := d.reports[c.hello.Rank]; ok && c.hello.Rank >= 0 {
		delete(d.reports, c.hello.Rank)
		d.finish(c, r)
		d.do(d.machine.Step(elastic.Finished{Rank: c.hello.Rank}))
		return
	}
	if d.s.cfg.Reported {
		s := d.s
		time.AfterFunc(reportGrace, func() { s.post(late{c, reason}) })
		return
	}
	d.finish(c, reason)
}

// finish tells the machine how a worker ended; "" is success. Its successor may join then.
func (d *desk) finish(c *conn, reason string) {
	if d.workers[c.worker] == nil {
		return
	}
	defer d.letIn(c.hello.Rank)
	if reason == "" {
		d.do(d.machine.Step(elastic.Leave{Worker: c.worker}))
	} else {
		epoch := d.machine.Epoch() // who waits already may go on by this loss
		acts := d.machine.Step(elastic.Lost{Worker: c.worker, Reason: reason, Rank: c.rank, Host: c.member.Host})
		told := slices.ContainsFunc(acts, func(a elastic.Action) bool { _, is := a.(elastic.Ended); return is })
		if !told && d.s.cfg.OnLost != nil && d.member(c) {
			d.s.cfg.OnLost(epoch, c.rank, c.member.Host, reason) // the others knew before
		}
		d.do(acts)
	}
	d.forget(c)
}

// sever takes the loss of a worker whose end nobody has reported.
func (d *desk) sever(c *conn, reason string) {
	if c.doomed != "" && d.workers[c.worker] != nil {
		c.gone = true
		c.hangUp()
		d.finish(c, c.doomed)
		return
	}
	if d.workers[c.worker] == nil {
		return
	}
	if c.hello.Rank >= 0 && d.member(c) {
		d.unsaid[c.hello.Rank] = place{d.machine.Epoch(), c.rank, c.member.Host}
	}
	d.finish(c, reason)
	if d.s.cfg.OnSevered != nil && c.hello.Rank >= 0 {
		d.s.cfg.OnSevered(c.hello.process(), c.since, reason, false)
	}
}

// doom begins the loss of a silent worker: its process is ended before the others go on.
func (d *desk) doom(c *conn, reason string) {
	if d.s.cfg.OnSevered == nil || c.hello.Rank < 0 {
		c.gone = true
		c.hangUp()
		d.finish(c, reason)
		return
	}
	c.doomed = reason
	d.s.cfg.OnSevered(c.hello.process(), c.since, reason, true)
	s := d.s
	time.AfterFunc(endGrace, func() { s.post(late{c, reason}) })
}

func (d *desk) forget(c *conn) {
	delete(d.workers, c.worker)
	if d.sessions[c.hello.session] == c {
		delete(d.sessions, c.hello.session)
	}
	if d.started[c.hello.Rank] == c {
		delete(d.started, c.hello.Rank)
	}
	if d.member(c) {
		d.byRank[c.rank] = nil
	}
}

// exited handles a launcher's report. The process may still be connected for an instant, may never have been, or may
// have gone already.
func (d *desk) exited(e exited) {
	c := d.started[e.rank]
	late := c != nil && e.process != "" && c.hello.Process != "" && c.hello.Process != e.process
	switch { // its successor may have been quicker than this report
	case late:
		c = d.process(e.rank, e.process)
	case c != nil && !c.joined && d.rival(c) != nil:
		c = d.rival(c)
	}
	defer d.letIn(e.rank)
	if d.asks[e.rank].of(e.process) {
		delete(d.asks, e.rank)
	}
	if c != nil && !c.joined {
		c.asked, c.stays = "", false // what is asked of its successor is another matter
	}
	// One that has ended is not on its way, whether it ever came or not.
	d.do(d.machine.Step(elastic.Coming{Rank: e.rank, Process: e.process}))
	if was, ok := d.unsaid[e.rank]; ok {
		delete(d.unsaid, e.rank)
		if e.reason != "" && d.s.cfg.OnCause != nil {
			d.s.cfg.OnCause(was.epoch, was.rank, was.host, e.reason)
		}
	}
	if c != nil && c.left && d.started[e.rank] == c {
		delete(d.started, e.rank) // what is said to the rank from now on is for its successor
	}
	switch {
	case e.rank < 0:
		return
	case c != nil && c.joined && !c.left && e.reason == "" && !c.gone:
		d.reports[e.rank] = "" // its last words are still on the way: gone follows
		return
	case c != nil && c.joined && !c.left:
		c.gone = true
		c.hangUp()
		d.finish(c, e.reason)
	case late:
		return // it had left, and another is the rank now
	case e.reason != "":
		d.do(d.machine.Step(elastic.Lost{Reason: e.reason, Rank: e.rank, Host: e.host}))
	}
	if e.reason == "" && !late {
		d.do(d.machine.Step(elastic.Finished{Rank: e.rank}))
	}
}

// process returns the worker of a process that was started as a rank before the present one; nil when it has left and
// gone.
func (d *desk) process(rank int, name string) *conn {
	for _, o := range d.workers {
		if o.hello.Rank == rank && o.hello.Process == name {
			return o
		}
	}
	return nil
}

// watch counts the ticks of silence of every member.
func (d *desk) watch(paused bool) {
	for _, c := range d.workers {
		if c.seen.Swap(false) || paused || c.gone || !c.joined || c.doomed != "" || c.halt.Excused() {
			c.quiet = 0
			continue
		}
		if c.quiet++; c.quiet > 10 {
			state := c.halt.String()
			if state == "" {
				state = "stuck, or cut off"
			}
			d.handle(doomed{c, fmt.Sprintf("silent for %v (HORA_PEER_TIMEOUT, hora run --peer-timeout): %s", d.s.cfg.Silence, state)})
		}
	}
}

// halted hears what holds a worker's process. The others wait for one that somebody holds on purpose, and so do their
// links.
func (d *desk) halted(e halted) {
	c := d.started[e.rank]
	if c == nil {
		return
	}
	was := c.halt
	c.halt = e.halt
	if was.Excused() != e.halt.Excused() {
		d.tellHalt(c)
	}
}

// tellHalt tells the members of an open epoch whether one of them is held on purpose.
func (d *desk) tellHalt(c *conn) {
	if !d.machine.Open() || c.rank < 0 || c.rank >= len(d.byRank) || d.byRank[c.rank] != c {
		return
	}
	n := Notice{Kind: NoticeHeld, Epoch: d.machine.Epoch(), Rank: c.rank, Host: c.member.Host}
	if c.halt.Excused() {
		n.Reason = c.halt.String()
	}
	d.tell(n)
}

// tellWait says for whom an epoch waits.
func (d *desk) tellWait(now time.Time) {
	if d.s.cfg.OnWait == nil {
		return
	}
	m := d.machine
	joined := m.Waiting()
	if m.Over() != "" || joined == 0 {
		if !d.waiting.IsZero() {
			d.waiting = time.Time{}
			d.s.cfg.OnWait(Wait{Epoch: m.Epoch()})
		}
		return
	}
	if d.waiting.IsZero() || d.beside != m.Open() {
		d.waiting, d.beside = now, m.Open()
	}
	w := Wait{Epoch: m.Epoch(), For: now.Sub(d.waiting), Joined: joined, Beside: d.beside}
	w.Missing, w.More = m.Missing(missingTold)
	w.Behind, w.Coming = m.Awaited()
	d.s.cfg.OnWait(w)
}

// broken says in a message's words how a connection ended.
func broken(err error) string {
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrClosedPipe):
		return "closed its connection without leaving"
	case errors.Is(err, syscall.ECONNRESET):
		return "connection reset"
	}
	return err.Error()
}
