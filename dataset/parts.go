package dataset

import (
	"context"

	"hora/dataset/parquet"
)

// Row groups as large as Spark writes them leave room for few lanes, so that little is mixed with little. Where the
// memory is short of them and the files have offset indexes, a row group becomes several blocks of equally many rows,
// and a block's fetcher reads the pages that have some of its rows. Their number of rows is part of a saved state: with
// another the order would be another.

// wantedLanes is how many lanes a cut is to make room for: more mix hardly better.
const wantedLanes = 48

// part reports whether the block is not all of its row group.
func (b *block) part(g *parquet.Group) bool { return int64(b.end-b.begin) < g.Rows }

// cut makes blocks of so many rows of the row groups that have more, and gives each row group its own block back first;
// 0 cuts none.
func (s *Set) cut(rows int64) {
	s.rowsOfParts = rows
	s.blocks, s.sizes = s.blocks[:s.groups], s.sizes[:s.groups]
	for i := range s.blocks {
		s.sizes[i] = s.blocks[i].rows
	}
	if rows <= 0 {
		return
	}
	for i := range s.groups { // those that stay whole follow too: the order of the files is kept
		b := s.blocks[i]
		g := &s.files[b.file].meta.Groups[b.group]
		if s.sizes[i] = 0; b.rows == 0 {
			continue
		}
		if g.Rows <= rows || s.files[b.file].table != nil || !g.Indexed() {
			s.blocks, s.sizes = append(s.blocks, b), append(s.sizes, b.rows)
			continue
		}
		for from := int64(0); from < g.Rows; from += rows {
			p := block{file: b.file, group: b.group, begin: int(from), end: int(min(g.Rows, from+rows))}
			p.rows = p.end - p.begin
			if b.keep != nil {
				p.take(*b.keep)
			}
			if p.rows > 0 {
				s.blocks, s.sizes = append(s.blocks, p), append(s.sizes, p.rows)
			}
		}
	}
}

// take keeps of a part the rows that are kept of its row group.
func (b *block) take(of selection) {
	keep := make(selection, (b.end-b.begin+63)/64)
	for row := b.begin; row < b.end; row++ {
		if of.has(row) {
			keep.set(row - b.begin)
		}
	}
	if b.rows = keep.count(); b.rows < b.end-b.begin {
		b.keep = &keep
	}
}

// partRows chooses of how many rows blocks are to be, so that a memory of so many rows holds the wanted lanes: whole
// pages of the largest column, since a page that two blocks share is decoded twice. 0: as the row groups are.
func (s *Set) partRows(ctx context.Context, holds, mean int64) (int64, error) {
	want := max(1, 7*holds/(8*wantedLanes))
	if mean <= want || len(s.files) == 0 {
		return 0, nil
	}
	for i := range s.blocks {
		b := &s.blocks[i]
		f := &s.files[b.file]
		if f.table != nil || b.rows == 0 {
			continue
		}
		g := &f.meta.Groups[b.group]
		c := f.largest(g)
		if c < 0 || g.Rows <= want || !g.Indexed() {
			continue
		}
		places, err := s.places(ctx, f, b.group, c)
		if err != nil {
			return 0, err
		}
		if len(places) < 2 || places[1].Row < 1 {
			return 0, nil // one page cannot be cut
		}
		page := places[1].Row
		if rows := max(page, want/page*page); rows < g.Rows {
			return rows, nil
		}
		return 0, nil
	}
	return 0, nil
}

// largest is the wanted column that has the most bytes in the group, below 0: none lies in the file.
func (f *file) largest(g *parquet.Group) int {
	found, most := -1, int64(-1)
	for _, columns := range f.index {
		for _, c := range columns {
			if c >= 0 && g.Chunks[c].Plain > most {
				found, most = c, g.Chunks[c].Plain
			}
		}
	}
	return found
}

// places reads one chunk's offset index.
func (s *Set) places(ctx context.Context, f *file, group, chunk int) ([]parquet.Place, error) {
	g := &f.meta.Groups[group]
	at, n := g.Chunks[chunk].Indexed()
	index := make([]byte, n)
	if err := f.store.ReadAt(ctx, f.object, index, at); err != nil {
		return nil, f.wrong("open", err)
	}
	places, err := g.Places(chunk, index)
	if err != nil {
		return nil, f.wrong("open", &parquet.Error{Group: group, Column: f.meta.Columns[chunk].Name, Page: -1, Err: err})
	}
	return places, nil
}

