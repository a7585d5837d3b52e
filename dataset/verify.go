package dataset

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"hora/dataset/plan"
)

// Verified is what reading all of the data has found.
type Verified struct {
	Files     int       `json:"files"`
	Blocks    int       `json:"row_groups"`
	Rows      int64     `json:"rows"`
	Unchecked []string  `json:"files_without_checksums"`
	Left      []string  `json:"columns_that_are_not_read"`
	Damaged   []Skipped `json:"damaged"`
}

// Verify decodes every column of every row group that hora reads.
func Verify(ctx context.Context, source []string, threads int, lookup func(string) string) (*Verified, error) {
	s := &Set{hold: 1 << 62, cfg: Config{
		Source: source, Memory: 1 << 62, Threads: max(1, threads), Lookup: lookup, Skip: true, Shuffle: None,
		Nulls: map[string]any{"*": "mask"},
	}}
	if err := s.find(ctx); err != nil {
		return nil, err
	}
	v := &Verified{Files: len(s.files), Blocks: len(s.blocks), Rows: s.rows, Damaged: []Skipped{}}
	v.Left = s.everything()
	if len(s.cfg.Fields) == 0 {
		return nil, fmt.Errorf("verify %s: it has no column that hora reads", strings.Join(source, ", "))
	}
	if err := errors.Join(s.resolve(), s.order(ctx)); err != nil {
		return nil, err
	}
	defer s.Close()
	if err := v.checksums(ctx, s); err != nil {
		return nil, err
	}
	list := make([]int, len(s.blocks))
	for i := range list {
		list[i] = i
	}
	r, err := s.Read(Walk{Size: 1, Batch: 1, Last: plan.Short, Blocks: list})
	if err != nil {
		return nil, err
	}
	defer r.Close()
	for {
		b, err := r.Next(50 * time.Millisecond)
		switch {
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case errors.Is(err, ErrNotYet):
		case errors.Is(err, io.EOF):
			v.Damaged = s.Skipped()
			return v, nil
		case err != nil:
			return nil, err
		default:
			b.Release()
		}
	}
}

// everything wants every column that can be read, lets nothing but damage be an error, and answers which are left out.
func (s *Set) everything() (left []string) {
	for i := range s.files[0].meta.Columns {
		c := &s.files[0].meta.Columns[i]
		if c.Why != "" {
			left = append(left, c.Name+": "+c.Why)
			continue
		}
		s.cfg.Fields = append(s.cfg.Fields, Want{Name: c.Name, Columns: []string{c.Name}, Ragged: c.List})
		switch {
		case !c.List || c.Width == 0:
		case c.Type == "bool":
			s.cfg.Nulls[c.Name] = false
		case strings.HasPrefix(c.Type, "V"):
			s.cfg.Nulls[c.Name] = nil
		default:
			s.cfg.Nulls[c.Name] = json.Number("0")
		}
	}
	return left
}

// checksums finds the files whose first page has none.
func (v *Verified) checksums(ctx context.Context, s *Set) error {
	for i := range s.files {
		f := &s.files[i]
		checked, err := s.checked(ctx, f)
		if err != nil {
			return err
		}
		if !checked {
			v.Unchecked = append(v.Unchecked, f.object.Name)
		}
	}
	return nil
}

// Write writes it as lines.
func (v *Verified) Write(to io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%d rows in %d files, %d row groups were decoded\n", v.Rows, v.Files, v.Blocks)
	for _, name := range v.Left {
		fmt.Fprintf(&b, "not read: column %s\n", name)
	}
	switch n := len(v.Unchecked); {
	case n == 0:
		b.WriteString("pages have checksums, and they were compared\n")
	default:
		fmt.Fprintf(&b, "%d of the files have no checksums, so damage that still decodes is not found: %s …\n", n, v.Unchecked[0])
	}
	for _, d := range v.Damaged {
		fmt.Fprintf(&b, "damaged: %s\n", d.Why)
	}
	if len(v.Damaged) == 0 {
		b.WriteString("no damage was found\n")
	}
	_, err := io.WriteString(to, b.String())
	return err
}
