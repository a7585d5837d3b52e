package dataset

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
	"unsafe"
)

// A full shuffle takes rows from anywhere at any time: all blocks are in use from the first step on. So what is decoded
// stays decoded, through all epochs, and the ranks of a job that run on one host have it together: in a file that all
// of them map, the spill. Each block is decoded by whoever claims it first; the others take what he has put there. He
// who waits takes a claim over when its owner is gone, and decodes in spite of it when nobody has brought anything for
// long. Where there is no spill, or none any more, a rank decodes and keeps all by itself: the rows are the same.

// kept are a Set's decoded blocks.
type kept struct {
	set *Set

	mu     sync.Mutex // guards what follows
	blocks []*loaded
	busy   map[int]bool // blocks that a reader of this process loads
	spill  *spill       // nil: this rank is alone
	why    string       // the spill is not used, or not any more
	writes int          // blocks that are being put into the spill
	moved  time.Time    // when a block came, or was begun, last
	tired  bool         // of waiting for others, until they bring something
	looked time.Time    // when the spill's entries were read last
	users  int          // readers
	closed bool
}

// patience is how long a claimed block is waited for while nobody brings any.
var patience = 30 * time.Second

const (
	firstLook = time.Millisecond // how soon a claimed block is looked for again, at first and later
	laterLook = 20 * time.Millisecond
)

var there = func() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

// keep answers where a full shuffle's blocks are kept, one reader more; nil for other orders.
func (s *Set) keep() *kept {
	if s.cfg.Shuffle != Full {
		return nil
	}
	s.full.Lock()
	defer s.full.Unlock()
	if s.kept == nil {
		s.kept = &kept{set: s, blocks: make([]*loaded, len(s.blocks)), busy: map[int]bool{}}
		s.kept.share()
	}
	s.kept.mu.Lock()
	defer s.kept.mu.Unlock()
	s.kept.users++
	s.kept.moved = time.Now()
	return s.kept
}

// forget lets go of what is kept: the blocks become others, or nobody reads any more.
func (s *Set) forget() {
	s.full.Lock()
	k := s.kept
	s.kept = nil
	s.full.Unlock()
	if k != nil {
		k.mu.Lock()
		defer k.mu.Unlock()
		if k.why != "" {
			s.apart = k.why
		}
		k.closed = true
		k.end()
	}
}

// leave is a reader's end.
func (k *kept) leave() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.users--
	k.end()
}

func (k *kept) end() {
	if k.closed && k.users == 0 && k.spill != nil {
		k.spill.close()
		k.spill = nil
	}
}

// alone says in a sentence why ranks of this host decode each for itself, or "".
func (s *Set) alone() string {
	s.full.Lock()
	defer s.full.Unlock()
	if s.kept == nil {
		return s.apart
	}
	s.kept.mu.Lock()
	defer s.kept.mu.Unlock()
	return s.kept.why
}

// share opens the spill, where other ranks are on this host and all that is read has a tag: without one nobody could
// tell whether they read the same.
func (k *kept) share() {
	s := k.set
	if s.cfg.LocalSize < 2 {
		return
	}
	for i := range s.files {
		if s.files[i].object.Tag == "" {
			return
		}
	}
	folder := s.spillFolder()
	var err error
	k.spill, err = openSpill(spillPlace{
		folder: folder, key: s.spillKey(), blocks: len(s.blocks), rank: s.cfg.LocalRank, ranks: s.cfg.LocalSize,
		need: s.rows * s.rowBytes(),
	})
	if err != nil {
		k.refuse(err)
	}
}

// refuse goes on without the spill. What was taken from it stays mapped.
func (k *kept) refuse(err error) {
	if k.spill != nil && k.writes == 0 {
		k.spill.leave()
	}
	if k.why == "" {
		k.why = fmt.Sprintf("the rows that shuffle=\"full\" decodes cannot be shared between this host's ranks in %s (%v), so each of them decodes them for itself and holds them; make room there, or name another folder with HORA_DATA_CACHE", k.set.spillFolder(), err)
	}
}

// spillFolder is the folder of what the host's ranks share.
func (s *Set) spillFolder() string {
	for _, name := range []string{"HORA_DATA_CACHE", "TMPDIR"} {
		if s.cfg.Lookup == nil {
			break
		}
		if dir := s.cfg.Lookup(name); dir != "" {
			return dir
		}
	}
	return "/tmp"
}

