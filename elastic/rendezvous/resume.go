package rendezvous

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"time"

	"hora/elastic"
	"hora/internal/wire"
)

// A coordinator with a Journal can be started again when it was killed. Its clients come back within the silence that
// makes a worker lost, are known by their sessions, and ask again what was not answered; requests are numbered, so that
// what had been done is answered and not done twice.

// comeBack connects again and asks anew what has not been answered; false when that is not to be, or was in vain.
func (c *Client) comeBack() bool {
	c.mu.Lock()
	window := c.window
	if c.err != nil {
		window = 0
	}
	old := c.out
	c.mu.Unlock()
	if window <= 0 || c.dial == nil {
		return false
	}
	old.close()
	ctx, cancel := context.WithTimeout(context.Background(), window)
	defer cancel()
	go func() {
		select {
		case <-c.ended:
			cancel()
		case <-ctx.Done():
		}
	}()
	pause := firstPause
	for {
		conn, err := c.dial(ctx)
		if err == nil {
			if err = c.prove(ctx, conn); err == nil {
				return c.takeUp(conn)
			}
			conn.Close()
		}
		if !mayPass(err) {
			return false
		}
		select {
		case <-ctx.Done():
			return false
		case <-time.After(pause):
			pause = min(2*pause, 100*time.Millisecond)
		}
	}
}

// takeUp goes on over a new connection.
func (c *Client) takeUp(conn net.Conn) bool {
	me := c.me
	me.returns = true
	out := newOutbox()
	out.put(me.message())
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		conn.Close()
		return false
	}
	for _, id := range slices.Sorted(maps.Keys(c.pending)) {
		out.put(c.pending[id].message)
	}
	if c.cost != nil {
		out.put(c.cost)
	}
	c.conn, c.out = conn, out
	c.wg.Add(1)
	go c.write(conn, out)
	return true
}

// errForgotten is for a client that the job has lost.
var errForgotten = errors.New("this worker was away from the coordinator for too long and counts as lost")

// greet takes in a connection that has proved the secret: a new worker, or one that comes back.
func (d *desk) greet(e connected) {
	c := e.c
	if e.worker == 0 && c.hello.returns {
		old := d.sessions[c.hello.session]
		if old == nil || old.gone || old.doomed != "" || d.workers[old.worker] != old {
			n := Notice{Kind: NoticeCut, Rank: -1, Reason: errForgotten.Error()}
			d.send(c, n.message())
			c.out.close()
			c.gone = true
			return
		}
		d.replace(old, c)
		return
	}
	d.last++
	c.worker, c.since = d.last, e.at
	d.workers[c.worker] = c
	d.sessions[c.hello.session] = c
	if r := c.hello.Rank; r >= 0 {
		d.inherit(c, d.started[r])
		d.started[r] = c
	}
	d.welcome(c)
	if c.asked != "" || c.stays {
		d.askToLeave(c)
	}
	if a, ok := d.asks[c.hello.Rank]; ok && a.of(c.hello.Process) {
		delete(d.asks, c.hello.Rank)
		c.asked = a.reason
		d.askToLeave(c)
	}
}

// inherit has a connection take over what its process was asked over one before, which broke before the process had
// heard that it is in: it then comes as a new one.
func (d *desk) inherit(c, old *conn) {
	if old == nil || old.joined || c.hello.Process == "" || old.hello.Process != c.hello.Process {
		return
	}
	c.asked, c.stays = old.asked, old.stays
	old.gone = true
	d.forget(old)
	old.hangUp()
}

// replaced says whether an event comes from a connection that another one has taken the place of.
func replaced(e any) bool {
	switch e := e.(type) {
	case received:
		return e.c.replaced
	case gone:
		return e.c.replaced
	case late:
		return e.c.replaced
	case doomed:
		return e.c.replaced
	}
	return false
}

// welcome says that c is in, and for how long it may try to come back should its connection break.
func (d *desk) welcome(c *conn) {
	window := max(d.s.cfg.Silence, d.s.cfg.Away)
	if d.s.cfg.Journal == nil {
		window = 0 // a coordinator that cannot be started again
	}
	d.send(c, message(kindWelcome, 8, func(b []byte) []byte { return wire.AppendI64(b, int64(window)) }))
}

