package server

import (
	"context"
	"database/sql"
	"errors"
	"io"
	"time"

	"hora/server/backend"
	"hora/server/client"
	"hora/server/store"
)

// What the first node of an attempt has in outputs/ comes in its order, with all else that is said there, and so does
// what other nodes have in the end. What a node has that the job leaves while it goes on has no place in that order,
// and may be much, from a machine that is about to go or whose disk hangs: it is fetched beside, each file by itself.

// errSilent is for a file that was waited for as long as any is.
var errSilent = errors.New("nothing has come of it for so long that it is not waited for any more")

// silentMost is how long nothing may come of a file that is fetched.
const silentMost = 5 * time.Minute

// aside takes what other nodes say of a gang that goes on: what their ranks report at once, and files later.
func (f *follower) aside(b *batch) error {
	for _, r := range b.others {
		if r.Artifact != nil {
			if b.leaves == nil {
				b.leaves = map[string][]*backend.Record{}
			}
			b.leaves[r.From] = append(b.leaves[r.From], r)
		} else if _, err := f.other(b, r); err != nil {
			return err
		}
	}
	return nil
}

// rescue keeps files of a node that the job has left: as of yesterday, so that what is there in the end is taken over
// them. One that cannot be had is asked for again, and no other with it.
func (f *follower) rescue(all []*backend.Record) {
	f.missed, f.silent = map[string]int{}, map[string]bool{}
	at := f.attempt.Started.Add(-time.Millisecond)
	for {
		var again []*backend.Record
		for _, r := range all {
			b := &batch{}
			_, err := f.kept(f.until, b, r, at)
			if f.until.Err() != nil {
				return
			}
			if err == nil && (b.artifacts != nil || b.happened != nil) {
				err = f.store.Do(context.WithoutCancel(f.until), func(tx *sql.Tx) error {
					for _, a := range b.artifacts {
						if err := store.SetArtifactOver(tx, f.job.ID, a); err != nil {
							return err
						}
					}
					return f.writeHappened(tx, b)
				})
				f.news.wake(f.job.ID)
			}
			if err != nil {
				again = append(again, r)
			}
		}
		if all = again; all == nil {
			return
		}
		select {
		case <-time.After(time.Second):
		case <-f.until.Done():
			return
		}
	}
}

// kept keeps a file of another node than the first, as of some time, and says whether it has. Of a node that was silent
// no more is asked: the job's story says so once.
func (f *follower) kept(ctx context.Context, b *batch, r *backend.Record, at time.Time) (bool, error) {
	if f.silent[r.From] {
		return false, nil
	}
	a, err := f.fetch(ctx, r, at)
	what := r.Artifact.Path + " on node " + r.From
	if errors.Is(err, errSilent) {
		f.silent[r.From] = true
		what += ", and what it has beside,"
	}
	if err != nil {
		return false, f.retry(b, what, r.At, err)
	}
	b.artifacts = append(b.artifacts, a)
	return true, nil
}

// fetch keeps a file of outputs/. However long it is, something of it must come in time.
func (f *follower) fetch(ctx context.Context, r *backend.Record, at time.Time) (client.Artifact, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	patience := silentMost
	if f.silence > 0 {
		patience = f.silence
	}
	late := time.AfterFunc(patience, func() { cancel(errSilent) })
	defer late.Stop()
	file, err := r.Artifact.Open(ctx)
	if err == nil {
		defer file.Close()
		a := client.Artifact{Path: r.Artifact.Path, At: at}
		a.Hash, a.Size, err = f.store.TakeBlob(ctx, &awaited{file, late, patience})
		if err == nil {
			return a, nil
		}
	}
	if context.Cause(ctx) == errSilent {
		err = errSilent
	}
	return client.Artifact{}, err
}

// awaited is a file each part of which must come before late: what this side does with it takes as long as it takes.
type awaited struct {
	file     io.Reader
	late     *time.Timer
	patience time.Duration
}

func (a *awaited) Read(b []byte) (int, error) {
	a.late.Reset(a.patience)
	defer a.late.Stop()
	return a.file.Read(b)
}
