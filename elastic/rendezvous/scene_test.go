package rendezvous

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing/synctest"
	"time"

	"hora/elastic"
	"hora/internal/secret"
)

// scene is a whole elastic job in a synctest bubble: the coordinators are this package's own, with a journal in a
// folder, and so are the workers' clients; launcher, agents, training and network are models. Every chunk of a
// connection and every order is late by as much as the scene says, coordinator and launcher are killed when it says
// so, and what was on its way to or from them is lost.
type scene struct {
	dir  string
	key  secret.Secret
	lag  func() time.Duration // of a chunk on a connection
	late func() time.Duration // of an order
	slow func() time.Duration // from a process's start to its first word, and from a notice to the next commit

	mu     sync.Mutex // guards what follows; not held while anything is awaited
	now    *life      // nil while there is none
	away   bool       // there is no launcher
	orders []Order    // of all launchers
	heard  uint64     // words, by this launcher
	coming map[int]time.Time
	took   map[Process]bool
	epoch  uint64
	size   int // of that epoch
	hands  map[int]*hand
	costs  []Recovery // as this launcher has heard
	ends   []func()   // what agents have to tell the next launcher
	serial int        // of processes
	faults []string
	story  []string
	done   chan struct{}
	wg     sync.WaitGroup // all goroutines of the scene
}

// life is one coordinator's.
type life struct {
	server  *Server
	journal *Journal
	ln      *backlog
	dead    atomic.Bool // it reaches nobody any more, and what it writes is not kept
	kept    int64       // bytes of the journal then
	more    chan struct{}
	begin   chan struct{}
}

// backlog is where a coordinator listens.
type backlog struct {
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
}

func (b *backlog) Accept() (net.Conn, error) {
	select {
	case c := <-b.conns:
		return c, nil
	case <-b.done:
		return nil, net.ErrClosed
	}
}

func (b *backlog) Close() error   { b.once.Do(func() { close(b.done) }); return nil }
func (b *backlog) Addr() net.Addr { return &net.UnixAddr{Name: "scene", Net: "unix"} }

// hand is a worker's process.
type hand struct {
	rank    int
	process string
	host    string
	s       *scene
	end     context.CancelFunc // kills it
	killed  atomic.Bool
	asked   bool                               // to leave
	quit    atomic.Pointer[context.CancelFunc] // ends its Join

	news   chan Notice
	number uint64 // of the epoch that it works in; 0 while it joins. The scene's lock guards both
	size   int
	rankIn int
}

func newScene(dir string) *scene {
	still := func() time.Duration { return time.Millisecond }
	return &scene{
		dir: dir, key: secret.New(), lag: still, late: still,
		slow:   func() time.Duration { return 10 * time.Millisecond },
		coming: map[int]time.Time{}, took: map[Process]bool{}, hands: map[int]*hand{}, done: make(chan struct{}),
	}
}

func (s *scene) note(format string, a ...any) {
	at := fmt.Sprintf("%8.3fs ", time.Since(bubbleBegan).Seconds())
	s.story = append(s.story, at+fmt.Sprintf(format, a...))
}

// bubbleBegan is when the clock of every bubble starts.
var bubbleBegan = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

