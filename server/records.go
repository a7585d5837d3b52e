package server

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"hora/event"
	"hora/server/backend"
	"hora/server/client"
	"hora/server/store"
)

// batch is what some records say, sorted by where it goes.
type batch struct {
	lines     []client.Line
	points    map[series][]client.Point
	order     []series
	happened  []client.Happening
	artifacts []client.Artifact
	later     error // why it cannot be taken yet
	tags      map[string]string
	ready     *backend.Ready
	document  []byte // what was submitted, with the releases that were taken; beside ready
	size      int    // of the world, where an event told it
	stands    *backend.Stands
	parted    []*backend.Parted
	others    []*backend.Record            // what other nodes than the first have
	leaves    map[string][]*backend.Record // files that the job has left, by node: they are fetched beside
	parts     []*part                      // what of it ranks have said
	said      []client.Line                // what a node said whose part has failed: after all lines
	exit      *backend.Exit
	last      uint64
}

type series struct {
	name string
	rank int
}

// take writes records down, once: how many were taken goes with them.
func (f *follower) take(records []backend.Record) error {
	b := &batch{last: f.taken}
	for i := range records {
		if f.sort(b, &records[i]); b.later != nil {
			return b.later // all of it comes again
		}
	}
	if b.exit == nil && b.others != nil {
		if err := f.aside(b); err != nil {
			return err
		}
	}
	var ready *writing
	if b.ready != nil {
		var bad error
		if err := f.do(func() {
			f.prepared(b.ready)
			if b.document, bad = json.Marshal(f.job.Document); bad == nil && b.exit == nil {
				ready = f.Server.write(f.ctx, f.l, func(tx *sql.Tx) error { return f.write(tx, b) })
			}
		}); err != nil || bad != nil {
			return errors.Join(err, bad)
		}
	}
	switch {
	case b.exit != nil:
		return f.finish(b.exit, b)
	case ready != nil:
		if <-ready.done; !ready.ok {
			return errEnding
		}
	default:
		write := func(tx *sql.Tx) error { return f.write(tx, b) }
		if err := f.store.Do(context.WithoutCancel(f.ctx), write); err != nil {
			return err
		}
	}
	f.taken = b.last
	if b.leaves != nil {
		if err := f.do(func() {
			for _, all := range b.leaves {
				f.beside(f.l, func(one *follower) { one.rescue(all) })
			}
		}); err != nil {
			return err
		}
	}
	if b.ready == nil && b.happened == nil && b.artifacts == nil && b.tags == nil && b.parts == nil && b.size == 0 {
		f.news.wakeLines(f.job.ID)
	} else {
		f.news.wake(f.job.ID)
	}
	if b.ready != nil {
		f.announced()
	}
	if b.stands == nil && b.size == 0 && b.parted == nil {
		return nil
	}
	return f.do(func() { f.heard(b) })
}

// heard hears how the gang stands, and what of it has ended; in the loop.
func (f *follower) heard(b *batch) {
	if b.size > 0 {
		f.l.gang.opened = true
	}
	switch {
	case b.stands != nil:
		f.stood(b.stands)
	case b.size > 0:
		f.sized(b.size)
	}
	for _, p := range b.parted {
		if f.job.Document.Spec.MinNP > 0 {
			f.parted(p)
		} else {
			f.absent(p)
		}
	}
}

func (f *follower) sort(b *batch, r *backend.Record) {
	if r.From != "" {
		b.others = append(b.others, r)
		return
	}
	b.last = max(b.last, r.N)
	for _, l := range r.Lines {
		b.lines = append(b.lines, client.Line{
			Attempt: f.attempt.Number, Number: l.N, At: l.At, Rank: l.Rank, Err: l.Err, Text: l.Text,
			Bytes: l.Bytes,
		})
	}
	switch {
	case r.Begun:
		text := "it runs"
		if f.job.Document.Environment != nil {
			text = "its environment is made, or found"
		}
		b.happened = append(b.happened, client.Happening{At: r.At, Attempt: f.attempt.Number, Kind: "begun", Text: text})
	case r.Ready != nil:
		b.ready = r.Ready
		b.happened = append(b.happened, client.Happening{
			At: r.At, Attempt: f.attempt.Number, Kind: "ready", Text: "it runs in " + r.Ready.Text,
		})
	case r.Event != nil:
		f.event(b, r)
	case r.Report != nil:
		b.report(r.At, r.Report)
	case r.Stands != nil:
		b.stands = r.Stands
	case r.Parted != nil:
		b.parted = append(b.parted, r.Parted)
	case r.Artifact != nil:
		a, err := f.fetch(f.ctx, r, r.At)
		if err == nil {
			b.artifacts = append(b.artifacts, a)
		} else if err = f.retry(b, r.Artifact.Path, r.At, err); err != nil {
			b.later = err
		}
	case r.Gone != nil:
		b.later = f.gap(b, r)
	case r.Exit != nil:
		b.exit = r.Exit
	}
}

// report takes what a rank said.
func (b *batch) report(at time.Time, r *backend.Report) {
	for name, v := range r.Tags {
		if b.tags == nil {
			b.tags = map[string]string{}
		}
		if checkTag(name, v) == nil {
			b.tags[name] = v
		}
	}
	for name, v := range r.Metrics {
		k := series{name, r.Rank}
		if b.points == nil {
			b.points = map[series][]client.Point{}
		}
		if b.points[k] == nil {
			b.order = append(b.order, k)
		}
		b.points[k] = append(b.points[k], client.Point{
			Step: r.Step, At: at.UnixMilli(), Value: float64(v),
		})
	}
}

