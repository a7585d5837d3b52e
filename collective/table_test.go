package collective

import (
	"strings"
	"testing"

	"hora/tensor"
)

func TestTablePicks(t *testing.T) {
	table, err := ParseTable("allreduce/bfloat16@4-: 1Ki-2Ki=ring; broadcast: 0-=scatterring+flat; allreduce@3:0-=tree")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		ranks, bytes int
		kind         Kind
		col          column
		dtype        tensor.DType
		want         Algorithm
	}{
		{2, 100, Allreduce, linkColumn, tensor.Float32, RecursiveDoubling},
		{2, 32 << 10, Allreduce, linkColumn, tensor.Float32, RecursiveDoubling},
		{2, 512 << 10, Allreduce, linkColumn, tensor.Float32, Ring},
		{5, 32 << 10, Allreduce, linkColumn, tensor.Float32, Rabenseifner},
		{2, 32<<10 - 1, Allreduce, linkColumn, tensor.Float32, RecursiveDoubling},
		{2, 1 << 30, Allreduce, linkColumn, tensor.Float32, Ring},
		{64, 2 << 20, Allreduce, linkColumn, tensor.Float32, DoubleTree},
		{4, 1024, Allreduce, linkColumn, tensor.BFloat16, Ring},
		{4, 2048, Allreduce, linkColumn, tensor.BFloat16, RecursiveDoubling},
		{4, 1024, Allreduce, linkColumn, tensor.Float16, RecursiveDoubling},
		{3, 1 << 30, Allreduce, linkColumn, tensor.Float16, Tree},
		{9, 5, Broadcast, linkColumn, tensor.Int8, ScatterRing},
		{9, 5, Broadcast, layoutColumn, tensor.Int8, Flat},
		{9, 5, Broadcast, boardColumn, tensor.Int8, OneShot},
		{2, 4 << 10, Allreduce, directColumn, tensor.Int8, Direct},
		{2, 4<<10 - 1, Allreduce, directColumn, tensor.Int8, none},
		{2, 0, Barrier, linkColumn, tensor.Int8, none},
	} {
		m := table.menu(c.ranks)
		if got := m.pick(c.kind, c.col, c.dtype, c.bytes); got != c.want {
			t.Errorf("%s of %d bytes %s on %d ranks: %s, want %s", c.kind, c.bytes, c.dtype, c.ranks, got, c.want)
		}
	}
}

func TestTableRefuses(t *testing.T) {
	for text, says := range map[string]string{
		"allreduce":                 "no colon",
		"sum:0-=ring":               `none is called "sum"`,
		"allreduce/float9:0-=ring":  "float9",
		"allreduce@x:0-=ring":       "no number of ranks",
		"allreduce@2-x:0-=ring":     "no number of ranks",
		"allreduce:0-":              "is not bytes=algorithm",
		"allreduce:5=ring":          "is not bytes=algorithm",
		"allreduce:0-1Q=ring":       "no number of bytes",
		"allreduce:-1-=ring":        "no number of bytes",
		"allreduce:0-=spiral":       `no algorithm is called "spiral"`,
		"broadcast:0-=ring":         "broadcast does not do ring",
		"allreduce:0-=recdbl+bruck": "allreduce does not do bruck",
	} {
		if _, err := ParseTable(text); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: got %v, want an error with %q", text, err, says)
		}
	}
}

// FuzzParseTable: whatever the text, no panic, and what is accepted can be used.
func FuzzParseTable(f *testing.F) {
	f.Add("allreduce:0-32Ki=recdbl,32Ki-=ring")
	f.Add("broadcast@8-:0-=tree; allreduce/bfloat16@2-3:1Mi-=flat")
	f.Fuzz(func(t *testing.T, text string) {
		table, err := ParseTable(text)
		if err != nil {
			return
		}
		m := table.menu(3)
		for _, k := range Kinds() {
			for col := range columns {
				m.pick(k, col, tensor.Float32, 1000)
			}
		}
	})
}

func TestPlaces(t *testing.T) {
	for n := 1; n < 70; n++ {
		children := make([]int, n)
		for i := range n {
			p := place(n, i)
			for _, c := range []int{p.left, p.right} {
				if c >= 0 {
					children[c]++
					if place(n, c).parent != i {
						t.Fatalf("%d members: %d is a child of %d, which is not its parent", n, c, i)
					}
				}
			}
		}
		roots := 0
		for _, k := range children {
			if k == 0 {
				roots++
			}
		}
		if roots != 1 {
			t.Fatalf("%d members: %d roots", n, roots)
		}
	}
}
