package source

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"path"
	"strconv"
	"strings"

	"hora/dataset/parquet"
	"hora/storage"
)

// keyColumn is what WebDataset calls the name that a sample's files share.
const keyColumn = "__key__"

// tarTable is a tar file whose neighbouring files with one name and different endings
// are a sample: its columns are the endings.
type tarTable struct {
	file    File
	meta    *parquet.File
	endings []string // column i+1 has the files that end so
	keys    []string
	cells   []cell // of sample i: cells[i*len(endings):]
	starts  []int64
	first   []int // sample of each group
}

// cell is where a file lies; one that is not there has length -1.
type cell struct{ at, length int64 }

const maxEndings = 256

// number and text are endings whose files WebDataset reads so.
func tarType(ending string) (typ string, width int) {
	last := ending[strings.LastIndexByte(ending, '.')+1:]
	switch last {
	case "cls", "cls2", "index", "inx", "id", "count":
		return "int64", 8
	case "txt", "text", "transcript", "json", "jsn":
		return "string", 0
	}
	return "binary", 0
}

func openTar(ctx context.Context, f File, shelf *storage.Shelf) (Table, error) {
	index, err := indexed("tar", &f, shelf, func() ([]byte, error) { return indexTar(ctx, &f) })
	if err != nil {
		return nil, err
	}
	return newTar(f, index)
}

// indexTar goes through the headers.
func indexTar(ctx context.Context, f *File) ([]byte, error) {
	s := &stream{ctx: ctx, file: f}
	r := tar.NewReader(s)
	var samples packer
	var endings []string
	number := map[string]int{}
	row, last, count := map[int]cell{}, "", int64(0)
	flush := func() {
		if len(row) == 0 {
			return
		}
		samples.text(last)
		samples.int(int64(len(row)))
		for i := range endings {
			if c, there := row[i]; there {
				samples.int(int64(i))
				samples.int(c.at)
				samples.int(c.length)
			}
		}
		count++
		clear(row)
	}
	for {
		h, err := r.Next()
		if errors.Is(err, errEnd) {
			break
		}
		if err != nil {
			var stored *storage.Error
			if errors.As(err, &stored) || ctx.Err() != nil {
				return nil, err
			}
			return nil, fmt.Errorf("at byte %d it is no tar file, or not all of it is there: %w", s.at, err)
		}
		base := path.Base(h.Name)
		if h.Typeflag != tar.TypeReg || strings.HasPrefix(base, ".") {
			continue
		}
		key, ending, found := strings.Cut(base, ".")
		if !found {
			continue
		}
		key = path.Join(path.Dir(h.Name), key)
		if h.Size < 0 || h.Size > f.Object.Size-s.at {
			return nil, fmt.Errorf("its file %q at byte %d is said to have %d bytes, and the tar file has %d", h.Name, s.at, h.Size, f.Object.Size)
		}
		if key != last {
			flush()
			last = key
		}
		ending = strings.ToLower(ending)
		i, known := number[ending]
		if !known {
			if i = len(endings); i >= maxEndings {
				return nil, fmt.Errorf("its files have more than %d endings (%q at byte %d); a sample's files are called key.ending", maxEndings, h.Name, s.at)
			}
			number[ending], endings = i, append(endings, ending)
		}
		if _, twice := row[i]; twice {
			return nil, fmt.Errorf("its sample %q has two files that end with .%s, the second at byte %d", key, ending, s.at)
		}
		row[i] = cell{s.at, h.Size}
	}
	flush()
	if count == 0 {
		return nil, errors.New("it has no files that are called key.ending")
	}
	var p packer
	p.int(int64(len(endings)))
	for _, e := range endings {
		p.text(e)
	}
	p.int(count)
	p.b = append(p.b, samples.b...)
	return p.b, nil
}

