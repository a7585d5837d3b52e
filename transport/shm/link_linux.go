package shm

import (
	"fmt"
	"net"
	"os"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"hora/transport"
)

// Link is one rank's memory shared with the other ranks of its host: a mesh of
// those ranks, numbered by seat; its errors name group ranks.
//
// Close ends the link at once, but the memory stays mapped until nothing refers to
// the Board any more: an operation that runs while another goroutine closes the
// link ends with an error, never with a fault or with somebody else's bytes.
type Link struct {
	cfg            Config
	seat, seats    int
	oversubscribed bool
	hosts          []int

	segment *segment
	board   *transport.Board
	regions *regions
	post    post
	desk    desk
	peeker  peeker

	memfd     int
	bells     []int // before start; then post.bells owns them
	pidfds    []int // before start; then processes owns them
	processes []*os.File
	conns     []*net.UnixConn // leader: by seat; others: conns[0]

	closing chan struct{}
	failed  chan struct{} // closed when the board has failed
	missed  chan struct{} // closed when a rank was lost
	miss    sync.Once
	once    sync.Once
	work    sync.WaitGroup
}

func newLink(cfg Config) *Link {
	l := &Link{
		cfg: cfg, seat: cfg.seat(), seats: len(cfg.Ranks), memfd: -1,
		hosts: make([]int, len(cfg.Ranks)), conns: make([]*net.UnixConn, len(cfg.Ranks)),
		regions: newRegions(), closing: make(chan struct{}), failed: make(chan struct{}), missed: make(chan struct{}),
	}
	return l
}

// abandon gives everything back that a failed Open has taken.
func (l *Link) abandon() {
	for _, fds := range [][]int{l.bells, l.pidfds, {l.memfd}} {
		for _, fd := range fds {
			closeFD(fd)
		}
	}
	for _, c := range l.conns {
		if c != nil {
			c.Close()
		}
	}
	if l.segment != nil {
		l.segment.unmap()
	}
}

// start runs the link's goroutines once all seats have mapped the segment.
func (l *Link) start() {
	unix.Close(l.memfd) // the mapping keeps the memory
	l.memfd = -1
	runtime.AddCleanup(l.board, func(s *segment) { s.unmap() }, l.segment)
	runtime.AddCleanup(l.board, func(r *regions) { r.unmapOthers() }, l.regions)
	l.board.OnFail(func(error) { close(l.failed) })

	l.post = post{seat: l.seat, boxes: l.segment.boxes, send: make([]sync.Mutex, l.seats), caught: make(chan struct{})}
	for _, p := range l.segment.pulses {
		l.post.awake = append(l.post.awake, &p.awake)
	}
	l.post.hang(l.bells)
	l.processes = make([]*os.File, l.seats)
	l.peeker.pids = make([]int, l.seats)
	for seat, fd := range l.pidfds {
		if fd < 0 {
			continue
		}
		l.peeker.pids[seat] = pidOf(fd)
		if seat == l.seat {
			unix.Close(fd)
			continue
		}
		unix.SetNonblock(fd, true) // so that the runtime polls it
		l.processes[seat] = os.NewFile(uintptr(fd), "process")
		l.work.Add(1)
		go l.watchProcess(seat, l.processes[seat])
	}
	l.work.Add(1)
	go func() {
		defer l.work.Done()
		l.post.hear()
	}()
	if l.seats > 1 {
		l.work.Add(1)
		go l.beat(min(beatEvery, l.cfg.PeerTimeout/4))
	}
	l.openDesk()
}

// Rank is this rank's seat, Size the number of ranks on this host.
func (l *Link) Rank() int { return l.seat }

// Size is the number of ranks on this host.
func (l *Link) Size() int { return l.seats }

// Hosts is one host for all.
func (l *Link) Hosts() []int { return l.hosts }

// HostName is this host's name.
func (l *Link) HostName(int) string { return l.cfg.Host }

// Board is nil for a rank that is alone on its host.
func (l *Link) Board() *transport.Board {
	if l.seats == 1 {
		return nil
	}
	return l.board
}

// Oversubscribed reports whether the ranks of this host share processors.
func (l *Link) Oversubscribed() bool { return l.oversubscribed }

// Begin starts an operation.
func (l *Link) Begin(s transport.Stamp, deadline time.Time) { l.board.Begin(s, deadline) }

// Send, Recv and Exchange go over the rings of the segment.
func (l *Link) Send(to int, p []byte) error { return l.board.Send(to, p) }

// Recv fills p from a seat.
func (l *Link) Recv(from int, p []byte) error { return l.board.Recv(from, p) }

// Exchange sends to one seat and receives from one.
func (l *Link) Exchange(to int, out []byte, from int, in []byte) error {
	return l.board.Exchange(to, out, from, in)
}

// Explain exchanges descriptions of an operation that failed to match.
func (l *Link) Explain(mine []byte) ([][]byte, error) { return l.board.Explain(mine) }

// Tell puts a control message into a seat's mailbox and rings its bell.
func (l *Link) Tell(to int, msg []byte) error {
	if err := l.post.tell(to, msg); err != nil {
		return fmt.Errorf("rank %d: %w", l.cfg.Ranks[to], err)
	}
	return nil
}

// OnTell installs who hears control messages.
func (l *Link) OnTell(f func(from int, msg []byte)) { l.post.onTell(f) }

// OnFail has f called once when the link has failed.
func (l *Link) OnFail(f func(error)) { l.board.OnFail(f) }

// Fail ends every wait on the link, here and on the other seats.
func (l *Link) Fail(err error) { l.board.Fail(err) }

// Counters counts what went through the segment.
func (l *Link) Counters() transport.Counters {
	return transport.Counters{SHM: l.board.Traffic()}
}

// Close leaves the group and joins the link's goroutines. Buffers stay until they
// are closed themselves.
func (l *Link) Close() error {
	l.once.Do(func() {
		l.board.Leave()
		close(l.closing)
		for _, c := range l.conns {
			if c != nil {
				c.Close()
			}
		}
		for _, f := range l.processes {
			if f != nil {
				f.Close()
			}
		}
		for _, f := range l.post.bells {
			f.Close()
		}
	})
	l.work.Wait()
	l.regions.closeLink()
	return nil
}

var (
	_ transport.Mesh            = (*Link)(nil)
	_ transport.FailureNotifier = (*Link)(nil)
)
