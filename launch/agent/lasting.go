package agent

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"maps"
	"net"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"hora/internal/secret"
	"hora/internal/wire"
	"hora/launch/protocol"
)

// LastFlag tells an agent that it outlives its launcher, for how long, and which of its files launchers connect to. The
// secret is then the first line of its standard input.
const LastFlag = "--last"

// LastingPurpose is what a connection to such an agent says it is for while it proves the secret.
const LastingPurpose = "launcher"

// lastingRoom is how many bytes wait for a launcher that is away; then who writes waits.
const lastingRoom = 16 << 20

// Lasting is the stream between an agent and its launchers, one after the other. Each must prove the job's secret and
// is told all that no launcher has dealt with. When none is there for too long, reading ends as if the launcher had
// ended.
//
// Goroutines: one that accepts, and a reader and a writer of the present connection; all end with Close.
type Lasting struct {
	ln     net.Listener
	secret secret.Secret
	host   string
	wait   time.Duration
	in     *io.PipeReader
	pipe   *io.PipeWriter

	mu      sync.Mutex // guards what follows; not held over I/O
	changed *sync.Cond
	conn    net.Conn
	read    chan struct{} // closed when conn's reader has ended
	hello   []byte        // the greeting of another host's agent, which every launcher gets
	kept    [][]byte      // messages that no launcher has dealt with
	sent    int           // of kept, over conn
	bytes   int
	next    uint64 // number of the message that comes to be kept
	starts  map[int]int
	planned bool
	bye     bool // the last launcher has left on purpose
	gone    bool // nobody comes any more
	absence *time.Timer
}

// Last makes such a stream. ln is where launchers connect.
func Last(ln net.Listener, s secret.Secret, host string, wait time.Duration) *Lasting {
	l := &Lasting{ln: ln, secret: s, host: host, wait: wait, next: 1, starts: map[int]int{}}
	l.changed = sync.NewCond(&l.mu)
	l.in, l.pipe = io.Pipe()
	l.absence = time.AfterFunc(wait, l.giveUp)
	go l.accept()
	return l
}

// Read reads what launchers say.
func (l *Lasting) Read(p []byte) (int, error) { return l.in.Read(p) }

// Write keeps one whole message until a launcher has dealt with it.
func (l *Lasting) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if kind, _, err := wire.ReadMessage(bytes.NewReader(b), nil, protocol.Limit); l.next == 1 && l.hello == nil &&
		err == nil && kind == protocol.SayHello {
		l.hello = slices.Clone(b)
		l.changed.Broadcast()
		return len(b), nil
	}
	for l.bytes > lastingRoom && !l.gone {
		l.changed.Wait()
	}
	if l.gone {
		return 0, syscall.EPIPE
	}
	l.kept = append(l.kept, slices.Clone(b))
	l.bytes += len(b)
	l.next++
	l.changed.Broadcast()
	return len(b), nil
}

// Close waits until a launcher has dealt with everything, or none is awaited any more.
func (l *Lasting) Close() {
	l.mu.Lock()
	for !l.gone && len(l.kept) > 0 && !(l.bye && l.sent == len(l.kept)) {
		l.changed.Wait()
	}
	l.mu.Unlock()
	l.giveUp()
	l.mu.Lock()
	conn := l.conn
	l.mu.Unlock()
	if conn != nil {
		conn.Close()
	}
}

// Away lets go of a launcher whose host cannot be reached: another may come.
func (l *Lasting) Away() {
	l.mu.Lock()
	conn := l.conn
	l.mu.Unlock()
	if conn != nil {
		conn.Close()
	}
}

func (l *Lasting) giveUp() {
	l.mu.Lock()
	l.gone = true
	l.changed.Broadcast()
	l.mu.Unlock()
	l.ln.Close()
	l.pipe.Close()
}

func (l *Lasting) accept() {
	me := secret.Identity{Purpose: LastingPurpose, Rank: secret.Anyone, Peer: secret.Anyone, Host: l.host}
	for {
		conn, err := l.ln.Accept()
		if err != nil {
			return
		}
		end := time.Now().Add(secret.ProofTimeout)
		if _, err := secret.Server(conn, l.secret, l.host, secret.Expect(me), end); err == nil {
			l.take(conn)
		}
	}
}