// serve starts a coordinator; at hears of every record that it writes, before that is acted on.
func (s *scene) serve(fresh bool, at func(l *life)) error {
	j, err := OpenJournal(s.dir, "job", fresh)
	if err != nil {
		return err
	}
	l := &life{
		journal: j, ln: &backlog{conns: make(chan net.Conn, 64), done: make(chan struct{})},
		more: make(chan struct{}, 1), begin: make(chan struct{}),
	}
	if at != nil {
		j.wrote = func() {
			if !l.dead.Load() {
				at(l)
			}
		}
	}
	words := uint64(0) // only the coordinator's goroutine counts
	word := func(f func()) {
		words++
		s.mu.Lock()
		defer s.mu.Unlock()
		if !l.dead.Load() && !s.away && words > s.heard {
			s.heard = words
			f()
		}
	}
	lived := make(chan struct{})
	cfg := Config{
		Secret: s.key, Job: "job", Size: 1, Min: 1, Max: 64, OnLoss: elastic.Continue, Journal: j, Reported: true,
		Away: 20 * time.Second, Begin: l.begin,
		OnLived: func() { close(lived) },
		OnOpen: func(epoch uint64, m []elastic.Place) {
			word(func() { s.epoch, s.size = epoch, len(m); s.note("epoch %d has %d", epoch, len(m)) })
		},
		OnMember: func(p Process) { word(func() { s.took[p] = true }) },
		OnLost: func(epoch uint64, rank int, host, reason string) {
			word(func() { s.note("epoch %d ended: rank %d: %s", epoch, rank, reason) })
		},
		OnRecovered: func(_ int, r Recovery) {
			word(func() { s.costs = append(s.costs, r) })
		},
		OnCause:    func(uint64, int, string, string) { word(func() {}) },
		OnDrain:    func(Process, int, string, string) { word(func() {}) },
		OnComplete: func(uint64) { word(func() {}) },
		OnSevered: func(p Process, _ time.Time, reason string, _ bool) {
			word(func() {
				select {
				case <-lived: // else it was dealt with then
					s.severed(p, reason)
				default:
				}
			})
		},
		OnFault: func(err error) {
			if !l.dead.Load() {
				word(func() { s.faults = append(s.faults, err.Error()) })
			}
		},
	}
	known := j.Orders()
	s.mu.Lock()
	l.server = Serve(context.Background(), l.ln, cfg)
	first := len(s.orders)
	s.now = l
	s.mu.Unlock()
	<-lived
	s.wg.Go(func() { s.tellOrders(l, known, first) })
	return nil
}

// tellOrders is the pipe from the launcher to a coordinator.
func (s *scene) tellOrders(l *life, known uint64, first int) {
	for i := 0; ; i++ {
		if i == first {
			close(l.begin)
		}
		for {
			s.mu.Lock()
			there := i < len(s.orders)
			s.mu.Unlock()
			if there {
				break
			}
			select {
			case <-l.more:
			case <-l.ln.done:
				return
			}
		}
		s.mu.Lock()
		o := s.orders[i]
		s.mu.Unlock()
		if o.N <= known {
			continue
		}
		if i >= first {
			time.Sleep(s.late())
		}
		if l.dead.Load() {
			return
		}
		l.server.Order(o)
	}
}

// tell gives an order; the lock is held.
func (s *scene) tell(o Order) {
	o.N = uint64(len(s.orders) + 1)
	s.orders = append(s.orders, o)
	s.note("order %+v", o)
	if s.now != nil {
		select {
		case s.now.more <- struct{}{}:
		default:
		}
	}
}

// fall is the instant of a coordinator's death, and of its launcher's too; what was acted on before is in the journal.
func (s *scene) fall(l *life, launcher bool) {
	if l.dead.Swap(true) {
		return
	}
	st, _ := l.journal.file.Stat()
	l.kept = st.Size()
	s.wg.Go(func() {
		s.mu.Lock()
		s.note("the coordinator dies, the launcher too: %v", launcher)
		s.away = s.away || launcher
		s.mu.Unlock()
		l.server.Close()
		_ = l.journal.file.Truncate(l.kept)
		l.journal.Close()
		s.mu.Lock()
		s.now = nil
		s.mu.Unlock()
	})
}

// rise starts the next coordinator, and the launcher's heir if that is gone.
func (s *scene) rise(at func(*life)) error {
	s.mu.Lock()
	if s.now != nil {
		s.mu.Unlock()
		return errors.New("there is one")
	}
	heir := s.away
	if heir {
		s.away, s.heard, s.costs = false, 0, nil
		s.took = map[Process]bool{}
		for _, o := range s.orders { // it lives through them again, and has not heard of those that came
			if o.Kind == OrderComing && s.hands[o.Rank] != nil {
				s.coming[o.Rank] = time.Now()
			}
		}
	}
	s.note("a coordinator starts, its launcher too: %v", heir)
	s.mu.Unlock()
	if err := s.serve(false, at); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	ends := s.ends
	s.ends = nil
	for _, f := range ends {
		f()
	}
	return nil
}

