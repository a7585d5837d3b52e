package source

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha1"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"image"
	"image/color"
	"image/jpeg"
	"image/png"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"

	"hora/dataset/parquet"
	"hora/storage"
)

// memory is a store of files in memory.
type memory map[string][]byte

func (m memory) List(context.Context, string) ([]storage.Object, error) {
	var all []storage.Object
	for name, text := range m {
		all = append(all, storage.Object{Name: name, Size: int64(len(text)), Tag: fmt.Sprint(crc32.ChecksumIEEE(text))})
	}
	slices.SortFunc(all, func(a, b storage.Object) int { return strings.Compare(a.Name, b.Name) })
	return all, nil
}

func (m memory) Stat(ctx context.Context, name string) (storage.Object, error) {
	all, _ := m.List(ctx, "")
	i := slices.IndexFunc(all, func(o storage.Object) bool { return o.Name == name })
	if i < 0 {
		return storage.Object{}, storage.ErrNotFound
	}
	return all[i], nil
}

func (m memory) ReadAt(_ context.Context, o storage.Object, p []byte, offset int64) error {
	if offset < 0 || offset+int64(len(p)) > int64(len(m[o.Name])) {
		return fmt.Errorf("%d bytes at %d of %d", len(p), offset, len(m[o.Name]))
	}
	copy(p, m[o.Name][offset:])
	return nil
}

func (m memory) Put(_ context.Context, name string, text []byte) error {
	m[name] = text
	return nil
}

func (m memory) file(name string) File {
	return File{m, storage.Object{Name: name, Size: int64(len(m[name])), Tag: fmt.Sprint(crc32.ChecksumIEEE(m[name]))}}
}

// open opens what a store has, of whatever kind.
func (m memory) open(shelf *storage.Shelf) ([]Table, error) {
	ctx := context.Background()
	all, _ := m.List(ctx, "")
	for _, o := range all {
		switch kind := Of(o.Name); kind {
		case Shards:
			tables, _, err := OpenShards(ctx, m.file(o.Name), all)
			return tables, err
		case Images:
			var table *File
			var pictures []storage.Object
			for _, o := range all {
				if Of(o.Name) == Images {
					pictures = append(pictures, o)
				} else {
					f := m.file(o.Name)
					table = &f
				}
			}
			t, err := OpenImages(ctx, m, "", pictures, table)
			return []Table{t}, err
		case None:
		case CSV:
			if slices.Contains(Labels, o.Name) {
				continue
			}
			fallthrough
		default:
			t, err := Open(ctx, kind, m.file(o.Name), shelf)
			return []Table{t}, err
		}
	}
	return nil, fmt.Errorf("nothing is there")
}

// rows decodes all of a table, row after row, as texts.
func rows(t Table) ([]string, error) {
	meta := t.About()
	var out []string
	var buf []byte
	for g := range meta.Groups {
		data, err := t.Fetch(context.Background(), g, buf)
		if err != nil {
			return nil, err
		}
		buf = data
		n := int(meta.Groups[g].Rows)
		lines := make([]string, n)
		for c := range meta.Columns {
			if meta.Columns[c].Why != "" {
				continue
			}
			if err := column(t, g, c, data, lines); err != nil {
				return nil, err
			}
		}
		out = append(out, lines...)
	}
	return out, nil
}

func column(t Table, g, c int, data []byte, lines []string) error {
	meta, n := t.About(), len(lines)
	col := &meta.Columns[c]
	to := &parquet.Target{Per: 1, Null: make([]byte, col.Width), Step: col.Width, Most: 1 << 30, MaskStep: 1}
	to.Mask = make([]byte, n)
	per := 1
	if col.List {
		if per = meta.Groups[g].Per(c); per == 0 {
			to.Ragged = true
		}
		to.Per, to.Mask = per, nil
	}
	if col.Width == 0 || to.Ragged {
		to.Offsets = make([]int64, n+1)
	} else {
		to.Data = make([]byte, n*per*col.Width)
	}
	if err := t.Decode(g, c, data, to); err != nil {
		return err
	}
	for i := range n {
		v := []byte(nil)
		if to.Offsets != nil {
			v = to.Bytes[to.Offsets[i]:to.Offsets[i+1]]
		} else {
			v = to.Data[i*per*col.Width : (i+1)*per*col.Width]
		}
		switch {
		case to.Mask != nil && to.Mask[i] != 0:
			lines[i] += fmt.Sprintf("%s: null; ", col.Name)
		case col.Width == 0:
			lines[i] += fmt.Sprintf("%s: %q; ", col.Name, v)
		case col.Type == "int64":
			lines[i] += col.Name + ":"
			for ; len(v) > 0; v = v[8:] {
				lines[i] += fmt.Sprintf(" %d", int64(binary.LittleEndian.Uint64(v)))
			}
			lines[i] += "; "
		case col.Type == "float32":
			lines[i] += col.Name + ":"
			for ; len(v) > 0; v = v[4:] {
				lines[i] += fmt.Sprintf(" %g", math.Float32frombits(binary.LittleEndian.Uint32(v)))
			}
			lines[i] += "; "
		case col.Type == "float64":
			lines[i] += fmt.Sprintf("%s: %g; ", col.Name, math.Float64frombits(binary.LittleEndian.Uint64(v)))
		default:
			lines[i] += fmt.Sprintf("%s: %x; ", col.Name, v)
		}
	}
	return nil
}

