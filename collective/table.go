package collective

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"hora/tensor"
)

// Algorithm is one way to do an operation, or one part of the way.
type Algorithm uint8

// The algorithms by what they decide about.
const (
	none Algorithm = iota

	// Layout: is memory shared inside a host used, or every rank talked to alike?
	Hier // shared memory inside a host, one shard per local rank across hosts
	Flat // message links only

	// On message links.
	RecursiveDoubling // log2 n exchanges of everything
	Rabenseifner      // recursive halving, then doubling
	Ring              // n-1 steps of one block, twice for allreduce
	Tree              // binomial tree
	DoubleTree        // two binary trees, each with half of the data, segmented
	Bruck             // log2 n exchanges of collected blocks
	Pairwise          // n-1 exchanges, each with another rank
	Linear            // the root talks to everyone
	ScatterRing       // the root scatters, a ring gathers

	// On shared memory with private buffers.
	OneShot  // everyone's data in its slot, each reads all
	TwoShot  // pipelined through parts, each reduces its share
	Peek     // of two ranks each reads the other's memory by a system call; twoshot where it may not
	Measured // peek or twoshot, whichever this group found quicker in its first calls of that size and in later ones

	// On shared memory when all buffers are registered.
	Direct // from and to the owners' memory
	Copy   // as if they were not

	algorithmEnd
)

// column is which of the four decisions an algorithm belongs to.
type column uint8

const (
	layoutColumn column = iota
	linkColumn
	boardColumn
	directColumn
	columns
)

var algorithms = [algorithmEnd]struct {
	name string
	col  column
}{
	none: {"none", 0},
	Hier: {"hier", layoutColumn}, Flat: {"flat", layoutColumn},
	RecursiveDoubling: {"recdbl", linkColumn}, Rabenseifner: {"rabenseifner", linkColumn},
	Ring: {"ring", linkColumn}, Tree: {"tree", linkColumn}, DoubleTree: {"doubletree", linkColumn},
	Bruck: {"bruck", linkColumn}, Pairwise: {"pairwise", linkColumn},
	Linear: {"linear", linkColumn}, ScatterRing: {"scatterring", linkColumn},
	OneShot: {"oneshot", boardColumn}, TwoShot: {"twoshot", boardColumn}, Peek: {"peek", boardColumn}, Measured: {"measured", boardColumn},
	Direct: {"direct", directColumn}, Copy: {"copy", directColumn},
}

// String is the algorithm's name in a table.
func (a Algorithm) String() string {
	if a >= algorithmEnd {
		return fmt.Sprintf("algorithm(%d)", uint8(a))
	}
	return algorithms[a].name
}

// offered is what each operation can do on message links.
var offered = [kindEnd][]Algorithm{
	Allreduce:     {RecursiveDoubling, Rabenseifner, Ring, Tree, DoubleTree},
	Reduce:        {Tree, Ring},
	Broadcast:     {Tree, ScatterRing},
	Allgather:     {Bruck, Ring},
	ReduceScatter: {RecursiveDoubling, Ring},
	Alltoall:      {Bruck, Pairwise},
	Gather:        {Tree, Linear},
	Scatter:       {Tree, Linear},
}

// Offered lists what the table may choose for an operation on message links.
func Offered(k Kind) []Algorithm {
	if k >= kindEnd {
		return nil
	}
	return append([]Algorithm(nil), offered[k]...)
}

