package server

import (
	"fmt"

	"hora/event"
	"hora/job"
	"hora/server/backend"
	"hora/server/client"
)

// What a server has taken is kept where the gang runs for a while only. A server that was restored from an older copy
// may lack more than that: what cannot be had any more is marked where it was, and the job's story says so.

// gap takes what stands for records that are gone.
func (f *follower) gap(b *batch, r *backend.Record) error {
	g := r.Gone
	have, err := f.store.LastLine(f.ctx, f.job.ID, f.attempt.Number)
	if err != nil {
		return err
	}
	what := "what it reported, and files of outputs/ that it has removed since"
	if have < g.Lines {
		text := fmt.Sprintf("hora: lines %d to %d are missing", have+1, g.Lines)
		if have+1 == g.Lines {
			text = fmt.Sprintf("hora: line %d is missing", g.Lines)
		}
		text += ": this server was restored from a copy that has not got them, and the node has them no more"
		b.lines = append(b.lines, client.Line{
			Attempt: f.attempt.Number, Number: g.Lines, At: r.At, Rank: -1, Err: true, Text: text,
		})
		what = "lines of its output, " + what
	}
	b.happened = append(b.happened, client.Happening{
		At: r.At, Attempt: f.attempt.Number, Kind: "warning",
		Text: "this server was restored from an older copy, and lacks what the node has no more: " + what,
	})
	if g.Ready != nil && f.job.State == job.Preparing {
		b.ready = g.Ready
	}
	if e, err := event.Unmarshal(g.Opened); err == nil {
		if o, ok := e.(*event.Opened); ok {
			b.size = o.Size
		}
	}
	return nil
}
