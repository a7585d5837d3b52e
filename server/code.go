package server

import (
	"context"
	"errors"
	"io/fs"
	"os"

	"hora/server/snapshot"
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
		info, err := os.Stat(s.store.BlobFile(f.Hash))
		if errors.Is(err, fs.ErrNotExist) {
			return refuse(409, "the folder's file %s is not here: send it first", f.Path)
		}
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
