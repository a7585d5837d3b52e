// Package dataset hands a job the rows of its tables: Parquet files in, equal, shuffled,
// resumable batches out, decoded by goroutines of the training process itself.
//
// A Set is the files, the columns and the order; it does not change. A Reader walks one
// epoch for one rank. Its stages have an owner each and are bounded: the gatherer walks
// the plan, asks for the blocks that the next steps need and copies rows into slots;
// fetchers read a block's bytes; decoders turn them into columns. A slot is memory of
// this package, outside Go's heap, and belongs to whoever holds the Batch until it is
// released; it may outlive the Reader and the Set.
//
// Goroutines: of a Reader one gatherer, its fetchers and its decoders; Close joins them.
package dataset

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"sync"

	"hora/dataset/parquet"
	"hora/dataset/plan"
	foreign "hora/dataset/source"
	"hora/storage"
)

// Shuffle is how well rows are mixed.
type Shuffle uint8

const (
	Window Shuffle = iota // within what the memory holds
	Full                  // exactly; all of the data must fit in the memory
	None                  // the order of the files
)

// Config says what is read and how.
type Config struct {
	Source  []string // paths, folders, patterns, addresses
	Fields  []Want   // what a batch has; none: each column that can be read
	Ragged  []string // where no Fields are said: lists that have any number of values
	Nulls   map[string]any
	Shuffle Shuffle
	Seed    uint64
	Memory  int64 // bytes that the whole job may hold for mixing; 0: 512 MiB
	Threads int   // that decode; 0: one
	// Filter is which rows are read: those that all conditions of one of the lists hold for.
	Filter [][]Condition
	// Only, where there are any, are the blocks that are read, by their number.
	Only []int
	// Readable leaves out columns that cannot be read, where no Fields are said.
	Readable bool
	// Skip leaves out row groups that are damaged, the same ones on every rank: damage is
	// found in the bytes, which all ranks read alike.
	Skip bool
	// Lookup reads the environment, for storage that needs keys; nil: there is none.
	Lookup func(string) string
	// Order, where lanes are given, is the order that a state was saved with.
	Lanes, Window int
	// LocalRank of LocalSize ranks of the job that run on this host, and what tells the job from others there: they
	// share what a full shuffle decodes. LocalSize 0 or 1: nobody does.
	LocalRank, LocalSize int
	Job                  string
}

// Want names one array of a batch: a column, or several that become one matrix.
type Want struct {
	Name    string   `json:"name"`
	Columns []string `json:"columns"`
	Ragged  bool     `json:"ragged"` // a list's rows have any number of values
	Matrix  bool     `json:"matrix"` // one column of numbers is a matrix too
}

const (
	defaultMemory = 512 << 20
	// maxBlock bounds what one row group decodes to: what a footer may make us allocate.
	maxBlock = 4 << 30
	opening  = 8 // footers that are read at a time
)

// Set is the data as it was when it was opened.
type Set struct {
	cfg         Config
	files       []file
	blocks      []block // the row groups, and behind them their parts where they are cut; see parts.go
	groups      int     // how many of them are row groups
	rowsOfParts int64   // 0: none is cut
	sizes       []int   // rows of each block
	rows        int64
	fields      []field
	fingerprint string
	lanes       int
	window      int
	slots       slots
	hold        int64 // bytes that callers may hold
	parts       []partition
	skipped     skipped
	full        sync.Mutex     // guards kept and apart
	kept        *kept          // blocks of a full shuffle; nil: not yet
	apart       string         // why they were not shared
	left        []string       // columns that are not read, and why
	shelf       *storage.Shelf // where indexes are kept
}

type file struct {
	store  storage.Store
	object storage.Object
	name   string // below what all have in common
	meta   *parquet.File
	index  [][]int // of each field's columns in this file; below 0: -1 - the number of a partition
	keys   []key   // what its folders are called
	kind   foreign.Kind
	table  foreign.Table // of a file that is no Parquet
	parts  []*string
}

// block is a row group, or some rows of one.
type block struct {
	file, group, rows int
	begin, end        int        // of the row group
	keep              *selection // of these; nil: all
}

// Open lists the source and reads the footers.
func Open(ctx context.Context, cfg Config) (*Set, error) {
	if cfg.Memory == 0 {
		cfg.Memory = defaultMemory
	}
	if cfg.Memory < 0 {
		return nil, fmt.Errorf("open data: a memory of %d bytes; give a positive number", cfg.Memory)
	}
	cfg.Threads = max(1, cfg.Threads)
	s := &Set{cfg: cfg, hold: cfg.Memory}
	if err := s.find(ctx); err != nil {
		return nil, err
	}
	if err := s.resolve(); err != nil {
		return nil, err
	}
	if err := s.only(); err != nil {
		return nil, err
	}
	if err := s.filter(ctx); err != nil {
		return nil, err
	}
	for i := range s.files {
		s.files[i].meta.Forget()
	}
	s.fingerprint = s.print()
	return s, s.order(ctx)
}

