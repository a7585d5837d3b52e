package parquet

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	parquetgo "github.com/parquet-go/parquet-go"
)

// row is what the tests write with another library.
type row struct {
	Bool    bool      `parquet:"bool"`
	I32     int32     `parquet:"i32"`
	I64     int64     `parquet:"i64,delta"`
	F32     float32   `parquet:"f32"`
	F64     *float64  `parquet:"f64,optional"`
	Text    string    `parquet:"text,dict"`
	Maybe   *string   `parquet:"maybe,optional"`
	Dict    int64     `parquet:"dict,dict"`
	MayDict *int32    `parquet:"maydict,optional,dict"`
	Fixed   [5]byte   `parquet:"fixed"`
	Vector  []float32 `parquet:"vector,list"`
	In      struct {
		Side uint16 `parquet:"side"`
	} `parquet:"in"`
	Words []*string `parquet:"words,list"`
}

func rows(n int) []row {
	rng := rand.New(rand.NewPCG(uint64(n), 1))
	all := make([]row, n)
	for i := range all {
		r := &all[i]
		*r = row{
			Bool: rng.IntN(3) == 0, I32: int32(rng.Uint32()), I64: int64(rng.Uint64()), F32: rng.Float32(),
			Dict: int64(rng.IntN(9)), Vector: make([]float32, 4),
		}
		for k := range r.Vector {
			r.Vector[k] = rng.Float32()
		}
		r.Text = strings.Repeat("x", rng.IntN(4)) + fmt.Sprint(rng.IntN(50))
		if rng.IntN(4) > 0 {
			f, s, d := rng.Float64(), r.Text+"!", int32(rng.IntN(5))
			r.F64, r.Maybe, r.MayDict = &f, &s, &d
		}
		r.In.Side = uint16(rng.Uint32())
		copy(r.Fixed[:], fmt.Sprintf("%05d", rng.IntN(1e5)))
		for k := range rng.IntN(4) {
			word := strings.Repeat("w", rng.IntN(3)) + fmt.Sprint(rng.IntN(20))
			if r.Words = append(r.Words, &word); k == 2 {
				r.Words[1] = nil
			}
		}
	}
	return all
}

