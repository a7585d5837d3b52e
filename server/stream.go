package server

import (
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
	Cursor string    `query:"cursor" pattern:"^[0-9]{1,9}\\.[0-9]{1,18}$" patternDescription:"next of the answer before" doc:"next of the answer before"`
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
			lines, next, err := a.store.Lines(ctx, in.ID, c, in.Since, linesAtOnce)
			return answered(
				linesPage{Lines: filled(in.pick(lines)), Next: cursorText(next), More: len(lines) >= linesAtOnce}, err,
			)
		})
	op := a.operation("follow", "GET", "/jobs/{id}/follow", "server-sent events: state (a job) whenever it changes, line (a line) as they come, end when it has ended", onJob(viewer))
	huma.Register(a, op, func(ctx context.Context, in *struct {
		LinesQuery
		Quiet bool   `query:"quiet" doc:"states alone, no lines"`
		Last  string `header:"Last-Event-ID" pattern:"^[0-9]{1,9}\\.[0-9]{1,18}$" patternDescription:"the id of a line" doc:"a browser that comes back sends the id of the last line; it wins over cursor"`
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

func (e *events) send(id, name string, v any) {
	if e.err != nil {
		return
	}
	b, err := json.Marshal(v)
	if err != nil {
		e.err = err
		return
	}
	if id != "" {
		id = "id: " + id + "\n"
	}
	_, e.err = fmt.Fprintf(e.w, "%sevent: %s\ndata: %s\n\n", id, name, b)
}

func (e *events) flush() {
	if f, ok := e.w.(http.Flusher); ok && e.err == nil {
		f.Flush()
	}
}

// beat is how often a silent stream says that it lives.
const beat = 15 * time.Second

// stream follows a job until it has ended or the reader has gone.
func (a *api) stream(ctx context.Context, q *LinesQuery, quiet bool, c store.Cursor, out *events) {
	was := ""
	for out.err == nil {
		changed := a.news.of(q.ID)
		j, err := a.Job(ctx, q.ID)
		if err != nil {
			return
		}
		if now, _ := json.Marshal(j); string(now) != was {
			was = string(now)
			out.send("", "state", j)
		}
		for !quiet && out.err == nil {
			lines, next, err := a.store.Lines(ctx, q.ID, c, q.Since, linesAtOnce)
			if err != nil || next == c {
				break
			}
			for _, l := range q.pick(lines) {
				out.send(cursorText(store.Cursor{Attempt: l.Attempt, Line: l.Number}), "line", l)
			}
			c = next
		}
		if j.State.Ended() {
			out.send("", "end", j)
			out.flush()
			return
		}
		out.flush()
		queue := a.news.of(0) // its reason may be another one now
		if j.State != job.Queued {
			queue = nil
		}
		select {
		case <-changed:
		case <-queue:
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
