package server

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"hora/job"
	"hora/server/client"
	"hora/server/store"
)

// linesAtOnce is about how many lines one answer has.
const linesAtOnce = 2000

// cursor reads "attempt.line"; "" is the beginning.
func cursor(text string) (c store.Cursor, err error) {
	if text == "" {
		return c, nil
	}
	a, n, ok := strings.Cut(text, ".")
	if ok {
		if c.Attempt, err = strconv.Atoi(a); err == nil {
			c.Line, err = strconv.ParseUint(n, 10, 63)
		}
	}
	if !ok || err != nil || c.Attempt < 0 {
		return c, refuse(422, "%q is no cursor: give next of the answer before, or none for the beginning", text)
	}
	return c, nil
}

func cursorText(c store.Cursor) string { return fmt.Sprintf("%d.%d", c.Attempt, c.Line) }

// LinesQuery asks for lines.
type LinesQuery struct {
	JobPath
	Cursor string    `query:"cursor" pattern:"^[0-9]{1,9}\\.[0-9]{1,18}$" patternDescription:"a cursor: give next of the answer before, or leave it out" doc:"next of the answer before"`
	Rank   int       `query:"rank" default:"-2" minimum:"-2" doc:"only this rank; -1 is hora itself, -2 are all"`
	Since  time.Time `query:"since" doc:"only what was written since"`
}

func (q *LinesQuery) pick(lines []client.Line) []client.Line {
	if q.Rank == -2 {
		return lines
	}
	var out []client.Line
	for _, l := range lines {
		if l.Rank == q.Rank {
			out = append(out, l)
		}
	}
	return out
}

type linesPage struct {
	Lines []client.Line `json:"lines"`
	Next  string        `json:"next" doc:"give it as cursor for what comes after"`
	More  bool          `json:"more" doc:"there is more now"`
}

func (a *api) streams() {
	huma.Register(a, a.operation("logs", "GET", "/jobs/{id}/logs", "what a job has written", onJob(viewer)),
		func(ctx context.Context, in *LinesQuery) (*answer[linesPage], error) {
			if _, err := a.Job(ctx, in.ID); err != nil {
				return nil, fault(err)
			}
			c, err := cursor(in.Cursor)
			if err != nil {
				return nil, fault(err)
			}
			lines, next, more, err := a.store.Lines(ctx, in.ID, c, in.Since, linesAtOnce)
			return answered(linesPage{Lines: filled(in.pick(lines)), Next: cursorText(next), More: more}, err)
		})
	op := a.operation("follow", "GET", "/jobs/{id}/follow", "server-sent events: state (a job) whenever it changes, line (a line) as they come, end when it has ended", onJob(viewer))
	huma.Register(a, op, func(ctx context.Context, in *struct {
		LinesQuery
		Quiet bool   `query:"quiet" doc:"states alone, no lines"`
		Last  string `header:"Last-Event-ID" pattern:"^[0-9]{1,9}\\.[0-9]{1,18}$" patternDescription:"the id of a line: give that of the last one that came, or leave it out" doc:"a browser that comes back sends the id of the last line; it wins over cursor"`
	},
	) (*huma.StreamResponse, error) {
		if _, err := a.Job(ctx, in.ID); err != nil {
			return nil, fault(err)
		}
		if in.Last != "" {
			in.Cursor = in.Last
		}
		c, err := cursor(in.Cursor)
		if err != nil {
			return nil, fault(err)
		}
		return &huma.StreamResponse{Body: func(h huma.Context) {
			h.SetHeader("Content-Type", "text/event-stream")
			h.SetHeader("Cache-Control", "no-store")
			h.SetHeader("X-Accel-Buffering", "no")
			out := &events{w: h.BodyWriter()}
			a.stream(h.Context(), &in.LinesQuery, in.Quiet, c, out)
		}}, nil
	})
}

// events writes server-sent events.
type events struct {
	w   interface{ Write([]byte) (int, error) }
	err error
}

func (e *events) send(name string, v any) {
	if e.err != nil {
		return
	}
	b, err := json.Marshal(v)
	if err != nil {
		e.err = err
		return
	}
	var out bytes.Buffer
	writeEvent(&out, "", name, b)
	_, e.err = e.w.Write(out.Bytes())
}

// writeEvent writes one whose data is a line of JSON.
func writeEvent(out *bytes.Buffer, id, name string, data []byte) {
	if id != "" {
		out.WriteString("id: ")
		out.WriteString(id)
		out.WriteByte('\n')
	}
	out.WriteString("event: ")
	out.WriteString(name)
	out.WriteString("\ndata: ")
	out.Write(data)
	out.WriteString("\n\n")
}

// lines sends what comes after a place, about linesAtOnce lines, and returns the place after them.
func (a *api) lines(ctx context.Context, q *LinesQuery, c store.Cursor, out *events) (store.Cursor, error) {
	blocks, err := a.store.Blocks(ctx, q.ID, c, q.Since, linesAtOnce)
	for i := range blocks {
		b := &blocks[i]
		var text []byte
		if q.Rank == -2 && q.Since.IsZero() && b.After(c) {
			text, err = a.frames.of(q.ID, b)
			c = store.Cursor{Attempt: b.Attempt, Line: b.Last}
		} else {
			var some []client.Line
			if some, c, err = b.Rest(c, q.Since); err == nil {
				text, err = lineEvents(q.pick(some))
			}
		}
		if err == nil && out.err == nil && len(text) > 0 {
			_, out.err = out.w.Write(text)
		}
		if err != nil || out.err != nil {
			break
		}
	}
	return c, err
}

func (e *events) flush() {
	if f, ok := e.w.(http.Flusher); ok && e.err == nil {
		f.Flush()
	}
}

// beat is how often a silent stream says that it lives.
const beat = 15 * time.Second

// breath is how long lines gather between two looks at them: a job that writes without end writes a block every 10 ms,
// and each look of each follower costs the server the same.
const breath = 25 * time.Millisecond

// stream follows a job until it has ended or the reader has gone.
func (a *api) stream(ctx context.Context, q *LinesQuery, quiet bool, c store.Cursor, out *events) {
	was := ""
	var j client.Job
	var changed, queue <-chan struct{}
	for look := true; out.err == nil; {
		written := a.news.lines(q.ID)
		if quiet {
			written = nil
		}
		begin := time.Now()
		if look {
			// They stay until they are heard: lines may come at the same moment, and be heard first.
			changed, queue = a.news.of(q.ID), a.news.of(0)
			var err error
			if j, err = a.Job(ctx, q.ID); err != nil {
				return
			}
			if now, _ := json.Marshal(j); string(now) != was {
				was = string(now)
				out.send("state", j)
			}
		}
		for !quiet && out.err == nil {
			next, err := a.lines(ctx, q, c, out)
			if err != nil || next == c {
				break
			}
			c = next
		}
		if j.State.Ended() {
			out.send("end", j)
			out.flush()
			return
		}
		out.flush()
		look = true
		if j.State != job.Queued { // or its reason may be another one
			queue = nil
		}
		select {
		case <-changed:
		case <-queue:
		case <-written:
			look = false
			select {
			case <-time.After(breath - time.Since(begin)):
			case <-ctx.Done():
			}
		case <-time.After(beat):
			if out.err == nil {
				_, out.err = fmt.Fprint(out.w, ": still here\n\n")
				out.flush()
			}
		case <-ctx.Done():
			return
		case <-a.ctx.Done():
			return
		}
	}
}
