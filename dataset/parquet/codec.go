package parquet

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"github.com/andybalholm/brotli"
	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/s2"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
)

// codec is how pages are compressed.
type codec int32

const (
	uncompressed codec = 0
	snappy       codec = 1
	gzipped      codec = 2
	brotlied     codec = 4
	zstandard    codec = 6
	lz4Raw       codec = 7
)

var codecNames = map[codec]string{
	uncompressed: "no compression", snappy: "snappy", gzipped: "gzip", zstandard: "zstd", brotlied: "brotli",
	lz4Raw: "lz4", 3: "LZO", 5: "LZ4 in Hadoop's frames",
}

// inflater undoes compression; it keeps what its codecs allocate.
type inflater struct {
	zstd *zstd.Decoder
	gzip *gzip.Reader
	brot *brotli.Reader
	from bytes.Reader
}

// inflate fills to, exactly, from a compressed page.
func (f *inflater) inflate(c codec, to, from []byte) error {
	switch c {
	case snappy:
		n, err := s2.DecodedLen(from)
		if err != nil {
			return fmt.Errorf("snappy: %w", err)
		}
		if n != len(to) {
			return fmt.Errorf("snappy: the page has %d bytes and is said to have %d", n, len(to))
		}
		if _, err := s2.Decode(to, from); err != nil {
			return fmt.Errorf("snappy: %w", err)
		}
	case zstandard:
		return f.unzstd(to, from)
	case gzipped:
		return f.gunzip(to, from)
	case brotlied:
		return f.unbrotli(to, from)
	case lz4Raw:
		n, err := lz4.UncompressBlock(from, to)
		if err != nil || n != len(to) {
			return fmt.Errorf("lz4: the page has not the %d bytes that it is said to have (%d, %v)", len(to), n, err)
		}
	default:
		return fmt.Errorf("its compression (%s) is none that hora reads: snappy, zstd, gzip, lz4, brotli, none", c)
	}
	return nil
}

func (c codec) String() string {
	if name := codecNames[c]; name != "" {
		return name
	}
	return fmt.Sprintf("number %d", int(c))
}

func (f *inflater) unzstd(to, from []byte) error {
	if f.zstd == nil {
		var err error
		f.zstd, err = zstd.NewReader(
			nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(maxPage), zstd.WithDecodeAllCapLimit(true),
		)
		if err != nil {
			return err
		}
	}
	out, err := f.zstd.DecodeAll(from, to[:0:len(to)])
	if err != nil {
		return fmt.Errorf("zstd: %w", err)
	}
	if len(out) != len(to) {
		return fmt.Errorf("zstd: the page has %d bytes and is said to have %d", len(out), len(to))
	}
	return nil
}

func (f *inflater) unbrotli(to, from []byte) error {
	f.from.Reset(from)
	if f.brot == nil {
		f.brot = brotli.NewReader(&f.from)
	} else if err := f.brot.Reset(&f.from); err != nil {
		return fmt.Errorf("brotli: %w", err)
	}
	if _, err := io.ReadFull(f.brot, to); err != nil {
		return fmt.Errorf("brotli: %w", err)
	}
	var more [1]byte
	// Read alone answers 0, nil at the end of nothing.
	if _, err := io.ReadFull(f.brot, more[:]); !errors.Is(err, io.EOF) {
		return errors.New("brotli: the page has more bytes than it is said to have")
	}
	return nil
}

func (f *inflater) gunzip(to, from []byte) error {
	f.from.Reset(from)
	var err error
	if f.gzip == nil {
		f.gzip, err = gzip.NewReader(&f.from)
	} else {
		err = f.gzip.Reset(&f.from)
	}
	if err == nil {
		_, err = io.ReadFull(f.gzip, to)
	}
	if err != nil {
		return fmt.Errorf("gzip: %w", err)
	}
	var more [1]byte
	if n, err := f.gzip.Read(more[:]); n > 0 || !errors.Is(err, io.EOF) {
		return errors.New("gzip: the page has more bytes than it is said to have, or a wrong checksum")
	}
	return nil
}

// Codec is the name of the compression.
func (k *Chunk) Codec() string { return k.codec.String() }
