package dataset

import (
	"encoding/binary"
	"errors"
	"net/url"
	"strconv"
	"strings"

	"hora/dataset/parquet"
	"hora/storage"
)

var errNullFolder = errors.New(`the folder's name stands for a null; say what a null becomes with nulls=`)

// key is a folder called name=value, as Hive and Spark write them.
type key struct{ name, value string }

// partition is a column whose values the folders' names are.
type partition struct {
	name string
	typ  string // int64 or string
}

// noValue is what Hive calls a null.
const noValue = "__HIVE_DEFAULT_PARTITION__"

// keys are those of the folders between a source and a file below it.
func keys(source, name string) []key {
	if i := strings.IndexAny(source, "*?["); i >= 0 && storage.IsPattern(source) {
		source = source[:strings.LastIndexByte(source[:i], '/')+1]
	}
	below, found := strings.CutPrefix(name, source)
	if !found {
		return nil
	}
	var all []key
	folders := strings.Split(strings.Trim(below, "/"), "/")
	for _, folder := range folders[:len(folders)-1] {
		if k, v, found := strings.Cut(folder, "="); found && k != "" {
			if plain, err := url.PathUnescape(v); err == nil {
				v = plain
			}
			all = append(all, key{k, v})
		}
	}
	return all
}

// partitions finds the columns that all files' folders name and no file has inside.
func (s *Set) partitions() {
	for _, k := range s.files[0].keys {
		p := partition{k.name, "int64"}
		values := make([]*string, len(s.files))
		everywhere := s.files[0].meta.Find(k.name) < 0
		for i := range s.files {
			value, found := s.files[i].key(k.name)
			everywhere = everywhere && found
			if value == noValue {
				continue
			}
			values[i] = &value
			if _, err := strconv.ParseInt(value, 10, 64); err != nil {
				p.typ = "string"
			}
		}
		if !everywhere {
			continue
		}
		s.parts = append(s.parts, p)
		for i := range s.files {
			s.files[i].parts = append(s.files[i].parts, values[i])
		}
	}
}

func (f *file) key(name string) (string, bool) {
	for _, k := range f.keys {
		if k.name == name {
			return k.value, true
		}
	}
	return "", false
}

// partition is the number of the one of that name, or -1.
func (s *Set) partition(name string) int {
	for i := range s.parts {
		if s.parts[i].name == name {
			return i
		}
	}
	return -1
}

// column describes a partition as a column that a file might have.
func (p *partition) column() *parquet.Column {
	c := &parquet.Column{Name: p.name, Type: p.typ, MayBeNull: true}
	if p.typ == "int64" {
		c.Width = 8
	}
	return c
}

// constant fills a field's column with a file's partition.
func (f *file) constant(p int, col *parquet.Column, t *parquet.Target, rows int) error {
	value := f.parts[p]
	if value == nil && t.NoNulls {
		return &parquet.Error{Group: 0, Column: col.Name, Page: -1, Err: errNullFolder}
	}
	for i := 0; value == nil && t.Mask != nil && i < rows; i++ {
		t.Mask[i*t.MaskStep] = 1
	}
	if col.Width == 0 {
		text := t.Null
		if value != nil {
			text = []byte(*value)
		}
		t.Bytes = t.Bytes[:0]
		for i := range rows {
			t.Bytes = append(t.Bytes, text...)
			t.Offsets[i+1] = int64(len(t.Bytes))
		}
		t.Offsets[0] = 0
		return nil
	}
	var word [8]byte
	copy(word[:], t.Null)
	if value != nil {
		n, err := strconv.ParseInt(*value, 10, 64)
		if err != nil {
			return err
		}
		binary.LittleEndian.PutUint64(word[:], uint64(n))
	}
	for i := range rows {
		copy(t.Data[i*t.Step:], word[:])
	}
	return nil
}
