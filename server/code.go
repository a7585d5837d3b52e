package server

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"

	"hora/server/client"
	"hora/server/snapshot"
	"hora/server/web"
)

// The longest list of a folder's files that is read.
const longestList = 64 << 20

// checkCode refuses a folder that nodes could not make again: its files are to be here, and no larger than what goes
// along. What its list says of sizes is not believed.
func (s *Server) checkCode(ctx context.Context, hash string) error {
	if hash == "" {
		return nil
	}
	info, err := os.Stat(s.store.BlobFile(hash))
	if errors.Is(err, fs.ErrNotExist) || !s.store.HasBlob(ctx, hash) {
		return refuse(409, "the folder %s is not here: send its files first", hash)
	}
	if err != nil {
		return err
	}
	if info.Size() > longestList {
		return refuse(422, "the folder's list has %d MB, and %d at most are read: take fewer files along", info.Size()>>20, longestList>>20)
	}
	content, err := os.ReadFile(s.store.BlobFile(hash))
	if err != nil {
		return err
	}
	m, err := snapshot.Decode(content)
	if err != nil {
		return refuse(422, "%s is not a folder's list: %v: hora submit makes one", hash, err)
	}
	total := int64(0)
	for _, f := range m.Files {
		if f.Link != "" {
			continue
		}
		if !s.store.HasBlob(ctx, f.Hash) { // which keeps it from being removed until the job is there, whose it then is
			return refuse(409, "the folder's file %s is not here: send it first", f.Path)
		}
		info, err := os.Stat(s.store.BlobFile(f.Hash))
		if err != nil {
			return err
		}
		total += info.Size()
	}
	if total > snapshot.Limit {
		return refuse(422, "the folder has %d MB, and %d MB go along at most: list what the job does not need in .horaignore, or start in another folder", total>>20, int64(snapshot.Limit)>>20)
	}
	return nil
}

// What pages show of a folder that went along.
const (
	codeFiles = 500
	codeLines = 2000      // of what was not committed
	codeBytes = 256 << 10 // of a file
)

// manifest is the list of the files that went along with a job; nil where none did, or it is kept no longer.
func (s *Server) manifest(j *client.Job) (*snapshot.Manifest, error) {
	if j.Document.Code == "" {
		return nil, nil
	}
	content, err := os.ReadFile(s.store.BlobFile(j.Document.Code))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return snapshot.Decode(content)
}

// Code is what went along with a job, for its page; nil for nothing.
func (s *Server) Code(j *client.Job) (*web.Code, error) {
	m, err := s.manifest(j)
	if m == nil || err != nil {
		return nil, err
	}
	c := &web.Code{Hash: j.Document.Source["diff"]}
	for _, f := range m.Files[:min(len(m.Files), codeFiles)] {
		c.Files = append(c.Files, codeFile(f))
	}
	c.More = len(m.Files) - len(c.Files)
	if !isHash(c.Hash) {
		return c, nil
	}
	diff, err := os.ReadFile(s.store.BlobFile(c.Hash))
	if errors.Is(err, fs.ErrNotExist) {
		return c, nil
	}
	if err != nil {
		return nil, err
	}
	c.Diff = strings.Split(strings.TrimSuffix(strings.ToValidUTF8(string(diff), "\uFFFD"), "\n"), "\n")
	if c.Cut = max(len(c.Diff)-codeLines, 0); c.Cut > 0 {
		c.Diff = c.Diff[:codeLines]
	}
	return c, nil
}

func codeFile(f snapshot.File) web.CodeFile {
	return web.CodeFile{Path: f.Path, Size: f.Size, Hash: f.Hash, Link: f.Link}
}

// isHash says whether what a client has sent is a hash: it becomes a file's name.
func isHash(text string) bool {
	return len(text) == 64 && strings.Trim(text, "0123456789abcdef") == ""
}

// CodeFile reads the beginning of one file that went along.
func (s *Server) CodeFile(j *client.Job, path string) (f web.CodeFile, content []byte, cut bool, err error) {
	m, err := s.manifest(j)
	if err != nil {
		return f, nil, false, err
	}
	i := -1
	if m != nil {
		i = slices.IndexFunc(m.Files, func(f snapshot.File) bool { return f.Path == path })
	}
	if i < 0 {
		return f, nil, false, refuse(404, "no file %.200s went along with job %d: its page lists those that did", path, j.ID)
	}
	if f = codeFile(m.Files[i]); f.Link != "" {
		return f, nil, false, nil
	}
	in, err := os.Open(s.store.BlobFile(f.Hash))
	if errors.Is(err, fs.ErrNotExist) {
		return f, nil, false, refuse(404, "the content of %.200s is not here any more", path)
	}
	if err != nil {
		return f, nil, false, err
	}
	defer in.Close()
	content, err = io.ReadAll(io.LimitReader(in, codeBytes+1))
	if cut = len(content) > codeBytes; cut {
		content = content[:codeBytes]
	}
	return f, content, cut, err
}