// take goes on with another launcher, after all that the last one has said.
func (l *Lasting) take(conn net.Conn) {
	l.mu.Lock()
	old, read := l.conn, l.read
	l.mu.Unlock()
	if old != nil {
		_ = old.SetReadDeadline(time.Now().Add(2 * time.Second))
		<-read
	}
	l.mu.Lock()
	if l.gone || l.bye {
		l.mu.Unlock()
		conn.Close()
		return
	}
	l.absence.Stop()
	back, _ := json.Marshal(protocol.Back{
		Version: protocol.Version, Pid: os.Getpid(), From: l.next - uint64(len(l.kept)),
		Planned: l.planned, Starts: maps.Clone(l.starts),
	})
	l.conn, l.read, l.sent = conn, make(chan struct{}), 0
	read = l.read
	l.mu.Unlock()
	go l.tell(conn, wire.AppendMessage(nil, protocol.SayBack, back))
	go l.listen(conn, read)
}

// tell writes to one launcher: its greeting, and what it has to deal with.
func (l *Lasting) tell(conn net.Conn, b []byte) {
	greeted := false
	for {
		if _, err := conn.Write(b); err != nil {
			conn.Close() // its reader knows then
			return
		}
		l.mu.Lock()
		for l.conn == conn && l.sent >= len(l.kept) && (greeted || l.hello == nil) && !l.gone {
			l.changed.Wait()
		}
		switch {
		case l.conn == conn && !greeted && l.hello != nil:
			b, greeted = l.hello, true
		case l.conn != conn || l.sent >= len(l.kept):
			l.mu.Unlock()
			return
		default:
			b = l.kept[l.sent]
			l.sent++
			l.changed.Broadcast()
		}
		l.mu.Unlock()
	}
}

// listen reads from one launcher until it is gone.
func (l *Lasting) listen(conn net.Conn, ended chan struct{}) {
	defer close(ended)
	rd := bufio.NewReader(conn)
	for {
		kind, body, err := wire.ReadMessage(rd, nil, protocol.Limit)
		if err != nil {
			break
		}
		switch kind {
		case protocol.CmdHeard:
			d := wire.NewDecoder(body)
			if n := d.U64(); d.Done() == nil {
				l.heard(n)
			}
			continue
		case protocol.CmdLeave:
			l.mu.Lock()
			l.bye = true
			l.changed.Broadcast()
			l.mu.Unlock()
			l.pipe.Close()
			continue
		}
		l.note(kind, body)
		_, _ = l.pipe.Write(wire.AppendMessage(nil, kind, body)) // nobody listens any more when the agent has ended
	}
	conn.Close()
	l.mu.Lock()
	over := l.bye || !l.planned
	if l.conn == conn {
		l.conn = nil
	}
	if !l.gone && !over {
		l.absence.Reset(l.wait)
	}
	l.changed.Broadcast()
	l.mu.Unlock()
	if over {
		l.giveUp()
	}
}

// note counts what the next launcher must know of.
func (l *Lasting) note(kind uint8, body []byte) {
	var workers []protocol.Worker
	switch kind {
	case protocol.CmdPlan:
		var p protocol.Plan
		_ = json.Unmarshal(body, &p) // the agent speaks of it
		workers = p.Workers
	case protocol.CmdStart:
		var w protocol.Worker
		if json.Unmarshal(body, &w) == nil {
			workers = append(workers, w)
		}
	default:
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.planned = true
	for _, w := range workers {
		l.starts[w.Rank]++
	}
}

// heard forgets what a launcher has dealt with.
func (l *Lasting) heard(n uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	first := l.next - uint64(len(l.kept))
	if n < first {
		return
	}
	k := int(min(n-first+1, uint64(l.sent)))
	for _, b := range l.kept[:k] {
		l.bytes -= len(b)
	}
	l.kept, l.sent = slices.Delete(l.kept, 0, k), l.sent-k
	l.changed.Broadcast()
}
