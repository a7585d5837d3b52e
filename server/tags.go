package server

import (
	"context"
	"database/sql"
	"os"
	"path/filepath"
	"strings"
	"unicode/utf8"

	"hora/job"
	"hora/server/backend"
	"hora/server/client"
	"hora/server/store"
)

// The longest name and value of a tag.
const (
	longestTag   = 200
	longestValue = 10000
)

// checkTag says what is wrong with a tag.
func checkTag(name, value string) error {
	switch {
	case name == "" || len(name) > longestTag || !utf8.ValidString(name):
		return refuse(422, "%.80q is no tag: a name has 1 to %d bytes", name, longestTag)
	case len(value) > longestValue || !utf8.ValidString(value):
		return refuse(422, "tag %s: a value has at most %d bytes of text: put what is longer into outputs/", name, longestValue)
	}
	return nil
}

// Tag gives a job tags and takes others from it, whether it has ended or not.
func (s *Server) Tag(ctx context.Context, id int64, set map[string]string, remove []string) (client.Job, error) {
	if _, err := s.Job(ctx, id); err != nil {
		return client.Job{}, err
	}
	for name, value := range set {
		if err := checkTag(name, value); err != nil {
			return client.Job{}, err
		}
	}
	if err := s.store.Do(ctx, func(tx *sql.Tx) error { return store.SetTags(tx, id, set, remove) }); err != nil {
		return client.Job{}, err
	}
	s.news.wake(id)
	return s.Job(ctx, id)
}

// Attach adds a file to what came back of a job.
func (s *Server) Attach(ctx context.Context, id int64, path, hash string) (client.Artifact, error) {
	if _, err := s.Job(ctx, id); err != nil {
		return client.Artifact{}, err
	}
	if path == "." || !filepath.IsLocal(filepath.FromSlash(path)) || strings.ContainsAny(path, "\\\x00") ||
		filepath.ToSlash(filepath.Clean(path)) != path {
		return client.Artifact{}, refuse(422, "%.200q is no path below outputs/: write it as model/weights.pt", path)
	}
	info, err := os.Stat(s.store.BlobFile(hash))
	if err != nil || !s.store.HasBlob(ctx, hash) {
		return client.Artifact{}, refuse(409, "the content %s is not here: send it first", hash)
	}
	a := client.Artifact{Path: path, Size: info.Size(), Hash: hash, At: s.now().UTC()}
	if err := s.store.Do(ctx, func(tx *sql.Tx) error { return store.SetArtifact(tx, id, a) }); err != nil {
		return client.Artifact{}, err
	}
	s.news.wake(id)
	return a, nil
}

// prepared notes that the job's environment is there: it runs, and what comes after this attempt takes the same
// releases.
func (f *follower) prepared(r *backend.Ready) {
	l := f.l
	if l.job.State == job.Preparing {
		l.job.State = job.Running
	}
	if e := l.job.Document.Environment; e != nil && len(r.Lock) > 0 {
		with := *e
		with.Lock = r.Lock
		l.job.Document.Environment = &with
	}
	f.job = l.job
}