// find lists the source and reads the footers.
func (s *Set) find(ctx context.Context) error {
	if err := s.list(ctx); err != nil {
		return err
	}
	if err := s.footers(ctx); err != nil {
		return err
	}
	s.partitions()
	for i := range s.files {
		for g := range s.files[i].meta.Groups {
			n := int(s.files[i].meta.Groups[g].Rows)
			s.blocks = append(s.blocks, block{file: i, group: g, rows: n, end: n})
			s.sizes = append(s.sizes, n)
			s.rows += int64(n)
		}
	}
	s.groups = len(s.blocks)
	if s.rows == 0 {
		return fmt.Errorf("open %s: its %d files have no rows", strings.Join(s.cfg.Source, ", "), len(s.files))
	}
	return nil
}

func isParquet(name string) bool {
	for _, end := range []string{".parquet", ".parq", ".pq"} {
		if strings.HasSuffix(strings.ToLower(name), end) {
			return true
		}
	}
	return false
}

// footers reads all of them, some at a time.
func (s *Set) footers(ctx context.Context) error {
	errs := make([]error, len(s.files))
	next := make(chan int)
	var workers sync.WaitGroup
	for range min(opening, len(s.files)) {
		workers.Go(func() {
			for i := range next {
				f := &s.files[i]
				if f.kind != foreign.None {
					errs[i] = s.index(ctx, f)
					continue
				}
				f.meta, errs[i] = parquet.Read(f.object.Size, func(p []byte, at int64) error {
					return f.store.ReadAt(ctx, f.object, p, at)
				})
			}
		})
	}
	for i := range s.files {
		next <- i
	}
	close(next)
	workers.Wait()
	var tables []foreign.Table
	for i := range s.files {
		if errs[i] == nil {
			tables = append(tables, s.files[i].table)
		}
	}
	foreign.Agree(tables)
	good := s.files[:0]
	for i, err := range errs {
		if err != nil {
			err = s.files[i].wrong("open", err)
			if !s.cfg.Skip || !damage(err) {
				return err
			}
			s.skipped.add(Skipped{File: s.files[i].object.Name, Group: -1, Why: err.Error()})
			continue
		}
		good = append(good, s.files[i])
	}
	if s.files = good; len(good) == 0 {
		return fmt.Errorf("open %s: each of its files is damaged; %s", strings.Join(s.cfg.Source, ", "), s.skipped.list()[0].Why)
	}
	return nil
}

// index opens a file that is no Parquet.
func (s *Set) index(ctx context.Context, f *file) error {
	if f.table == nil {
		var err error
		if f.table, err = foreign.Open(
			ctx, f.kind, foreign.File{Store: f.store, Object: f.object}, s.shelf,
		); err != nil {
			return err
		}
	}
	f.meta = f.table.About()
	return nil
}

// wrong says which file an error is about, unless the storage has said it.
func (f *file) wrong(do string, err error) error {
	if _, said := err.(*storage.Error); said {
		return err
	}
	return fmt.Errorf("%s %s: %w; write the file again, or leave it out", do, f.object.Name, err)
}

// only leaves the blocks that are asked for.
func (s *Set) only() error {
	if len(s.cfg.Only) == 0 {
		return nil
	}
	s.rows = 0
	for i := range s.blocks {
		if slices.Contains(s.cfg.Only, i) {
			s.rows += int64(s.blocks[i].rows)
			continue
		}
		s.blocks[i].keep, s.blocks[i].rows, s.sizes[i] = &selection{}, 0, 0
	}
	if s.rows == 0 {
		return fmt.Errorf("open %s: none of its %d row groups is asked for", strings.Join(s.cfg.Source, ", "), len(s.blocks))
	}
	return nil
}

// Block is a row group as others see it.
type Block struct {
	File  string `json:"file"`
	Group int    `json:"row_group"`
	Rows  int    `json:"rows"`
}

// List answers all row groups by their number.
func (s *Set) List() []Block {
	all := make([]Block, 0, s.groups)
	for _, b := range s.blocks[:s.groups] {
		all = append(all, Block{s.files[b.file].object.Name, b.group, b.rows})
	}
	return all
}

