package source

import (
	"encoding/binary"
	"errors"
)

// A reader of as much of the protocol buffers' encoding as tf.train.Example needs. It
// allocates nothing, and a length is compared with what is left before it is believed.

var errExample = errors.New("it is no tf.train.Example, or damaged")

const (
	wireVarint = 0
	wire64     = 1
	wireBytes  = 2
	wire32     = 5
)

// item takes the next field of a message: its number, and of lengths its bytes, of
// numbers their bytes as they are stored.
func item(b []byte) (number, wire int, v, rest []byte, err error) {
	tag, n := binary.Uvarint(b)
	if n <= 0 || tag>>3 == 0 || tag>>3 > 1<<29 {
		return 0, 0, nil, nil, errExample
	}
	number, wire, b = int(tag>>3), int(tag&7), b[n:]
	length := 0
	switch wire {
	case wireVarint:
		if _, length = binary.Uvarint(b); length <= 0 {
			return 0, 0, nil, nil, errExample
		}
	case wire64:
		length = 8
	case wire32:
		length = 4
	case wireBytes:
		size, n := binary.Uvarint(b)
		if n <= 0 || size > uint64(len(b)-n) {
			return 0, 0, nil, nil, errExample
		}
		b, length = b[n:], int(size)
	default:
		return 0, 0, nil, nil, errExample
	}
	if length > len(b) {
		return 0, 0, nil, nil, errExample
	}
	return number, wire, b[:length], b[length:], nil
}

// each calls f for every feature of an Example.
func each(record []byte, f func(name, feature []byte) error) error {
	return fields(record, 1, func(all []byte) error {
		return fields(all, 1, func(entry []byte) error {
			var name, feature []byte
			for len(entry) > 0 {
				number, wire, v, rest, err := item(entry)
				if err != nil {
					return err
				}
				switch {
				case number == 1 && wire == wireBytes:
					name = v
				case number == 2 && wire == wireBytes:
					feature = v
				}
				entry = rest
			}
			return f(name, feature)
		})
	})
}

// fields calls f for each message of a number.
func fields(b []byte, wanted int, f func(v []byte) error) error {
	for len(b) > 0 {
		number, wire, v, rest, err := item(b)
		if err != nil {
			return err
		}
		if number == wanted {
			if wire != wireBytes {
				return errExample
			}
			if err := f(v); err != nil {
				return err
			}
		}
		b = rest
	}
	return nil
}

// list finds which list a Feature is, and its bytes.
func list(feature []byte) (kind int, all []byte, err error) {
	for len(feature) > 0 {
		number, wire, v, rest, err := item(feature)
		if err != nil {
			return 0, nil, err
		}
		if number >= bytesList && number <= intsList {
			if wire != wireBytes {
				return 0, nil, errExample
			}
			kind, all = number, v
		}
		feature = rest
	}
	return kind, all, nil
}

// measure answers which list a Feature is, and how many values it has.
func measure(feature []byte) (kind, n int, err error) {
	kind, all, err := list(feature)
	for len(all) > 0 && err == nil {
		var number, wire int
		var v []byte
		number, wire, v, all, err = item(all)
		switch {
		case err != nil || number != 1:
		case kind == bytesList && wire == wireBytes, kind == floatsList && wire == wire32,
			kind == intsList && wire == wireVarint:
			n++
		case kind == floatsList && wire == wireBytes && len(v)%4 == 0:
			n += len(v) / 4
		case kind == intsList && wire == wireBytes:
			for _, c := range v { // a number ends with a byte below 128
				if c < 0x80 {
					n++
				}
			}
			if len(v) > 0 && v[len(v)-1] >= 0x80 {
				err = errExample
			}
		default:
			err = errExample
		}
	}
	return kind, n, err
}

// values adds a Feature's values to to as they lie in memory. measure has been through it.
func values(to, feature []byte) ([]byte, error) {
	kind, all, err := list(feature)
	for len(all) > 0 && err == nil {
		var number, wire int
		var v []byte
		if number, wire, v, all, err = item(all); err != nil || number != 1 {
			continue
		}
		if kind != intsList || wire != wireBytes && wire != wireVarint {
			to = append(to, v...)
			continue
		}
		for len(v) > 0 {
			x, n := binary.Uvarint(v)
			if n <= 0 {
				return to, errExample
			}
			to, v = binary.LittleEndian.AppendUint64(to, x), v[n:]
		}
	}
	return to, err
}
