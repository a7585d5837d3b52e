package kernel

import (
	"bufio"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
	"unsafe"

	"hora/tensor"
)

const benchBytes = 64 << 10

// pages is n bytes at a page boundary.
func pages(n int) []byte {
	p := make([]byte, n+4096)
	return p[-uintptr(ptr(p))&4095:][:n:n]
}

func BenchmarkReduce(b *testing.B) {
	for _, level := range Levels() {
		for _, c := range reducible() {
			b.Run(fmt.Sprintf("%s/%s/%s", c.T, c.Op, level), func(b *testing.B) {
				x, y := pages(benchBytes), pages(benchBytes)
				b.SetBytes(benchBytes)
				for b.Loop() {
					level.Reduce(ptr(x), ptr(x), ptr(y), benchBytes/c.T.Size(), c.T, c.Op)
				}
			})
		}
	}
}

// Small operations pay for the call, not for the bytes.
func BenchmarkSmall(b *testing.B) {
	for _, level := range Levels() {
		for _, d := range []tensor.DType{tensor.Float32, tensor.BFloat16} {
			for _, n := range []int{1, 12, 64, 1024} {
				b.Run(fmt.Sprintf("%s/%d/%s", d, n, level), func(b *testing.B) {
					x, y := pages(4*n), pages(4*n)
					for b.Loop() {
						level.Reduce(ptr(x), ptr(x), ptr(y), n, d, tensor.Sum)
					}
				})
				b.Run(fmt.Sprintf("%s/%d/%s/all", d, n, level), func(b *testing.B) {
					srcs := []unsafe.Pointer{ptr(pages(4 * n)), ptr(pages(4 * n)), ptr(pages(4 * n))}
					for b.Loop() {
						level.ReduceAll(srcs[0], srcs, n, d, tensor.Sum)
					}
				})
			}
		}
	}
}

func BenchmarkReduceAll(b *testing.B) {
	for _, level := range Levels() {
		for _, d := range []tensor.DType{tensor.Float32, tensor.BFloat16, tensor.Float16, tensor.Float8E4M3} {
			for _, k := range []int{3, 8} {
				b.Run(fmt.Sprintf("%s/%d/%s", d, k, level), func(b *testing.B) {
					srcs := make([]unsafe.Pointer, k)
					for i := range srcs {
						srcs[i] = ptr(pages(benchBytes))
					}
					b.SetBytes(benchBytes)
					for b.Loop() {
						level.ReduceAll(srcs[0], srcs, benchBytes/d.Size(), d, tensor.Sum)
					}
				})
			}
		}
	}
}

func BenchmarkScale(b *testing.B) {
	for _, level := range Levels() {
		for _, d := range []tensor.DType{
			tensor.Float32, tensor.Float64, tensor.BFloat16, tensor.Float16,
			tensor.Int32,
		} {
			x := pages(benchBytes)
			b.Run(fmt.Sprintf("times/%s/%s", d, level), func(b *testing.B) {
				b.SetBytes(benchBytes)
				for b.Loop() {
					level.Scale(ptr(x), ptr(x), benchBytes/d.Size(), d, 0.37)
				}
			})
			b.Run(fmt.Sprintf("over3/%s/%s", d, level), func(b *testing.B) {
				b.SetBytes(benchBytes)
				for b.Loop() {
					level.AverageScale(ptr(x), benchBytes/d.Size(), d, 3)
				}
			})
		}
	}
}

func BenchmarkAdasum(b *testing.B) {
	for _, level := range Levels() {
		for _, d := range []tensor.DType{tensor.Float32, tensor.Float64, tensor.BFloat16} {
			x, y := pages(benchBytes), pages(benchBytes)
			b.Run(fmt.Sprintf("dots/%s/%s", d, level), func(b *testing.B) {
				b.SetBytes(benchBytes)
				for b.Loop() {
					level.DotNorms(ptr(x), ptr(y), benchBytes/d.Size(), d)
				}
			})
			b.Run(fmt.Sprintf("combine/%s/%s", d, level), func(b *testing.B) {
				b.SetBytes(benchBytes)
				for b.Loop() {
					level.AdasumCombine(ptr(x), ptr(x), ptr(y), benchBytes/d.Size(), d, 0.5, 0.5)
				}
			})
		}
	}
}

func BenchmarkCopy(b *testing.B) {
	for _, n := range []int{64 << 10, 1 << 20, 64 << 20} {
		x, y := pages(n), pages(n)
		for _, way := range []struct {
			name string
			copy func(dst, src unsafe.Pointer, bytes int)
		}{{"plain", Copy}, {"stream", CopyStream}, {"ahead", CopyAhead}, {"fetch", CopyFetch}, {"take", CopyTake}} {
			b.Run(fmt.Sprintf("%dKiB/%s", n>>10, way.name), func(b *testing.B) {
				b.SetBytes(int64(n))
				for b.Loop() {
					way.copy(ptr(x), ptr(y), n)
				}
			})
		}
	}
}

// The loops that one would write in Go without thinking of vectors.

//go:noinline
func plainSumFloat32(a, b []float32) {
	for i := range a {
		a[i] += b[i]
	}
}

//go:noinline
func plainSumBFloat16(a, b []uint16) {
	b = b[:len(a)]
	for i := range a {
		a[i] = bfloat16Bits(bfloat16Value(a[i]) + bfloat16Value(b[i]))
	}
}

