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

// maxFile bounds what is read of any file here: a secret, an address.
const maxFile = 512

// Read reads a secret from a file that belongs to this user and that nobody
// else may read or write. A symbolic link is followed, since whoever mounts a
// secret may make one: what counts is the file that it leads to.
func Read(path string) (Secret, error) {
	// Asked before it is opened, which alone may wake a device, and again when it is open.
	info, err := os.Stat(path)
	if err != nil {
		return Secret{}, fmt.Errorf("read secret: %w; set HORA_SECRET_FILE to the job's secret file", err)
	}
	if err := private(path, info); err != nil {
		return Secret{}, fmt.Errorf("read secret: %w", err)
	}
	b, err := read(path, 0)
	if err != nil {
		return Secret{}, fmt.Errorf("read secret: %w", err)
	}
	return parseFile(path, b)
}

// ReadOwn is Read for a file in a folder of our own, where nobody makes links.
func ReadOwn(path string) (Secret, error) {
	b, err := ReadFile(path)
	if err != nil {
		return Secret{}, err
	}
	return parseFile(path, b)
}

func parseFile(path string, b []byte) (Secret, error) {
	s, err := Parse(b)
	if err != nil {
		return Secret{}, fmt.Errorf("read secret: %s: %w", path, err)
	}
	return s, nil
}

// ReadFile reads a small file that ranks leave for each other in a folder of
// their own: a regular file of this user's, closed to others, and no link.
func ReadFile(path string) ([]byte, error) {
	info, err := os.Lstat(path)
	if err != nil {
		return nil, err
	}
	if err := private(path, info); err != nil {
		return nil, err
	}
	return read(path, syscall.O_NOFOLLOW)
}

// read reads a file that is what private asks for when it is open.
func read(path string, flags int) ([]byte, error) {
	// O_NONBLOCK: a FIFO that has come in the file's place must not block us.
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK|syscall.O_NOCTTY|flags, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if err := private(path, info); err != nil {
		return nil, err
	}
	if info.Size() > maxFile {
		return nil, fmt.Errorf("%s has %d bytes; at most %d are read: it is another file", path, info.Size(), maxFile)
	}
	b := make([]byte, maxFile)
	n, err := io.ReadFull(f, b)
	if err != nil && err != io.ErrUnexpectedEOF && err != io.EOF {
		return nil, err
	}
	return b[:n], nil
}

// private refuses what is not a regular file of this user closed to others.
func private(path string, info fs.FileInfo) error {
	if !info.Mode().IsRegular() {
		return fmt.Errorf("%s is not a regular file; set HORA_SECRET_FILE to the job's secret file", path)
	}
	if uid, ok := owner(info); ok && uid != os.Geteuid() {
		return fmt.Errorf("%s belongs to user %d, not to this user (%d); make a file of your own", path, uid, os.Geteuid())
	}
	if perm := info.Mode().Perm(); perm&0o077 != 0 {
		return fmt.Errorf("%s has mode %04o and is open to other users; run: chmod 600 %s", path, perm, path)
	}
	return nil
}

// FolderError says why a folder is not one to leave secrets in. Waiting does not help.
type FolderError struct{ Reason string }

func (e *FolderError) Error() string { return e.Reason }

// OwnFolder says, with a *FolderError, why dir is not a folder that only this
// user can enter. In a place where everybody may make files somebody else may
// have made it, or a link to one of ours.
func OwnFolder(dir string) error {
	info, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	bad := func(format string, a ...any) error { return &FolderError{fmt.Sprintf(format, a...)} }
	if !info.IsDir() {
		return bad("%s is no folder: somebody made it in our folder's place; remove it, or set HORA_RUN_DIR to a folder of your own", dir)
	}
	if uid, ok := owner(info); ok && uid != os.Geteuid() {
		return bad("directory %s belongs to user %d, not to this user (%d); set HORA_RUN_DIR to a folder of your own", dir, uid, os.Geteuid())
	}
	if perm := info.Mode().Perm(); perm&0o077 != 0 {
		return bad("directory %s has mode %04o and is open to other users; run: chmod 700 %s", dir, perm, dir)
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
	if err := os.MkdirAll(filepath.Dir(dir), 0o700); err != nil {
		return fmt.Errorf("write secret: %w", err)
	}
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("write secret: %w", err)
	}
	if err := OwnFolder(dir); err != nil {
		return fmt.Errorf("write secret: %w", err)
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