// -- what the tests read

func tarOf(t testing.TB, samples int) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	put := func(name, text string) {
		h := &tar.Header{Name: name, Size: int64(len(text)), Mode: 0o644, Format: tar.FormatPAX}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.WriteHeader(&tar.Header{Name: "train/", Typeflag: tar.TypeDir, Mode: 0o755}); err != nil {
		t.Fatal(err)
	}
	for i := range samples {
		key := fmt.Sprintf("train/%s%04d", strings.Repeat("long", i%3*30), i)
		put(key+".cls", fmt.Sprintf("%d\n", i%10))
		put(key+".JPG", strings.Repeat("x", i%7))
		if i%3 > 0 {
			put(key+".seg.txt", "text "+fmt.Sprint(i))
		}
	}
	put("train/.hidden", "no")
	put("README", "no")
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func tagged(number, wire int, v []byte) []byte {
	b := binary.AppendUvarint(nil, uint64(number<<3|wire))
	if wire == wireBytes {
		b = binary.AppendUvarint(b, uint64(len(v)))
	}
	return append(b, v...)
}

func feature(name string, kind int, list []byte) []byte {
	entry := append(tagged(1, wireBytes, []byte(name)), tagged(2, wireBytes, tagged(kind, wireBytes, list))...)
	return tagged(1, wireBytes, entry)
}

func ints(packed bool, v ...int64) []byte {
	var all, one []byte
	for _, x := range v {
		all = binary.AppendUvarint(all, uint64(x))
		one = append(one, tagged(1, wireVarint, binary.AppendUvarint(nil, uint64(x)))...)
	}
	if packed {
		return tagged(1, wireBytes, all)
	}
	return one
}

func floats(v ...float32) []byte {
	var all []byte
	for _, x := range v {
		all = binary.LittleEndian.AppendUint32(all, math.Float32bits(x))
	}
	return tagged(1, wireBytes, all)
}

func example(i int) []byte {
	var all []byte
	all = append(all, feature("id", intsList, ints(i%2 == 0, int64(i)-5))...)
	all = append(all, feature("x", floatsList, floats(float32(i), 0.5))...)
	if i%4 > 0 {
		all = append(all, feature("name", bytesList, tagged(1, wireBytes, []byte(fmt.Sprint("n", i))))...)
	}
	all = append(all, feature("tokens", intsList, ints(i%2 == 1, make([]int64, i%5)...))...)
	return tagged(1, wireBytes, all)
}

func frameOf(b []byte, record []byte) []byte {
	b = binary.LittleEndian.AppendUint64(b, uint64(len(record)))
	b = binary.LittleEndian.AppendUint32(b, masked(b[len(b)-8:]))
	b = append(b, record...)
	return binary.LittleEndian.AppendUint32(b, masked(record))
}

func recordsOf(n int) []byte {
	var b []byte
	for i := range n {
		b = frameOf(b, example(i))
	}
	return b
}

const table = "id,ratio,ok,\"the name\",half\n1,0.5,true,a,\n-2,1e3,False,\"b, \"\"c\"\"\nd\",2\n\n3,,true,,3\n"

// shardsOf is a folder of MDS: plain, with hashes, and compressed with hashes.
func shardsOf(t testing.TB) memory {
	t.Helper()
	m := memory{}
	var index shardIndex
	eight, four := 8, 4
	for k := range 3 {
		var body []byte
		n := 40 + k
		var offsets []uint32
		config := []byte(`{"format":"mds"}`)
		at := uint32(4 + 4*(n+1) + len(config))
		offsets = append(offsets, at)
		for i := range n {
			text := fmt.Sprintf("row %d", i)
			row := binary.LittleEndian.AppendUint32(nil, uint32(len(text)))
			row = append(row, text...)
			row = binary.LittleEndian.AppendUint64(row, uint64(1000*k+i))
			row = binary.LittleEndian.AppendUint32(row, math.Float32bits(float32(i)/2))
			body = append(body, row...)
			offsets = append(offsets, at+uint32(len(body)))
		}
		raw := binary.LittleEndian.AppendUint32(nil, uint32(n))
		for _, o := range offsets {
			raw = binary.LittleEndian.AppendUint32(raw, o)
		}
		raw = append(append(raw, config...), body...)
		s := shardInfo{
			Names: []string{"text", "id", "half"}, Encodings: []string{"str", "int", "float32"}, Sizes: []*int{nil, &eight, &four},
			Format: "mds", Samples: int64(n), Version: 2,
			Raw: shardFile{Name: fmt.Sprintf("shard.%05d.mds", k), Bytes: int64(len(raw)), Hashes: map[string]string{}},
		}
		stored, name := raw, s.Raw.Name
		if k == 2 {
			e, err := zstd.NewWriter(nil)
			if err != nil {
				t.Fatal(err)
			}
			how := "zstd:7"
			stored, name = e.EncodeAll(raw, nil), s.Raw.Name+".zstd"
			s.Compression, s.Zip = &how, shardFile{Name: name, Bytes: int64(len(stored)), Hashes: map[string]string{}}
			s.Zip.Hashes["sha1"] = fmt.Sprintf("%x", sha1.Sum(stored))
		}
		if k == 1 {
			s.Raw.Hashes["sha1"], s.Raw.Hashes["xxh64"] = fmt.Sprintf("%x", sha1.Sum(raw)), "unknown here"
		}
		m[name] = stored
		index.Shards = append(index.Shards, s)
	}
	index.Version = 2
	text, err := json.Marshal(index)
	if err != nil {
		t.Fatal(err)
	}
	m["index.json"] = text
	return m
}

func picture(t testing.TB, i int, asPNG bool) []byte {
	t.Helper()
	p := image.NewRGBA(image.Rect(0, 0, 6, 4))
	for x := range 6 {
		for y := range 4 {
			p.Set(x, y, color.RGBA{uint8(40 * x), uint8(60 * y), uint8(i), 255})
		}
	}
	var b bytes.Buffer
	var err error
	if asPNG {
		err = png.Encode(&b, p)
	} else {
		err = jpeg.Encode(&b, p, &jpeg.Options{Quality: 95})
	}
	if err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func imagesOf(t testing.TB) memory {
	return memory{
		"cat/1.jpg": picture(t, 1, false), "cat/2.PNG": picture(t, 2, true), "dog/x/3.jpeg": picture(t, 3, false),
		"labels.csv": []byte("file_name,age,who\ncat/1.jpg,3,Tom\ndog/x/3.jpeg,,Rex\n"),
	}
}

func formats(t testing.TB) map[string]memory {
	classes := imagesOf(t)
	delete(classes, "labels.csv")
	return map[string]memory{
		"tar": {"a.tar": tarOf(t, 40)}, "tfrecord": {"a.tfrecord": recordsOf(50)}, "raw": {"b.tfrecord": frameOf(frameOf(nil, []byte("\xffone")), nil)},
		"csv": {"a.csv": []byte(table)}, "tsv": {"a.tsv": []byte("a\tb\r\n1\tx,y\r\n2\tz")}, "mds": shardsOf(t), "images": imagesOf(t), "classes": classes,
	}
}

func mustRows(t testing.TB, m memory) []string {
	t.Helper()
	tables, err := m.open(nil)
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, one := range tables {
		some, err := rows(one)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, some...)
	}
	return all
}

func TestFormats(t *testing.T) {
	all := formats(t)
	for _, c := range []struct {
		format string
		rows   int
		row    int
		is     string
	}{
		{"tar", 40, 0, `__key__: "train/0000"; cls: 0; jpg: ""; seg.txt: null; `},
		{"tar", 40, 38, `__key__: "train/` + strings.Repeat("long", 60) + `0038"; cls: 8; jpg: "xxx"; seg.txt: "text 38"; `},
		{"tfrecord", 50, 0, `id: -5; name: null; tokens:; x: 0 0.5; `},
		{"tfrecord", 50, 49, `id: 44; name: "n49"; tokens: 0 0 0 0; x: 49 0.5; `},
		{"raw", 2, 0, `record: "\xffone"; `},
		{"csv", 3, 1, `id: -2; ratio: 1000; ok: 00; the name: "b, \"c\"\nd"; half: 2; `},
		{"csv", 3, 2, `id: 3; ratio: null; ok: 01; the name: ""; half: 3; `},
		{"tsv", 2, 0, `a: 1; b: "x,y"; `},
		{"mds", 123, 45, `text: "row 5"; id: 1005; half: 2.5; `},
		{"mds", 123, 122, `text: "row 41"; id: 2041; half: 20.5; `},
		{"images", 2, 1, fmt.Sprintf(`image: %q; path: "dog/x/3.jpeg"; age: null; who: "Rex"; `, all["images"]["dog/x/3.jpeg"])},
		{"classes", 3, 2, fmt.Sprintf(`image: %q; path: "dog/x/3.jpeg"; label: 1; class: "dog/x"; `, all["images"]["dog/x/3.jpeg"])},
	} {
		got := mustRows(t, all[c.format])
		if len(got) != c.rows || got[c.row] != c.is {
			t.Errorf("%s: %d rows, row %d is\n%s, want\n%s", c.format, len(got), c.row, got[min(c.row, len(got)-1)], c.is)
		}
	}
}

// TestFlips: whatever bit of a file is wrong, no decoder panics; where there are checksums
// nothing comes out that is not what went in.
func TestFlips(t *testing.T) {
	flips := 120
	if os.Getenv("HORA_SOAK") != "" {
		flips = 10_000
	}
	rng := rand.New(rand.NewPCG(7, 7))
	for name, m := range formats(t) {
		want := strings.Join(mustRows(t, m), "\n")
		for range flips {
			all, _ := m.List(context.Background(), "")
			file := all[rng.IntN(len(all))].Name
			bad := memory{}
			for n, text := range m {
				bad[n] = text
			}
			bad[file] = slices.Clone(m[file])
			at := rng.IntN(len(bad[file]))
			bad[file][at] ^= 1 << rng.IntN(8)
			checked := name == "tfrecord" || file == "shard.00001.mds" || file == "shard.00002.mds.zstd"
			got, err := everything(bad)
			if err != nil && strings.Contains(err.Error(), "internal fault") {
				t.Fatalf("%s: byte %d of %s: %v", name, at, file, err)
			}
			if err == nil && checked && got != want {
				t.Fatalf("%s: byte %d of %s is another and nobody says so", name, at, file)
			}
		}
	}
}

// everything is all rows, or the first error.
func everything(m memory) (string, error) {
	tables, err := m.open(nil)
	if err != nil {
		return "", err
	}
	var all []string
	for _, one := range tables {
		some, err := rows(one)
		if err != nil {
			return "", err
		}
		all = append(all, some...)
	}
	return strings.Join(all, "\n"), nil
}

// fuzz lets one file of a format be anything.
func fuzz(f *testing.F, format, name string) {
	f.Add(formats(f)[format][name])
	f.Add([]byte{})
	f.Add(formats(f)[format][name][:len(formats(f)[format][name])/2])
	f.Fuzz(func(t *testing.T, text []byte) {
		m := formats(t)[format]
		m[name] = text
		if _, err := everything(m); err != nil && strings.Contains(err.Error(), "internal fault") {
			t.Fatal(err)
		}
	})
}

func FuzzTar(f *testing.F)     { fuzz(f, "tar", "a.tar") }
func FuzzRecords(f *testing.F) { fuzz(f, "tfrecord", "a.tfrecord") }
func FuzzCSV(f *testing.F)     { fuzz(f, "csv", "a.csv") }
func FuzzIndex(f *testing.F)   { fuzz(f, "mds", "index.json") }
func FuzzShard(f *testing.F)   { fuzz(f, "mds", "shard.00000.mds") }
func FuzzLabels(f *testing.F)  { fuzz(f, "images", "labels.csv") }

func FuzzRGB(f *testing.F) {
	f.Add(picture(f, 1, true))
	f.Add(picture(f, 1, false))
	f.Fuzz(func(t *testing.T, text []byte) {
		if _, _, _, err := RGB(text, nil); err != nil && strings.Contains(err.Error(), "internal fault") {
			t.Fatal(err)
		}
	})
}

func TestRGB(t *testing.T) {
	for _, asPNG := range []bool{true, false} {
		pixels, height, width, err := RGB(picture(t, 9, asPNG), nil)
		if err != nil || height != 4 || width != 6 || len(pixels) != 72 {
			t.Fatal(len(pixels), height, width, err)
		}
		want, most := []byte{40 * 5, 60 * 3, 9}, 0
		for i, v := range pixels[69:] {
			most = max(most, int(v)-int(want[i]), int(want[i])-int(v))
		}
		if asPNG && most > 0 || most > 40 {
			t.Errorf("the last pixel is %v, want %v", pixels[69:], want)
		}
	}
	if _, _, _, err := RGB([]byte("GIF89a"), nil); err == nil || !strings.Contains(err.Error(), "no JPEG or PNG") {
		t.Error(err)
	}
}

// TestFaults: what is wrong is said with its place.
func TestFaults(t *testing.T) {
	cut := func(b []byte, n int) []byte { return b[:len(b)-n] }
	twice := tarOf(t, 3)
	damaged := slices.Clone(recordsOf(5))
	damaged[len(damaged)-6] ^= 1
	shards := func(change func(*shardIndex)) memory {
		m := shardsOf(t)
		var index shardIndex
		if err := json.Unmarshal(m["index.json"], &index); err != nil {
			t.Fatal(err)
		}
		change(&index)
		m["index.json"], _ = json.Marshal(index)
		return m
	}
	for says, m := range map[string]memory{
		"at byte": {"a.tar": cut(twice, 3000)},
		"it has no files that are called key.ending":        {"a.tar": tarOf(t, 0)},
		"record 4 at byte":                                  {"a.tfrecord": damaged},
		"is said to have":                                   {"a.tfrecord": cut(recordsOf(5), 10)},
		"record 1 at byte 16 is cut: the file ends in it":   {"a.tfrecord": append(frameOf(nil, nil), 1, 2)},
		"it is no TFRecord file, or damaged":                {"a.tfrecord": []byte(strings.Repeat("text", 20))},
		"compressed as a whole":                             {"a.tfrecord": append([]byte{0x1f, 0x8b}, make([]byte, 50)...)},
		"it is empty":                                       {"a.tfrecord": nil},
		"line 3, character 1: it has another number of":     {"a.csv": []byte("a,b\n1,2\n3\n")},
		"a quote has no end":                                {"a.csv": []byte("a,b\n1,\"2\n3,4\n")},
		`two of its columns are called "a"`:                 {"a.csv": []byte("a,a\n1,2\n")},
		"it has no rows but":                                {"a.csv": []byte("a,b\n")},
		`its shard 0, "other", is not there; copy all`:      shards(func(i *shardIndex) { i.Shards[0].Raw.Name = "other" }),
		"by the index: not all of it is there":              shards(func(i *shardIndex) { i.Shards[1].Raw.Bytes++ }),
		"its sha1 is":                                       shards(func(i *shardIndex) { i.Shards[1].Raw.Hashes["sha1"] = "00" }),
		`it is compressed with "br", and hora reads zstd`:   shards(func(i *shardIndex) { br := "br"; i.Shards[2].Compression = &br }),
		"it has 40 rows, and 41 by the index":               shards(func(i *shardIndex) { i.Shards[0].Samples = 41 }),
		`row 2: there is no image "b.jpg"`:                  {"a.jpg": nil, "labels.csv": []byte("file,y\na.jpg,1\nb.jpg,2\n")},
		`its column "path" has the name of another; choose`: {"a.jpg": nil, "labels.csv": []byte("file,path,path\na.jpg,a.jpg,2\n")},
	} {
		if _, err := everything(m); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v", says, err)
		}
	}
	m := shards(func(i *shardIndex) { i.Shards[0].Encodings[0] = "pkl" })
	tables, err := m.open(nil)
	if err != nil || !strings.Contains(tables[0].About().Columns[0].Why, "which would run what they say") {
		t.Error(err)
	}
}

