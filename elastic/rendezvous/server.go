package rendezvous

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"hora/elastic"
	"hora/event"
	"hora/internal/secret"
	"hora/internal/wire"
)

// Config is a coordinator's. The zero value of every field but Secret and Size works.
type Config struct {
	Secret secret.Secret
	Job    string
	Host   string // this host's name in messages
	Size   int    // how many members make the first epoch
	Min    int    // see elastic.Config
	Max    int
	OnLoss elastic.Policy
	Resets int // see elastic.Config
	// Strangers hears of refused connections, here and at the workers' own listeners; nil: nobody does.
	Strangers *secret.Strangers
	Begin     <-chan struct{} // no connection is accepted before it is closed; nil accepts at once
	// where the job's story is kept, so that a coordinator that was killed can be started again; may be nil
	Journal *Journal
	Away    time.Duration // how long workers may stay away without a coordinator, if longer than Silence
	OnLived func()        // called once all that the Journal holds has been told again; may be nil
	Silence time.Duration // a worker that says nothing for so long is lost; 0 means the constant Silence
	// Reported says that somebody calls Exited for every worker that ends. A connection that breaks then waits
	// reportGrace for that better reason.
	Reported bool
	// OnOpen, when set, is called from the coordinator's goroutine when an epoch opens. It must not block.
	OnOpen func(epoch uint64, members []elastic.Place)
	// OnFault, when set, is called likewise, once, when the Journal cannot be written any more.
	OnFault func(error)
	// OnMember, when set, is called likewise for every worker that becomes a member.
	OnMember func(p Process)
	// OnDrain, when set, is called likewise when a worker leaves on purpose before the work is done.
	OnDrain func(p Process, rank int, host, reason string)
	// OnRecovered, when set, is called likewise when a survivor of a lost epoch trains again.
	OnRecovered func(rank int, r Recovery)
	// OnProgress, when set, is called likewise with what a member that was asked to tells about itself.
	OnProgress func(p event.Progress)
	// OnWait, when set, is called likewise from time to time while workers wait for an epoch, and once when they do no
	// more.
	OnWait func(Wait)
	// OnComplete, when set, is called likewise when every member of an epoch has done its work.
	OnComplete func(epoch uint64)
	// OnLost, when set, is called likewise when an epoch ends by a loss, and for each member that is lost before the
	// next one opens.
	OnLost func(epoch uint64, rank int, host, reason string)
	// OnCause, when set, is called likewise when Exited says why a worker ended whose loss the others were told of as
	// that of its connection, since this word had not come in time.
	OnCause func(epoch uint64, rank int, host, reason string)
	// OnSevered, when set, is called likewise when a worker is lost whose end nobody has reported: its process may
	// still be there. since is when it connected; silent tells a worker that said nothing from a broken connection.
	// Such a one is ended by whoever hears this, and the others go on when Exited says so, or a second later: until
	// then it may wake up and write to memory that it shares with them.
	OnSevered func(p Process, since time.Time, reason string, silent bool)
}

// Process is a worker's as its launcher knows it.
type Process struct {
	Rank int    // that it was started as
	Name string // see Hello.Process
}

// Wait is what workers wait for who have joined.
type Wait struct {
	Epoch   uint64        // the last one
	For     time.Duration // since the first of them joined
	Joined  int           // how many wait; 0 when nobody does any more
	More    int           // how many are needed yet
	Missing []int         // ranks among those, up to missingTold
	Beside  bool          // the last epoch is still open: its members join again after their next commit
	// members of the last epoch that have not joined again, and workers on their way that the others are to meet, by
	// the ranks that they were started as
	Behind, Coming []int
}

const missingTold = 64

const (
	proofTimeout = 10 * time.Second
	// welcomeTimeout is how long who has proved itself waits to be heard: thousands may come at once.
	welcomeTimeout = 30 * time.Second
	// reportGrace is more than an agent takes to report an end where a child of the worker's holds its output (0.1 s),
	// and less than operations wait for the word on a lost rank (0.3 s).
	reportGrace = 250 * time.Millisecond
	endGrace    = 700 * time.Millisecond // for the end of a silent worker that may be out of reach
)

// Purpose is what a connection to the coordinator says it is for while it proves the secret.
const Purpose = "rendezvous"