// piece is what a block has of a column: so many rows of the row group from the row first on, in a dictionary, where it
// lies apart, and pages. A block that is part of a row group has rows before and behind its own in them.
type piece struct {
	spans       [2]span
	first, rows int64
	data        [2]parquet.Piece
}

// pieces finds where the block's columns lie.
func (st *stages) pieces(l *loaded, b *block, f *file, g *parquet.Group) error {
	l.pieces = l.pieces[:0]
	if !b.part(g) {
		f.wanted(func(c int) {
			l.pieces = append(l.pieces, piece{spans: [2]span{1: chunkSpan(&g.Chunks[c])}, rows: g.Rows})
		})
		return nil
	}
	l.spans = l.spans[:0]
	f.wanted(func(c int) { l.spans = append(l.spans, indexSpan(&g.Chunks[c])) })
	merged := merge(l.spans)
	index := make([]byte, length(merged))
	if err := f.fetch(st.ctx, merged, index); err != nil {
		return err
	}
	var wrong error
	f.wanted(func(c int) {
		places, err := g.Places(c, within(index, merged, indexSpan(&g.Chunks[c])))
		if err != nil && wrong == nil {
			wrong = f.wrong("read", &parquet.Error{Group: b.group, Column: f.meta.Columns[c].Name, Page: -1, Err: err})
		}
		if wrong == nil {
			l.pieces = append(l.pieces, b.pages(g, c, places))
		}
	})
	return wrong
}

// pages are those of a chunk that have the block's rows.
func (b *block) pages(g *parquet.Group, c int, places []parquet.Place) piece {
	from, to := 0, len(places)
	for from+1 < to && places[from+1].Row <= int64(b.begin) {
		from++
	}
	for to-1 > from && places[to-1].Row >= int64(b.end) {
		to--
	}
	end := g.Rows
	if to < len(places) {
		end = places[to].Row
	}
	last := places[to-1]
	return piece{
		spans: [2]span{{g.Chunks[c].Offset, places[0].Offset}, {places[from].Offset, last.Offset + last.Bytes}},
		first: places[from].Row, rows: end - places[from].Row,
	}
}

// beside is what rows that are not the block's are decoded into, and texts, to be copied from there.
type beside struct {
	data, mask []byte
	ends       []int64
}

// piece decodes a column's piece. Where its pages have the block's rows and no others they go to their place at once.
func (d *decoder) piece(f *file, b *block, c int, p *piece, t *parquet.Target) error {
	g := &f.meta.Groups[b.group]
	k := &g.Chunks[c]
	part := parquet.Part{First: int(p.first), Values: k.Values, Pieces: p.data[:]}
	if p.spans[0].begin == p.spans[0].end {
		part.Pieces = p.data[1:]
	}
	if p.rows < g.Rows {
		part.Values = p.rows * int64(max(1, t.Per))
		if t.Ragged {
			part.Values = -1
		}
	}
	rows, before := b.end-b.begin, b.begin-int(p.first)
	if int64(rows) == p.rows {
		return d.Part(b.group, &f.meta.Columns[c], k, &part, t)
	}
	more := *t
	texts := t.Offsets != nil
	if texts {
		d.beside.ends = grow(d.beside.ends, int(p.rows)+1)
		more.Bytes, more.Offsets = d.beside.data, d.beside.ends
	} else {
		d.beside.data = grow(d.beside.data, int(p.rows)*t.Per*t.Step)
		more.Data = d.beside.data
	}
	if t.Mask != nil {
		d.beside.mask = grow(d.beside.mask, int(p.rows)*t.Per)
		clear(d.beside.mask)
		more.Mask, more.MaskStep = d.beside.mask, 1
	}
	err := d.Part(b.group, &f.meta.Columns[c], k, &part, &more)
	if texts {
		d.beside.data = more.Bytes
	}
	if err != nil {
		return err
	}
	for i := before * t.Per; t.Mask != nil && i < (before+rows)*t.Per; i++ {
		t.Mask[(i-before*t.Per)*t.MaskStep] = more.Mask[i]
	}
	if !texts {
		copy(t.Data, more.Data[before*t.Per*t.Step:(before+rows)*t.Per*t.Step])
		return nil
	}
	ends := more.Offsets[before : before+rows+1]
	t.Bytes = append(t.Bytes[:0], more.Bytes[ends[0]:ends[rows]]...)
	for i, end := range ends {
		t.Offsets[i] = end - ends[0]
	}
	return nil
}
