package wire

import "errors"

// ErrMagic says that the first bytes of a connection are not hora's.
var ErrMagic = errors.New("read hello: the first bytes are not hora's")

// Hello is the only thing that is said before the secret is proved.
type Hello struct {
	Version byte
	Nonce   [NonceBytes]byte
}

// AppendHello appends the bytes of h to b.
func AppendHello(b []byte, h Hello) []byte {
	b = append(b, Magic...)
	b = append(b, h.Version)
	return append(b, h.Nonce[:]...)
}

// CheckMagic reports whether a connection's first bytes are hora's. It needs
// the first len(Magic) bytes only.
func CheckMagic(b []byte) error {
	if len(b) < len(Magic) || string(b[:len(Magic)]) != Magic {
		return ErrMagic
	}
	return nil
}

// ParseHello decodes exactly HelloBytes bytes. It does not judge the version.
func ParseHello(b []byte) (Hello, error) {
	var h Hello
	if len(b) != HelloBytes {
		return h, ErrShort
	}
	if err := CheckMagic(b); err != nil {
		return h, err
	}
	h.Version = b[len(Magic)]
	copy(h.Nonce[:], b[len(Magic)+1:])
	return h, nil
}
