package server

import (
	"database/sql"
	"time"

	"hora/server/backend"
	"hora/server/client"
	"hora/server/store"
)

// What the ranks on an attempt's first node report comes with all else of it. What those on other nodes report comes
// beside, while the job runs, and again: to each server, and whenever a node was away. So the store notes how many
// records of what says so it has, in the transaction that adds them. That is known by when it began: a node of an
// elastic job may have several in turn.

// part is what the ranks of one of them have said.
type part struct {
	node    string
	begun   time.Time
	gone    uint64 // records that are no more
	records []*backend.Record
}

// hear takes what ranks on another node have said.
func (b *batch) hear(r *backend.Record) {
	n := len(b.parts)
	if n == 0 || b.parts[n-1].node != r.From || !b.parts[n-1].begun.Equal(r.Since) {
		b.parts = append(b.parts, &part{node: r.From, begun: r.Since})
		n++
	}
	if p := b.parts[n-1]; r.Gone != nil {
		p.gone = r.N
	} else {
		p.records = append(p.records, r)
	}
}

// writePart adds what of it is not in the store yet.
func (f *follower) writePart(tx *sql.Tx, p *part) error {
	have, err := store.PartTaken(tx, f.job.ID, f.attempt.Number, p.node, p.begun)
	if err != nil {
		return err
	}
	b, last := &batch{}, have
	if p.gone > have {
		last = p.gone
		if err := f.missing(tx, p); err != nil {
			return err
		}
	}
	for _, r := range p.records {
		if r.N > last {
			b.report(r.At, r.Report)
			last = r.N
		}
	}
	if last == have {
		return nil
	}
	if err := f.writeReports(tx, b); err != nil {
		return err
	}
	return store.SetPartTaken(tx, f.job.ID, f.attempt.Number, p.node, p.begun, last)
}

// writeReports adds what ranks have said.
func (f *follower) writeReports(tx *sql.Tx, b *batch) error {
	for _, k := range b.order {
		if err := store.AddPoints(tx, f.job.ID, k.name, k.rank, b.points[k]); err != nil {
			return err
		}
	}
	return store.SetTags(tx, f.job.ID, b.tags, nil)
}

// missing notes that what a part has said is gone, and the store has not got it.
func (f *follower) missing(tx *sql.Tx, p *part) error {
	return store.AddHappening(tx, f.job.ID, client.Happening{
		At: f.now().UTC(), Attempt: f.attempt.Number, Kind: "warning",
		Text: "this server was restored from an older copy, and lacks what the node has no more: what ranks reported on node " +
			p.node,
	})
}
