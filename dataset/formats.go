package dataset

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/url"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	foreign "hora/dataset/source"
	"hora/storage"
)

const (
	keptBytes = 16 << 30 // of ranges, where HORA_DATA_CACHE_SIZE says nothing else
	keptIndex = 1 << 30  // of indexes, where ranges are not kept
)

// shelves are where indexes are kept, and the ranges of files behind a network where the
// environment names a folder for them.
func shelves(lookup func(string) string) (index, ranges *storage.Shelf, err error) {
	dir := CacheFolder(lookup)
	if dir == "" {
		return nil, nil, nil
	}
	dir = filepath.Join(dir, "kept")
	if lookup("HORA_DATA_CACHE") == "" {
		return storage.NewShelf(dir, keptIndex), nil, nil
	}
	most := int64(keptBytes)
	if text := lookup("HORA_DATA_CACHE_SIZE"); text != "" {
		gib, err := strconv.ParseFloat(text, 64)
		if err != nil || gib < 0 || gib > 1e6 {
			return nil, nil, fmt.Errorf("open data: HORA_DATA_CACHE_SIZE is %q; give a number of GiB, 0 for none", text)
		}
		most = int64(gib * (1 << 30))
	}
	s := storage.NewShelf(dir, most)
	return s, s, nil
}

// list finds the files of all sources.
func (s *Set) list(ctx context.Context) error {
	index, ranges, err := shelves(s.cfg.Lookup)
	if err != nil {
		return err
	}
	s.shelf = index
	for _, name := range s.cfg.Source {
		if name, err = plainName(name); err != nil {
			return err
		}
		store, err := storage.Find(name, s.cfg.Lookup)
		if err != nil {
			return err
		}
		if _, local := store.(interface{ Local() }); !local {
			store = storage.NewCached(store, ranges)
		}
		if err := s.listOne(ctx, store, name); err != nil {
			return err
		}
	}
	if len(s.files) == 0 {
		return fmt.Errorf("open %s: there is no Parquet file; their names end in .parquet, .parq or .pq, and those of other files that are read in %s", strings.Join(s.cfg.Source, ", "), foreign.Names)
	}
	s.name()
	return nil
}

// plainName is a source as its files' names begin: what is said of this machine's in other words, ./data or a file
// URL, is the same data, with the same columns of folders' names.
func plainName(name string) (string, error) {
	if rest, is := strings.CutPrefix(name, "file://"); is {
		plain, err := url.PathUnescape(rest)
		if err != nil || !strings.HasPrefix(plain, "/") {
			return "", fmt.Errorf("open %s: a file URL is file:///path; give one, or the path", name)
		}
		name = plain
	}
	if name == "" || strings.Contains(name, "://") {
		return name, nil
	}
	return filepath.Clean(name), nil
}

// name finds what the files are called below the folder that all have in common.
func (s *Set) name() {
	common := path.Dir(s.files[0].object.Name)
	for i := range s.files {
		for name := s.files[i].object.Name; common != "." && common != "/" && !strings.HasPrefix(name, common+"/"); {
			common = path.Dir(common)
		}
	}
	for i := range s.files {
		s.files[i].name = strings.TrimPrefix(strings.TrimPrefix(s.files[i].object.Name, common), "/")
	}
}

// listOne adds a source's files.
func (s *Set) listOne(ctx context.Context, store storage.Store, name string) error {
	live, delta, err := s.delta(ctx, store, name)
	if err != nil {
		return fmt.Errorf("open %s as a Delta table: %w", name, err)
	}
	if delta {
		for _, o := range live {
			s.files = append(s.files, file{store: store, object: o, keys: keys(name, o.Name)})
		}
		return nil
	}
	listed := name
	if path.Base(name) == "index.json" && foreign.Of(name) == foreign.Shards {
		listed = strings.TrimSuffix(name, "index.json")
		if listed == "" {
			listed = "."
		}
	}
	objects, err := store.List(ctx, listed)
	if err != nil {
		return err
	}
	single := len(objects) == 1 && objects[0].Name == name
	kind := kindOf(objects, single)
	switch kind {
	case foreign.Shards:
		return s.shards(ctx, store, objects)
	case foreign.Images:
		return s.images(ctx, store, listed, objects)
	}
	for _, o := range objects {
		if single || kind == foreign.None && isParquet(o.Name) || kind != foreign.None && foreign.Of(o.Name) == kind {
			s.files = append(s.files, file{store: store, object: o, keys: keys(name, o.Name), kind: kind})
		}
	}
	return nil
}

