package dataset

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"hora/storage"
)

// A state knows its files by a fingerprint of 16 bytes. What the files were is kept
// beside it, on the host that saved a state: so whoever goes on with other files can be
// told which ones are new, gone or changed. Nothing hangs on it: without it the error
// says less.

const (
	listsKept = 100     // files with lists that stay
	listed    = 200_000 // data with more files are not remembered
	listHead  = "files of data, for hora.dataset's messages\n"
)

// CacheFolder is where what may be lost at any time is kept: HORA_DATA_CACHE, or the
// user's folder for such things; "" where the environment names none.
func CacheFolder(lookup func(string) string) string {
	if lookup == nil {
		return ""
	}
	if dir := lookup("HORA_DATA_CACHE"); dir != "" {
		return dir
	}
	if dir := lookup("XDG_CACHE_HOME"); dir != "" {
		return filepath.Join(dir, "hora", "data")
	}
	if home := lookup("HOME"); home != "" {
		return filepath.Join(home, ".cache", "hora", "data")
	}
	return ""
}

func (s *Set) listOf(fingerprint string) string {
	if dir := CacheFolder(s.cfg.Lookup); dir != "" {
		return filepath.Join(dir, "lists", fingerprint)
	}
	return ""
}

// known is a file of a list.
type known struct{ about, name string }

func (s *Set) chosen() string {
	return fmt.Sprintf("only %v filter %v", s.cfg.Only, s.cfg.Filter)
}

// Remember keeps the list of the files for later messages. It is no error where that
// cannot be.
func (s *Set) Remember() {
	name := s.listOf(s.fingerprint)
	if name == "" || len(s.files) > listed {
		return
	}
	if _, err := os.Stat(name); err == nil {
		return
	}
	var b bytes.Buffer
	b.WriteString(listHead)
	fmt.Fprintf(&b, "%q\n", s.chosen())
	for _, k := range s.known() {
		fmt.Fprintf(&b, "%s %q\n", k.about, k.name)
	}
	fmt.Fprintf(&b, "%08x\n", crc32.ChecksumIEEE(b.Bytes()))
	dir := filepath.Dir(name)
	if os.MkdirAll(dir, 0o700) != nil || (storage.Local{}).Put(context.Background(), name, b.Bytes()) != nil {
		return
	}
	all, err := os.ReadDir(dir)
	if err != nil || len(all) <= listsKept {
		return
	}
	age := func(e os.DirEntry) int64 {
		info, err := e.Info()
		if err != nil {
			return 0
		}
		return info.ModTime().UnixNano()
	}
	slices.SortFunc(all, func(a, b os.DirEntry) int { return cmp.Compare(age(a), age(b)) })
	for _, old := range all[:len(all)-listsKept] {
		_ = os.Remove(filepath.Join(dir, old.Name())) // another rank may have
	}
}

func (s *Set) known() []known {
	all := make([]known, 0, len(s.files))
	for i := range s.files {
		f := &s.files[i]
		all = append(all, known{fmt.Sprintf("%d.%x", f.object.Size, f.meta.Digest[:16]), f.name})
	}
	return all
}

// remembered reads a list; nil where there is none that is whole.
func remembered(name string) (filter string, files []known) {
	text, err := os.ReadFile(name)
	if err != nil || len(text) < 9 || !bytes.HasPrefix(text, []byte(listHead)) {
		return "", nil
	}
	if body := text[:len(text)-9]; fmt.Sprintf("%08x\n", crc32.ChecksumIEEE(body)) != string(text[len(text)-9:]) {
		return "", nil
	}
	lines := strings.Split(string(text[len(listHead):len(text)-10]), "\n")
	if filter, err = strconv.Unquote(lines[0]); err != nil {
		return "", nil
	}
	for _, line := range lines[1:] {
		about, quoted, _ := strings.Cut(line, " ")
		name, err := strconv.Unquote(quoted)
		if err != nil {
			return "", nil
		}
		files = append(files, known{about, name})
	}
	return filter, files
}

// otherData says how the present files differ from those of a fingerprint.
func (s *Set) otherData(fingerprint string) string {
	name := s.listOf(fingerprint)
	filter, before := remembered(name)
	if before == nil {
		return fmt.Sprintf("which files differ is not known here, since no list of that time is in %q", filepath.Dir(name))
	}
	then := map[string]string{}
	for _, k := range before {
		then[k.name] = k.about
	}
	var added, changed []string
	for _, k := range s.known() {
		about, there := then[k.name]
		delete(then, k.name)
		switch {
		case !there:
			added = append(added, k.name)
		case about != k.about:
			changed = append(changed, k.name)
		}
	}
	var removed []string
	for name := range then {
		removed = append(removed, name)
	}
	var parts []string
	for _, p := range []struct {
		word  string
		names []string
	}{{"added", added}, {"removed", removed}, {"changed", changed}} {
		if n := len(p.names); n > 0 {
			slices.Sort(p.names)
			text := strings.Join(p.names[:min(n, 10)], ", ")
			if n > 10 {
				text += fmt.Sprintf(" and %d more", n-10)
			}
			parts = append(parts, fmt.Sprintf("%d %s (%s)", n, p.word, text))
		}
	}
	if filter != s.chosen() {
		parts = append(parts, "another filter=")
	}
	if len(parts) == 0 {
		return "its files are the same and have other rows now"
	}
	return strings.Join(parts, ", ")
}
