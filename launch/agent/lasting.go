package agent

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
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
// Goroutines: one that accepts, or dials where a launcher is missing, and a reader and a writer of the present
// connection; all end with Close.
type Lasting struct {
	ln     net.Listener             // nil: the agent goes to them
	dial   func() (net.Conn, error) // to whoever is there now, who proves the secret
	secret secret.Secret
	host   string
	in     *io.PipeReader
	pipe   *io.PipeWriter

	mu      sync.Mutex // guards what follows; not held over I/O
	changed *sync.Cond
	wait    time.Duration // 0: no other launcher follows
	named   protocol.Back // what launchers call the agent and its machine
	conn    net.Conn
	came    time.Time     // when conn was there
	read    chan struct{} // closed when conn's reader has ended
	hello   []byte        // the greeting of another host's agent, which every launcher gets
	kept    [][]byte      // messages that no launcher has dealt with
	sent    int           // of kept, over conn
	bytes   int
	next    uint64 // number of the message that comes to be kept
	starts  map[int]int
	called  int64 // bytes of the call
	planned bool
	done    bool // the agent has said so
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

// Lead makes the stream of an agent that has come to its launcher by itself, over conn. Whether another launcher may
// follow, to which dial then leads, the first one says.
func Lead(conn net.Conn, dial func() (net.Conn, error)) *Lasting {
	l := &Lasting{dial: dial, next: 1, starts: map[int]int{}}
	l.changed = sync.NewCond(&l.mu)
	l.in, l.pipe = io.Pipe()
	l.absence = time.AfterFunc(time.Hour, l.giveUp)
	l.take(conn)
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
	l.done = l.done || b[4] == protocol.SayDone
	l.kept = append(l.kept, slices.Clone(b))
	l.bytes += len(b)
	l.next++
	l.changed.Broadcast()
	return len(b), nil
}

// Close waits until a launcher has dealt with everything, or none is awaited any more. One that the agent has gone to
// need only have been told.
func (l *Lasting) Close() {
	l.mu.Lock()
	for !l.gone && len(l.kept) > 0 && !((l.bye || l.dial != nil && l.conn != nil) && l.sent == len(l.kept)) {
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

// Away lets go of a launcher that has said nothing for so long and whose host cannot be reached, if another may come.
// One that has come meanwhile may not listen yet.
func (l *Lasting) Away(quiet time.Duration) bool {
	l.mu.Lock()
	conn, may, silent := l.conn, l.wait > 0, time.Since(l.came) >= quiet
	l.mu.Unlock()
	if may && conn != nil && silent {
		conn.Close()
	}
	return may
}

func (l *Lasting) giveUp() {
	l.mu.Lock()
	l.gone = true
	l.changed.Broadcast()
	l.mu.Unlock()
	if l.ln != nil {
		l.ln.Close()
	}
	l.pipe.Close()
}

// redialPause is how long is waited before a launcher is looked for again.
const redialPause = 200 * time.Millisecond

// redial goes to another launcher, until one is there or none is awaited any more.
func (l *Lasting) redial() {
	for {
		conn, err := l.dial()
		if err == nil {
			l.take(conn)
			return
		}
		var refused *secret.RefusedError
		if errors.As(err, &refused) {
			l.giveUp()
		}
		time.Sleep(redialPause)
		l.mu.Lock()
		gone := l.gone
		l.mu.Unlock()
		if gone {
			return
		}
	}
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
	back := protocol.Back{
		Version: protocol.Version, Pid: os.Getpid(), From: l.next - uint64(len(l.kept)),
		Planned: l.planned, Starts: maps.Clone(l.starts), Called: l.called, Done: l.done && len(l.kept) == 0,
		Name: l.named.Name, Host: l.named.Host,
	}
	l.conn, l.came, l.read, l.sent = conn, time.Now(), make(chan struct{}), 0
	read = l.read
	l.mu.Unlock()
	go l.tell(conn, &back)
	go l.listen(conn, read)
}

// greeting returns what an agent that has gone to its launcher says first: both in one.
func (l *Lasting) greeting(back *protocol.Back) []byte {
	var g protocol.Greeting
	_ = json.Unmarshal(l.hello[wire.MessageHeaderBytes:], &g) // it is ours
	g.Back = back
	b, _ := json.Marshal(g)
	return wire.AppendMessage(nil, protocol.SayHello, b)
}

// tell writes to one launcher: its greeting, and what it has to deal with.
func (l *Lasting) tell(conn net.Conn, back *protocol.Back) {
	greeted := false
	var b []byte
	if l.dial == nil {
		its, _ := json.Marshal(back)
		b = wire.AppendMessage(nil, protocol.SayBack, its)
	}
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
		case l.conn == conn && !greeted && l.hello != nil && l.dial != nil:
			b, greeted = l.greeting(back), true
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
		case protocol.CmdLast:
			d := wire.NewDecoder(body)
			if ms := d.Int(0, 1<<40); d.Done() == nil {
				l.mu.Lock()
				l.wait = time.Duration(ms) * time.Millisecond
				l.mu.Unlock()
			}
			continue
		case protocol.CmdOver:
			l.mu.Lock()
			l.bye = true
			l.changed.Broadcast()
			l.mu.Unlock()
		}
		l.note(kind, body)
		_, _ = l.pipe.Write(wire.AppendMessage(nil, kind, body)) // nobody listens any more when the agent has ended
	}
	conn.Close()
	l.mu.Lock()
	over := l.bye || !l.planned || l.wait == 0
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
	} else if l.dial != nil {
		go l.redial()
	}
}

// note counts what the next launcher must know of.
func (l *Lasting) note(kind uint8, body []byte) {
	var workers []protocol.Worker
	var named protocol.Back
	switch kind {
	case protocol.CmdPlan:
		var p protocol.Plan
		_ = json.Unmarshal(body, &p) // the agent speaks of it
		workers, named.Name, named.Host = p.Workers, p.Name, p.Host
	case protocol.CmdStart:
		var w protocol.Worker
		if json.Unmarshal(body, &w) == nil {
			workers = append(workers, w)
		}
	case protocol.CmdCall:
		l.mu.Lock()
		l.called += int64(len(body))
		l.mu.Unlock()
		return
	default:
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.planned = true; kind == protocol.CmdPlan {
		l.named = named
	}
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
