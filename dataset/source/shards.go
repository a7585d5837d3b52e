package source

import (
	"context"
	"crypto/md5"
	"crypto/sha1"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"path"
	"strconv"
	"strings"

	"github.com/klauspost/compress/zstd"

	"hora/dataset/parquet"
	"hora/storage"
)

// shardTable is a shard of MosaicML's format (MDS), described by an index.json: rows one
// after the other, each with the sizes of its texts before its values. A shard that is
// compressed or has hashes is read as a whole, since only a whole can be unpacked or
// compared; any other in groups of about a MiB.
type shardTable struct {
	file   File
	meta   *parquet.File
	plain  int64 // bytes of the shard without compression
	packed bool
	hashes []check // of the file as it stored there
	sizes  []int   // of each column: bytes of a value, 0: they differ
	starts []int64 // where rows begin; nil: they stand in the shard, which is one group
	first  []int
	rows   int
}

type check struct {
	name string
	make func() hash.Hash
	want string
}

// hashNames are those that the standard library has.
var hashNames = map[string]func() hash.Hash{
	"md5": md5.New, "sha1": sha1.New, "sha224": sha256.New224, "sha256": sha256.New, "sha384": sha512.New384,
	"sha512": sha512.New,
}

// shardIndex is an index.json.
type shardIndex struct {
	Version int         `json:"version"`
	Shards  []shardInfo `json:"shards"`
}

type shardInfo struct {
	Names       []string  `json:"column_names"`
	Encodings   []string  `json:"column_encodings"`
	Sizes       []*int    `json:"column_sizes"`
	Compression *string   `json:"compression"`
	Format      string    `json:"format"`
	Samples     int64     `json:"samples"`
	Version     int       `json:"version"`
	Raw         shardFile `json:"raw_data"`
	Zip         shardFile `json:"zip_data"`
}

type shardFile struct {
	Name   string            `json:"basename"`
	Bytes  int64             `json:"bytes"`
	Hashes map[string]string `json:"hashes"`
}

const maxIndex = 256 << 20

// OpenShards opens the shards that an index.json names, each as a table.
func OpenShards(ctx context.Context, index File, objects []storage.Object) (tables []Table, files []File, err error) {
	defer guard(&err)
	if index.Object.Size > maxIndex {
		return nil, nil, fmt.Errorf("it has %d MiB, more than an index may", index.Object.Size>>20)
	}
	text := make([]byte, index.Object.Size)
	if err := index.read(ctx, text, 0); err != nil {
		return nil, nil, err
	}
	var all shardIndex
	if err := json.Unmarshal(text, &all); err != nil {
		return nil, nil, fmt.Errorf("it is no index of MosaicML's shards: %w", err)
	}
	if len(all.Shards) == 0 {
		return nil, nil, errors.New("it names no shards")
	}
	known := map[string]storage.Object{}
	folder := strings.TrimSuffix(index.Object.Name, path.Base(index.Object.Name))
	for _, o := range objects {
		known[strings.TrimPrefix(o.Name, folder)] = o
	}
	for i := range all.Shards {
		s := &all.Shards[i]
		stored, packed := s.Raw, s.Compression != nil && *s.Compression != ""
		if packed {
			_, there := known[s.Zip.Name]
			if _, plain := known[s.Raw.Name]; there || !plain { // else somebody has unpacked it
				stored = s.Zip
			} else {
				packed = false
			}
		}
		o, there := known[stored.Name]
		if !there {
			return nil, nil, fmt.Errorf("its shard %d, %q, is not there; copy all shards beside the index", i, stored.Name)
		}
		t, err := openShard(ctx, File{index.Store, o}, s, &stored, packed)
		if err != nil {
			return nil, nil, fmt.Errorf("its shard %q: %w", stored.Name, err)
		}
		tables, files = append(tables, t), append(files, t.file)
	}
	return tables, files, nil
}