// replace lets c speak for the worker that old spoke for, and tells it what it may have missed.
func (d *desk) replace(old, c *conn) {
	c.worker, c.member, c.since = old.worker, old.member, old.since
	c.joinID, c.lastJoin, c.doneID, c.joined, c.rank, c.left = old.joinID, old.lastJoin, old.doneID, old.joined,
		old.rank, old.left
	c.halt, c.asked, c.stays, c.results, c.gets = old.halt, old.asked, old.stays, old.results, old.gets
	c.seen.Store(true)
	old.gone, old.replaced = true, true
	old.hangUp()
	d.workers[c.worker] = c
	d.sessions[c.hello.session] = c
	if r := c.hello.Rank; r >= 0 && d.started[r] == old {
		d.started[r] = c
	}
	if c.rank >= 0 && c.rank < len(d.byRank) && d.byRank[c.rank] == old {
		d.byRank[c.rank] = c
	}
	for _, ws := range d.waits {
		for i := range ws {
			if ws[i].c == old {
				ws[i].c = c
			}
		}
	}
	if h, ok := d.held[c.hello.Rank]; ok && h.c == old {
		h.c = c
		d.held[c.hello.Rank] = h
	}
	d.welcome(c)
	if c.asked != "" || c.stays {
		d.askToLeave(c)
	}
	if c.rank < 0 || c.rank >= len(d.byRank) || d.byRank[c.rank] != c {
		return
	}
	for _, n := range d.news {
		d.send(c, n.message())
	}
}

// repeated answers a request that was answered before, or waits already; it is false for a new one.
func (d *desk) repeated(c *conn, r *request) bool {
	switch r.kind {
	case kindJoin:
		h, held := d.held[c.hello.Rank]
		switch {
		case held && h.c == c && h.req.id == r.id: // it waits to be let in
		case r.id != c.lastJoin:
			return false
		case c.joinID == r.id: // it waits
		case c.rank >= 0 && c.rank < len(d.byRank) && d.byRank[c.rank] == c:
			d.sendEpoch(c, r.id)
		default:
			d.send(c, failure(r.id, d.machine.Over() != "", fmt.Sprintf("this request was refused: %s", d.machine.Over())))
		}
		return true
	case kindFinish:
		return c.doneID == r.id
	case kindGet:
		_, waits := c.gets[r.id]
		return waits
	case kindAdd, kindDelete:
		n, ok := c.results[r.id]
		if ok {
			d.send(c, number(r.id, n))
		}
		return ok
	case kindLeave, kindDrain:
		if c.left {
			d.send(c, number(r.id, 0))
		}
		return c.left
	}
	return false
}

// keptResults is how many results of a client are kept to be repeated: more than it waits for at a time.
const keptResults = 256

// result answers with a number that cannot be worked out again.
func (d *desk) result(c *conn, id uint64, n int64) {
	if d.s.cfg.Journal != nil {
		if c.results == nil {
			c.results = map[uint64]int64{}
		}
		c.results[id] = n
		delete(c.results, id-min(id, keptResults))
	}
	d.send(c, number(id, n))
}

// remember keeps what the present epoch's members were told, for one that comes back.
func (d *desk) remember(n Notice) {
	if d.s.cfg.Journal != nil {
		d.news = append(d.news, n)
	}
}

// askToLeave tells a worker that it is to leave, or may stay.
func (d *desk) askToLeave(c *conn) {
	n := Notice{Kind: NoticeDrain, Epoch: d.machine.Epoch(), Rank: c.rank, Host: c.member.Host, Reason: c.asked}
	d.send(c, n.message())
}

// sendEpoch answers a Join.
func (d *desk) sendEpoch(c *conn, id uint64) {
	n := len(d.members)
	want := d.wanted(&d.members[c.rank], n)
	d.send(c, message(kindEpoch, 48+len(want)*len(d.encoded[c.rank])*5/4, func(b []byte) []byte {
		b = wire.AppendU64(b, id)
		b = wire.AppendU64(b, d.machine.Epoch())
		b = wire.AppendI64(b, int64(c.rank))
		b = wire.AppendI64(b, int64(n))
		return d.appendMembers(b, want)
	}))
}

// hangUp ends the connection, where there is one.
func (c *conn) hangUp() {
	if c.net != nil {
		c.net.Close()
	}
}

// rival returns another worker that was started as the same rank and has not ended, as far as is known. Its connection
// may have broken already: it is lost only when the launcher has said why, or has had the time to.
func (d *desk) rival(c *conn) *conn {
	apart := d.s.cfg.Journal != nil && d.s.cfg.Reported
	if c.hello.Rank < 0 || !apart && d.s.cfg.OnLoss != elastic.Replace {
		return nil
	}
	for _, o := range d.workers {
		if o != c && o.hello.Rank == c.hello.Rank && o.joined && !o.left {
			return o
		}
	}
	return nil
}

// early holds the Join of a worker whose predecessor's end is not known yet: a launcher starts one only after the
// other's end, but what it says comes another way than the workers, and so does the end of a connection.
func (d *desk) early(c *conn, r *request) bool {
	rank := c.hello.Rank
	if _, held := d.held[rank]; held || c.joined || d.rival(c) == nil {
		return false
	}
	d.held[rank] = received{c: c, req: *r}
	s := d.s
	time.AfterFunc(2*time.Second, func() { s.post(unheld{c}) })
	return true
}

// letIn lets such a worker join.
func (d *desk) letIn(rank int) {
	e, ok := d.held[rank]
	if ok && !e.c.gone {
		d.join(e.c, &e.req)
	}
	delete(d.held, rank)
}