// counting counts what is read.
type counting struct {
	memory
	bytes int
}

func (c *counting) ReadAt(ctx context.Context, o storage.Object, p []byte, offset int64) error {
	c.bytes += len(p)
	return c.memory.ReadAt(ctx, o, p, offset)
}

// TestIndexedOnce: a file is looked through once, and again when it changes or what was
// kept is damaged.
func TestIndexedOnce(t *testing.T) {
	dir := t.TempDir()
	shelf := storage.NewShelf(dir, 1<<30)
	csv := []byte("a,b\n" + strings.Repeat("1,2\n", 400))
	for name, text := range map[string][]byte{"a.tar": tarOf(t, 400), "a.tfrecord": recordsOf(400), "a.csv": csv} {
		c := &counting{memory: memory{name: text}}
		read := func() int {
			c.bytes = 0
			f := c.file(name)
			f.Store = c
			one, err := Open(context.Background(), Of(name), f, shelf)
			if err != nil {
				t.Fatal(err)
			}
			if n := one.About().Rows; n != 400 && n != 401 {
				t.Errorf("%s: %d rows", name, n)
			}
			return c.bytes
		}
		if n := read(); n == 0 {
			t.Errorf("%s was indexed without being read", name)
		}
		if n := read(); n != 0 {
			t.Errorf("%s is read again: %d bytes", name, n)
		}
	}
}