// openShard opens a shard as it is stored: packed, or plain.
func openShard(ctx context.Context, f File, s *shardInfo, stored *shardFile, packed bool) (*shardTable, error) {
	t := &shardTable{file: f, plain: s.Raw.Bytes, rows: int(s.Samples), packed: packed}
	n := len(s.Names)
	switch {
	case s.Format != "mds":
		return nil, fmt.Errorf("it is of the format %q, and hora reads mds", s.Format)
	case n == 0 || n > maxColumn || len(s.Encodings) != n || len(s.Sizes) != n:
		return nil, fmt.Errorf("it has %d columns, %d encodings and %d sizes", n, len(s.Encodings), len(s.Sizes))
	case stored.Bytes != f.Object.Size:
		return nil, fmt.Errorf("it has %d bytes, and %d by the index: not all of it is there, or it was changed", f.Object.Size, stored.Bytes)
	case s.Raw.Bytes < 0 || s.Raw.Bytes > maxGroup:
		return nil, fmt.Errorf("it is said to have %d MiB, more than hora reads at once", s.Raw.Bytes>>20)
	case s.Samples < 1 || s.Samples > maxRows || 4+4*(s.Samples+1) > s.Raw.Bytes:
		return nil, fmt.Errorf("it is said to have %d rows in %d bytes", s.Samples, s.Raw.Bytes)
	}
	if packed {
		if name, _, _ := strings.Cut(*s.Compression, ":"); name != "zstd" {
			return nil, fmt.Errorf("it is compressed with %q, and hora reads zstd", *s.Compression)
		}
	}
	for name, want := range stored.Hashes {
		if h := hashNames[name]; h != nil {
			t.hashes = append(t.hashes, check{name, h, want})
		}
	}
	var columns []parquet.Column
	for i, name := range s.Names {
		col := shardColumn(name, s.Encodings[i])
		if s.Sizes[i] != nil && (col.Width == 0 || *s.Sizes[i] != col.Width) && col.Why == "" {
			return nil, fmt.Errorf("column %q (%s) has values of %d bytes", name, s.Encodings[i], *s.Sizes[i])
		}
		if s.Sizes[i] == nil && col.Width > 0 {
			return nil, fmt.Errorf("column %q (%s) has values of no size", name, s.Encodings[i])
		}
		columns, t.sizes = append(columns, col), append(t.sizes, 0)
		if s.Sizes[i] != nil {
			t.sizes[i] = max(0, *s.Sizes[i])
		}
	}
	t.first = []int{0, t.rows}
	if !t.packed && len(t.hashes) == 0 {
		table := make([]byte, 4*(s.Samples+2))
		if err := f.read(ctx, table, 0); err != nil {
			return nil, err
		}
		starts, err := t.places(table)
		if err != nil {
			return nil, err
		}
		t.starts, t.first = starts, groups(starts)
	}
	sum := digest(fmt.Appendf(nil, "%q %q %d %v", s.Names, s.Encodings, s.Samples, stored.Hashes))
	t.meta = about("mds", columns, t.first, sum, func(g, _ int) int64 {
		return t.plain * int64(t.first[g+1]-t.first[g]) / int64(t.rows*n)
	}, nil)
	return t, nil
}

// shardColumn is what a column of an encoding comes out as.
func shardColumn(name, encoding string) parquet.Column {
	col := parquet.Column{Name: name, Type: "binary"}
	switch encoding {
	case "bytes", "jpeg", "png", "pil":
		if encoding == "pil" {
			col.Why = "its images are stored in a form of their own (pil); write them as jpeg or png"
		}
	case "str", "json", "str_int", "str_float", "str_decimal":
		col.Type = "string"
	case "int":
		col.Type, col.Width = "int64", 8
	case "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32", "float64":
		bits, _ := strconv.Atoi(strings.TrimLeft(encoding, "uintfloa"))
		col.Type, col.Width = encoding, bits/8
	case "pkl":
		col.Why = "its values are pickled, which would run what they say; write them in another encoding"
	default:
		col.Why = fmt.Sprintf("its values are written as %q", encoding)
	}
	return col
}