// print is the data's fingerprint.
func (s *Set) print() string {
	h := sha256.New()
	for i := range s.files {
		f := &s.files[i]
		fmt.Fprintf(h, "%q %d %x\n", f.name, f.object.Size, f.meta.Digest)
		for g := range f.meta.Groups {
			fmt.Fprintln(h, f.meta.Groups[g].Rows)
		}
	}
	if len(s.cfg.Only) > 0 {
		fmt.Fprintf(h, "only %v\n", s.cfg.Only)
	}
	if len(s.cfg.Filter) > 0 {
		fmt.Fprintf(h, "filter %v\n%v\n", s.cfg.Filter, s.sizes)
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// mostLanes is divisible by the usual numbers of ranks.
const mostLanes = 96

// order chooses lanes and window by the memory, where no state says them.
func (s *Set) order(ctx context.Context) error {
	blocks, mean := s.inUse()
	holds := max(1, s.cfg.Memory/max(1, s.rowBytes())) // rows
	if s.cfg.Shuffle == Window && s.cfg.Lanes == 0 && s.rows > holds {
		rows, err := s.partRows(ctx, holds, mean)
		if err != nil {
			return err
		}
		if rows != s.rowsOfParts {
			s.cut(rows)
			blocks, mean = s.inUse()
		}
	}
	most := min(mostLanes, blocks)
	switch {
	case s.cfg.Shuffle == None:
		s.lanes, s.window = 1, 0
	case s.cfg.Lanes > 0:
		s.lanes, s.window = s.cfg.Lanes, s.cfg.Window
	case s.cfg.Shuffle == Full:
		if s.rows > holds {
			return fmt.Errorf("open data: shuffle=\"full\" needs %d MiB and memory= is %d MiB; raise memory=, or leave shuffle= out", s.rows*s.rowBytes()>>20, s.cfg.Memory>>20)
		}
		s.lanes, s.window = 1, int(s.rows)
	case s.rows <= holds:
		s.lanes = even(blocks, most)
		s.window = int(s.rows) // no lane is longer
	default:
		// A lane holds a block and 2.75 windows on average. Lanes mix better than windows do,
		// so there are as many as leave a seventh of a block for windows.
		s.lanes = even(blocks, max(1, min(most, 7*holds/(8*mean))))
		s.window = int(max(1, mean/20, (holds/int64(s.lanes)-mean)*4/11))
	}
	s.window = min(s.window, plan.MaxWindow)
	_, err := s.plan(0)
	return err
}

// inUse answers how many blocks have rows, and how many rows on average.
func (s *Set) inUse() (blocks, mean int64) {
	for _, n := range s.sizes {
		if n > 0 {
			blocks++
		}
	}
	return blocks, (s.rows + blocks - 1) / blocks
}

// even is at most most lanes that get equally many blocks, as far as that goes.
func even(blocks, most int64) int {
	each := (blocks + most - 1) / most
	return int((blocks + each - 1) / each)
}

func (s *Set) plan(epoch uint64) (*plan.Plan, error) {
	return plan.New(s.sizes, plan.Order{Seed: s.cfg.Seed, Epoch: epoch, Lanes: s.lanes, Window: s.window})
}

// Rows is how many rows an epoch has.
func (s *Set) Rows() int64 { return s.rows }

// Files and Blocks are how many there are.
func (s *Set) Files() int  { return len(s.files) }
func (s *Set) Blocks() int { return s.groups }

// State is where the data stand at a position of an epoch.
func (s *Set) State(epoch uint64, position int64) *plan.State {
	return &plan.State{
		Version: plan.Version, Data: s.fingerprint, Seed: s.cfg.Seed, Epoch: epoch, Position: position, Lanes: s.lanes,
		Window: s.window, Part: s.rowsOfParts,
	}
}

// Resume takes over the order that a state was saved with.
func (s *Set) Resume(from *plan.State) error {
	if from.Data != s.fingerprint {
		return fmt.Errorf("go on from saved state: it is of other data (%s) than these %d files with %d rows (%s): %s; open the files of that time, or begin anew without the state",
			from.Data, len(s.files), s.rows, s.fingerprint, s.otherData(from.Data))
	}
	if from.Position > s.rows {
		return fmt.Errorf("go on from saved state: it stands at row %d of %d; begin the epoch anew", from.Position, s.rows)
	}
	s.cfg.Seed, s.lanes, s.window = from.Seed, from.Lanes, from.Window
	if from.Part != s.rowsOfParts {
		s.forget()
		s.cut(from.Part)
	}
	return nil
}

// Mixing says in a line what is mixed with what.
func (s *Set) Mixing() string {
	switch {
	case s.window == 0:
		return "the order of the files"
	case int64(s.window) >= s.rows:
		return fmt.Sprintf("all %d rows are mixed, in %d lanes", s.rows, s.lanes)
	}
	_, mean := s.inUse()
	open := min(s.rows, int64(s.lanes)*(int64(s.window)*11/4+mean))
	text := fmt.Sprintf("%d lanes of %d rows: %.1f %% of the data are mixed at a time", s.lanes, s.window, 100*float64(open)/float64(s.rows))
	if s.rowsOfParts > 0 {
		text += fmt.Sprintf(", row groups are read in parts of %d rows", s.rowsOfParts)
	}
	if s.lanes < 8 {
		text += fmt.Sprintf("; row groups of %s leave room for no more in %s: write smaller ones (1 to 4 MiB), or raise memory=", size(s.rowBytes()*mean), size(s.cfg.Memory))
	}
	return text
}