// tick is what a launcher does once a second.
func (s *scene) tick() {
	t := time.NewTicker(time.Second)
	defer t.Stop()
	for {
		select {
		case <-t.C:
			s.mu.Lock()
			s.came()
			s.mu.Unlock()
		case <-s.done:
			return
		}
	}
}

func (s *scene) came() {
	if s.away || s.now == nil {
		return
	}
	for _, rank := range slices.Sorted(maps.Keys(s.coming)) {
		h := s.hands[rank]
		if h == nil || s.took[Process{rank, h.process}] || time.Since(s.coming[rank]) > time.Minute {
			delete(s.coming, rank)
			s.tell(Order{Kind: OrderComing, Rank: rank})
		}
	}
}

// order has the launcher do something, once there is one.
func (s *scene) order(f func()) {
	for {
		s.mu.Lock()
		if !s.away {
			f()
			s.came()
			s.mu.Unlock()
			return
		}
		s.mu.Unlock()
		time.Sleep(10 * time.Millisecond)
	}
}

// start orders the process of a rank.
func (s *scene) start(rank int) {
	s.serial++
	if s.epoch > 0 {
		s.coming[rank] = time.Now()
		s.tell(Order{Kind: OrderComing, Rank: rank, Process: fmt.Sprintf("p%d", s.serial), Is: true, More: true})
	}
	h := &hand{
		rank: rank, process: fmt.Sprintf("p%d", s.serial), host: fmt.Sprintf("h%d", rank), s: s,
		news: make(chan Notice, 1024),
	}
	s.hands[rank] = h
	ctx, cancel := context.WithCancel(context.Background())
	h.end = cancel
	s.wg.Go(func() { h.run(ctx) })
}

// kill ends a process without a word.
func (s *scene) kill(rank int) {
	h := s.hands[rank]
	h.killed.Store(true)
	h.end()
}

// ended is an agent's word on a process.
func (s *scene) ended(h *hand, reason string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	tell := func() {
		delete(s.hands, h.rank)
		s.tell(Order{Kind: OrderExited, Rank: h.rank, Process: h.process, Host: h.host, Reason: reason})
	}
	if s.away || s.now == nil && s.away {
		s.ends = append(s.ends, tell)
		return
	}
	tell()
}

func (s *scene) severed(p Process, reason string) {
	if h := s.hands[p.Rank]; h != nil && h.process == p.Name && !h.killed.Load() {
		s.faults = append(s.faults, fmt.Sprintf("rank %d was lost: %s", p.Rank, reason))
	}
}

// dial connects to whatever coordinator is there.
func (s *scene) dial(ctx context.Context) (net.Conn, error) {
	s.mu.Lock()
	l := s.now
	s.mu.Unlock()
	if l == nil || l.dead.Load() {
		return nil, errors.New("connection refused")
	}
	ours, far := net.Pipe()
	near, theirs := net.Pipe()
	s.wg.Go(func() { s.carry(l, far, near) })
	s.wg.Go(func() { s.carry(l, near, far) })
	stop := context.AfterFunc(ctx, func() { ours.Close() })
	select {
	case l.ln.conns <- theirs:
		stop()
		return ours, nil
	case <-l.ln.done:
	case <-ctx.Done():
	}
	stop()
	far.Close()
	near.Close()
	return nil, errors.New("connection refused")
}

