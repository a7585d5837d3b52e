package dataset

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"hora/dataset/parquet"
	foreign "hora/dataset/source"
)

// loaded is a decoded block. Its gatherer asks for it, a fetcher and a decoder fill it,
// and after ready is closed it is the gatherer's until he lets it go.
type loaded struct {
	block int
	ready chan struct{}
	err   error

	raw    []byte  // fetched; the stages have it back when the block is decoded
	pieces []piece // of each wanted column
	spans  []span
	data   [][]byte  // of each field: its rows, or its texts
	ends   [][]int64 // of text fields: where each begins, and the end
	mask   [][]byte
	kept   bool // the columns are a Set's for good; nobody writes to them again
}

// stages are a reader's fetchers and decoders.
type stages struct {
	set     *Set
	ctx     context.Context
	fetch   chan *loaded
	decode  chan *loaded
	workers sync.WaitGroup
	fetched sync.WaitGroup
	spare   chan *loaded
	raws    chan []byte // what blocks are fetched into: as many as are fetched or decoded at a time
	times   times

	kept    *kept // where blocks stay; nil: nowhere. What follows belongs to it
	wanted  []*loaded
	others  []*loaded     // wanted ones that others load
	more    chan struct{} // something is wanted, or there
	closing chan struct{}
}

// times are nanoseconds that stages worked and waited, and how many blocks were read.
type times struct {
	fetch, decode, gather, caller, blocks, full, read atomic.Int64
}

func since(t *atomic.Int64, begin time.Time) { t.Add(int64(time.Since(begin))) }

func (s *Set) start(ctx context.Context, fetchers, depth int) *stages {
	st := &stages{
		set: s, ctx: ctx, fetch: make(chan *loaded, depth), decode: make(chan *loaded),
		spare: make(chan *loaded, depth), raws: make(chan []byte, fetchers+s.cfg.Threads),
		kept: s.keep(), more: make(chan struct{}, 1), closing: make(chan struct{}),
	}
	for range fetchers {
		st.fetched.Go(func() {
			for l := st.next(); l != nil; l = st.next() {
				begin := time.Now()
				st.times.read.Add(1)
				l.err = st.read(l)
				since(&st.times.fetch, begin)
				st.decode <- l
			}
		})
	}
	st.workers.Go(func() {
		st.fetched.Wait()
		close(st.decode)
	})
	for range s.cfg.Threads {
		st.workers.Go(func() {
			d := decoder{}
			for l := range st.decode {
				begin := time.Now()
				if l.err == nil {
					l.err = ctx.Err() // nobody wants it any more
				}
				if l.err == nil {
					l.err = st.columns(&d, l)
				}
				since(&st.times.decode, begin)
				select {
				case st.raws <- l.raw:
				default:
				}
				l.raw = nil
				if st.kept != nil {
					st.kept.over(st, l.block)
				}
				close(l.ready)
			}
		})
	}
	return st
}

// next is the next block to fetch; nil after the last one.
func (st *stages) next() *loaded {
	if st.kept != nil {
		return st.kept.next(st)
	}
	return <-st.fetch
}

// columns decodes a block.
func (st *stages) columns(d *decoder, l *loaded) error {
	if st.kept != nil {
		return st.kept.decode(d, l)
	}
	return st.set.columns(d, l)
}

// ask begins to load a block.
func (st *stages) ask(block int) *loaded {
	if st.kept != nil {
		return st.kept.want(st, block)
	}
	var l *loaded
	select {
	case l = <-st.spare:
	default:
		n := len(st.set.fields)
		l = &loaded{data: make([][]byte, n), ends: make([][]int64, n), mask: make([][]byte, n)}
	}
	l.block, l.err, l.ready = block, nil, make(chan struct{})
	st.fetch <- l
	return l
}

// drop lets a block go whose loading has ended.
func (st *stages) drop(l *loaded) {
	if st.kept != nil {
		return
	}
	select {
	case st.spare <- l:
	default:
	}
}

func (st *stages) close() {
	close(st.fetch)
	close(st.closing)
	st.workers.Wait()
	if st.kept != nil {
		st.kept.leave()
	}
}

// gap is how far apart two ranges may lie that are read at once.
const gap = 128 << 10

type span struct{ begin, end int64 }