func write(t testing.TB, all []row, options ...parquetgo.WriterOption) []byte {
	t.Helper()
	var b bytes.Buffer
	w := parquetgo.NewGenericWriter[row](&b, options...)
	if _, err := w.Write(all); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func open(file []byte) (*File, error) {
	return Read(int64(len(file)), func(p []byte, at int64) error {
		if copy(p, file[at:]) < len(p) {
			return errors.New("short")
		}
		return nil
	})
}

// column reads a whole column: its values as they come out, and where it is null.
func column(d *Decoder, file []byte, f *File, c int) (values, mask []byte, ends []int64, err error) {
	col := &f.Columns[c]
	for g := range f.Groups {
		k := &f.Groups[g].Chunks[c]
		if k.Values > 1<<20 {
			return nil, nil, nil, errors.New("more than a test holds")
		}
		t := Target{
			Step: col.Width, Per: max(1, f.Groups[g].Per(c)), Null: make([]byte, col.Width),
			Mask: make([]byte, k.Values), MaskStep: 1, Most: 1 << 20,
		}
		if col.Width == 0 && col.List {
			t.Ragged, t.Mask, t.Offsets = true, nil, make([]int64, f.Groups[g].Rows+1)
		} else if col.Width == 0 {
			t.Offsets = make([]int64, k.Values+1)
		} else {
			t.Data = make([]byte, int(k.Values)*col.Width)
		}
		if err := d.Chunk(g, col, k, file[k.Offset:k.Offset+k.Compressed], &t); err != nil {
			return nil, nil, nil, err
		}
		for _, end := range t.Offsets[min(1, len(t.Offsets)):] {
			ends = append(ends, int64(len(values))+end)
		}
		values, mask = append(append(values, t.Data...), t.Bytes...), append(mask, t.Mask...)
	}
	return values, mask, ends, nil
}

// wanted is what column should answer for a field of rows.
func wanted(all []row, field func(*row) any) (values, mask []byte, ends []int64) {
	for i := range all {
		null := byte(0)
		switch v := field(&all[i]).(type) {
		case *float64:
			if v == nil {
				values, null = append(values, make([]byte, 8)...), 1
			} else {
				values = binary.LittleEndian.AppendUint64(values, math.Float64bits(*v))
			}
		case *int32:
			if v == nil {
				values, null = append(values, make([]byte, 4)...), 1
			} else {
				values = binary.LittleEndian.AppendUint32(values, uint32(*v))
			}
		case *string:
			if v == nil {
				null = 1
			} else {
				values = append(values, *v...)
			}
			ends = append(ends, int64(len(values)))
		case string:
			values = append(values, v...)
			ends = append(ends, int64(len(values)))
		case []*string:
			for _, word := range v {
				if word == nil {
					values = binary.LittleEndian.AppendUint32(values, NullText)
					continue
				}
				values = append(binary.LittleEndian.AppendUint32(values, uint32(len(*word))), *word...)
			}
			ends = append(ends, int64(len(values)))
			continue
		case []float32:
			values, _ = binary.Append(values, binary.LittleEndian, v)
			mask = append(mask, make([]byte, len(v)-1)...)
		default:
			values, _ = binary.Append(values, binary.LittleEndian, v)
		}
		mask = append(mask, null)
	}
	return values, mask, ends
}

var fields = map[string]func(*row) any{
	"bool": func(r *row) any { return r.Bool }, "i32": func(r *row) any { return r.I32 },
	"i64": func(r *row) any { return r.I64 }, "f32": func(r *row) any { return r.F32 },
	"f64": func(r *row) any { return r.F64 }, "text": func(r *row) any { return r.Text },
	"maybe": func(r *row) any { return r.Maybe }, "dict": func(r *row) any { return r.Dict },
	"maydict": func(r *row) any { return r.MayDict }, "fixed": func(r *row) any { return r.Fixed },
	"vector": func(r *row) any { return r.Vector }, "in.side": func(r *row) any { return r.In.Side },
	"words": func(r *row) any { return r.Words },
}

// TestAgainstAnotherWriter reads what parquet-go writes, over codecs and page versions.
func TestAgainstAnotherWriter(t *testing.T) {
	all := rows(5000)
	var d Decoder
	for _, version := range []int{1, 2} {
		for name, codec := range map[string]parquetgo.WriterOption{
			"none": parquetgo.Compression(&parquetgo.Uncompressed), "snappy": parquetgo.Compression(&parquetgo.Snappy),
			"zstd": parquetgo.Compression(&parquetgo.Zstd), "gzip": parquetgo.Compression(&parquetgo.Gzip),
			"lz4": parquetgo.Compression(&parquetgo.Lz4Raw), "brotli": parquetgo.Compression(&parquetgo.Brotli),
		} {
			file := write(
				t, all, codec, parquetgo.DataPageVersion(version), parquetgo.PageBufferSize(3000),
				parquetgo.MaxRowsPerRowGroup(1700),
			)
			f, err := open(file)
			if err != nil {
				t.Fatal(err)
			}
			if f.Rows != 5000 || len(f.Groups) != 3 || len(f.Columns) != len(fields) {
				t.Fatalf("%d rows, %d groups, columns %s", f.Rows, len(f.Groups), f.Names())
			}
			for column_, field := range fields {
				c := f.Find(column_)
				if c < 0 {
					t.Fatalf("there is no column %q among %s", column_, f.Names())
				}
				values, mask, ends, err := column(&d, file, f, c)
				if err != nil {
					t.Errorf("v%d %s: %v", version, name, err)
					continue
				}
				wantValues, wantMask, wantEnds := wanted(all, field)
				if !bytes.Equal(values, wantValues) || !bytes.Equal(mask, wantMask) || !slices.Equal(ends, wantEnds) {
					t.Errorf("v%d %s %s: values are not those that were written", version, name, column_)
				}
			}
		}
	}
}

// TestDamage flips bits: an error or equal values where pages have checksums, and
// never a panic.
func TestDamage(t *testing.T) {
	all := rows(300)
	var d Decoder
	for name, codec := range map[string]parquetgo.WriterOption{
		"none": parquetgo.Compression(&parquetgo.Uncompressed), "snappy": parquetgo.Compression(&parquetgo.Snappy),
		"zstd": parquetgo.Compression(&parquetgo.Zstd),
	} {
		file := write(t, all, codec, parquetgo.PageBufferSize(500))
		rng := rand.New(rand.NewPCG(5, 5))
		flips, silent, caught := 1000, 0, 0
		for range flips {
			at, bit := rng.IntN(len(file)), byte(1)<<rng.IntN(8)
			file[at] ^= bit
			f, err := open(file)
			for c := 0; err == nil && c < len(f.Columns); c++ {
				var values []byte
				values, _, _, err = column(&d, file, f, c)
				if field := fields[f.Columns[c].Name]; err == nil && field != nil {
					if want, _, _ := wanted(all, field); !bytes.Equal(values, want) {
						silent++
						break
					}
				}
			}
			if err != nil {
				caught++
				if strings.Contains(err.Error(), "internal fault") {
					t.Fatalf("%s, byte %d: %v", name, at, err)
				}
			}
			file[at] ^= bit
		}
		t.Logf("%s: of %d flips %d are errors, %d change values silently", name, flips, caught, silent)
		if silent > flips/100 {
			t.Errorf("%s: %d of %d flips changed values, and no checksum said so", name, silent, flips)
		}
	}
}

func FuzzFooter(f *testing.F) {
	file := write(f, rows(3))
	f.Add(file[len(file)-8-int(binary.LittleEndian.Uint32(file[len(file)-8:])) : len(file)-8])
	f.Fuzz(func(t *testing.T, footer []byte) {
		file, err := Parse(footer, 1<<20)
		if err != nil {
			return
		}
		for i := range file.Groups {
			for c := range file.Columns {
				_ = file.Columns[c].Bounds(&file.Groups[i].Chunks[c])
			}
		}
	})
}

// FuzzChunk decodes anything as the chunks of a column each.
func FuzzChunk(f *testing.F) {
	file := write(f, rows(50), parquetgo.PageBufferSize(200))
	meta, err := open(file)
	if err != nil {
		f.Fatal(err)
	}
	for c := range meta.Columns {
		k := meta.Groups[0].Chunks[c]
		f.Add(c, int32(k.codec), int(k.Values), file[k.Offset:k.Offset+k.Compressed])
	}
	f.Fuzz(func(t *testing.T, c int, compression int32, n int, data []byte) {
		if c < 0 || c >= len(meta.Columns) || n < 0 || n > 1<<16 {
			return
		}
		var d Decoder
		col := &meta.Columns[c]
		to := Target{
			Step: col.Width, Per: 4, Null: make([]byte, col.Width), Data: make([]byte, n*col.Width),
			Offsets: make([]int64, n+1), Most: 1 << 20,
		}
		to.Ragged = col.List && n%2 == 1
		err := d.Chunk(0, col, &Chunk{codec: codec(compression), Values: int64(n)}, data, &to)
		if err != nil && strings.Contains(err.Error(), "internal fault") {
			t.Fatal(err)
		}
	})
}

// TestEmptyPages inflates what is nothing, as all pages of a column without values are.
func TestEmptyPages(t *testing.T) {
	var f inflater
	for c, from := range map[codec][]byte{
		snappy: {0}, brotlied: {6}, lz4Raw: {0}, zstandard: {0x28, 0xb5, 0x2f, 0xfd, 0x20, 0, 1, 0, 0},
		gzipped: {0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 2, 3, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0},
	} {
		for range 2 {
			if err := f.inflate(c, nil, from); err != nil {
				t.Errorf("%s: %v", c, err)
			}
		}
	}
}

// seed is a chunk that FuzzPage begins with.
type seed struct {
	column, values int
	data           []byte
}

// pageSeeds are chunks without compression, of each column and both versions of pages.
func pageSeeds(t testing.TB) (meta *File, seeds []seed) {
	for _, version := range []int{1, 2} {
		file := write(
			t, rows(90), parquetgo.PageBufferSize(200), parquetgo.DataPageVersion(version),
			parquetgo.Compression(&parquetgo.Uncompressed),
		)
		var err error
		if meta, err = open(file); err != nil {
			t.Fatal(err)
		}
		for c := range meta.Columns {
			k := &meta.Groups[0].Chunks[c]
			seeds = append(seeds, seed{c, int(k.Values), file[k.Offset : k.Offset+k.Compressed]})
		}
	}
	return meta, seeds
}

func isFault(err error) bool { return err != nil && strings.Contains(err.Error(), "internal fault") }
