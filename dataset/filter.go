package dataset

import (
	"context"
	"fmt"
	"math/bits"
	"strings"
	"sync"
)

// Filtering happens when data are opened: the columns that conditions name are read
// then, but for row groups that the footers decide, and each block knows from then on
// which of its rows are in. So the order, the length and the equal steps of all ranks
// are of the rows that are left.

// selection is a set of a row group's rows.
type selection []uint64

func (s selection) set(i int)      { s[i>>6] |= 1 << (i & 63) }
func (s selection) has(i int) bool { return s[i>>6]>>(i&63)&1 != 0 }

func (s selection) count() int {
	n := 0
	for _, w := range s {
		n += bits.OnesCount64(w)
	}
	return n
}

// verdict is what is known of a whole row group without reading it.
type verdict uint8

const (
	some verdict = iota
	none
	all
)

// filter finds each block's rows that the conditions hold for.
func (s *Set) filter(ctx context.Context) error {
	if len(s.cfg.Filter) == 0 {
		return nil
	}
	sub := &Set{
		cfg:   Config{Source: s.cfg.Source, Threads: 1, Nulls: map[string]any{}, Skip: s.cfg.Skip},
		files: append([]file(nil), s.files...), blocks: s.blocks, parts: s.parts, rows: s.rows,
	}
	number := map[string]int{}
	for _, group := range s.cfg.Filter {
		for _, c := range group {
			if _, known := number[c.Column]; known {
				continue
			}
			number[c.Column] = len(number)
			sub.cfg.Fields = append(sub.cfg.Fields, Want{Name: c.Column, Columns: []string{c.Column}})
			sub.cfg.Nulls[c.Column] = "mask"
		}
	}
	if err := sub.resolve(); err != nil {
		return fmt.Errorf("filter=: %w", err)
	}
	tests := make([][]test, len(s.cfg.Filter))
	for i, group := range s.cfg.Filter {
		for _, c := range group {
			t, err := c.compile(number[c.Column], &sub.fields[number[c.Column]])
			if err != nil {
				return err
			}
			tests[i] = append(tests[i], t)
		}
	}
	if err := s.choose(ctx, sub, tests); err != nil {
		return err
	}
	s.rows = 0
	for i := range s.blocks {
		s.sizes[i] = s.blocks[i].rows
		s.rows += int64(s.blocks[i].rows)
	}
	if s.rows == 0 {
		return fmt.Errorf("open %s: no row fits filter=; see whether its values are of the kind that the columns have", strings.Join(s.cfg.Source, ", "))
	}
	return nil
}

// choose goes through all blocks, as many at a time as decode.
func (s *Set) choose(ctx context.Context, sub *Set, tests [][]test) error {
	next := make(chan int)
	var workers sync.WaitGroup
	var mu sync.Mutex
	var first error
	at := len(s.blocks)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for range max(2, s.cfg.Threads) {
		workers.Go(func() {
			n := len(sub.fields)
			st := &stages{set: sub, ctx: ctx}
			l := &loaded{data: make([][]byte, n), ends: make([][]int64, n), mask: make([][]byte, n)}
			var d decoder
			for i := range next {
				err := s.chooseIn(sub, st, &d, l, i, tests)
				if err == nil || s.skip(i, err) {
					if err != nil {
						s.blocks[i].keep, s.blocks[i].rows = &selection{}, 0
					}
					continue
				}
				mu.Lock()
				if i < at && ctx.Err() == nil || first == nil {
					first, at = err, i
				}
				mu.Unlock()
				cancel()
			}
		})
	}
	for i := range s.blocks {
		if ctx.Err() != nil {
			break
		}
		next <- i
	}
	close(next)
	workers.Wait()
	if first == nil {
		first = ctx.Err()
	}
	return first
}

// chooseIn finds one block's rows.
func (s *Set) chooseIn(sub *Set, st *stages, d *decoder, l *loaded, i int, tests [][]test) error {
	b := &s.blocks[i]
	if b.rows == 0 {
		return nil
	}
	left := tests[:0:0]
	for _, group := range tests {
		switch sub.foretell(b, group) {
		case all:
			return nil
		case some:
			left = append(left, group)
		}
	}
	if len(left) == 0 {
		b.keep, b.rows = &selection{}, 0
		return nil
	}
	l.block = i
	if err := st.read(l); err != nil {
		return err
	}
	if err := sub.columns(d, l); err != nil {
		return err
	}
	keep := make(selection, (b.rows+63)/64)
	for _, group := range left {
		for row := range b.rows {
			if holds(group, l, row) {
				keep.set(row)
			}
		}
	}
	if n := keep.count(); n < b.rows {
		b.keep, b.rows = &keep, n
	}
	return nil
}

func holds(group []test, l *loaded, row int) bool {
	for i := range group {
		if !group[i].row(l, row) {
			return false
		}
	}
	return true
}

// foretell says what the footer knows about all of a list's conditions.
func (s *Set) foretell(b *block, group []test) verdict {
	f := &s.files[b.file]
	answer := all
	for i := range group {
		t := &group[i]
		v := some
		if c := f.index[t.field][0]; c < 0 {
			v = t.folder(f.parts[-1-c], s.parts[-1-c].typ)
		} else {
			v = t.bounds(f.meta.Columns[c].Bounds(&f.meta.Groups[b.group].Chunks[c]))
		}
		if v == none {
			return none
		}
		if v == some {
			answer = some
		}
	}
	return answer
}

// compact leaves a block's kept rows.
func (s *Set) compact(l *loaded, b *block) {
	keep := *b.keep
	rows := b.end - b.begin
	for i := range s.fields {
		f := &s.fields[i]
		to, end := 0, int64(0)
		width, mask := f.Width, f.per*len(f.cols)
		for row := range rows {
			if b.rows == 0 || !keep.has(row) {
				continue
			}
			if f.text {
				part := l.data[i][l.ends[i][row]:l.ends[i][row+1]]
				end += int64(copy(l.data[i][end:], part))
				l.ends[i][to+1] = end
			} else {
				copy(l.data[i][to*width:(to+1)*width], l.data[i][row*width:])
			}
			if f.Mask {
				copy(l.mask[i][to*mask:(to+1)*mask], l.mask[i][row*mask:])
			}
			to++
		}
	}
}