// read fetches the bytes of the block's wanted columns, near ones together.
func (st *stages) read(l *loaded) error {
	if st.ctx.Err() != nil {
		return st.ctx.Err()
	}
	b := &st.set.blocks[l.block]
	f := &st.set.files[b.file]
	g := &f.meta.Groups[b.group]
	if l.raw == nil {
		select {
		case l.raw = <-st.raws:
		default:
		}
	}
	if f.table != nil {
		raw, err := f.table.Fetch(st.ctx, b.group, l.raw)
		if err != nil {
			return f.wrong("read", err)
		}
		l.raw = raw
		return nil
	}
	if err := st.pieces(l, b, f, g); err != nil {
		return err
	}
	l.spans = l.spans[:0]
	for i := range l.pieces {
		for _, s := range l.pieces[i].spans {
			if s.begin < s.end {
				l.spans = append(l.spans, s)
			}
		}
	}
	merged := merge(l.spans)
	total := length(merged)
	if total > maxBlock {
		return f.wrong("read", fmt.Errorf("row group %d has %d MiB, more than hora reads at once", b.group, total>>20))
	}
	if int64(cap(l.raw)) < total {
		l.raw = make([]byte, total, spacious(total))
	}
	l.raw = l.raw[:total]
	if err := f.fetch(st.ctx, merged, l.raw); err != nil {
		return err
	}
	for i := range l.pieces {
		p := &l.pieces[i]
		for n, s := range p.spans {
			p.data[n] = parquet.Piece{Offset: s.begin, Data: within(l.raw, merged, s)}
		}
	}
	return nil
}

// decoder is what one goroutine decodes with.
type decoder struct {
	parquet.Decoder
	side    []byte // columns of a matrix, one after the other
	beside  beside
	scratch *loaded // what is decoded into before it is kept
	fields  foreign.Fields
	columns []int // that fields are of
}

// wanted calls do for each column of the file that is wanted.
func (f *file) wanted(do func(c int)) {
	for i := range f.index {
		for _, c := range f.index[i] {
			if c >= 0 {
				do(c)
			}
		}
	}
}

func chunkSpan(k *parquet.Chunk) span { return span{k.Offset, k.Offset + k.Compressed} }

func indexSpan(k *parquet.Chunk) span {
	at, n := k.Indexed()
	return span{at, at + n}
}

// merge makes one span of those that lie near each other, in their place.
func merge(spans []span) []span {
	slices.SortFunc(spans, func(a, b span) int { return cmp.Compare(a.begin, b.begin) })
	merged := spans[:min(1, len(spans))] // none where only folders' names are asked for
	for i, s := range spans {
		if i == 0 {
			continue
		}
		if last := &merged[len(merged)-1]; s.begin <= last.end+gap {
			last.end = max(last.end, s.end)
		} else {
			merged = append(merged, s)
		}
	}
	return merged
}

// length is how many bytes spans have together.
func length(spans []span) int64 {
	n := int64(0)
	for _, s := range spans {
		n += s.end - s.begin
	}
	return n
}

// fetch reads spans to one place, one behind the other.
func (f *file) fetch(ctx context.Context, spans []span, to []byte) error {
	for _, s := range spans {
		n := s.end - s.begin
		if err := f.store.ReadAt(ctx, f.object, to[:n], s.begin); err != nil {
			return f.wrong("read", err)
		}
		to = to[n:]
	}
	return nil
}

// within finds a span's bytes among those that fetch has read.
func within(raw []byte, spans []span, want span) []byte {
	at := int64(0)
	for _, s := range spans {
		if want.begin >= s.begin && want.end <= s.end {
			return raw[at+want.begin-s.begin : at+want.end-s.begin]
		}
		at += s.end - s.begin
	}
	return nil
}