//go:noinline
func plainSumFloat16(a, b []uint16) {
	b = b[:len(a)]
	for i := range a {
		a[i] = float16Bits(float16Value(a[i]) + float16Value(b[i]))
	}
}

// BenchmarkAgainstC runs every loop of testdata/loops.c and the kernels in turn, eleven rounds,
// and prints a table of medians and of the median of the rounds' ratios:
//
//	go test -run '^$' -bench AgainstC ./internal/kernel
func BenchmarkAgainstC(b *testing.B) {
	gcc, err := exec.LookPath("gcc")
	if err != nil {
		b.Skip("needs gcc")
	}
	loops := filepath.Join(b.TempDir(), "loops")
	if out, err := exec.Command(gcc, "-O3", "-march=native", "-o", loops, "testdata/loops.c").CombinedOutput(); err != nil {
		b.Fatalf("compile testdata/loops.c: %v\n%s", err, out)
	}
	c := startLoops(b, loops)
	fold := func(op tensor.Op, t tensor.DType) func(Level, []byte, []byte) {
		return func(l Level, x, y []byte) { l.Reduce(ptr(x), ptr(x), ptr(y), len(x)/t.Size(), t, op) }
	}
	words := func(p []byte) []uint16 { return view[uint16](ptr(p), len(p)/2) }
	rows := []struct {
		name  string
		fold  func(Level, []byte, []byte)
		plain func(x, y []byte)
	}{
		{"sum float32", fold(tensor.Sum, tensor.Float32), func(x, y []byte) {
			plainSumFloat32(view[float32](ptr(x), len(x)/4), view[float32](ptr(y), len(y)/4))
		}},
		{"sum float64", fold(tensor.Sum, tensor.Float64), nil},
		{"sum int32", fold(tensor.Sum, tensor.Int32), nil},
		{"sum int64", fold(tensor.Sum, tensor.Int64), nil},
		{"product float32", fold(tensor.Product, tensor.Float32), nil},
		{"min float32", fold(tensor.Min, tensor.Float32), nil},
		{"max int32", fold(tensor.Max, tensor.Int32), nil},
		{"sum bfloat16", fold(tensor.Sum, tensor.BFloat16), func(x, y []byte) { plainSumBFloat16(words(x), words(y)) }},
		{"sum float16", fold(tensor.Sum, tensor.Float16), func(x, y []byte) { plainSumFloat16(words(x), words(y)) }},
		{"scale float32", func(l Level, x, y []byte) { l.Scale(ptr(x), ptr(y), len(x)/4, tensor.Float32, 0.37) }, nil},
		{"copy", func(_ Level, x, y []byte) { Copy(ptr(x), ptr(y), len(x)) }, nil},
	}
	for range b.N {
		fmt.Printf("\n| loop | bytes | C, GB/s | plain Go |")
		for _, l := range Levels()[1:] {
			fmt.Printf(" %s | of C | of plain Go |", l)
		}
		fmt.Println()
		for _, row := range rows {
			for _, n := range []int{4 << 10, 64 << 10, 1 << 20} {
				x, y := pages(n), pages(n)
				calls := max(1, (32<<20)/n)
				var times [2 + int(levelEnd)][]float64
				for range 11 {
					times[0] = append(times[0], c(row.name, n, calls))
					if row.plain != nil {
						times[1] = append(times[1], perCall(calls/4+1, func() { row.plain(x, y) }))
					}
					for _, l := range Levels()[1:] {
						times[2+l] = append(times[2+l], perCall(calls, func() { row.fold(l, x, y) }))
					}
				}
				rate := func(t []float64) string {
					if len(t) == 0 {
						return "–"
					}
					return fmt.Sprintf("%.1f", float64(n)/median(t))
				}
				fmt.Printf("| %s | %d | %s | %s |", row.name, n, rate(times[0]), rate(times[1]))
				for _, l := range Levels()[1:] {
					fmt.Printf(" %s | %s | %s |", rate(times[2+l]), ratio(times[0], times[2+l]), ratio(times[1], times[2+l]))
				}
				fmt.Println()
			}
		}
	}
}

func perCall(calls int, f func()) float64 {
	f()
	from := time.Now()
	for range calls {
		f()
	}
	return float64(time.Since(from).Nanoseconds()) / float64(calls)
}

func median(x []float64) float64 {
	x = slices.Sorted(slices.Values(x))
	return x[len(x)/2]
}

// ratio is how many times as fast: the median over rounds.
func ratio(theirs, ours []float64) string {
	if len(theirs) == 0 {
		return "–"
	}
	r := make([]float64, len(ours))
	for i := range r {
		r[i] = theirs[i] / ours[i]
	}
	return fmt.Sprintf("%.2f", median(r))
}

// startLoops runs the C program and returns a function that times one of its loops.
func startLoops(b *testing.B, program string) func(name string, bytes, calls int) float64 {
	cmd := exec.Command(program)
	in, err := cmd.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		_ = in.Close()
		_ = cmd.Wait()
	})
	lines := bufio.NewScanner(out)
	return func(name string, bytes, calls int) float64 {
		fmt.Fprintf(in, "%s,%d,%d\n", name, bytes, calls)
		var ns float64
		if !lines.Scan() {
			b.Fatalf("time %s: the C program ended", name)
		}
		if _, err := fmt.Sscan(strings.TrimSpace(lines.Text()), &ns); err != nil || ns < 0 {
			b.Fatalf("time %s: the C program says %q", name, lines.Text())
		}
		return ns
	}
}
