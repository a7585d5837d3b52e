package fleet

import (
	"errors"
	"slices"
	"testing"

	"hora/server/backend"
	"hora/server/node"
)

// told is a place that notes what it is told to be taken.
type told struct {
	place
	all []uint64
}

func (p *told) Taken(_ int64, _ int, n uint64) error {
	p.all = append(p.all, n)
	return nil
}

// TestANodeIsToldWhatIsTaken: at once, since it removes nothing before it has been told for the first time. What was
// not taken is not told of, and nothing is after the end: all of it is removed then.
func TestANodeIsToldWhatIsTaken(t *testing.T) {
	full := errors.New("the disk is full")
	for _, c := range []struct {
		record node.Record
		err    error
		want   []uint64
	}{
		{node.Record{N: 7}, nil, []uint64{7}},
		{node.Record{N: 7}, full, nil},
		{node.Record{N: 8, Exit: &backend.Exit{}}, nil, nil},
	} {
		p := &told{}
		take := said(p, 1, 1, func([]node.Record) error { return c.err })
		if err := take([]node.Record{{N: 6}, c.record}); !errors.Is(err, c.err) || !slices.Equal(p.all, c.want) {
			t.Errorf("of %+v, taken with %v, it is told %v: %v", c.record, c.err, p.all, err)
		}
	}
}