// newTar makes a table of an index, whose places are compared with the file once more.
func newTar(f File, index []byte) (*tarTable, error) {
	u := &unpacker{b: index}
	t := &tarTable{file: f}
	n := u.count()
	if n > maxEndings {
		return nil, errIndex
	}
	for range n {
		t.endings = append(t.endings, u.text())
	}
	rows := u.count()
	if rows == 0 || rows*max(1, n) > maxRows {
		return nil, errIndex
	}
	t.cells, t.keys, t.starts = make([]cell, rows*n), make([]string, rows), make([]int64, 0, rows+1)
	missing, sums := make([]bool, n), make([]int64, n)
	end := int64(0)
	for i := range rows {
		row := t.cells[i*n : (i+1)*n]
		for c := range row {
			row[c].length = -1
		}
		t.keys[i] = u.text()
		start := int64(-1)
		for range u.count() {
			c, at, length := u.int(), u.int(), u.int()
			if c < 0 || c >= int64(n) || at < 0 || length < 0 || at > f.Object.Size || length > f.Object.Size-at {
				return nil, errIndex
			}
			row[c] = cell{at, length}
			if start < 0 || at < start {
				start = at
			}
		}
		for c := range row {
			missing[c] = missing[c] || row[c].length < 0
			sums[c] += max(0, row[c].length)
		}
		if start < 0 || start < end {
			return nil, errIndex
		}
		t.starts = append(t.starts, start)
		for c := range row {
			end = max(end, row[c].at+max(0, row[c].length))
		}
	}
	if u.bad {
		return nil, errIndex
	}
	t.starts = append(t.starts, end)
	columns := []parquet.Column{{Name: keyColumn, Type: "string"}}
	for c, e := range t.endings {
		typ, width := tarType(e)
		columns = append(columns, parquet.Column{Name: e, Type: typ, Width: width, MayBeNull: missing[c]})
	}
	t.first = groups(t.starts)
	t.meta = about("tar", columns, t.first, digest(index), func(g, c int) int64 {
		if c == 0 {
			return int64(t.first[g+1]-t.first[g]) * int64(len(t.keys[t.first[g]]))
		}
		return sums[c-1] * int64(t.first[g+1]-t.first[g]) / int64(rows)
	}, nil)
	return t, nil
}

func (t *tarTable) About() *parquet.File { return t.meta }
func (t *tarTable) Checked() bool        { return false }

// Fetch reads a group's files with what lies between them.
func (t *tarTable) Fetch(ctx context.Context, group int, buf []byte) ([]byte, error) {
	begin, end := t.starts[t.first[group]], t.end(group)
	buf, err := room(buf, end-begin)
	if err != nil {
		return nil, err
	}
	return buf, t.file.read(ctx, buf, begin)
}

// end is where a group's last file ends.
func (t *tarTable) end(group int) int64 {
	n, last := len(t.endings), t.first[group+1]-1
	end := int64(0)
	for _, c := range t.cells[last*n : (last+1)*n] {
		end = max(end, c.at+max(0, c.length))
	}
	return end
}

// Decode puts an ending's files of a group to a target.
func (t *tarTable) Decode(group, column int, data []byte, to *parquet.Target) (err error) {
	defer guard(&err)
	begin, n := t.starts[t.first[group]], len(t.endings)
	s := newSink(to, t.meta.Columns[column].Name)
	number := t.meta.Columns[column].Width > 0
	for i := t.first[group]; i < t.first[group+1]; i++ {
		var err error
		if column == 0 {
			err = s.text([]byte(t.keys[i]))
		} else {
			c := t.cells[i*n+column-1]
			switch {
			case c.length < 0:
				err = s.null()
			case number:
				text := strings.TrimSpace(string(data[c.at-begin : c.at-begin+min(c.length, 32)]))
				v, bad := strconv.ParseInt(text, 10, 64)
				if bad != nil || c.length > 32 {
					return fmt.Errorf("its file %s.%s at byte %d has %q where a whole number is expected", t.keys[i], t.endings[column-1], c.at, text)
				}
				err = s.int(v)
			default:
				err = s.text(data[c.at-begin : c.at-begin+c.length])
			}
		}
		if err != nil {
			return fmt.Errorf("sample %q at byte %d: %w", t.keys[i], t.starts[i], err)
		}
	}
	return s.full(t.first[group+1] - t.first[group])
}