// Server is a running coordinator.
type Server struct {
	cfg    Config
	ln     net.Listener
	cancel context.CancelFunc
	events chan any // to the owner goroutine: received, gone, exited, lateGone, func(*desk)
	wg     sync.WaitGroup
	once   sync.Once
	closed chan struct{}

	mu        sync.Mutex // guards conns
	conns     map[*conn]struct{}
	sentBytes atomic.Int64
	gotBytes  atomic.Int64
}

// conn is one worker's connection. worker, place and the like belong to the owner goroutine.
type conn struct {
	net  net.Conn
	out  *outbox
	seen atomic.Bool // something arrived since the last tick

	worker elastic.Worker
	hello  Hello
	member Member
	joinID uint64 // the request to answer when an epoch opens; 0 when none
	doneID uint64 // the Finish to answer when all members have finished, or the epoch is over; 0 when none
	joined bool
	rank   int // in the present epoch; -1 otherwise
	left   bool
	quiet  int       // ticks without a word
	since  time.Time // when it connected
	halt   Halt      // what holds its process, its host says
	doomed string    // why it is lost, while its process is being ended

	replaced bool             // another connection speaks for its worker
	asked    string           // why it was asked to leave
	stays    bool             // it was asked, and may stay after all
	lastJoin uint64           // its last Join
	results  map[uint64]int64 // of its last requests whose results cannot be worked out again
	gets     map[uint64]string
	gone     bool
}

type received struct {
	c    *conn
	req  request
	body []byte // as it came
}
type (
	connected struct {
		c      *conn
		at     time.Time
		worker elastic.Worker // that a journal says it is
	}
	doomed struct {
		c      *conn
		reason string
	}
	unheld struct{ c *conn } // its Join has been held for long enough
	gone   struct {
		c      *conn
		reason string
	}
)

// late follows a gone after reportGrace.
type late struct {
	c      *conn
	reason string
}
type drained struct {
	rank    int
	process string // see Hello
	reason  string
	n       uint64 // see Order
}
type exited struct {
	rank         int
	process      string // see Hello
	host, reason string
	n            uint64
}
type absent struct {
	rank int
	is   bool
	n    uint64 // see Order
}
type coming struct {
	rank     int
	process  string // see Hello
	is, more bool
	n        uint64 // see Order
}
type halted struct {
	rank int
	halt Halt
}

// Serve runs a coordinator on ln until ctx ends or Close. It owns ln.
func Serve(ctx context.Context, ln net.Listener, cfg Config) *Server {
	if cfg.Silence <= 0 {
		cfg.Silence = Silence
	}
	ctx, cancel := context.WithCancel(ctx)
	s := &Server{
		cfg: cfg, ln: ln, cancel: cancel, events: make(chan any, 256), closed: make(chan struct{}),
		conns: map[*conn]struct{}{},
	}
	s.wg.Add(2)
	go s.accept(ctx)
	go s.own(ctx)
	return s
}

// Addr returns where the coordinator listens.
func (s *Server) Addr() net.Addr { return s.ln.Addr() }

// Bytes counts what was received from and sent to workers after their proofs.
func (s *Server) Bytes() (received, sent int64) { return s.gotBytes.Load(), s.sentBytes.Load() }

// Exited tells the coordinator that the process of a rank has ended: reason is "" for success, else what the others
// should hear ("killed by signal 9"). The process is what its worker's Hello calls it; "" is whichever speaks for the
// rank.
func (s *Server) Exited(rank int, process, host, reason string) {
	s.post(exited{rank, process, host, reason, 0})
}

// Halted tells the coordinator what holds the process of a rank, or that it runs again. One that somebody holds on
// purpose is waited for; of another the reason of its loss names that.
func (s *Server) Halted(rank int, h Halt) { s.post(halted{rank, h}) }

// Absent tells the coordinator that no process is there as a rank, nor about to be, or that there is one after all: see
// elastic.Absent.
func (s *Server) Absent(rank int, is bool) { s.post(absent{rank, is, 0}) }

// Coming tells the coordinator that a process is being started as a rank beside the present epoch, or that this one is
// waited for no longer: see elastic.Coming. The members hear at once of one that is one more.
func (s *Server) Coming(rank int, process string, is, more bool) {
	s.post(coming{rank, process, is, more, 0})
}

// Drain asks the worker that was started as rank to commit and leave: it hears NoticeDrain. -1 asks all of them, since
// the job is being ended: no epoch follows, and who waits for one is told so. Without a reason it takes that back. The
// process is as for Exited: its successor is not asked.
func (s *Server) Drain(rank int, process, reason string) { s.post(drained{rank, process, reason, 0}) }