// kindOf is what a source's files are: Parquet where there is any, else what comes first
// of the others. A single file of another name is taken for Parquet.
func kindOf(objects []storage.Object, single bool) foreign.Kind {
	if single {
		return foreign.Of(objects[0].Name)
	}
	var seen [8]bool
	for _, o := range objects {
		if isParquet(o.Name) {
			return foreign.None
		}
		if kind := foreign.Of(o.Name); kind != foreign.CSV || !slices.Contains(foreign.Labels, path.Base(o.Name)) {
			seen[kind] = true
		}
	}
	for _, kind := range []foreign.Kind{foreign.Shards, foreign.Tar, foreign.Records, foreign.CSV, foreign.Images} {
		if seen[kind] {
			return kind
		}
	}
	for _, o := range objects {
		if foreign.Of(o.Name) == foreign.CSV { // a table called labels.csv, and no images
			return foreign.CSV
		}
	}
	return foreign.None
}

// shards adds what each index of MosaicML's names.
func (s *Set) shards(ctx context.Context, store storage.Store, objects []storage.Object) error {
	for _, o := range objects {
		if foreign.Of(o.Name) != foreign.Shards {
			continue
		}
		index := file{store: store, object: o}
		tables, files, err := foreign.OpenShards(ctx, foreign.File{Store: store, Object: o}, objects)
		if err != nil {
			return index.wrong("open", err)
		}
		for i, t := range tables {
			s.files = append(s.files, file{store: store, object: files[i].Object, kind: foreign.Shards, table: t})
		}
	}
	return nil
}

// tagOf changes with the content of any of several files; "" where nobody knows of one of them.
func tagOf(objects []storage.Object) string {
	h := sha256.New()
	for _, o := range objects {
		if o.Tag == "" {
			return ""
		}
		fmt.Fprintf(h, "%q %d %q\n", o.Name, o.Size, o.Tag)
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// images adds a folder of images as one file.
func (s *Set) images(ctx context.Context, store storage.Store, folder string, objects []storage.Object) error {
	var pictures []storage.Object
	var table *foreign.File
	size := int64(0)
	root := folder
	if i := strings.IndexAny(folder, "*?["); i >= 0 && storage.IsPattern(folder) {
		root = path.Dir(folder[:i] + "x")
	} else if len(objects) == 1 && objects[0].Name == folder {
		root = path.Dir(folder)
	}
	for _, o := range objects {
		switch {
		case foreign.Of(o.Name) == foreign.Images:
			pictures = append(pictures, o)
			size += o.Size
		case slices.Contains(
			foreign.Labels, strings.TrimPrefix(strings.TrimPrefix(o.Name, strings.TrimSuffix(root, "/")), "/"),
		):
			table = &foreign.File{Store: store, Object: o}
		}
	}
	one := file{
		store: store, object: storage.Object{Name: folder, Size: size, Tag: tagOf(objects)}, kind: foreign.Images,
	}
	var err error
	if one.table, err = foreign.OpenImages(ctx, store, root, pictures, table); err != nil {
		return one.wrong("open", err)
	}
	s.files = append(s.files, one)
	return nil
}

// Told says in a sentence what the user should know and is no error, or "".
func (s *Set) Told() string {
	if text := s.shelf.Why(); text != "" {
		return text
	}
	return s.alone()
}

// Told says it for the members.
func (m *Mixed) Told() string {
	for _, s := range m.sets {
		if text := s.Told(); text != "" {
			return text
		}
	}
	return ""
}