// standard is the table in force where nothing overrides it. Sizes are those of the
// whole tensor: what one rank holds when all blocks are together.
const standard = `
	allreduce:     0-=hier+twoshot, 4Ki-=direct
	allreduce:     0-32Ki=recdbl, 32Ki-256Ki=rabenseifner, 256Ki-=ring
	allreduce@2:   32Ki-512Ki=recdbl
	allreduce@32-: 32Ki-1Mi=rabenseifner, 1Mi-4Mi=doubletree
	allreduce:     0-4Ki=oneshot
	allreduce@2:   0-65Ki=oneshot, 2Mi-128Mi=measured
	allreduce@3-4: 0-32Ki=oneshot
	reduce:        0-=hier+twoshot, 4Ki-=direct, 0-64Ki=tree, 64Ki-=ring, 0-4Ki=oneshot
	reduce@2-4:    0-65Ki=oneshot
	broadcast:     0-=hier+twoshot, 4Ki-=direct, 0-256Ki=tree, 256Ki-=scatterring, 0-16Ki=oneshot
	broadcast@2:   40Ki-128Mi=measured
	allgather:     0-=hier+twoshot, 4Ki-=direct, 0-64Ki=bruck, 64Ki-=ring, 0-16Ki=oneshot
	allgather@2-4: 0-65Ki=oneshot
	allgather@2:   2Mi-12Mi=measured
	reducescatter: 0-=hier+twoshot, 4Ki-=direct, 0-16Ki=recdbl, 16Ki-=ring, 0-16Ki=oneshot
	reducescatter@2-4: 0-65Ki=oneshot
	alltoall:      0-=flat+twoshot, 4Ki-=direct, 0-8Ki=bruck, 8Ki-=pairwise, 0-16Ki=oneshot
	alltoall@2:    0-48Ki=oneshot, 1Mi-12Mi=measured
	alltoall@3-4:  0-65Ki=oneshot
	gather:        0-=flat+twoshot, 4Ki-=direct, 0-64Ki=tree, 64Ki-=linear, 0-16Ki=oneshot
	scatter:       0-=flat+twoshot, 4Ki-=direct, 0-64Ki=tree, 64Ki-=linear, 0-16Ki=oneshot`

// rule says: in worlds of [minRanks, maxRanks] and on tensors of [lo, hi) bytes of
// that type (Invalid: any), do that.
type rule struct {
	kind               Kind
	dtype              tensor.DType
	minRanks, maxRanks int
	lo, hi             int
	do                 Algorithm
}

// Table is which algorithm each operation takes. The last rule that fits wins.
type Table struct{ rules []rule }

// ParseTable reads the standard table and the text that overrides parts of it:
//
//	table     = rule { (";" | newline) rule }
//	rule      = operation [ "/" dtype ] [ "@" ranks ] ":" choice { "," choice }
//	choice    = bytes "=" algorithm { "+" algorithm }
//	ranks     = number | number "-" [ number ]                  both ends included
//	bytes     = [ number unit ] "-" [ number unit ]             low end included, high not
//	unit      = "" | "Ki" | "Mi" | "Gi"
//
// as in "allreduce:0-32Ki=recdbl,32Ki-=ring; broadcast@8-:0-=tree; allreduce:0-=flat".
// Later rules win over earlier ones. Algorithms decide about one of four things and
// leave the others as they are: the layout (hier, flat), message links (recdbl,
// rabenseifner, ring, tree, doubletree, bruck, pairwise, linear, scatterring), shared
// memory (oneshot, twoshot, peek, measured), registered buffers (direct, copy). Ranks are those that
// take part: for shared memory the ranks of one host, for links between hosts the
// hosts when the layout is hier, else all.
func ParseTable(override string) (Table, error) {
	var t Table
	if err := t.add(standard); err != nil {
		return Table{}, err
	}
	if err := t.add(override); err != nil {
		return Table{}, fmt.Errorf("parse algorithm table: %w", err)
	}
	return t, nil
}

func (t *Table) add(text string) error {
	for _, line := range strings.FieldsFunc(text, func(r rune) bool { return r == ';' || r == '\n' }) {
		line = strings.TrimSpace(line)
		if line == "" {
			continue
		}
		head, choices, ok := strings.Cut(line, ":")
		if !ok {
			return fmt.Errorf("%q has no colon; write it as allreduce:0-32Ki=recdbl", line)
		}
		base, err := parseHead(strings.TrimSpace(head))
		if err != nil {
			return fmt.Errorf("%q: %w", line, err)
		}
		for _, choice := range strings.Split(choices, ",") {
			if err := t.choice(base, strings.TrimSpace(choice)); err != nil {
				return fmt.Errorf("%q: %w", line, err)
			}
		}
	}
	return nil
}

