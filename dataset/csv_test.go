package dataset

import (
	"context"
	"fmt"
	"strings"
	"testing"
)

// TestCSVIsParsedOnce: a block's rows are parsed once for all columns: the parser makes one text of each row, and that
// is about all that is allocated.
func TestCSVIsParsedOnce(t *testing.T) {
	const rows, columns = 1000, 12
	dir := t.TempDir()
	var b strings.Builder
	for row := range rows + 1 {
		for c := range columns {
			if row == 0 {
				fmt.Fprintf(&b, "c%d", c)
			} else {
				fmt.Fprintf(&b, "%d", row*c)
			}
			b.WriteByte(",\n"[c/(columns-1)])
		}
	}
	put(t, dir, "a.csv", b.String())
	s := mustOpen(t, Config{Source: []string{dir}, Shuffle: None})
	if s.Blocks() != 1 || len(s.fields) != columns {
		t.Fatalf("%d row groups, %d columns", s.Blocks(), len(s.fields))
	}
	st := &stages{set: s, ctx: context.Background()}
	l := &loaded{data: make([][]byte, columns), ends: make([][]int64, columns), mask: make([][]byte, columns)}
	if err := st.read(l); err != nil {
		t.Fatal(err)
	}
	var d decoder
	n := testing.AllocsPerRun(3, func() {
		if err := s.columns(&d, l); err != nil {
			t.Fatal(err)
		}
	})
	t.Logf("%d columns of %d rows: %.1f allocations a row", columns, rows, n/rows)
	if n > 2*rows {
		t.Errorf("%.0f allocations for %d rows of %d columns", n, rows, columns)
	}
}
