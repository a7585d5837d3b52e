package source

import (
	"bytes"
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"image"
	"image/color"
	_ "image/jpeg" // formats that image.Decode knows
	_ "image/png"
	"path"
	"slices"
	"strings"

	"hora/dataset/parquet"
	"hora/storage"
)

// imageTable is a folder of images: one column has their bytes, one their names below
// the folder. Where all lie in folders of their own those are classes, numbered in the
// order of their names; a table called metadata.csv or labels.csv beside them says which
// there are, and more columns.
type imageTable struct {
	store  storage.Store
	files  []storage.Object
	names  []string
	meta   *parquet.File
	labels []int64
	said   [][]string // columns of the table: of each image
	starts []int64    // bytes before each image
	first  []int
}

// Labels are what a table beside images is called.
var Labels = []string{"metadata.csv", "labels.csv"}

// OpenImages makes a table of the images below a folder. table, where there is one, is
// the file with labels.
func OpenImages(ctx context.Context, store storage.Store, folder string, objects []storage.Object, table *File,
) (t Table, err error) {
	defer guard(&err)
	folder = strings.TrimSuffix(folder, "/") + "/"
	m := &imageTable{store: store, files: objects}
	for _, o := range objects {
		m.names = append(m.names, strings.TrimPrefix(o.Name, folder))
	}
	columns := []parquet.Column{{Name: "image", Type: "binary"}, {Name: "path", Type: "string"}}
	if table != nil {
		more, err := m.readLabels(ctx, table)
		if err != nil {
			return nil, fmt.Errorf("its table %s: %w", path.Base(table.Object.Name), err)
		}
		columns = append(columns, more...)
	} else if classes := m.classes(); classes != nil {
		columns = append(columns, parquet.Column{Name: "label", Type: "int64", Width: 8}, parquet.Column{Name: "class", Type: "string"})
	}
	all := int64(0)
	for _, o := range m.files {
		m.starts = append(m.starts, all)
		all += o.Size
	}
	m.starts = append(m.starts, all)
	m.first = groups(m.starts)
	var list bytes.Buffer
	_, local := store.(interface{ Local() })
	for i, o := range m.files {
		fmt.Fprintf(&list, "%q %d\n", m.names[i], o.Size)
		if !local { // on this machine a tag is a time, which a copy need not have
			fmt.Fprintf(&list, "%q\n", o.Tag)
		}
		for _, c := range m.said {
			fmt.Fprintf(&list, "%q\n", c[i])
		}
	}
	m.meta = about("images", columns, m.first, digest(list.Bytes()), func(g, c int) int64 {
		if c == 0 {
			return m.starts[m.first[g+1]] - m.starts[m.first[g]]
		}
		return 32 * int64(m.first[g+1]-m.first[g])
	}, nil)
	return m, nil
}

// classes numbers the folders that images lie in, where each lies in one.
func (m *imageTable) classes() []string {
	var names []string
	for _, n := range m.names {
		dir := path.Dir(n)
		if dir == "." {
			return nil
		}
		names = append(names, dir)
	}
	all := slices.Clone(names)
	slices.Sort(all)
	all = slices.Compact(all)
	for _, n := range names {
		i, _ := slices.BinarySearch(all, n)
		m.labels = append(m.labels, int64(i))
	}
	m.said = [][]string{make([]string, len(names)), names}
	return all
}

// readLabels reads the table; its first column, or the one called file_name, path, file
// or image, names the images.
func (m *imageTable) readLabels(ctx context.Context, f *File) ([]parquet.Column, error) {
	if f.Object.Size > maxIndex {
		return nil, fmt.Errorf("it has %d MiB, more than a table of labels may", f.Object.Size>>20)
	}
	text := make([]byte, f.Object.Size)
	if err := f.read(ctx, text, 0); err != nil {
		return nil, err
	}
	r := csv.NewReader(bytes.NewReader(bytes.TrimPrefix(text, []byte("\ufeff"))))
	rows, err := r.ReadAll()
	if err != nil {
		return nil, csvFault(err)
	}
	if len(rows) < 2 {
		return nil, errors.New("it names no images")
	}
	which := 0
	for _, name := range []string{"image", "file", "path", "file_name"} {
		if i := slices.Index(rows[0], name); i >= 0 {
			which = i
		}
	}
	known := map[string]int{}
	for i, n := range m.names {
		known[n] = i
	}
	var files []storage.Object
	var names []string
	guesses, said := make([]guess, len(rows[0])), make([][]string, len(rows[0]))
	for i, row := range rows[1:] {
		n, there := known[path.Clean(row[which])]
		if !there {
			return nil, fmt.Errorf("row %d: there is no image %q", i+1, row[which])
		}
		files, names = append(files, m.files[n]), append(names, m.names[n])
		for c, v := range row {
			guesses[c].add(v)
			said[c] = append(said[c], v)
		}
	}
	var columns []parquet.Column
	m.files, m.names = files, names
	for c, name := range rows[0] {
		if c == which {
			continue
		}
		taken := slices.ContainsFunc(columns, func(o parquet.Column) bool { return o.Name == name })
		if taken || name == "image" || name == "path" {
			return nil, fmt.Errorf("its column %q has the name of another; choose one that is free", name)
		}
		col := parquet.Column{Name: name}
		col.Type, col.Width = csvType(guesses[c].kind())
		col.MayBeNull = col.Width > 0 && guesses[c].empty
		columns, m.said = append(columns, col), append(m.said, said[c])
	}
	return columns, nil
}

