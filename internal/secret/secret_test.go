package secret

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func write(t *testing.T, content string, mode os.FileMode) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestWriteAndReadFile(t *testing.T) {
	s := New()
	path := filepath.Join(t.TempDir(), "new", "secret")
	if err := s.WriteFile(path); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]os.FileMode{path: 0o600, filepath.Dir(path): 0o700} {
		if info, err := os.Stat(name); err != nil || info.Mode().Perm() != want {
			t.Fatalf("%s: %v %v", name, info.Mode(), err)
		}
	}
	if got, err := Read(path); err != nil || got != s {
		t.Fatal("read something else", err)
	}
	if left, _ := filepath.Glob(filepath.Join(filepath.Dir(path), ".secret-*")); len(left) != 0 {
		t.Fatal("left behind", left)
	}
	raw := write(t, string(s[:]), 0o400)
	if got, err := Read(raw); err != nil || got != s {
		t.Fatal("raw bytes", err)
	}
}

func TestReadRefuses(t *testing.T) {
	hex := New().Hex()
	dir := t.TempDir()
	for _, c := range []struct{ name, path, want string }{
		{"missing", filepath.Join(dir, "none"), "HORA_SECRET_FILE"},
		{"group may read", write(t, hex, 0o640), "chmod 600"},
		{"others may read", write(t, hex, 0o604), "chmod 600"},
		{"others may write", write(t, hex, 0o602), "chmod 600"},
		{"directory", dir, "not a regular file"},
		{"empty", write(t, "", 0o600), "0 bytes"},
		{"short", write(t, hex[:63], 0o600), "63 bytes"},
		{"long", write(t, hex+"00", 0o600), "66 bytes"},
		{"not hexadecimal", write(t, strings.Repeat("g", 64), 0o600), "hexadecimal"},
		{"zeros", write(t, strings.Repeat("0", 64), 0o600), "all zeros"},
	} {
		_, err := Read(c.path)
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v", c.name, err)
		}
		if err != nil && strings.Contains(err.Error(), hex[:16]) {
			t.Errorf("%s: the error shows the secret", c.name)
		}
	}
}

func TestReadRefusesAnothersFile(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root to give a file away")
	}
	path := write(t, New().Hex(), 0o600)
	if err := os.Chown(path, 12345, -1); err != nil {
		t.Fatal(err)
	}
	if _, err := Read(path); err == nil || !strings.Contains(err.Error(), "user 12345") {
		t.Fatal(err)
	}
}

// What else may lie in a file's place blocks nobody and fills no memory; a mounted secret may be a link.
func TestOddFilesAreRefusedAtOnce(t *testing.T) {
	s := New()
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	good := write(t, s.Hex(), 0o600)
	for _, err := range []error{
		syscall.Mkfifo(at("fifo"), 0o600), os.Symlink("/dev/zero", at("zero")), os.Symlink(good, at("link")),
		os.WriteFile(at("large"), make([]byte, 513), 0o600), os.WriteFile(at("address"), []byte("127.0.0.1:99"), 0o600),
		os.Symlink(at("none"), at("dangling")), os.Symlink(at("fifo"), at("to a fifo")),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct{ name, read, own string }{ // what each says; "": it is taken
		{"fifo", "not a regular file", "not a regular file"},
		{"zero", "not a regular file", "not a regular file"},
		{"link", "", "not a regular file"},
		{"large", "513 bytes", "513 bytes"},
		{"dangling", "no such file", "not a regular file"},
		{"to a fifo", "not a regular file", "not a regular file"},
	} {
		_, err := Read(at(c.name))
		if (err == nil) != (c.read == "") || err != nil && !strings.Contains(err.Error(), c.read) {
			t.Errorf("Read %s: %v", c.name, err)
		}
		_, err = ReadOwn(at(c.name))
		if err == nil || !strings.Contains(err.Error(), c.own) {
			t.Errorf("ReadOwn %s: %v", c.name, err)
		}
	}
	if b, err := ReadFile(at("address")); err != nil || string(b) != "127.0.0.1:99" {
		t.Error(string(b), err)
	}
	if got, err := ReadOwn(good); err != nil || got != s {
		t.Error(err)
	}
	folder := at("folder")
	if err := New().WriteFile(filepath.Join(folder, "s")); err != nil || OwnFolder(folder) != nil {
		t.Error(err, OwnFolder(folder))
	}
	if err := os.Symlink(folder, at("to a folder")); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"to a folder", "fifo"} {
		var strange *FolderError
		if err := New().WriteFile(filepath.Join(at(name), "s")); !errors.As(err, &strange) ||
			!strings.Contains(err.Error(), "HORA_RUN_DIR") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestWriteRefusesOpenDirectory(t *testing.T) {
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := New().WriteFile(filepath.Join(dir, "s")); err == nil || !strings.Contains(err.Error(), "chmod 700") {
		t.Fatal(err)
	}
	if err := (Secret{}).WriteFile(filepath.Join(dir, "s")); err == nil {
		t.Fatal("wrote no secret")
	}
}

func TestSecretIsNeverPrinted(t *testing.T) {
	s := New()
	type holder struct{ S Secret }
	js, _ := json.Marshal(holder{s})
	all := fmt.Sprintf("%v %+v %#v %x %s %d %q", s, holder{s}, holder{s}, s, s, s, s) + string(js)
	if strings.Contains(all, s.Hex()[:8]) || strings.Contains(all, fmt.Sprint([]byte(s[:4]))[1:8]) {
		t.Fatal(all)
	}
}
