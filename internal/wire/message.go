package wire

import (
	"encoding/binary"
	"fmt"
	"io"
)

// MessageHeaderBytes precede the body of a message: a 32-bit length of the
// body, an 8-bit kind and three zero bytes.
const MessageHeaderBytes = 8

// AppendMessage appends a whole message to b.
func AppendMessage(b []byte, kind uint8, body []byte) []byte {
	b = AppendU32(b, uint32(len(body)))
	b = append(b, kind, 0, 0, 0)
	return append(b, body...)
}

// BeginMessage appends a header whose length EndMessage fills in, so that a
// body can be appended in place. at is what EndMessage needs.
func BeginMessage(b []byte, kind uint8) (out []byte, at int) {
	at = len(b)
	return append(b, 0, 0, 0, 0, kind, 0, 0, 0), at
}

// EndMessage fills in the length of the message begun at at.
func EndMessage(b []byte, at int) []byte {
	binary.LittleEndian.PutUint32(b[at:], uint32(len(b)-at-MessageHeaderBytes))
	return b
}

// ParseMessageHeader reads a header and refuses a body above limit.
func ParseMessageHeader(b []byte, limit int) (kind uint8, length int, err error) {
	if len(b) < MessageHeaderBytes {
		return 0, 0, ErrShort
	}
	n := binary.LittleEndian.Uint32(b)
	if b[5]|b[6]|b[7] != 0 {
		return 0, 0, ErrValue
	}
	if int64(n) > int64(limit) {
		return 0, 0, fmt.Errorf("%w: body of %d bytes, at most %d", ErrLimit, n, limit)
	}
	return b[4], int(n), nil
}

// messageStep is how much memory a reader believes a length for before the
// bytes have arrived.
const messageStep = 64 << 10

// ReadMessage reads one message whose body has at most limit bytes. It reuses
// buf for the body where it is large enough; the returned body is valid until
// buf is used again.
func ReadMessage(r io.Reader, buf []byte, limit int) (kind uint8, body []byte, err error) {
	if cap(buf) < MessageHeaderBytes {
		buf = make([]byte, 0, 512)
	}
	head := buf[:MessageHeaderBytes]
	if _, err := io.ReadFull(r, head); err != nil {
		return 0, nil, err
	}
	kind, n, err := ParseMessageHeader(head, limit)
	if err != nil {
		return 0, nil, err
	}
	body = buf[:0]
	for len(body) < n {
		step := min(n-len(body), messageStep)
		if cap(body)-len(body) < step {
			grown := make([]byte, len(body), min(n, max(2*cap(body), len(body)+step)))
			copy(grown, body)
			body = grown
		}
		part := body[len(body) : len(body)+step]
		if _, err := io.ReadFull(r, part); err != nil {
			if err == io.EOF {
				err = io.ErrUnexpectedEOF
			}
			return 0, nil, err
		}
		body = body[:len(body)+step]
	}
	return kind, body, nil
}
