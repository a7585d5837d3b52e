package secret

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// Bytes is the length of a secret.
const Bytes = 32

// Secret is the key of one job. The zero value is no secret: proofs with it fail.
type Secret [Bytes]byte

// New makes a random secret.
func New() Secret {
	var s Secret
	rand.Read(s[:]) // never fails: the runtime ends the process instead
	return s
}

// IsZero says that no secret is set.
func (s Secret) IsZero() bool { return s == Secret{} }

// String hides the secret from logs; so do GoString, Format and MarshalText.
func (s Secret) String() string { return "secret(hidden)" }

// GoString hides the secret from %#v.
func (s Secret) GoString() string { return s.String() }

// Format hides the secret from every verb.
func (s Secret) Format(f fmt.State, _ rune) { io.WriteString(f, s.String()) }

// MarshalText hides the secret from JSON and text encoders.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// Hex is the secret as the 64 digits that its file holds; for handing it to
// another host over an encrypted pipe.
func (s Secret) Hex() string { return hex.EncodeToString(s[:]) }

// Parse reads 64 hexadecimal digits (a line end may follow) or 32 raw bytes.
func Parse(b []byte) (Secret, error) {
	var s Secret
	text := b
	if n := len(text); n == 2*Bytes+1 && text[n-1] == '\n' {
		text = text[:n-1]
	}
	switch {
	case len(text) == 2*Bytes:
		if _, err := hex.Decode(s[:], text); err != nil {
			return Secret{}, errors.New("parse secret: 64 bytes that are not all hexadecimal digits; write 64 hexadecimal digits or 32 raw bytes")
		}
	case len(b) == Bytes:
		copy(s[:], b)
	default:
		return Secret{}, fmt.Errorf("parse secret: %d bytes; write 64 hexadecimal digits or 32 raw bytes", len(b))
	}
	if s.IsZero() {
		return Secret{}, errors.New("parse secret: it is all zeros; make one with: openssl rand -hex 32")
	}
	return s, nil
}

// Read reads a secret from a file that belongs to this user and that nobody
// else may read or write.
func Read(path string) (Secret, error) {
	// O_NONBLOCK: a FIFO in the file's place must not block us.
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return Secret{}, fmt.Errorf("read secret: %w; set HORA_SECRET_FILE to the job's secret file", err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return Secret{}, fmt.Errorf("read secret: %w", err)
	}
	if err := private(path, info); err != nil {
		return Secret{}, err
	}
	if info.Size() > 2*Bytes+1 {
		return Secret{}, fmt.Errorf("read secret: %s has %d bytes; write 64 hexadecimal digits or 32 raw bytes to it", path, info.Size())
	}
	b := make([]byte, 2*Bytes+2)
	n, err := io.ReadFull(f, b)
	if err != nil && err != io.ErrUnexpectedEOF && err != io.EOF {
		return Secret{}, fmt.Errorf("read secret: %w", err)
	}
	s, err := Parse(b[:n])
	if err != nil {
		return Secret{}, fmt.Errorf("read secret: %s: %w", path, err)
	}
	return s, nil
}

// private refuses what is not a regular file of this user closed to others.
func private(path string, info fs.FileInfo) error {
	if !info.Mode().IsRegular() {
		return fmt.Errorf("read secret: %s is not a regular file; set HORA_SECRET_FILE to the job's secret file", path)
	}
	if uid, ok := owner(info); ok && uid != os.Geteuid() {
		return fmt.Errorf("read secret: %s belongs to user %d, not to this user (%d); make a file of your own", path, uid, os.Geteuid())
	}
	if perm := info.Mode().Perm(); perm&0o077 != 0 {
		return fmt.Errorf("read secret: %s has mode %04o and is open to other users; run: chmod 600 %s", path, perm, path)
	}
	return nil
}

func owner(info fs.FileInfo) (int, bool) {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, false
	}
	return int(st.Uid), true
}

// WriteFile writes the secret to a 0600 file, whole or not at all. It makes the
// file's directory with mode 0700 if there is none, and refuses one that
// belongs to, or may be entered by, somebody else.
func (s Secret) WriteFile(path string) error {
	if s.IsZero() {
		return errors.New("write secret: there is none; make one with secret.New")
	}
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("write secret: %w", err)
	}
	info, err := os.Stat(dir)
	if err != nil {
		return fmt.Errorf("write secret: %w", err)
	}
	if uid, ok := owner(info); ok && uid != os.Geteuid() {
		return fmt.Errorf("write secret: directory %s belongs to user %d, not to this user (%d); use a directory of your own", dir, uid, os.Geteuid())
	}
	if perm := info.Mode().Perm(); perm&0o077 != 0 {
		return fmt.Errorf("write secret: directory %s has mode %04o and is open to other users; run: chmod 700 %s", dir, perm, dir)
	}
	f, err := os.CreateTemp(dir, ".secret-*") // mode 0600
	if err != nil {
		return fmt.Errorf("write secret: %w", err)
	}
	_, err = f.WriteString(s.Hex() + "\n")
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		os.Remove(f.Name())
		return fmt.Errorf("write secret: %w", err)
	}
	return nil
}
