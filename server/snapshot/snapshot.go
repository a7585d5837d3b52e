// Package snapshot takes the folder that goes along with a job: a list of files by hash, so that what a server has
// already is not sent again, and the same folder again, on a node. Files that .gitignore, .amlignore or .horaignore
// name stay behind.
//
// It speaks to no server and starts no goroutine.
package snapshot

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// File is one file of a folder.
type File struct {
	Path string `json:"path"` // with slashes, below the folder
	Mode uint32 `json:"mode"` // permissions
	Size int64  `json:"size"`
	Hash string `json:"hash,omitempty"`
	Link string `json:"link,omitempty"` // where a symbolic link points
}

// Manifest is a folder as it was.
type Manifest struct {
	Files []File `json:"files"`
}

// Limit is how large a folder may be.
const Limit = 500 << 20

// Take lists a folder. One that is larger than limit bytes is an error that names what is large.
func Take(dir string, limit int64) (*Manifest, error) {
	root, err := filepath.EvalSymlinks(dir) // of a link to a folder the walk would see the link alone
	if err != nil {
		return nil, fmt.Errorf("take the folder %s along: %w", dir, err)
	}
	m := &Manifest{}
	var rules []rule
	total := int64(0)
	err = filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		below, err := filepath.Rel(root, p)
		if err != nil {
			return err
		}
		name := filepath.ToSlash(below)
		if d.IsDir() {
			if name != "." && (d.Name() == ".git" || d.Name() == "__pycache__" || ignored(rules, name, true)) {
				return fs.SkipDir
			}
			for _, file := range []string{".gitignore", ".amlignore", ".horaignore"} {
				b, err := os.ReadFile(filepath.Join(p, file))
				if err == nil {
					rules = append(rules, parse(name, string(b))...)
				} else if !errors.Is(err, fs.ErrNotExist) {
					return err
				}
			}
			return nil
		}
		if ignored(rules, name, false) {
			return nil
		}
		f, err := look(p, name, d)
		if err != nil || f == nil {
			return err
		}
		if total += f.Size; total <= limit { // a folder that is too large is listed, not read
			if f.Link == "" {
				if f.Hash, err = hash(p); err != nil {
					return err
				}
			}
		}
		m.Files = append(m.Files, *f)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("take the folder %s along: %w", dir, err)
	}
	if total > limit {
		return nil, tooLarge(dir, m, total, limit)
	}
	slices.SortFunc(m.Files, func(a, b File) int { return strings.Compare(a.Path, b.Path) })
	return m, nil
}

// look describes a file; nil for what is neither file nor link.
func look(p, name string, d fs.DirEntry) (*File, error) {
	info, err := d.Info()
	if err != nil {
		return nil, err
	}
	f := &File{Path: name, Mode: uint32(info.Mode().Perm()), Size: info.Size()}
	switch {
	case info.Mode().IsRegular():
		return f, nil
	case info.Mode()&fs.ModeSymlink != 0:
		f.Size = 0
		f.Link, err = os.Readlink(p)
		if err == nil && !inside(f) {
			return nil, nil // it points out of the folder
		}
		return f, err
	}
	return nil, nil
}

// inside says whether a link stays in the folder.
func inside(f *File) bool {
	return !path.IsAbs(f.Link) &&
		filepath.IsLocal(filepath.FromSlash(path.Join(path.Dir(f.Path), filepath.ToSlash(f.Link))))
}

func hash(p string) (string, error) {
	f, err := os.Open(p)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// tooLarge names the parts of a folder that are the largest.
func tooLarge(dir string, m *Manifest, total, limit int64) error {
	sizes := map[string]int64{}
	for _, f := range m.Files {
		top, _, _ := strings.Cut(f.Path, "/")
		sizes[top] += f.Size
	}
	var names []string
	for name := range sizes {
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b string) int { return int(max(-1, min(1, sizes[b]-sizes[a]))) })
	var largest []string
	for _, name := range names[:min(3, len(names))] {
		largest = append(largest, fmt.Sprintf("%s (%d MB)", name, sizes[name]>>20))
	}
	return fmt.Errorf("take the folder %s along: it has %d MB, and %d MB go along at most: list what the job does not need in .horaignore, most of all %s, or start in another folder",
		dir, total>>20, limit>>20, strings.Join(largest, ", "))
}

// Encode writes a manifest and the hash by which a server knows it.
func (m *Manifest) Encode() (content []byte, hash string, err error) {
	content, err = json.Marshal(m)
	sum := sha256.Sum256(content)
	return content, hex.EncodeToString(sum[:]), err
}

// Decode reads a manifest and refuses paths that lead out of the folder.
func Decode(content []byte) (*Manifest, error) {
	m := &Manifest{}
	if err := json.Unmarshal(content, m); err != nil {
		return nil, fmt.Errorf("read the list of files: %w", err)
	}
	for _, f := range m.Files {
		if !filepath.IsLocal(filepath.FromSlash(f.Path)) || f.Path == "." {
			return nil, fmt.Errorf("read the list of files: %q leads out of the folder", f.Path)
		}
		if f.Link != "" && !inside(&f) {
			return nil, fmt.Errorf("read the list of files: the link %q leads out of the folder", f.Path)
		}
		if f.Link == "" && (len(f.Hash) != 64 || strings.Trim(f.Hash, "0123456789abcdef") != "") {
			return nil, fmt.Errorf("read the list of files: %q has no hash", f.Path)
		}
	}
	return m, nil
}

// Restore makes the folder again from the contents that open answers.
func (m *Manifest) Restore(dir string, open func(hash string) (io.ReadCloser, error)) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	for _, f := range m.Files {
		name := filepath.FromSlash(f.Path)
		if err := root.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			return err
		}
		if f.Link != "" {
			if err := root.Symlink(f.Link, name); err != nil {
				return err
			}
			continue
		}
		if err := restore(root, name, f, open); err != nil {
			return fmt.Errorf("make %s again: %w", f.Path, err)
		}
	}
	return nil
}

func restore(root *os.Root, name string, f File, open func(string) (io.ReadCloser, error)) error {
	in, err := open(f.Hash)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := root.OpenFile(name, os.O_CREATE|os.O_WRONLY|os.O_EXCL, fs.FileMode(f.Mode)&0o777|0o600)
	if err != nil {
		return err
	}
	h := sha256.New()
	if _, err := io.Copy(io.MultiWriter(out, h), in); err != nil {
		out.Close()
		return err
	}
	if is := hex.EncodeToString(h.Sum(nil)); is != f.Hash {
		out.Close()
		return fmt.Errorf("its content has the hash %s and not %s: the copy that it came from is damaged; horad check DIR says what else is", is, f.Hash)
	}
	return out.Close()
}