func (m *imageTable) About() *parquet.File { return m.meta }
func (m *imageTable) Checked() bool        { return false }

// Fetch reads a group's images, one after the other.
func (m *imageTable) Fetch(ctx context.Context, group int, buf []byte) ([]byte, error) {
	begin := m.starts[m.first[group]]
	buf, err := room(buf, m.starts[m.first[group+1]]-begin)
	if err != nil {
		return nil, err
	}
	for i := m.first[group]; i < m.first[group+1]; i++ {
		one := buf[m.starts[i]-begin : m.starts[i+1]-begin]
		if err := m.store.ReadAt(ctx, m.files[i], one, 0); err != nil && len(one) > 0 {
			return nil, err
		}
	}
	return buf, nil
}

// Decode puts a column of a group's images to a target.
func (m *imageTable) Decode(group, column int, data []byte, to *parquet.Target) (err error) {
	defer guard(&err)
	begin := m.starts[m.first[group]]
	col := &m.meta.Columns[column]
	s := newSink(to, col.Name)
	for i := m.first[group]; i < m.first[group+1]; i++ {
		var err error
		switch {
		case column == 0:
			err = s.text(data[m.starts[i]-begin : m.starts[i+1]-begin])
		case column == 1:
			err = s.text([]byte(m.names[i]))
		case column == 2 && m.labels != nil:
			err = s.int(m.labels[i])
		default:
			err = s.field(m.said[column-2][i], col)
		}
		if err != nil {
			return fmt.Errorf("image %q: %w", m.names[i], err)
		}
	}
	return s.full(m.first[group+1] - m.first[group])
}

// maxPixels bounds an image: what its header may make us allocate.
const maxPixels = 1 << 28

// RGB decodes a JPEG or PNG image to rows of red, green and blue bytes, in the memory of
// to where it is large enough: for training in Go. Python's decoders are faster.
func RGB(data, to []byte) (pixels []byte, height, width int, err error) {
	defer guard(&err)
	head, kind, err := image.DecodeConfig(bytes.NewReader(data))
	if err != nil {
		return nil, 0, 0, fmt.Errorf("decode an image of %d bytes: %w; it is no JPEG or PNG, or damaged", len(data), err)
	}
	if head.Width < 1 || head.Height < 1 || head.Width > maxPixels/head.Height {
		return nil, 0, 0, fmt.Errorf("decode an image: it is said to have %d × %d pixels, more than hora decodes", head.Height, head.Width)
	}
	picture, _, err := image.Decode(bytes.NewReader(data))
	if err != nil {
		return nil, 0, 0, fmt.Errorf("decode a %s image of %d × %d pixels: %w; write it again, or leave it out", kind, head.Height, head.Width, err)
	}
	box := picture.Bounds()
	height, width = box.Dy(), box.Dx()
	n := 3 * height * width
	if cap(to) < n {
		to = make([]byte, n)
	}
	to = to[:n]
	at := 0
	for y := box.Min.Y; y < box.Max.Y; y++ {
		for x := box.Min.X; x < box.Max.X; x++ {
			var r, g, b uint8
			switch p := picture.(type) {
			case *image.YCbCr:
				c := p.YCbCrAt(x, y)
				r, g, b = color.YCbCrToRGB(c.Y, c.Cb, c.Cr)
			case *image.Gray:
				v := p.GrayAt(x, y).Y
				r, g, b = v, v, v
			default:
				c := color.NRGBAModel.Convert(picture.At(x, y)).(color.NRGBA)
				r, g, b = c.R, c.G, c.B
			}
			to[at], to[at+1], to[at+2] = r, g, b
			at += 3
		}
	}
	return to, height, width, nil
}
