package dataset

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"
	"unsafe"

	"hora/dataset/parquet"
	"hora/dataset/plan"
	"hora/storage"
)

// Conversion says what is to be written of which data.
type Conversion struct {
	Source      []string
	To          string   // a folder, or a file that ends in .parquet
	Columns     []string // none: each that can be read
	Ragged      []string // lists that have different lengths even where they look equally long
	Group       int64    // bytes that a row group has in memory; 0: a MiB
	Compression string   // snappy, zstd or none; "": snappy
	Threads     int
	Lookup      func(string) string
}

// Converted is what was written.
type Converted struct {
	Rows   int64    `json:"rows"`
	Files  []string `json:"files"`
	Groups int      `json:"row_groups"`
	Bytes  int64    `json:"bytes"`
	Left   []string `json:"columns_that_are_not_read"`
}

const (
	partBytes = 256 << 20 // of a file of a folder, in memory
	maxSingle = 4 << 30   // of a single file, compressed
)

// Convert writes data as Parquet with row groups of about a MiB, page checksums and
// offset indexes. A folder is there under its name when all of it is; in storage behind a
// network, where folders have no names of their own, _SUCCESS comes last.
func Convert(ctx context.Context, c Conversion) (*Converted, error) {
	if c.Group <= 0 {
		c.Group = 1 << 20
	}
	if c.Compression == "" {
		c.Compression = "snappy"
	}
	to, err := storage.Find(c.To, c.Lookup)
	if err != nil {
		return nil, err
	}
	if err := vacant(ctx, to, c.To); err != nil {
		return nil, err
	}
	v := &Converted{}
	s, err := c.open(ctx, v)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	w := &converter{c: &c, v: v, set: s, store: to, folder: c.To}
	if _, local := to.(interface{ Local() }); local && !isParquet(c.To) {
		parent := filepath.Dir(strings.TrimSuffix(c.To, "/"))
		if err := os.MkdirAll(parent, 0o755); err != nil {
			return nil, fmt.Errorf("write %s: %w; choose a place where this user may write", c.To, err)
		}
		if w.folder, err = os.MkdirTemp(parent, ".hora-convert-*"); err != nil {
			return nil, fmt.Errorf("write %s: %w; choose a place where this user may write", c.To, err)
		}
		defer os.RemoveAll(w.folder) // nothing when it has its name
		if err := w.run(ctx); err != nil {
			return nil, err
		}
		for i, name := range v.Files {
			v.Files[i] = filepath.Join(c.To, filepath.Base(name))
		}
		if err := errors.Join(
			os.Chmod(w.folder, 0o755), os.Rename(w.folder, strings.TrimSuffix(c.To, "/")),
		); err != nil {
			return nil, fmt.Errorf("write %s: %w", c.To, err)
		}
		return v, nil
	}
	return v, w.run(ctx)
}

// vacant refuses to write over anything.
func vacant(ctx context.Context, to storage.Store, name string) error {
	if strings.HasPrefix(name, "http://") || strings.HasPrefix(name, "https://") {
		return fmt.Errorf("write %s: a web server takes no table; give a path of this machine, or an address of an object storage", name)
	}
	_, err := to.List(ctx, name)
	if err == nil {
		return fmt.Errorf("write %s: it is there already; choose another name, or remove it first", name)
	}
	if !errors.Is(err, storage.ErrNotFound) {
		return err
	}
	return nil
}

// open opens the source in its order, with nulls told apart.
func (c *Conversion) open(ctx context.Context, v *Converted) (*Set, error) {
	s := &Set{hold: 1 << 62, cfg: Config{
		Source: c.Source, Memory: 1 << 62, Threads: max(1, c.Threads), Lookup: c.Lookup, Shuffle: None,
		Nulls: map[string]any{"*": "mask"},
	}}
	if err := s.find(ctx); err != nil {
		return nil, err
	}
	wanted := c.Columns
	for i := range s.files[0].meta.Columns {
		col := &s.files[0].meta.Columns[i]
		switch {
		case col.Why != "" && !slices.Contains(c.Columns, col.Name):
			v.Left = append(v.Left, col.Name+": "+col.Why)
		case len(c.Columns) == 0:
			wanted = append(wanted, col.Name)
		}
	}
	for _, p := range s.parts {
		if len(c.Columns) == 0 {
			wanted = append(wanted, p.name)
		}
	}
	if len(wanted) == 0 {
		return nil, fmt.Errorf("convert %s: it has no column that hora reads", strings.Join(c.Source, ", "))
	}
	for _, name := range c.Ragged {
		if !slices.Contains(wanted, name) {
			return nil, fmt.Errorf("convert %s: ragged= names %q, which is not among the columns that are written", strings.Join(c.Source, ", "), name)
		}
	}
	for _, name := range wanted {
		ragged := slices.Contains(c.Ragged, name)
		s.cfg.Fields = append(s.cfg.Fields, Want{Name: name, Columns: []string{name}, Ragged: ragged})
	}
	return s, errors.Join(s.resolve(), s.order(ctx))
}