// columns decodes a block.
func (s *Set) columns(d *decoder, l *loaded) error {
	b := &s.blocks[l.block]
	f := &s.files[b.file]
	g := &f.meta.Groups[b.group]
	rows := b.end - b.begin
	total := int64(0)
	for i := range s.fields {
		total += int64(rows) * int64(s.fields[i].Width)
	}
	if total > maxBlock {
		return f.wrong("read", fmt.Errorf("row group %d has %d rows, %d MiB, more than hora reads at once", b.group, rows, total>>20))
	}
	read := 0 // pieces
	split, parsed := f.table.(foreign.Splitter)
	if parsed {
		d.columns = d.columns[:0]
		f.wanted(func(c int) { d.columns = append(d.columns, c) })
		if err := split.Split(b.group, d.columns, l.raw, &d.fields); err != nil {
			return f.wrong("read", err)
		}
	}
	for i := range s.fields {
		fd := &s.fields[i]
		t := parquet.Target{Per: fd.per, Null: fd.null, NoNulls: fd.noNul, Most: maxBlock}
		if fd.text {
			l.ends[i] = grow(l.ends[i], rows+1)
			t.Bytes, t.Offsets, t.Ragged = l.data[i], l.ends[i], fd.lists
		} else {
			l.data[i] = growLarge(l.data[i], rows*fd.Width)
		}
		if fd.Mask {
			l.mask[i] = grow(l.mask[i], rows*fd.per*len(fd.cols))
			clear(l.mask[i])
		}
		matrix := len(fd.cols) > 1
		if matrix {
			d.side = grow(d.side, rows*fd.Width)
		}
		for n, col := range fd.cols {
			if t.Step = fd.value; matrix {
				t.Data = d.side[col.offset*rows:]
			} else {
				t.Data = l.data[i]
			}
			if fd.Mask {
				t.Mask, t.MaskStep = l.mask[i][n:], len(fd.cols)
			}
			c := f.index[i][n]
			if fd.text && c >= 0 && !b.part(g) {
				t.Bytes = ample(t.Bytes, &g.Chunks[c])
			}
			err := error(nil)
			switch {
			case c < 0:
				err = f.constant(-1-c, s.column(f, c), &t, rows)
			case parsed:
				err = split.DecodeFields(b.group, c, &d.fields, &t)
			case f.table != nil:
				err = f.table.Decode(b.group, c, l.raw, &t)
			default:
				err = d.piece(f, b, c, &l.pieces[read], &t)
				read++
			}
			if err != nil {
				return f.wrong("read", err)
			}
		}
		if fd.text {
			l.data[i] = t.Bytes
		}
		if matrix {
			interleave(l.data[i], d.side, len(fd.cols), fd.value)
		}
	}
	if b.keep != nil {
		s.compact(l, b)
	}
	return nil
}

// ample has room for the texts of a chunk, as far as what is said of their size is
// borne out by what lies in the file.
func ample(b []byte, k *parquet.Chunk) []byte {
	if want := min(k.Plain, max(4*k.Compressed, 1<<20), maxBlock); int64(cap(b)) < want {
		return make([]byte, 0, spacious(want))
	}
	return b
}

// spacious adds an eighth to a size: row groups of a file are alike and not equal, and room that each of them finds a
// little too small is made, and cleared, anew for each.
func spacious(n int64) int64 { return n + n/8 }

// interleave makes rows of columns that lie one after the other, a few rows at a time:
// what is written stays in the nearest cache, and each column is read once along.
func interleave(to, from []byte, columns, width int) {
	switch width {
	case 4:
		turn[uint32](to, from, columns)
	case 8:
		turn[uint64](to, from, columns)
	default:
		rows := len(to) / width / columns
		for c := range columns {
			for r := range rows {
				copy(to[(r*columns+c)*width:][:width], from[(c*rows+r)*width:])
			}
		}
	}
}

func turn[T uint32 | uint64](toBytes, fromBytes []byte, columns int) {
	const few = 64
	n := len(toBytes) / int(unsafe.Sizeof(T(0)))
	to := unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(toBytes))), n)
	from := unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(fromBytes))), n)
	rows := n / columns
	for r := 0; r < rows; r += few {
		k := min(few, rows-r)
		part := to[r*columns : (r+k)*columns]
		for c := range columns {
			at := c
			for _, v := range from[c*rows+r : c*rows+r+k] {
				part[at] = v
				at += columns
			}
		}
	}
}

// growLarge is grow for what rows are gathered from.
func growLarge(s []byte, n int) []byte {
	if cap(s) < n {
		s = make([]byte, n)
		large(s)
	}
	return s[:n]
}

func grow[T any](s []T, n int) []T {
	if cap(s) < n {
		return make([]T, n)
	}
	return s[:n]
}
