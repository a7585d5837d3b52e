package parquet

import "encoding/binary"

// straight reads the values of a page to their places while they are decompressed, where they need nothing else and
// no null lies between them: half of what floats cost, which hardly compress, is to copy them once more. done is false
// where that is not so, or where the page is damaged: then it is read as any other, which says what is wrong.
func (d *Decoder) straight(k *Chunk, h *header, definition, body []byte, plain int) (done bool) {
	n, width := int(h.values), d.col.Width
	if k.codec == uncompressed || h.encoding != ePlain || n == 0 || width == 0 || d.to.Ragged || d.to.Step != width ||
		d.col.repetition > 0 || d.col.convert != asIs || d.col.physical == pBool || d.col.physical == pBytes ||
		d.col.physical.width(d.col.length) != width {
		return false
	}
	to := d.to.Data[d.done*width:][: n*width : n*width]
	switch {
	case plain == n*width && (d.col.definition == 0 || definition != nil && full(definition, n, d.col.definition)):
		done = d.inflate(k.codec, to, body) == nil
	case definition == nil && d.col.definition > 0 && k.codec == snappy && plain > n*width:
		done = literally(to, plain-n*width, body, func(levels []byte) bool {
			return len(levels) >= 4 && uint64(binary.LittleEndian.Uint32(levels)) == uint64(len(levels)-4) &&
				h.levels == eRLE && full(levels[4:], n, d.col.definition)
		})
	}
	if done {
		d.done += n
	}
	return done
}

// full reports whether levels are one run that says of all n values that they are there.
func full(levels []byte, n, most int) bool {
	r := runs{levels, levelWidth(most)}
	count, value, packed, err := r.next()
	return err == nil && packed == nil && int(value) == most && count >= n
}

// literally decompresses a snappy block that is mostly literals: to gets what follows the first skip bytes, which are
// handed to fit; where there are none or that refuses them, or the block is of another kind or damaged, the answer is
// false: a page as long as its values alone has levels too, and fewer values.
func literally(to []byte, skip int, from []byte, fit func([]byte) bool) bool {
	size, n := binary.Uvarint(from)
	if skip <= 0 || n <= 0 || size != uint64(skip+len(to)) || len(from) < len(to)/16*15 {
		return false
	}
	from = from[n:]
	for at := -skip; at < len(to); {
		if len(from) == 0 {
			return false
		}
		tag, length, offset := from[0], 0, 0
		from = from[1:]
		switch more := int(tag>>2) - 59; { // bytes that follow, of a long literal's length
		case tag&3 == 0 && more <= 0:
			length = int(tag>>2) + 1
		case tag&3 == 0:
			if len(from) < more {
				return false
			}
			for i := range more {
				length |= int(from[i]) << (8 * i)
			}
			length++
			from = from[more:]
		case tag&3 == 1 && len(from) >= 1:
			length, offset = int(tag>>2&7)+4, int(tag>>5)<<8|int(from[0])
			from = from[1:]
		case tag&3 == 2 && len(from) >= 2:
			length, offset = int(tag>>2)+1, int(binary.LittleEndian.Uint16(from))
			from = from[2:]
		default: // offsets of four bytes are of nobody's blocks
			return false
		}
		switch {
		case tag&3 != 0 && (at < 0 || offset == 0 || offset > at || length > len(to)-at):
			return false // also what repeats a part of what is skipped
		case tag&3 != 0:
			for i := range length {
				to[at+i] = to[at+i-offset]
			}
		case length > len(from) || length > len(to)-at:
			return false
		default:
			lit := from[:length]
			from = from[length:]
			if at < 0 { // all that is skipped is in the first literal
				if length < -at || !fit(lit[:-at]) {
					return false
				}
				lit, at, length = lit[-at:], 0, length+at
			}
			copy(to[at:], lit)
		}
		at += length
	}
	return len(from) == 0
}
