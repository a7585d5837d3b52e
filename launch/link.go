package launch

import (
	"bufio"
	"encoding/json"
	"fmt"
	"strconv"
	"sync"
	"time"

	"hora/internal/wire"
	"hora/launch/protocol"
	"hora/launch/reach"
)

// link is the launcher's end of one host's agent.
type link struct {
	index   int
	name    string // the reach's
	called  string // the user's
	way     reach.Way
	host    *reach.Host // once its agent has answered
	writer  *protocol.Writer
	reader  sync.WaitGroup
	answers []bool // of the probe
	planned bool
	born    time.Time // of a host that came while the job ran
	asked   []string  // the addresses of the probe, for such a host
	waiting []awaited // to be started once it has answered
	lost    bool      // the job goes on without it
	ended   bool      // its reader has ended
	done    bool      // it has said that nothing is left
	heard   time.Time
	mute    bool
	cause   string // why it was given up, when it was

	dealings dealings          // where the agent outlives its launcher
	muted    bool              // what is sent has been sent before this process began
	starts   []protocol.Worker // that were asked for then
	known    uint64            // up to which message another launcher had dealt with what it wrote itself
}

// finisher closes a way for writing.
type finisher struct{ reach.Way }

func (f finisher) Close() error { return f.Finish() }

// open begins to reach the link's host.
func (l *link) open(r reach.Reach, in *reach.Input) (err error) {
	if l.way, err = r.Open(l.name, in); err != nil {
		return err
	}
	l.writer = protocol.NewWriter(l.way, finisher{l.way}, true)
	return nil
}

// read runs a link's reading goroutine: it writes output itself and passes all else to the owner. What its workers
// leave lasts where another launcher may go on with it.
func (l *link) read(events chan<- any, out *output, lasts bool, resuming <-chan struct{}) {
	defer l.reader.Done()
	host, err := l.way.Greet()
	if err == nil {
		events <- greeted{l, host}
	} else {
		_ = l.way.Finish() // it is of no use
	}
	l.writer.Release()
	n, step := uint64(0), uint64(0) // of a message: those of an agent that outlives its launcher are numbered
	if back, is := l.way.(reach.Returned); is && err == nil {
		n, step = back.Back().From-1, 1
	}
	if err == nil && resuming != nil {
		<-resuming
	}
	left := results{dir: out.spec.Results, mark: strconv.Itoa(l.index), lasts: lasts}
	defer left.close()
	var buf []byte
	rd := bufio.NewReaderSize(l.way, 64<<10)
	for err == nil {
		var kind uint8
		var body []byte
		if kind, body, err = wire.ReadMessage(rd, buf, protocol.Limit); err != nil {
			break
		}
		n += step
		switch kind {
		case protocol.SayOutput:
			d := wire.NewDecoder(body)
			rank, stream, data := d.Int(0, out.ranks()-1), d.U8(), d.Bytes(protocol.Limit)
			if d.Done() == nil && stream < 2 {
				out.write(rank, int(stream), data)
			}
			l.heardOf(n)
			buf = body[:0]
		case protocol.SayResult:
			if n <= l.known && step > 0 {
				break // an older one may have been followed by that of another process
			}
			if err := left.part(body, out.ranks()); err != nil {
				out.fault(err)
			}
			l.heardOf(n)
			buf = body[:0]
		case protocol.SayProbed:
			var ok []bool
			if json.Unmarshal(body, &ok) == nil {
				events <- probed{l, ok}
			}
		default:
			l.dealings.take(n)
			events <- said{l: l, kind: kind, body: body, n: n}
			buf = nil
		}
	}
	events <- linkEnd{l, l.way.End(err)}
}

func (l *link) send(kind uint8, body []byte) {
	if !l.muted {
		l.writer.Send(kind, body)
	}
}

func (l *link) sendJSON(kind uint8, v any) {
	l.planned = l.planned || kind == protocol.CmdPlan
	if w, start := v.(protocol.Worker); l.muted && start {
		l.starts = append(l.starts, w)
	}
	if !l.muted {
		l.writer.SendJSON(kind, v)
	}
}

// hangUp closes our end after what is queued is written; the agent, or what leads to it, then ends.
func (l *link) hangUp() {
	l.writer.Finish()
}

// ping asks an agent for a sign of life, and gives up on one that has given none for long.
func (l *link) ping() {
	l.send(protocol.CmdPing, nil)
	if quiet := time.Since(l.heard); quiet > l.host.Silence && !l.mute {
		l.mute = true
		l.cause = fmt.Sprintf("silent for %v: look whether it is up and the network to it works", l.host.Silence)
		l.kill()
	}
}

// kill cuts the way.
func (l *link) kill() {
	if !l.ended && l.way != nil {
		l.way.Kill()
	}
}

// explain says why a link ended.
func (l *link) explain(why *reach.Lost) string {
	if l.cause != "" {
		return l.cause
	}
	return why.Text
}