func parseHead(head string) (rule, error) {
	r := rule{maxRanks: math.MaxInt}
	head, ranks, limited := strings.Cut(head, "@")
	name, dtype, typed := strings.Cut(head, "/")
	var err error
	if r.kind, err = ParseKind(name); err != nil {
		return r, err
	}
	if typed {
		if r.dtype, err = tensor.ParseDType(dtype); err != nil {
			return r, err
		}
	}
	if limited {
		lo, hi, span := strings.Cut(ranks, "-")
		if r.minRanks, err = strconv.Atoi(lo); err != nil {
			return r, fmt.Errorf("%q is no number of ranks", ranks)
		}
		switch {
		case !span:
			r.maxRanks = r.minRanks
		case hi != "":
			if r.maxRanks, err = strconv.Atoi(hi); err != nil {
				return r, fmt.Errorf("%q is no number of ranks", ranks)
			}
		}
	}
	return r, nil
}

func (t *Table) choice(r rule, text string) error {
	span, names, ok := strings.Cut(text, "=")
	lo, hi, dash := strings.Cut(span, "-")
	if !ok || !dash {
		return fmt.Errorf("%q is not bytes=algorithm, as in 0-32Ki=recdbl", text)
	}
	var err error
	if r.lo, err = parseBytes(lo, 0); err != nil {
		return err
	}
	if r.hi, err = parseBytes(hi, math.MaxInt); err != nil {
		return err
	}
	for _, name := range strings.Split(names, "+") {
		if r.do, err = parseAlgorithm(r.kind, name); err != nil {
			return err
		}
		t.rules = append(t.rules, r)
	}
	return nil
}

func parseAlgorithm(k Kind, name string) (Algorithm, error) {
	for a := none + 1; a < algorithmEnd; a++ {
		if algorithms[a].name != name {
			continue
		}
		if algorithms[a].col != linkColumn {
			return a, nil
		}
		for _, o := range offered[k] {
			if o == a {
				return a, nil
			}
		}
		return none, fmt.Errorf("%s does not do %s; it does %v", k, name, offered[k])
	}
	return none, fmt.Errorf("no algorithm is called %q", name)
}

func parseBytes(text string, empty int) (int, error) {
	if text == "" {
		return empty, nil
	}
	number, shift := text, 0
	for i, unit := range []string{"Ki", "Mi", "Gi"} {
		if n, ok := strings.CutSuffix(text, unit); ok {
			number, shift = n, 10*(i+1)
		}
	}
	n, err := strconv.Atoi(number)
	if err != nil || n < 0 || n > math.MaxInt>>shift {
		return 0, fmt.Errorf("%q is no number of bytes; write 4096, 4Ki, 1Mi", text)
	}
	return n << shift, nil
}

// menu is the part of a table that holds for one number of ranks: per operation and
// decision the rules that may fit, best first.
type menu [kindEnd][columns][]rule

func (t *Table) menu(ranks int) menu {
	var m menu
	for i := len(t.rules) - 1; i >= 0; i-- {
		r := t.rules[i]
		if ranks >= r.minRanks && ranks <= r.maxRanks {
			col := algorithms[r.do].col
			m[r.kind][col] = append(m[r.kind][col], r)
		}
	}
	return m
}

// pick is the choice for a tensor of that size and type, none if no rule fits.
func (m *menu) pick(k Kind, col column, d tensor.DType, bytes int) Algorithm {
	rules := m[k][col]
	for i := range rules {
		r := &rules[i]
		if bytes >= r.lo && bytes < r.hi && (r.dtype == tensor.Invalid || r.dtype == d) {
			return r.do
		}
	}
	return none
}