// spillKey is equal for ranks of one job on one start of a host that decode the same to the same arrays.
func (s *Set) spillKey() string {
	h := sha256.New()
	boot, _ := os.ReadFile("/proc/sys/kernel/random/boot_id") // hosts may have one folder, and no memory, in common
	host, _ := os.Hostname()
	fmt.Fprintf(h, "spill 1 %q %q %q %d %v %s\n", boot, host, s.cfg.Job, s.cfg.LocalSize, s.cfg.Skip, s.fingerprint)
	for i := range s.files {
		f := &s.files[i]
		fmt.Fprintf(h, "%q %d %q %v\n", f.object.Name, f.object.Size, f.object.Tag, f.index)
	}
	fmt.Fprintf(h, "%+v\n", s.fields)
	for i := range s.blocks {
		b := &s.blocks[i]
		fmt.Fprintln(h, b.file, b.group, b.rows, b.begin, b.end)
		if b.keep != nil {
			fmt.Fprintln(h, *b.keep)
		}
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// want asks for a block: one that is there is answered as it is.
func (k *kept) want(st *stages, block int) *loaded {
	k.mu.Lock()
	defer k.mu.Unlock()
	if l := k.find(block); l != nil {
		return l
	}
	l := &loaded{block: block, ready: make(chan struct{})}
	st.wanted = append(st.wanted, l)
	st.nudge()
	return l
}

// find is a block that is there, or nil.
func (k *kept) find(block int) *loaded {
	if l := k.blocks[block]; l != nil {
		return l
	}
	if !k.sharing() {
		return nil
	}
	region, err := k.spill.find(block)
	if err != nil {
		k.refuse(err)
		return nil
	}
	if region == nil {
		return nil
	}
	l := k.set.unpack(block, region)
	if l != nil {
		k.blocks[block] = l
	}
	return l
}

// sharing reports whether the spill is in use.
func (k *kept) sharing() bool { return k.spill != nil && k.why == "" }

// next is the next block for a fetcher, nil after the end.
func (k *kept) next(st *stages) *loaded {
	for wait := firstLook; ; wait = min(2*wait, laterLook) {
		select {
		case <-st.closing: // what is wanted still is no longer
			return nil
		default:
		}
		l, left := k.pick(st)
		if l != nil {
			st.nudge()
			return l
		}
		var again <-chan time.Time
		if left {
			again = time.After(wait)
		}
		select {
		case <-st.more:
		case <-again:
		case <-st.closing:
			return nil
		}
	}
}

// pick serves what is there of the wanted blocks, and answers one that is to be loaded; left are some that others load.
func (k *kept) pick(st *stages) (pick *loaded, left bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for len(st.wanted) > 0 {
		l := st.pop(k.set.cfg.LocalRank, k.set.cfg.LocalSize)
		switch {
		case k.serve(l):
		case k.claim(l.block):
			return k.begin(l), true
		default:
			st.others = append(st.others, l)
		}
	}
	if len(st.others) == 0 {
		return nil, false
	}
	k.look()
	open := st.others[:0]
	for _, l := range st.others {
		switch {
		case k.serve(l):
			k.tired = false
		case pick == nil && (k.claim(l.block) || k.late(l.block)):
			pick = k.begin(l)
		default:
			open = append(open, l)
		}
	}
	clear(st.others[len(open):])
	st.others = open
	return pick, len(open) > 0
}

// pop takes a wanted block out of the list: each rank elsewhere, lest all ask for the same one.
func (st *stages) pop(rank, ranks int) *loaded {
	at := min(len(st.wanted)*max(rank, 0)/max(ranks, 1), len(st.wanted)-1)
	l := st.wanted[at]
	st.wanted[at] = st.wanted[0]
	st.wanted = st.wanted[1:]
	return l
}

// nudge wakes a fetcher.
func (st *stages) nudge() {
	select {
	case st.more <- struct{}{}:
	default:
	}
}

// look reads what the others have brought.
func (k *kept) look() {
	if !k.sharing() || time.Since(k.looked) < laterLook/2 {
		return
	}
	k.looked = time.Now()
	changed, err := k.spill.look()
	if err != nil {
		k.refuse(err)
	}
	if changed {
		k.moved = k.looked
	}
}

// serve gives whoever wants a block what is there of it.
func (k *kept) serve(l *loaded) bool {
	found := k.find(l.block)
	if found == nil {
		return false
	}
	l.take(found)
	close(l.ready)
	k.moved = time.Now()
	return true
}

// claim takes a block, unless somebody has it or has brought it since.
func (k *kept) claim(block int) bool {
	if k.busy[block] || !k.sharing() {
		return !k.busy[block]
	}
	claimed, err := k.spill.claim(block)
	if err != nil {
		k.refuse(err)
		return true
	}
	return claimed
}

// late reports whether a block that another rank has is not waited for any longer.
func (k *kept) late(block int) bool {
	k.tired = k.tired || time.Since(k.moved) > patience
	return k.tired && !k.busy[block]
}

// begin says that a block is loaded from now on.
func (k *kept) begin(l *loaded) *loaded {
	k.busy[l.block] = true
	k.moved = time.Now()
	return l
}

// decode turns what was fetched of a block into columns and keeps them.
func (k *kept) decode(d *decoder, l *loaded) error {
	n := len(k.set.fields)
	if d.scratch == nil {
		d.scratch = &loaded{data: make([][]byte, n), ends: make([][]int64, n), mask: make([][]byte, n)}
	}
	c := d.scratch
	c.block, c.raw, c.pieces = l.block, l.raw, l.pieces
	err := k.set.columns(d, c)
	c.raw, c.pieces = nil, nil
	if err != nil {
		return err
	}
	found := k.put(c)
	if found == c {
		d.scratch = nil // it is kept
	}
	l.take(found)
	return nil
}

// put keeps a decoded block, and answers where its columns are from now on.
func (k *kept) put(c *loaded) *loaded {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.sharing() {
		k.writes++
		k.mu.Unlock() // others are served meanwhile
		err := k.spill.publish(c.block, k.set.pack(c))
		k.mu.Lock()
		k.writes--
		if err == nil {
			err = k.spill.lookAt(c.block)
		}
		if err != nil || !k.sharing() {
			k.refuse(err)
		}
	}
	found := k.find(c.block)
	if found == nil {
		c.ready, c.kept = there, true
		k.blocks[c.block], found = c, c
	}
	return found
}

// over is the end of loading a block, with or without an error.
func (k *kept) over(st *stages, block int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.busy, block)
	if k.sharing() {
		k.spill.release(block)
	}
	st.nudge()
}

// take makes a block's columns another's, which are never written again.
func (l *loaded) take(from *loaded) {
	l.data, l.ends, l.mask, l.kept = from.data, from.ends, from.mask, true
}

// pack are a decoded block's columns, part after part; unpack finds them again.
func (s *Set) pack(l *loaded) [][]byte {
	var parts [][]byte
	rows := s.blocks[l.block].rows
	for i := range s.fields {
		f := &s.fields[i]
		if f.text {
			ends := l.ends[i][:rows+1]
			parts = append(parts, unsafe.Slice((*byte)(unsafe.Pointer(&ends[0])), 8*len(ends)), l.data[i][:ends[rows]])
		} else {
			parts = append(parts, l.data[i][:rows*f.Width])
		}
		if f.Mask {
			parts = append(parts, l.mask[i][:rows*f.per*len(f.cols)])
		}
	}
	return parts
}

// unpack makes views of what another rank has packed; nil where it is none of that.
func (s *Set) unpack(block int, region []byte) *loaded {
	n, rows := len(s.fields), s.blocks[block].rows
	l := &loaded{
		block: block, ready: there, kept: true,
		data: make([][]byte, n), ends: make([][]int64, n), mask: make([][]byte, n),
	}
	at := 0
	part := func(bytes int) []byte {
		if at < 0 || bytes < 0 || bytes > len(region)-at {
			at = -1
			return nil
		}
		p := region[at : at+bytes : at+bytes]
		at = min(up(at+bytes), len(region))
		return p
	}
	for i := range s.fields {
		f := &s.fields[i]
		if f.text {
			ends := part(8 * (rows + 1))
			if ends == nil {
				return nil
			}
			l.ends[i] = unsafe.Slice((*int64)(unsafe.Pointer(unsafe.SliceData(ends))), rows+1)
			l.data[i] = part(int(l.ends[i][rows]))
		} else {
			l.data[i] = part(rows * f.Width)
		}
		if f.Mask {
			l.mask[i] = part(rows * f.per * len(f.cols))
		}
	}
	if at < 0 {
		return nil
	}
	return l
}

// isSpill reports whether a file's name is one of this user's spills.
func isSpill(name string) bool { return strings.HasPrefix(filepath.Base(name), spillPrefix()) }

func spillPrefix() string { return fmt.Sprintf("hora-full-%d-", os.Geteuid()) }