// carry is one direction of a connection.
func (s *scene) carry(l *life, from, to net.Conn) {
	defer from.Close()
	defer to.Close()
	gone := make(chan struct{})
	defer close(gone)
	s.wg.Go(func() {
		select {
		case <-l.ln.done: // it died: both ends hear so
			from.Close()
			to.Close()
		case <-gone:
		}
	})
	buf := make([]byte, 1<<16)
	for {
		n, err := from.Read(buf)
		if n > 0 {
			time.Sleep(s.lag())
			if l.dead.Load() {
				return
			}
			if _, err := to.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// run is a worker's life: it trains in one epoch after the other.
func (h *hand) run(ctx context.Context) {
	s := h.s
	time.Sleep(s.slow())
	reason, left := "", false
	defer func() {
		if h.killed.Load() {
			reason = "killed by signal 9"
		}
		if left {
			reason = "left the job: asked"
		}
		s.ended(h, reason)
	}()
	c, err := dialBy(ctx, "scene", s.dial, s.key, Hello{
		Job: "job", Rank: h.rank, Size: 1, Host: h.host, Process: h.process, OnNotice: h.notice,
	})
	if err != nil {
		reason = err.Error()
		return
	}
	defer c.Close()
	stop := context.AfterFunc(ctx, func() { c.Close() })
	defer stop()
	over := map[uint64]bool{}
	asked := false
	for {
		s.mu.Lock()
		h.number = 0
		s.mu.Unlock()
		var e Epoch
		if !asked {
			joining, end := context.WithCancel(ctx)
			h.quit.Store(&end)
			e, err = c.Join(joining, Member{Rank: h.rank, Host: h.host})
			end()
		}
		for len(h.news) > 0 {
			h.hear(<-h.news, over, &asked)
		}
		if asked {
			left = c.Drain(ctx, "asked") == nil
			return
		}
		if err != nil {
			reason = err.Error()
			if !h.killed.Load() {
				s.fault("rank %d: %v", h.rank, err)
			}
			return
		}
		s.mu.Lock()
		h.number, h.size, h.rankIn = e.Number, e.Size, e.Rank
		s.mu.Unlock()
		for !over[e.Number] && !asked {
			select {
			case n := <-h.news:
				h.hear(n, over, &asked)
			case <-ctx.Done():
				return
			}
		}
		time.Sleep(s.slow()) // to the next commit
	}
}

// notice hears from the coordinator. Who joins and is asked to leave gives that up.
func (h *hand) notice(n Notice) {
	h.news <- n
	if quit := h.quit.Load(); n.Kind == NoticeDrain && n.Reason != "" && quit != nil {
		(*quit)()
	}
}

func (h *hand) hear(n Notice, over map[uint64]bool, asked *bool) {
	switch n.Kind {
	case NoticeChanged, NoticeLost, NoticeParted:
		over[n.Epoch] = true
	case NoticeDrain:
		*asked = n.Reason != ""
	case NoticeCut:
		if !h.killed.Load() {
			h.s.fault("rank %d was cut off: %s", h.rank, n.Reason)
		}
		over[n.Epoch] = true
	}
}

func (s *scene) fault(format string, a ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = append(s.faults, fmt.Sprintf(format, a...))
}

// formed waits until all processes work in one epoch of their number.
func (s *scene) formed(size int, within time.Duration) error {
	for end := time.Now().Add(within); ; time.Sleep(20 * time.Millisecond) {
		synctest.Wait() // for what this moment brings
		s.mu.Lock()
		number, good, size := uint64(0), size < 0 || len(s.hands) == size, len(s.hands)
		for _, h := range s.hands {
			if number == 0 {
				number = h.number
			}
			good = good && h.number > 0 && h.number == number && h.size == size
		}
		faults := s.faults
		s.mu.Unlock()
		switch {
		case len(faults) > 0:
			return fmt.Errorf("%s\n%s", strings.Join(faults, "; "), s.told())
		case good:
			return nil
		case time.Now().After(end):
			return fmt.Errorf("no world of %d after %v\n%s", size, within, s.told())
		}
	}
}

// told is what has happened, and where everybody stands.
func (s *scene) told() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var b strings.Builder
	for _, line := range s.story {
		b.WriteString(line + "\n")
	}
	for _, rank := range slices.Sorted(maps.Keys(s.hands)) {
		h := s.hands[rank]
		fmt.Fprintf(&b, "rank %d (%s) is in epoch %d of %d\n", rank, h.process, h.number, h.size)
	}
	return b.String()
}

// close ends everything.
func (s *scene) close() {
	close(s.done)
	s.mu.Lock()
	s.away = true
	l := s.now
	for _, h := range s.hands {
		h.killed.Store(true)
		h.end()
	}
	s.mu.Unlock()
	if l != nil {
		l.dead.Store(true)
		l.server.Close()
		l.journal.Close()
	}
	s.wg.Wait()
}
