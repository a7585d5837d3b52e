package dataset

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"hora/dataset/parquet"
	foreign "hora/dataset/source"
)

// Look is what one finds in data without training on them.
type Look struct {
	Files      int          `json:"files"`
	Blocks     int          `json:"row_groups"`
	Rows       int64        `json:"rows"`
	Bytes      int64        `json:"bytes"`   // of the files
	Decoded    int64        `json:"decoded"` // of all rows in memory; of texts as they are stored
	Format     string       `json:"format"`
	Writer     string       `json:"writer"`
	Checksums  bool         `json:"page_checksums"` // of the first page
	Mixing     string       `json:"mixing"`
	RowsPerSec float64      `json:"rows_per_second"` // that one thread decodes of the first row group
	Columns    []LookColumn `json:"columns"`
}

// LookColumn is a column of the first file.
type LookColumn struct {
	Name  string `json:"name"`
	Type  string `json:"type"`
	Codec string `json:"codec"`
	Nulls bool   `json:"may_be_null"`
	Why   string `json:"unreadable,omitempty"`
}

// Inspect looks at data.
func Inspect(ctx context.Context, source []string, memory int64, lookup func(string) string) (*Look, error) {
	if memory == 0 {
		memory = defaultMemory
	}
	s := &Set{cfg: Config{Source: source, Memory: memory, Threads: 1, Nulls: map[string]any{}, Lookup: lookup}}
	if err := s.find(ctx); err != nil {
		return nil, err
	}
	first := &s.files[0]
	l := &Look{
		Files: len(s.files), Blocks: len(s.blocks), Rows: s.rows, Format: first.kind.String(), Writer: first.meta.By,
	}
	for i := range s.files {
		l.Bytes += s.files[i].object.Size
	}
	for i := range first.meta.Columns {
		l.column(s, i)
	}
	if len(s.cfg.Fields) == 0 {
		return l, nil
	}
	if err := s.resolve(); err != nil {
		return nil, err
	}
	if err := s.order(ctx); err != nil {
		return nil, err
	}
	l.Mixing, l.Decoded = s.Mixing(), s.rows*s.rowBytes()
	lenient := &Set{cfg: Config{Source: source, Threads: 1, Nulls: map[string]any{"*": "mask"}}}
	lenient.files, lenient.blocks, lenient.parts, lenient.rows = s.files, s.blocks, s.parts, s.rows
	lenient.everything()
	if err := lenient.resolve(); err != nil {
		return nil, err
	}
	return l, l.try(ctx, lenient)
}

func (l *Look) column(s *Set, i int) {
	first := &s.files[0]
	c := &first.meta.Columns[i]
	col := LookColumn{Name: c.Name, Type: kind(c), Nulls: c.MayBeNull, Why: c.Why}
	if len(first.meta.Groups) > 0 {
		col.Codec = first.meta.Groups[0].Chunks[i].Codec()
	}
	if c.List && c.Why == "" {
		col.Type = c.Type + "[…]"
		if per := s.perRow(i); per > 0 {
			col.Type = fmt.Sprintf("%s[%d]", c.Type, per)
		}
	}
	if col.Why == "" {
		s.cfg.Fields = append(s.cfg.Fields, Want{Name: c.Name, Columns: []string{c.Name}})
		if !strings.HasPrefix(c.Type, "float") && !c.List {
			s.cfg.Nulls[c.Name] = "mask"
		}
	}
	l.Columns = append(l.Columns, col)
}

// try decodes the first row group with rows.
func (l *Look) try(ctx context.Context, s *Set) error {
	b := slices.IndexFunc(s.blocks, func(b block) bool { return b.rows > 0 })
	f := &s.files[s.blocks[b].file]
	var err error
	if l.Checksums, err = s.checked(ctx, f); err != nil {
		return err
	}
	n := len(s.fields)
	st := &stages{set: s, ctx: ctx}
	one := &loaded{block: b, data: make([][]byte, n), ends: make([][]int64, n), mask: make([][]byte, n)}
	if err := st.read(one); err != nil {
		return err
	}
	var d decoder
	for range 2 { // the first time takes the memory
		begin := time.Now()
		if err := s.columns(&d, one); err != nil {
			return err
		}
		l.RowsPerSec = float64(s.blocks[b].rows) / time.Since(begin).Seconds()
	}
	return nil
}

// checked reports whether damage of a file can be told from data: of Parquet by its
// first page.
func (s *Set) checked(ctx context.Context, f *file) (bool, error) {
	if f.table != nil {
		return f.table.Checked(), nil
	}
	g := slices.IndexFunc(f.meta.Groups, func(g parquet.Group) bool { return g.Rows > 0 })
	if g < 0 {
		return true, nil
	}
	k := &f.meta.Groups[g].Chunks[max(0, f.index[0][0])]
	head := make([]byte, min(k.Compressed, 256))
	if err := f.store.ReadAt(ctx, f.object, head, k.Offset); err != nil {
		return false, err
	}
	return parquet.HasChecksum(head), nil
}

// Write writes a page about the data.
func (l *Look) Write(to io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%d rows in %d files, %d row groups of %d rows; %s on disk, %s decoded; written by %s\n",
		l.Rows, l.Files, l.Blocks, l.Rows/int64(max(1, l.Blocks)), size(l.Bytes), size(l.Decoded), l.Writer)
	if l.Mixing != "" {
		fmt.Fprintf(&b, "mixing: %s\n", l.Mixing)
		fmt.Fprintf(&b, "reading: one thread decodes %.0f thousand rows a second of the first row group\n", l.RowsPerSec/1e3)
	}
	if !l.Checksums && l.Format != foreign.None.String() {
		fmt.Fprintf(&b, "files of this format (%s) have no checksums: damage cannot be told from data; hora data convert writes a table that has\n", l.Format)
	} else if !l.Checksums {
		b.WriteString("its pages have no checksums: damage cannot be told from data; pyarrow writes them with write_page_checksum=True\n")
	}
	width := 0
	for _, c := range l.Columns {
		width = max(width, len(c.Name))
	}
	for _, c := range l.Columns {
		said := c.Type
		if c.Nulls {
			said += ", may be null"
		}
		if c.Why != "" {
			said = "cannot be read: " + c.Why
		}
		fmt.Fprintf(&b, "  %-*s  %s (%s)\n", width, c.Name, said, c.Codec)
	}
	_, err := io.WriteString(to, b.String())
	return err
}

func size(n int64) string {
	switch {
	case n >= 10<<30:
		return fmt.Sprintf("%d GiB", n>>30)
	case n >= 10<<20:
		return fmt.Sprintf("%d MiB", n>>20)
	}
	return fmt.Sprintf("%d KiB", n>>10)
}
