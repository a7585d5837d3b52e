package launch

import (
	"bufio"
	"encoding/json"
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

// openLinks starts an agent for every host that has a rank, all at once.
func (j *job) openLinks() error {
	used := 0
	for _, s := range j.seats {
		used = max(used, s.Host+1)
	}
	for h := range used {
		l := &link{index: h, name: j.hosts[h].Name, called: j.reach.Called(j.hosts[h].Name)}
		if err := l.open(j.reach, j.input(h)); err != nil {
			return err
		}
		j.links = append(j.links, l)
	}
	j.out.faults = func(err error) { j.events <- outputFault{err} }
	for _, l := range j.links {
		l.reader.Add(1)
		go l.read(j.events, j.out, j.resuming)
	}
	return nil
}

// read runs a link's reading goroutine: it writes output itself and passes all else to the owner.
func (l *link) read(events chan<- any, out *output, resuming <-chan struct{}) {
	defer l.reader.Done()
	host, err := l.way.Greet()
	if err == nil {
		events <- greeted{l, host}
	} else {
		_ = l.way.Finish() // it is of no use
	}
	l.writer.Release()
	n, step := uint64(0), uint64(0) // of a message; they are numbered where the agent outlives its launcher
	if back, is := l.way.(reach.Returned); is && err == nil {
		n, step = back.Back().From-1, 1
	}
	if err == nil && resuming != nil {
		<-resuming
	}
	left := results{dir: out.spec.Results, mark: strconv.Itoa(l.index)}
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
			if err := left.part(body, out.ranks()); err != nil {
				out.fault(err)
			}
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

type greeted struct {
	l    *link
	host *reach.Host
}

type probed struct {
	l  *link
	ok []bool
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

// closeLinks ends what is left of the agents and joins their readers.
func (j *job) closeLinks() {
	// Readers may still post; nobody else listens now.
	drained := make(chan struct{})
	stop := make(chan struct{})
	go func() {
		defer close(drained)
		for {
			select {
			case <-j.events:
			case <-stop:
				return
			}
		}
	}()
	for _, l := range j.links {
		l.writer.Finish()
		if !l.done {
			l.way.Abandon()
		}
	}
	for _, l := range j.links {
		l.reader.Wait()
		l.writer.Close()
		l.way.Close()
	}
	close(stop)
	<-drained
	j.reach.Close()
}
