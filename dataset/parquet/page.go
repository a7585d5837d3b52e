package parquet

import (
	"errors"
	"fmt"
	"hash/crc32"
)

// maxPage bounds a page before and after compression: it is what one header may make
// us allocate.
const (
	maxPage   = 1 << 30
	maxValues = 1 << 28
)

const (
	pageData       = 0
	pageIndex      = 1
	pageDictionary = 2
	pageDataV2     = 3
)

// header is a page's header.
type header struct {
	typ               int32
	plain, compressed int32 // bytes after the header
	crc               uint32
	hasCRC            bool
	values            int32
	encoding          encoding
	levels            encoding // of the definition levels; repetition's are the same
	nulls, rows       int32    // of version 2
	definition        int32    // bytes of levels, of version 2
	repetition        int32
	packed            bool // the values are compressed
}

// encoding is how a page's values are written.
type encoding int32

const (
	ePlain           encoding = 0
	ePlainDictionary encoding = 2
	eRLE             encoding = 3
	eDelta           encoding = 5
	eDeltaLength     encoding = 6
	eDeltaBytes      encoding = 7
	eDictionary      encoding = 8
	eSplit           encoding = 9
)

var encodingNames = map[encoding]string{
	ePlain: "plain", ePlainDictionary: "plain dictionary", eRLE: "run length", 4: "bit packed", eDelta: "delta",
	eDeltaLength: "delta length", eDeltaBytes: "delta byte array", eDictionary: "dictionary", eSplit: "byte stream split",
}

func (e encoding) String() string {
	if name := encodingNames[e]; name != "" {
		return name
	}
	return fmt.Sprintf("encoding %d", int(e))
}

// readHeader reads a page's header and answers its length.
func readHeader(b []byte) (h header, n int, err error) {
	c := &compact{b: b}
	h.packed = true
	h.levels = eRLE
	c.fields(func(id int16, typ byte) bool {
		switch {
		case id == 1 && typ == tI32:
			h.typ = c.int32()
		case id == 2 && typ == tI32:
			h.plain = c.int32()
		case id == 3 && typ == tI32:
			h.compressed = c.int32()
		case id == 4 && typ == tI32:
			h.crc, h.hasCRC = uint32(c.int32()), true
		case (id == 5 || id == 7) && typ == tStruct:
			c.version1(&h)
		case id == 8 && typ == tStruct:
			c.version2(&h)
		default:
			return false
		}
		return true
	})
	switch {
	case c.bad:
		return h, 0, errors.New("its header is damaged")
	case h.compressed < 0 || int(h.compressed) > len(b)-c.i:
		return h, 0, fmt.Errorf("it is said to have %d bytes and %d are left of the column", h.compressed, len(b)-c.i)
	case h.plain < 0 || h.plain > maxPage:
		return h, 0, fmt.Errorf("it is said to have %d bytes, more than a page may", h.plain)
	case h.values < 0 || h.values > maxValues:
		return h, 0, fmt.Errorf("it is said to have %d values", h.values)
	}
	return h, c.i, nil
}

func (c *compact) version1(h *header) {
	c.fields(func(id int16, typ byte) bool {
		if typ != tI32 || id > 4 {
			return false
		}
		v := c.int32()
		switch id {
		case 1:
			h.values = v
		case 2:
			h.encoding = encoding(v)
		case 3:
			h.levels = encoding(v)
		}
		return true
	})
}

func (c *compact) version2(h *header) {
	c.fields(func(id int16, typ byte) bool {
		if id == 7 {
			h.packed = typ != tFalse
			return typ == tTrue || typ == tFalse
		}
		if typ != tI32 || id > 6 {
			return false
		}
		v := c.int32()
		switch id {
		case 1:
			h.values = v
		case 2:
			h.nulls = v
		case 3:
			h.rows = v
		case 4:
			h.encoding = encoding(v)
		case 5:
			h.definition = v
		case 6:
			h.repetition = v
		}
		return true
	})
}

// sum compares the page's checksum, where it has one, with its bytes.
func (h *header) sum(body []byte) error {
	if h.hasCRC && crc32.ChecksumIEEE(body) != h.crc {
		return errors.New("its checksum is wrong: the file is damaged")
	}
	return nil
}

// HasChecksum reports whether the page that begins with these bytes has a checksum.
func HasChecksum(b []byte) bool {
	checksum := false
	c := &compact{b: b}
	c.fields(func(id int16, typ byte) bool {
		checksum = checksum || id == 4 && typ == tI32
		return false
	})
	return checksum
}
