package dataset

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/url"
	"path"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"hora/dataset/plan"
	foreign "hora/dataset/source"
	"hora/storage"
)

// A Delta table is a folder of Parquet files with a log that says which of them are the
// table's: commits in JSON, numbered without gaps, and now and then a checkpoint, which
// is a Parquet file with all that was said before. Whoever read the folder as it is would
// get rows that were deleted or replaced.

// maxCommit bounds a commit, maxNumbered how many digits a version has.
const (
	maxCommit = 1 << 30
	digits    = 20
)

// deltaLog is what the log has said so far.
type deltaLog struct {
	live map[string]bool // paths as the log has them
}

// deltaAction is a line of a commit, as far as readers care.
type deltaAction struct {
	Add *struct {
		Path   string          `json:"path"`
		Vector json.RawMessage `json:"deletionVector"`
	} `json:"add"`
	Remove *struct {
		Path string `json:"path"`
	} `json:"remove"`
	Meta *struct {
		Schema string `json:"schemaString"`
	} `json:"metaData"`
	Protocol *struct {
		Reader   int64    `json:"minReaderVersion"`
		Features []string `json:"readerFeatures"`
	} `json:"protocol"`
}

// deltaFeatures are those of tables that can be read as long as no file uses what is refused.
var deltaFeatures = []string{"deletionVectors", "columnMapping", "timestampNtz", "v2Checkpoint", "vacuumProtocolCheck", "typeWidening", "typeWidening-preview"}

var (
	errVector  = errors.New("some of its rows are deleted by deletion vectors, which hora does not read; have the files written again (REORG TABLE … APPLY (PURGE)), and read it then")
	errMapping = errors.New("its columns have other names in the files (column mapping), which hora does not read; write the table again without it")
)

// delta answers the files of a Delta table, and whether a source is one.
func (s *Set) delta(ctx context.Context, store storage.Store, name string) ([]storage.Object, bool, error) {
	if storage.IsPattern(name) || isParquet(name) || foreign.Of(name) != foreign.None ||
		strings.HasPrefix(name, "http://") || strings.HasPrefix(name, "https://") {
		return nil, false, nil
	}
	folder := strings.TrimSuffix(name, "/")
	logged, err := store.List(ctx, folder+"/_delta_log")
	switch {
	case errors.Is(err, storage.ErrNotFound) || errors.Is(err, syscall.ENOTDIR):
		return nil, false, nil
	case err != nil:
		return nil, false, err
	}
	log, err := readDelta(ctx, store, logged, s.cfg.Lookup)
	if err != nil || log == nil {
		return nil, log != nil || err != nil, err
	}
	all, err := store.List(ctx, folder)
	if err != nil {
		return nil, true, err
	}
	known := map[string]storage.Object{}
	for _, o := range all {
		known[strings.TrimPrefix(strings.TrimPrefix(o.Name, folder), "/")] = o
	}
	var live []storage.Object
	for _, p := range slices.Sorted(maps.Keys(log.live)) {
		plain, err := url.PathUnescape(p)
		if err != nil || strings.Contains(p, "://") || strings.HasPrefix(p, "/") ||
			slices.Contains(strings.Split(plain, "/"), "..") {
			return nil, true, fmt.Errorf("its log names the file %q, which lies elsewhere; hora reads tables whose files lie in their folder", p)
		}
		o, there := known[plain]
		if !there {
			if o, err = store.Stat(ctx, folder+"/"+plain); err != nil {
				return nil, true, fmt.Errorf("its log names a file that cannot be read: %w", err)
			}
		}
		live = append(live, o)
	}
	if len(live) == 0 {
		return nil, true, errors.New("it has no files")
	}
	return live, true, nil
}

// readDelta goes through the last checkpoint and the commits after it; nil where there
// is no log at all.
func readDelta(
	ctx context.Context, store storage.Store, logged []storage.Object, lookup func(string) string,
) (*deltaLog, error) {
	commits, points := map[int64]storage.Object{}, map[int64][]storage.Object{}
	parts, second := map[int64]int{}, int64(-1)
	last := int64(-1)
	for _, o := range logged {
		base := path.Base(o.Name)
		if len(base) <= digits || base[digits] != '.' {
			continue
		}
		version, err := strconv.ParseInt(base[:digits], 10, 64)
		if err != nil {
			continue
		}
		words := strings.Split(base[digits+1:], ".")
		switch {
		case len(words) == 1 && words[0] == "json":
			commits[version], last = o, max(last, version)
		case words[0] != "checkpoint":
		case len(words) == 2 && words[1] == "parquet":
			points[version], parts[version] = []storage.Object{o}, 1
		case len(words) == 4 && words[3] == "parquet":
			n, err := strconv.Atoi(words[2])
			if err == nil && parts[version] != 1 {
				points[version], parts[version] = append(points[version], o), n
			}
		case len(words) == 3:
			second = max(second, version)
		}
	}
	base := int64(-1)
	for version, found := range points {
		if len(found) == parts[version] {
			base = max(base, version)
		}
	}
	if last < 0 && base < 0 {
		if second >= 0 {
			return nil, errors.New("its checkpoint is of the second kind (v2), which hora does not read, and the commits before it are gone; write a classic checkpoint")
		}
		return nil, nil
	}
	log := &deltaLog{live: map[string]bool{}}
	if base >= 0 {
		if err := log.checkpoint(ctx, points[base], lookup); err != nil {
			return nil, err
		}
	}
	for version := base + 1; version <= last; version++ {
		o, there := commits[version]
		if !there {
			if second >= version {
				return nil, errors.New("its checkpoint is of the second kind (v2), which hora does not read, and the commits before it are gone; write a classic checkpoint")
			}
			return nil, fmt.Errorf("commit %d of its log is not there, and commit %d is: copy the whole _delta_log, or write a checkpoint", version, last)
		}
		if err := log.commit(ctx, store, o); err != nil {
			return nil, fmt.Errorf("commit %d of its log: %w", version, err)
		}
	}
	return log, nil
}