// places reads where rows begin from a shard's first bytes, and checks them.
func (t *shardTable) places(head []byte) ([]int64, error) {
	if n := binary.LittleEndian.Uint32(head); int64(n) != int64(t.rows) {
		return nil, fmt.Errorf("it has %d rows, and %d by the index", n, t.rows)
	}
	starts := make([]int64, t.rows+1)
	last := int64(4 * (t.rows + 2))
	for i := range starts {
		at := int64(binary.LittleEndian.Uint32(head[4+4*i:]))
		if at < last || at > t.plain {
			return nil, fmt.Errorf("its row %d begins at byte %d, which cannot be", i, at)
		}
		starts[i], last = at, at
	}
	if starts[t.rows] != t.plain {
		return nil, fmt.Errorf("its last row ends at byte %d of %d", starts[t.rows], t.plain)
	}
	return starts, nil
}

func (t *shardTable) About() *parquet.File { return t.meta }
func (t *shardTable) Checked() bool        { return len(t.hashes) > 0 }

// Fetch reads a group's rows, or the whole shard.
func (t *shardTable) Fetch(ctx context.Context, group int, buf []byte) ([]byte, error) {
	if t.starts != nil {
		begin := t.starts[t.first[group]]
		buf, err := room(buf, t.starts[t.first[group+1]]-begin)
		if err != nil {
			return nil, err
		}
		return buf, t.file.read(ctx, buf, begin)
	}
	whole := buf
	if t.packed {
		whole = nil
	}
	whole, err := room(whole, t.file.Object.Size)
	if err != nil {
		return nil, err
	}
	if err := t.file.read(ctx, whole, 0); err != nil {
		return nil, err
	}
	for _, c := range t.hashes {
		h := c.make()
		_, _ = h.Write(whole) // a hash never fails
		if got := hex.EncodeToString(h.Sum(nil)); got != c.want {
			return nil, fmt.Errorf("its %s is %s and should be %s: the file is damaged", c.name, got, c.want)
		}
	}
	if !t.packed {
		return whole, nil
	}
	if buf, err = room(buf, t.plain); err != nil {
		return nil, err
	}
	limits := []zstd.DOption{
		zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(maxGroup), zstd.WithDecodeAllCapLimit(true),
	}
	d, err := zstd.NewReader(nil, limits...)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	out, err := d.DecodeAll(whole, buf[:0:len(buf)])
	if err != nil {
		return nil, fmt.Errorf("zstd: %w", err)
	}
	if int64(len(out)) != t.plain {
		return nil, fmt.Errorf("zstd: it has %d bytes, and %d by the index", len(out), t.plain)
	}
	return out, nil
}

// Decode puts a column of a group's rows to a target.
func (t *shardTable) Decode(group, column int, data []byte, to *parquet.Target) (err error) {
	defer guard(&err)
	starts, begin := t.starts, int64(0)
	if starts == nil {
		if starts, err = t.places(data); err != nil {
			return err
		}
	} else {
		begin = starts[t.first[group]]
	}
	col := &t.meta.Columns[column]
	s := newSink(to, col.Name)
	for i := t.first[group]; i < t.first[group+1]; i++ {
		v, err := t.value(data[starts[i]-begin:starts[i+1]-begin], column)
		if err == nil && col.Width > 0 {
			err = s.fixed(v, col.Width)
		} else if err == nil {
			err = s.text(v)
		}
		if err != nil {
			return fmt.Errorf("row %d at byte %d: %w", i, starts[i], err)
		}
	}
	return s.full(t.first[group+1] - t.first[group])
}

var errRow = errors.New("its values are longer than it is: the file is damaged")

// value is a column's bytes in a row.
func (t *shardTable) value(row []byte, column int) ([]byte, error) {
	head := 0
	for _, size := range t.sizes {
		if size == 0 {
			head += 4
		}
	}
	if head > len(row) {
		return nil, errRow
	}
	at := head
	head = 0
	for c, size := range t.sizes {
		if size == 0 {
			size = int(binary.LittleEndian.Uint32(row[head:]))
			head += 4
		}
		if size > len(row)-at {
			return nil, errRow
		}
		if c == column {
			return row[at : at+size], nil
		}
		at += size
	}
	return nil, errRow
}