// post hands an event to the owner; it is false once the server is closed. That is asked first: Close ends the
// connections, and that they ended is no event that a journal may hold.
func (s *Server) post(e any) bool {
	select {
	case <-s.closed:
		return false
	default:
	}
	select {
	case s.events <- e:
		return true
	case <-s.closed:
		return false
	}
}

// Close ends every connection and joins the server's goroutines.
func (s *Server) Close() error {
	s.once.Do(func() {
		s.cancel()
		s.ln.Close()
		close(s.closed)
		s.mu.Lock()
		cs := s.conns
		s.conns = nil
		s.mu.Unlock()
		for c := range cs {
			c.net.Close()
			c.out.close()
		}
	})
	s.wg.Wait()
	return nil
}

func (s *Server) accept(ctx context.Context) {
	defer s.wg.Done()
	stop := context.AfterFunc(ctx, func() { s.ln.Close() })
	defer stop()
	if s.cfg.Begin != nil {
		select {
		case <-s.cfg.Begin:
		case <-s.closed:
			return
		case <-ctx.Done():
			return
		}
	}
	me := secret.Identity{Purpose: Purpose, Job: s.cfg.Job, Rank: secret.Anyone, Peer: secret.Anyone, Host: s.cfg.Host}
	gate, err := secret.NewGate(s.ln, secret.GateConfig{
		Secret: s.cfg.Secret, Host: s.cfg.Host, Accept: secret.Expect(me), Timeout: proofTimeout,
		Unproven: secret.Room(s.cfg.Size),
		Where:    "at the coordinator's port", Strangers: s.cfg.Strangers,
		Enter: func(_ context.Context, nc net.Conn, _ secret.Identity) { s.enter(nc) },
	})
	if err != nil {
		return // without a secret nobody could prove it
	}
	select {
	case <-s.closed:
	case <-ctx.Done():
	}
	gate.Close()
}

// enter takes in a connection that has proved the secret.
func (s *Server) enter(nc net.Conn) {
	c := &conn{net: nc, out: newOutbox(), rank: -1}
	if !s.keep(c) {
		nc.Close()
		return
	}
	go s.serve(c)
}

// keep records a connection so that Close ends it, and counts its goroutine.
func (s *Server) keep(c *conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conns == nil {
		return false
	}
	s.conns[c] = struct{}{}
	s.wg.Add(1)
	return true
}

func (s *Server) drop(c *conn) {
	c.net.Close()
	s.mu.Lock()
	delete(s.conns, c)
	s.mu.Unlock()
}

// serve runs a connection's reading goroutine: the hello, then requests until it breaks.
func (s *Server) serve(c *conn) {
	defer s.wg.Done()
	defer s.drop(c)
	rd := bufio.NewReaderSize(c.net, 1024)
	kind, body, err := wire.ReadMessage(rd, nil, maxText)
	if err != nil || kind != kindHello {
		return
	}
	req, err := decodeRequest(kind, body)
	if err != nil {
		return
	}
	c.hello = req.hello
	if !s.post(connected{c: c, at: time.Now()}) {
		return
	}
	s.wg.Add(1)
	go func() {
		defer s.wg.Done()
		if c.out.run(c.net, 0, nil) != nil {
			c.net.Close()
		}
	}()
	reason := s.read(c, rd)
	s.post(gone{c, reason})
	c.out.close()
}

// read passes requests to the owner until the connection ends, and says how it ended.
func (s *Server) read(c *conn, rd *bufio.Reader) string {
	for {
		kind, body, err := wire.ReadMessage(rd, nil, maxMessage)
		if err != nil {
			return broken(err)
		}
		c.seen.Store(true)
		s.gotBytes.Add(int64(len(body)) + wire.MessageHeaderBytes)
		if kind == kindBeat {
			continue
		}
		if kind == kindRefused {
			r, err := decodeRefused(body)
			if err != nil {
				return fmt.Sprintf("sent a broken message: %v", err)
			}
			s.cfg.Strangers.Add(r)
			continue
		}
		req, err := decodeRequest(kind, body)
		if err != nil {
			return fmt.Sprintf("sent a broken message: %v", err)
		}
		if !s.post(received{c, req, body}) {
			return "coordinator closed"
		}
	}
}
