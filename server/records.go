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
	"hora/job/schedule"
	"hora/server/client"
	"hora/server/fleet"
	"hora/server/node"
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
	ready     *node.Ready
	document  []byte // what was submitted, with the releases that were taken; beside ready
	size      int    // of the world, where an event told it
	stands    *node.Stands
	hub       []string      // where the other nodes of a gang are awaited
	said      []client.Line // what a node said whose part has failed: after all lines
	exit      *node.Exit
	last      uint64
}

type series struct {
	name string
	rank int
}

// take writes records down, once: how many were taken goes with them.
func (f *follower) take(records []node.Record) error {
	b := &batch{points: map[series][]client.Point{}}
	for i := range records {
		if f.sort(b, &records[i]); b.later != nil {
			return b.later // all of it comes again
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
	if b.ready == nil && b.happened == nil && b.artifacts == nil && b.tags == nil && b.size == 0 {
		f.news.wakeLines(f.job.ID)
	} else {
		f.news.wake(f.job.ID)
	}
	if b.ready != nil {
		f.announced()
	}
	switch {
	case b.hub != nil:
		return f.do(func() { f.gather(b.hub, b.size > 0) })
	case b.stands != nil:
		return f.do(func() { f.stood(b.stands) })
	case b.size > 0:
		return f.do(func() {
			f.l.gang.opened = true
			f.sized(b.size)
		})
	}
	return nil
}

func (f *follower) sort(b *batch, r *node.Record) {
	b.last = r.N
	for _, l := range r.Lines {
		b.lines = append(b.lines, client.Line{
			Attempt: f.attempt.Number, Number: l.N, At: l.At, Rank: l.Rank, Err: l.Err, Text: l.Text,
		})
	}
	switch {
	case r.Begun != nil:
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
		for name, v := range r.Report.Tags {
			if b.tags == nil {
				b.tags = map[string]string{}
			}
			if checkTag(name, v) == nil {
				b.tags[name] = v
			}
		}
		for name, v := range r.Report.Metrics {
			k := series{name, r.Report.Rank}
			if b.points[k] == nil {
				b.order = append(b.order, k)
			}
			b.points[k] = append(b.points[k], client.Point{
				Step: r.Report.Step, At: r.At.UnixMilli(), Value: float64(v),
			})
		}
	case r.Stands != nil:
		if b.stands = r.Stands; f.gangOfSeveral() {
			b.hub = r.Stands.Hub
		}
	case r.Artifact != nil:
		a, err := f.artifact(r)
		if err == nil {
			b.artifacts = append(b.artifacts, a)
		} else if err = f.retry(b, r.Artifact.Path, r.At, err); err != nil {
			b.later = err
		}
	case r.Exit != nil:
		b.exit = r.Exit
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
	switch f.missed[what]++; {
	case errors.Is(err, os.ErrNotExist):
		return nil
	case errors.Is(err, store.ErrFull), f.ctx.Err() != nil, f.missed[what] < fetchTries:
		return fmt.Errorf("keep outputs/%s: %w", what, err)
	}
	b.happened = append(b.happened, client.Happening{
		At: at, Attempt: f.attempt.Number, Kind: "warning", Text: fmt.Sprintf("outputs/%s could not be kept: %v", what, err),
	})
	return nil
}

func (f *follower) event(b *batch, r *node.Record) {
	e, err := event.Unmarshal(r.Event)
	if err != nil {
		return // of a later release
	}
	if o, ok := e.(*event.Opened); ok {
		b.size = o.Size
	}
	if hub := node.Listens(r.Event); hub != nil && f.gangOfSeveral() {
		b.hub = hub
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

// salvage takes what a lost attempt left in outputs/, which nobody told of any more.
func (f *follower) salvage() *batch {
	b := &batch{last: f.taken}
	all, _ := f.left.Outputs(f.where())
	for _, path := range all {
		if a, err := f.artifact(&node.Record{At: f.now().UTC(), Artifact: &node.Artifact{Path: path}}); err == nil {
			b.artifacts = append(b.artifacts, a)
		}
	}
	return b
}

// elsewhere takes what the ranks on other nodes than the first have left in outputs/, once the attempt has ended. Of
// files that two nodes have, the earlier node's is taken.
func (f *follower) elsewhere(b *batch) error {
	have, err := f.store.Artifacts(f.ctx, f.job.ID)
	if err != nil {
		return err
	}
	taken := map[string]bool{}
	for _, a := range append(have, b.artifacts...) {
		taken[a.Path] = !a.At.Before(f.attempt.Started) // what an earlier attempt has left is of yesterday
	}
	for _, share := range f.attempt.Shares[1:] {
		there := f.where()
		there.Nodes = []string{share.Node}
		if err := f.fetchAll(b, there, f.now().UTC(), taken); err != nil {
			return err
		}
	}
	return nil
}

// fetchAll takes what a node has in outputs/ and is not taken yet.
func (f *follower) fetchAll(b *batch, from fleet.Ref, at time.Time, taken map[string]bool) error {
	all, err := f.left.Outputs(from)
	if err != nil {
		there := func(n schedule.Node) bool { return n.Name == from.Nodes[0] }
		if !slices.ContainsFunc(f.back.Capacity(), there) {
			return nil // it is lost, which the story has
		}
		return f.retry(b, "* on node "+from.Nodes[0], at, err)
	}
	for _, path := range all {
		if taken[path] {
			continue
		}
		a, err := f.fetch(from, path, at)
		if err != nil {
			if err := f.retry(b, path+" on node "+from.Nodes[0], at, err); err != nil {
				return err
			}
			continue
		}
		taken[path] = true
		b.artifacts = append(b.artifacts, a)
	}
	return nil
}

// artifact keeps a file of outputs/.
func (f *follower) artifact(r *node.Record) (client.Artifact, error) {
	return f.fetch(f.where(), r.Artifact.Path, r.At)
}

func (f *follower) fetch(from fleet.Ref, path string, at time.Time) (client.Artifact, error) {
	file, err := f.left.Output(from, path)
	if err != nil {
		return client.Artifact{}, err
	}
	defer file.Close()
	hash, size, err := f.store.TakeBlob(f.ctx, file)
	return client.Artifact{Path: path, Size: size, Hash: hash, At: at}, err
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
	for _, k := range b.order {
		if err := store.AddPoints(tx, f.job.ID, k.name, k.rank, b.points[k]); err != nil {
			return err
		}
	}
	for _, h := range b.happened {
		if err := store.AddHappening(tx, f.job.ID, h); err != nil {
			return err
		}
	}
	for _, a := range b.artifacts {
		if err := store.SetArtifact(tx, f.job.ID, a); err != nil {
			return err
		}
	}
	if err := store.SetTags(tx, f.job.ID, b.tags, nil); err != nil {
		return err
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
	return store.Taken(tx, f.job.ID, f.attempt.Number, b.last)
}

// lostMost is how many attempts in a row may be lost.
const lostMost = 5
