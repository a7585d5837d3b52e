package dataset

import (
	"context"
	"errors"
	"slices"
	"sync"

	"hora/storage"
)

// Skipped is a row group that was left out, or a file.
type Skipped struct {
	File  string `json:"file"`
	Group int    `json:"row_group"`           // -1: the whole file
	First int    `json:"first_row,omitempty"` // of the row group, where only some of its rows are left out
	Rows  int    `json:"rows"`                // that it would have had
	Why   string `json:"why"`
}

// skipped are a Set's.
type skipped struct {
	mu  sync.Mutex // guards all
	all []Skipped
}

func (s *skipped) add(one Skipped) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !slices.ContainsFunc(s.all, func(a Skipped) bool {
		return a.File == one.File && a.Group == one.Group && a.First == one.First
	}) {
		s.all = append(s.all, one)
	}
}

func (s *skipped) list() []Skipped {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]Skipped{}, s.all...) // never nil: it becomes JSON
}

// Skipped lists what was left out so far because it is damaged.
func (s *Set) Skipped() []Skipped { return s.skipped.list() }

// damage reports whether an error comes from what a file has in it. A storage that does
// not answer is no damage: other ranks may well have read what one could not.
func damage(err error) bool {
	var storage *storage.Error
	return !errors.As(err, &storage)
}

// skip notes a block that cannot be decoded, if such blocks are left out.
func (s *Set) skip(block int, err error) bool {
	if !s.cfg.Skip || !damage(err) || errors.Is(err, context.Canceled) {
		return false
	}
	b := &s.blocks[block]
	s.skipped.add(Skipped{
		File: s.files[b.file].object.Name, Group: b.group, First: b.begin, Rows: b.rows, Why: err.Error(),
	})
	return true
}