// commit takes over a commit's lines.
func (l *deltaLog) commit(ctx context.Context, store storage.Store, o storage.Object) error {
	if o.Size > maxCommit {
		return fmt.Errorf("it has %d MiB, more than a commit may", o.Size>>20)
	}
	text := make([]byte, o.Size)
	if err := store.ReadAt(ctx, o, text, 0); err != nil && o.Size > 0 {
		return err
	}
	added, removed := map[string]bool{}, map[string]bool{}
	for n, line := range bytes.Split(text, []byte("\n")) {
		if len(bytes.TrimSpace(line)) == 0 {
			continue
		}
		var a deltaAction
		if err := json.Unmarshal(line, &a); err != nil {
			return fmt.Errorf("line %d is no JSON: %w", n+1, err)
		}
		switch {
		case a.Add != nil:
			added[a.Add.Path] = len(a.Add.Vector) > 0 && string(a.Add.Vector) != "null"
		case a.Remove != nil:
			removed[a.Remove.Path] = true
		case a.Meta != nil:
			if err := mapped(a.Meta.Schema); err != nil {
				return err
			}
		case a.Protocol != nil:
			if err := readable(a.Protocol.Reader, a.Protocol.Features); err != nil {
				return err
			}
		}
	}
	// A file may be removed and added by one commit, with another deletion vector.
	for p := range removed {
		delete(l.live, p)
	}
	for p, vector := range added {
		if vector {
			return errVector
		}
		l.live[p] = true
	}
	return nil
}

func mapped(schema string) error {
	if strings.Contains(schema, "delta.columnMapping.physicalName") {
		return errMapping
	}
	return nil
}

func readable(version int64, features []string) error {
	if version > 3 {
		return fmt.Errorf("readers of it must know version %d of Delta's protocol, and hora knows 3", version)
	}
	for _, f := range features {
		if !slices.Contains(deltaFeatures, f) {
			return fmt.Errorf("readers of it must know %q, which hora does not; write the table again without it", f)
		}
	}
	return nil
}

// checkpoint takes over what a checkpoint says.
func (l *deltaLog) checkpoint(ctx context.Context, files []storage.Object, lookup func(string) string) error {
	s := &Set{hold: 1 << 62, cfg: Config{
		Memory: 1 << 62, Threads: 1, Lookup: lookup, Shuffle: None, Nulls: map[string]any{"*": "mask"},
	}}
	for _, o := range files {
		s.cfg.Source = append(s.cfg.Source, o.Name)
	}
	if err := s.find(ctx); err != nil {
		return err
	}
	defer s.Close()
	for _, name := range []string{"add.path", "add.deletionVector.storageType", "metaData.schemaString", "protocol.minReaderVersion"} {
		if c := s.files[0].meta.Find(name); c >= 0 && s.files[0].meta.Columns[c].Why == "" {
			s.cfg.Fields = append(s.cfg.Fields, Want{Name: name, Columns: []string{name}})
		}
	}
	if len(s.cfg.Fields) < 3 || s.cfg.Fields[0].Name != "add.path" {
		return fmt.Errorf("its checkpoint %s has not the columns of one", files[0].Name)
	}
	if err := errors.Join(s.resolve(), s.order(ctx)); err != nil {
		return err
	}
	r, err := s.Read(Walk{Size: 1, Batch: 1 << 14, Last: plan.Short})
	if err != nil {
		return err
	}
	defer r.Close()
	for {
		b, err := r.Next(50 * time.Millisecond)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, ErrNotYet):
			continue
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
		err = l.actions(r, b)
		b.Release()
		if err != nil {
			return err
		}
	}
}

// actions takes over a batch of a checkpoint's rows.
func (l *deltaLog) actions(r *Reader, b *Batch) error {
	texts, there := map[string][]string{}, map[string][]bool{}
	for _, f := range r.Layout() {
		mask := b.Memory()[f.MaskAt : f.MaskAt+b.Rows]
		for _, null := range mask {
			there[f.Name] = append(there[f.Name], null == 0)
		}
		if f.Text >= 0 {
			texts[f.Name] = b.texts(&f)
		} else if f.Type == "int32" {
			for i, v := range unsafe.Slice((*int32)(unsafe.Pointer(&b.Memory()[f.At])), b.Rows) {
				if there[f.Name][i] {
					if err := readable(int64(v), nil); err != nil {
						return err
					}
				}
			}
		}
	}
	for _, schema := range texts["metaData.schemaString"] {
		if err := mapped(schema); err != nil {
			return err
		}
	}
	vectors := there["add.deletionVector.storageType"]
	for i, p := range texts["add.path"] {
		if !there["add.path"][i] {
			continue
		}
		if len(vectors) > 0 && vectors[i] {
			return errVector
		}
		l.live[p] = true
	}
	return nil
}

// texts are a column's of a batch.
func (b *Batch) texts(f *Field) []string {
	h := b.slot.header()
	begin := h[f.Text]
	ends := unsafe.Slice((*int64)(unsafe.Pointer(&b.Memory()[f.At])), b.Rows+1)
	all := make([]string, b.Rows)
	for i := range all {
		all[i] = string(b.Memory()[begin+ends[i] : begin+ends[i+1]])
	}
	return all
}
