package plan

import "fmt"

// Last is what becomes of the end of an epoch that does not fill a step.
type Last uint8

const (
	Short Last = iota // a step of what is left; some ranks may get one row less, or none
	Drop              // it is left out
	Pad               // it is filled up with the epoch's first rows
	Wrap              // it is filled up with the next epoch's first rows, which that epoch leaves out
)

var lastNames = [...]string{"short", "drop", "pad", "wrap"}

func (l Last) String() string { return lastNames[l] }

// ParseLast finds a policy by its name.
func ParseLast(name string) (Last, error) {
	for i, n := range lastNames {
		if n == name {
			return Last(i), nil
		}
	}
	return 0, fmt.Errorf("read last=%q: there is no such end of an epoch; use short, drop, pad or wrap", name)
}

// Range is a stretch of an epoch's positions.
type Range struct {
	Epoch      uint64
	Begin, End int64
}

// Step is what all ranks take together: Ranges[0], and where it is short of the whole,
// Ranges[1] from the epoch's beginning (Pad) or the next epoch's (Wrap). After is where
// the next step begins. A step without ranges is the end of the epoch.
type Step struct {
	Ranges [2]Range
	N      int // ranges
	Epoch  uint64
	After  int64
}

// Rows is how many rows the step has.
func (s *Step) Rows() int64 {
	var n int64
	for _, r := range s.Ranges[:s.N] {
		n += r.End - r.Begin
	}
	return n
}

// Next is the step of batch rows at a position of an epoch of so many rows. What it
// answers depends on no rank. An epoch with fewer rows than a step is padded or wrapped
// as often as it has rows: to at most twice itself.
func Next(epoch uint64, pos, rows, batch int64, last Last) Step {
	left := rows - pos
	if left <= 0 || batch <= 0 {
		return Step{Epoch: epoch, After: rows}
	}
	s := Step{N: 1, Epoch: epoch}
	s.Ranges[0] = Range{epoch, pos, pos + min(batch, left)}
	s.After = s.Ranges[0].End
	if left >= batch {
		return s
	}
	more := min(batch-left, rows)
	switch last {
	case Drop:
		return Step{Epoch: epoch, After: rows}
	case Pad:
		s.N, s.Ranges[1] = 2, Range{epoch, 0, more}
	case Wrap:
		s.N, s.Ranges[1] = 2, Range{epoch + 1, 0, more}
		s.Epoch, s.After = epoch+1, more
	}
	return s
}

// Steps is how many steps of batch rows follow in the epoch.
func Steps(pos, rows, batch int64, last Last) int64 {
	left := max(rows-pos, 0)
	if batch <= 0 {
		return 0
	}
	if last == Drop {
		return left / batch
	}
	return (left + batch - 1) / batch
}

// Share is rank's part of n things: parts differ by at most one.
func Share(n int64, rank, size int) (begin, end int64) {
	// n·rank may not fit: take the whole and the rest apart.
	whole, rest := n/int64(size), n%int64(size)
	cut := func(r int64) int64 { return whole*r + rest*r/int64(size) }
	return cut(int64(rank)), cut(int64(rank) + 1)
}

// StepKey is the key of the order of rows inside the part of a step that begins with
// its row from.
func StepKey(o Order, begin, from int64) uint64 {
	return key(o.Seed, o.Epoch, stepKey, uint64(begin), uint64(from))
}
