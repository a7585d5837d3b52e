package parquet

import (
	"bytes"
	"encoding/binary"
	"math"
	"math/bits"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/klauspost/compress/s2"
	"golang.org/x/sys/unix"
)

// fence is memory whose end nothing can be read or written behind: whoever goes one byte
// too far ends the test program.
type fence struct {
	all  []byte
	size int
}

func newFence(t testing.TB, size int) *fence {
	page := unix.Getpagesize()
	size = (size + page - 1) / page * page
	all, err := unix.Mmap(-1, 0, size+page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Mprotect(all[size:], unix.PROT_NONE); err != nil {
		t.Fatal(err)
	}
	return &fence{all, size}
}

// put is a copy of b that ends where the fence begins.
func (f *fence) put(b []byte) []byte {
	to := f.all[f.size-len(b) : f.size : f.size]
	copy(to, b)
	return to
}

// slowly is unpack's answer, bit by bit.
func slowly(packed []byte, width uint, n int) []uint32 {
	to := make([]uint32, n)
	for i := range to {
		for k := range width {
			if at := uint(i)*width + k; at>>3 < uint(len(packed)) && packed[at>>3]>>(at&7)&1 == 1 {
				to[i] |= 1 << k
			}
		}
	}
	return to
}

const fenced = 1 << 14

func FuzzUnpack(f *testing.F) {
	for width := range uint8(33) {
		f.Add(bytes.Repeat([]byte{0xA5, width}, 40), width, uint16(100))
		f.Add([]byte{1, 2, 3, 4, 5, 6, 7}[:width%8], width, uint16(9))
	}
	area := newFence(f, fenced)
	f.Fuzz(func(t *testing.T, packed []byte, width uint8, n uint16) {
		if width > 32 || len(packed) > fenced {
			return
		}
		to := make([]uint32, n)
		unpack(to, area.put(packed), uint(width))
		if !slices.Equal(to, slowly(packed, uint(width), int(n))) {
			t.Fatalf("%d numbers of %d bits of %x are not what their bits say", n, width, packed)
		}
	})
}

// FuzzLevels holds the count of levels to the levels themselves, which sparse relies on
// when it takes so many values.
func FuzzLevels(f *testing.F) {
	for most := uint8(1); most <= maxDepth+1; most++ {
		width := bits.Len8(most)
		f.Add(append([]byte{3 << 1, most, 7<<1 | 1}, bytes.Repeat([]byte{0xFF}, 7*width)...), most, uint16(59))
		f.Add(append([]byte{7<<1 | 1}, bytes.Repeat([]byte{0x24}, 7*width-1)...), most, uint16(50))
	}
	f.Add([]byte{0xFE, 0xFF, 0xFF, 0xFF, 0x0F, 1}, uint8(1), uint16(900))
	f.Add([]byte{9<<1 | 1}, uint8(1), uint16(65))
	area := newFence(f, fenced)
	f.Fuzz(func(t *testing.T, b []byte, most uint8, n uint16) {
		if most == 0 || most > maxDepth+1 || len(b) > fenced {
			return
		}
		lv := bytes.Repeat([]byte{0xEE}, int(n))
		there, err := levels(lv, area.put(b), int(most))
		if err != nil {
			return
		}
		if n := bytes.Count(lv, []byte{most}); n != there {
			t.Fatalf("%d of the levels %x are %d, and the answer is %d", n, lv, most, there)
		}
		want := make([]uint32, n)
		if err := numbers(want, b, uint(bits.Len8(most))); err != nil {
			t.Fatalf("the same runs, as numbers: %v", err)
		}
		for i, l := range lv {
			if uint32(l) != want[i] {
				t.Fatalf("level %d is %d and should be %d", i, l, want[i])
			}
		}
	})
}

// FuzzSparse gives sparse, gather and spread memory that ends just behind what they may touch.
func FuzzSparse(f *testing.F) {
	for _, width := range []uint8{1, 2, 4, 8, 12} {
		f.Add(bytes.Repeat([]byte{1}, 40), width, uint8(0))
		f.Add([]byte{1, 1, 1, 1, 1, 1, 1, 1, 0, 1, 1, 1, 1, 1, 1, 1, 1}, width, uint8(4))
		f.Add([]byte{1, 1, 1, 1, 1, 1, 1, 0, 1, 1, 1, 1, 1, 1, 1, 1}, width, uint8(0))
		f.Add(make([]byte, 11), width, uint8(3))
	}
	from, into, nulls := newFence(f, fenced), newFence(f, 1<<17), newFence(f, 1)
	f.Fuzz(func(t *testing.T, lv []byte, width, more uint8) {
		w, step := int(width), int(width)+int(more)
		if w == 0 || w > 16 || len(lv) == 0 || len(lv) > 256 {
			return
		}
		lv = bytes.Clone(lv)
		var values, index []byte
		for i := range lv {
			if lv[i] &= 1; lv[i] == 1 {
				for k := range w {
					values = append(values, byte(len(values)+7*k+1))
				}
				index = append(index, byte(len(index)))
			}
		}
		size := (len(lv)-1)*step + w
		want := bytes.Repeat([]byte{0xEE}, size)
		null := bytes.Repeat([]byte{0xDD}, w)
		rest := values
		for i, l := range lv {
			v := null
			if l == 1 {
				v, rest = rest[:w], rest[w:]
			}
			copy(want[i*step:], v)
		}
		to := into.put(bytes.Repeat([]byte{0xEE}, size))
		d := Decoder{col: &Column{Width: w, definition: 1}, to: &Target{Data: to, Step: step, Null: nulls.put(null)}}
		d.sparse(from.put(values), lv)
		if !bytes.Equal(to, want) {
			t.Fatalf("sparse: width %d, step %d, levels %x: other bytes than due", w, step, lv)
		}
		if len(index) == 0 {
			return
		}
		size = (len(index)-1)*step + w
		want = bytes.Repeat([]byte{0xEE}, size)
		for i := range index {
			copy(want[i*step:], values[i*w:(i+1)*w])
		}
		to = into.put(bytes.Repeat([]byte{0xEE}, size))
		spread(to, step, from.put(values), w)
		if !bytes.Equal(to, want) {
			t.Fatalf("spread: width %d, step %d: other bytes than due", w, step)
		}
		numbers := make([]uint32, len(index))
		for i := range numbers {
			numbers[i] = uint32(index[i])
		}
		d.dict = from.put(values)
		to = into.put(bytes.Repeat([]byte{0xEE}, size))
		d.gather(to, step, numbers)
		if !bytes.Equal(to, want) {
			t.Fatalf("gather: width %d, step %d: other bytes than due", w, step)
		}
	})
}

// FuzzPage decodes damaged pages that are not compressed, between fences: their lengths,
// levels, bit widths and sizes are whatever the fuzzer makes of them.
func FuzzPage(f *testing.F) {
	meta, add := pageSeeds(f)
	for _, s := range add {
		f.Add(s.column, s.values, uint8(0), s.data)
		f.Add(s.column, s.values, uint8(5), s.data)
	}
	from, into, nulls := newFence(f, 1<<16), newFence(f, 1<<20), newFence(f, 1)
	var d Decoder
	f.Fuzz(func(t *testing.T, c, n int, how uint8, data []byte) {
		if c < 0 || c >= len(meta.Columns) || n < 1 || n > 1<<12 || len(data) > 1<<16 {
			return
		}
		col := &meta.Columns[c]
		step := col.Width + int(how>>4)*4
		to := Target{
			Step: step, Per: 4, Null: nulls.put(make([]byte, col.Width)), NoNulls: how&2 != 0,
			Offsets: make([]int64, n+1), Most: 1 << 20, Ragged: col.List && how&4 != 0, Mask: make([]byte, n),
			MaskStep: 1,
		}
		if col.Width > 0 {
			to.Data = into.put(make([]byte, (n-1)*step+col.Width))
		}
		err := d.Chunk(0, col, &Chunk{codec: uncompressed, Values: int64(n)}, from.put(data), &to)
		if isFault(err) {
			t.Fatal(err)
		}
	})
}

// TestShortNull refuses what stands for a null when it is shorter than the values it is written among.
func TestShortNull(t *testing.T) {
	file := write(t, rows(50))
	meta, err := open(file)
	if err != nil {
		t.Fatal(err)
	}
	c := meta.Find("f64")
	k := &meta.Groups[0].Chunks[c]
	to := Target{Step: 8, Per: 1, Null: make([]byte, 4), Data: make([]byte, 8*k.Values)}
	if err := new(Decoder).Chunk(0, &meta.Columns[c], k, file[k.Offset:k.Offset+k.Compressed], &to); err == nil ||
		isFault(err) {
		t.Fatalf("a null of 4 bytes among values of 8: %v", err)
	}
}

// What is decompressed to its place is what another decoder makes of it, or is left to that; and nobody goes too far.
func FuzzLiterally(f *testing.F) {
	whole := func(skip, size int, repeat bool) []byte {
		b := make([]byte, skip+size)
		random := rand.NewChaCha8([32]byte{byte(skip), byte(size)})
		random.Read(b)
		if repeat {
			copy(b[skip+size/2:], b[skip+size/4:][:40])
		}
		return s2.EncodeSnappy(nil, b)
	}
	for i, block := range [][]byte{
		whole(7, 4000, false), whole(7, 4000, true), whole(0, 70000, false),
		whole(3, 61, false), whole(6, 200_000, true), bytes.Repeat([]byte{1}, 50), nil,
	} {
		f.Add(block, uint16([]int{7, 7, 0, 3, 6, 1, 0}[i]))
	}
	f.Fuzz(func(t *testing.T, block []byte, skip uint16) {
		size, err := s2.DecodedLen(block)
		if err != nil || size < int(skip) || size > 1<<20 {
			return
		}
		n := size - int(skip)
		area := newFence(t, max(n, 1))
		defer unix.Munmap(area.all)
		to, seen := area.put(make([]byte, n)), []byte(nil)
		if !literally(to, int(skip), block, func(b []byte) bool { seen = bytes.Clone(b); return true }) {
			return
		}
		if len(seen) != int(skip) || skip == 0 {
			t.Fatalf("of %d bytes to skip %d were asked about", skip, len(seen))
		}
		want, err := s2.Decode(nil, block)
		if err != nil || !bytes.Equal(want[:skip], seen) || !bytes.Equal(want[skip:], to) {
			t.Fatalf("%d bytes after %d: another decoder says %v, and %v", n, skip, err, bytes.Equal(want[skip:], to))
		}
	})
}

// A page of nulls and values may be as long as its values would be if all were there.
func TestNullsOfAPageAsLongAsItsValues(t *testing.T) {
	const n, nulls = 1000, 33
	packed := make([]byte, (n+7)/8)
	for i := range n {
		if i%31 != 0 { // 33 of the thousand are null
			packed[i/8] |= 1 << (i % 8)
		}
	}
	levels := []byte{1<<1 | 1, packed[0]} // two runs, which make it 128 bytes
	levels = append(binary.AppendUvarint(levels, uint64(len(packed)-1)<<1|1), packed[1:]...)
	page := append(binary.LittleEndian.AppendUint32(nil, uint32(len(levels))), levels...)
	for i := range n {
		if i%31 != 0 {
			page = binary.LittleEndian.AppendUint32(page, math.Float32bits(float32(i)+0.5))
		}
	}
	if len(page) != 4*n {
		t.Fatalf("the page has %d bytes and should have %d", len(page), 4*n)
	}
	to, mask := make([]byte, 4*n), make([]byte, n)
	d := Decoder{
		col: &Column{Width: 4, physical: pFloat, definition: 1},
		to:  &Target{Data: to, Step: 4, Per: 1, Null: make([]byte, 4), Mask: mask, MaskStep: 1},
	}
	h := &header{values: n, encoding: ePlain, levels: eRLE, plain: int32(len(page))}
	if err := d.data(&Chunk{codec: snappy}, h, s2.EncodeSnappy(nil, page)); err != nil {
		t.Fatal(err)
	}
	for i := range n {
		v := math.Float32frombits(binary.LittleEndian.Uint32(to[4*i:]))
		if null := i%31 == 0; mask[i] == 1 != null || !null && v != float32(i)+0.5 {
			t.Fatalf("row %d is %v, null %v", i, v, mask[i])
		}
	}
}

// Floats of a column whose values are all there go straight to their places, with levels before them or without.
func TestStraight(t *testing.T) {
	values := make([]byte, 4000)
	rand.NewChaCha8([32]byte{1}).Read(values)
	levels := []byte{3, 0, 0, 0, 0xD0, 0x0F, 1} // one run of 1,000 ones
	for _, c := range []struct {
		name   string
		col    Column
		levels []byte
		done   bool
	}{
		{"required", Column{Width: 4, physical: pFloat}, nil, true},
		{"optional", Column{Width: 4, physical: pFloat, definition: 1}, levels, true},
		{"a null", Column{Width: 4, physical: pFloat, definition: 1}, []byte{3, 0, 0, 0, 0xD0, 0x0F, 0}, false},
		{"fewer levels", Column{Width: 4, physical: pFloat, definition: 1}, []byte{3, 0, 0, 0, 0xCE, 0x0F, 1}, false},
		{"widened", Column{Width: 8, physical: pInt32, convert: widen}, nil, false},
	} {
		to := make([]byte, 8000)
		d := Decoder{col: &c.col, to: &Target{Data: to, Step: c.col.Width}}
		page := append(bytes.Clone(c.levels), values...)
		h := &header{values: 1000, encoding: ePlain, levels: eRLE}
		done := d.straight(&Chunk{codec: snappy}, h, nil, s2.EncodeSnappy(nil, page), len(page))
		if done != c.done || done && (d.done != 1000 || !bytes.Equal(to[:4000], values)) {
			t.Errorf("%s: done %v, %d values, equal %v", c.name, done, d.done, bytes.Equal(to[:4000], values))
		}
	}
}