// converter writes a source's rows to file after file.
type converter struct {
	c      *Conversion
	v      *Converted
	set    *Set
	store  storage.Store
	folder string

	out    bytes.Buffer
	w      *parquet.Writer
	plain  int64 // bytes of the rows in out
	values []parquet.Values
}

func (w *converter) run(ctx context.Context) error {
	each := max(1, w.set.rowBytes())
	r, err := w.set.Read(Walk{Size: 1, Batch: max(1, w.c.Group/each), Last: plan.Short})
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
			if err := w.finish(ctx); err != nil || isParquet(w.c.To) {
				return err
			}
			return w.store.Put(ctx, w.folder+"/_SUCCESS", nil)
		case err != nil:
			return err
		}
		err = w.group(r, b)
		w.plain += int64(b.Rows) * each
		b.Release()
		if err == nil && !isParquet(w.c.To) && w.plain >= partBytes {
			err = w.finish(ctx)
		}
		if err == nil && w.out.Len() > maxSingle {
			err = fmt.Errorf("write %s: it would have more than %d GiB; give a folder, in which several files are written", w.c.To, maxSingle>>30)
		}
		if err != nil {
			return err
		}
	}
}

// group writes a batch as a row group.
func (w *converter) group(r *Reader, b *Batch) error {
	fields := r.Layout()
	if w.w == nil {
		var columns []parquet.Out
		for i := range fields {
			f := &fields[i]
			o := parquet.Out{Name: f.Name, Type: f.Type, Count: f.Count, Nulls: f.Mask}
			if f.Item != 0 {
				o.Count, o.Nulls = -1, f.Item < 0 // of numbers nulls are none: they have become values
			}
			columns = append(columns, o)
		}
		var err error
		if w.w, err = parquet.NewWriter(&w.out, "hora", w.c.Compression, columns); err != nil {
			return fmt.Errorf("write %s: %w", w.c.To, err)
		}
	}
	w.values = w.values[:0]
	h, mem := b.slot.header(), b.Memory()
	for i := range fields {
		f := &fields[i]
		var v parquet.Values
		if f.Text >= 0 {
			begin, n := h[f.Text], h[f.Text+1]
			v.Data = mem[begin : begin+n]
			v.Ends = unsafe.Slice((*int64)(unsafe.Pointer(&mem[f.At])), b.Rows+1)
		} else {
			v.Data = mem[f.At : f.At+f.Width*b.Rows]
		}
		if f.Mask {
			v.Null = mem[f.MaskAt : f.MaskAt+b.Rows*max(1, f.Count)]
		}
		w.values = append(w.values, v)
	}
	if err := w.w.Group(b.Rows, w.values); err != nil {
		return fmt.Errorf("write %s: %w", w.c.To, err)
	}
	w.v.Rows += int64(b.Rows)
	w.v.Groups++
	return nil
}

// finish puts a file where it belongs.
func (w *converter) finish(ctx context.Context) error {
	if w.w == nil {
		return nil
	}
	if err := w.w.Close(); err != nil {
		return err
	}
	name := w.c.To
	if !isParquet(name) {
		name = strings.TrimSuffix(w.folder, "/") + "/" + fmt.Sprintf("part-%05d.parquet", len(w.v.Files))
	} else if _, local := w.store.(interface{ Local() }); local {
		if err := os.MkdirAll(path.Dir(name), 0o755); err != nil {
			return fmt.Errorf("write %s: %w; choose a place where this user may write", name, err)
		}
	}
	if err := w.store.Put(ctx, name, w.out.Bytes()); err != nil {
		return err
	}
	w.v.Files = append(w.v.Files, name)
	w.v.Bytes += int64(w.out.Len())
	w.out.Reset()
	w.w, w.plain = nil, 0
	return nil
}

// Write writes it as lines.
func (v *Converted) Write(to io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%d rows were written to %d files, %s, in %d row groups with page checksums and offset indexes\n", v.Rows, len(v.Files), size(v.Bytes), v.Groups)
	for _, name := range v.Left {
		fmt.Fprintf(&b, "left out: column %s\n", name)
	}
	_, err := io.WriteString(to, b.String())
	return err
}
