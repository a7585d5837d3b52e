package dataset

import (
	"context"
	"os"
	"path/filepath"
	"testing"
)

// BenchmarkDecode reads and decodes whole files with one thread, and hands nothing out:
// those of bench/data_bench.py, in the folder that HORA_BENCH_DATA names.
func BenchmarkDecode(b *testing.B) {
	for _, name := range []string{"flat", "nulls", "lists", "samples"} {
		b.Run(name, func(b *testing.B) {
			ctx := context.Background()
			file := filepath.Join(os.Getenv("HORA_BENCH_DATA"), name+".parquet")
			cfg := Config{Source: []string{file}, Nulls: map[string]any{}, Shuffle: None}
			if name == "samples" {
				cfg.Fields = []Want{{Name: "data", Columns: []string{"data"}}}
			}
			s, err := Open(ctx, cfg)
			if err != nil {
				b.Fatal(err, "; set HORA_BENCH_DATA to the folder that data_bench.py --folder has filled")
			}
			n := len(s.fields)
			st := &stages{set: s, ctx: ctx}
			l := &loaded{data: make([][]byte, n), ends: make([][]int64, n), mask: make([][]byte, n)}
			var d decoder
			b.SetBytes(s.rows * s.rowBytes())
			for b.Loop() {
				for i := range s.blocks {
					l.block = i
					if err := st.read(l); err != nil {
						b.Fatal(err)
					}
					if err := s.columns(&d, l); err != nil {
						b.Fatal(err)
					}
				}
			}
		})
	}
}