// told are the events of a job's own that its story keeps.
var told = map[string]bool{
	"restarted": true, "shrunk": true, "grown": true, "moved": true, "parked": true, "banned": true, "warning": true, "held": true,
	"peer-lost": true,
}

// fetchTries is how often a file that a job has left is asked for, a second apart.
const fetchTries = 20

// retry says what is to be done about a file, or all of a node's, that could not be kept: nil goes on without, which
// the job's story then says. A file that is gone is no news, and a disk without room is waited for.
func (f *follower) retry(b *batch, what string, at time.Time, err error) error {
	f.missed[what]++
	vain := f.vain || errors.Is(err, errSilent) || f.missed[what] >= fetchTries
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil
	case errors.Is(err, store.ErrFull), f.ctx.Err() != nil, !vain:
		return fmt.Errorf("keep outputs/%s: %w", what, err)
	}
	b.happened = append(b.happened, client.Happening{
		At: at, Attempt: f.attempt.Number, Kind: "warning", Text: fmt.Sprintf("outputs/%s could not be kept: %v", what, err),
	})
	return nil
}

func (f *follower) event(b *batch, r *backend.Record) {
	e, err := event.Unmarshal(r.Event)
	if err != nil {
		return // of a later release
	}
	if o, ok := e.(*event.Opened); ok {
		b.size = o.Size
	}
	if !told[event.NameOf(e)] {
		return
	}
	var fields map[string]any
	if json.Unmarshal(r.Event, &fields) != nil {
		return
	}
	delete(fields, "event")
	delete(fields, "at")
	b.happened = append(b.happened, client.Happening{
		At: r.At, Attempt: f.attempt.Number, Kind: event.NameOf(e), Text: e.String(), Fields: fields,
	})
}

// elsewhere takes what the ranks on other nodes than the first have reported and left in outputs/, once the attempt has
// ended. Of files that two nodes have, the earlier node's is taken.
func (f *follower) elsewhere(b *batch) error {
	have, err := f.store.Artifacts(f.ctx, f.job.ID)
	if err != nil {
		return err
	}
	taken := map[string]bool{}
	for _, a := range append(have, b.artifacts...) {
		taken[a.Path] = !a.At.Before(f.attempt.Started) // what an earlier attempt has left is of yesterday
	}
	for _, r := range b.others {
		if r.Artifact != nil && taken[r.Artifact.Path] {
			continue
		}
		kept, err := f.other(b, r)
		if err != nil {
			return err
		}
		if kept {
			taken[r.Artifact.Path] = true
		}
	}
	return nil
}

// other takes what another node than the first has, and says whether that is a file which is kept.
func (f *follower) other(b *batch, r *backend.Record) (kept bool, err error) {
	switch {
	case r.Gone != nil, r.Report != nil && r.N > 0:
		b.hear(r)
	case r.Report != nil:
		b.report(r.At, r.Report)
	case r.Missing != nil && r.Missing.Reports:
		return false, f.unreported(b, r)
	case r.Missing != nil:
		err := r.Missing.Err
		if r.Missing.Late {
			err = fmt.Errorf("%w: %w", errSilent, err)
		}
		return false, f.retry(b, "* on node "+r.From, r.At, err)
	case r.Artifact != nil:
		return f.kept(f.ctx, b, r, r.At)
	}
	return false, nil
}

// unreported says what is to be done where what ranks reported could not be had: nil goes on without, which the job's
// story then says.
func (f *follower) unreported(b *batch, r *backend.Record) error {
	what := "what ranks reported on node " + r.From
	if !r.Missing.Late && f.missed[what] < fetchTries && !f.vain {
		f.missed[what]++
		return fmt.Errorf("take %s: %w", what, r.Missing.Err)
	}
	b.happened = append(b.happened, client.Happening{
		At: r.At, Attempt: f.attempt.Number, Kind: "warning", Text: fmt.Sprintf("%s is not all there: %v", what, r.Missing.Err),
	})
	return nil
}

func (f *follower) write(tx *sql.Tx, b *batch) error {
	for block := range slices.Chunk(b.lines, 4000) {
		if err := store.AddLines(tx, f.job.ID, f.attempt.Number, block); err != nil {
			return err
		}
	}
	if err := store.AddLast(tx, f.job.ID, f.attempt.Number, b.said); err != nil {
		return err
	}
	if err := f.writeReports(tx, b); err != nil {
		return err
	}
	for _, p := range b.parts {
		if err := f.writePart(tx, p); err != nil {
			return err
		}
	}
	if err := f.writeHappened(tx, b); err != nil {
		return err
	}
	for _, a := range b.artifacts {
		if err := store.SetArtifact(tx, f.job.ID, a); err != nil {
			return err
		}
	}
	if b.ready != nil {
		if err := store.SetState(tx, &f.job); err != nil {
			return err
		}
		if err := store.SetDocument(tx, &f.job, b.document); err != nil {
			return err
		}
		if err := f.announce(tx, &f.job); err != nil {
			return err
		}
	}
	if b.size > 0 {
		if err := store.Opened(tx, f.job.ID, f.attempt.Number); err != nil {
			return err
		}
	}
	return store.Taken(tx, f.job.ID, f.attempt.Number, b.last)
}

func (f *follower) writeHappened(tx *sql.Tx, b *batch) error {
	for _, h := range b.happened {
		if err := store.AddHappening(tx, f.job.ID, h); err != nil {
			return err
		}
	}
	return nil
}

// lostMost is how many attempts in a row may be lost.
const lostMost = 5
