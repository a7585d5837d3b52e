package node

import (
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// What is in outputs/ before a job begins was not made by it: it came with the code, or from an earlier attempt, and
// the server has it. It would stand for what another node of the gang has saved under that name meanwhile.

// givenFile keeps which files those are, where there are some.
const givenFile = "given.json"

// stamp tells a file from what it is once somebody has written to it.
type stamp struct {
	Size     int64     `json:"size"`
	Modified time.Time `json:"modified"`
}

func stampOf(i fs.FileInfo) stamp { return stamp{i.Size(), i.ModTime()} }

func (s stamp) is(other stamp) bool { return s.Size == other.Size && s.Modified.Equal(other.Modified) }

// noteGiven keeps what an attempt finds in outputs/.
func noteGiven(dir string) error {
	given := map[string]stamp{}
	err := eachOutput(dir, func(below string, info fs.FileInfo) { given[below] = stampOf(info) })
	if err != nil || len(given) == 0 {
		return err
	}
	b, err := json.Marshal(given)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, givenFile), b, 0o600)
}

// readGiven answers it; nothing for an attempt that an earlier release has started, and where it cannot be read: rather
// too much comes back than too little.
func readGiven(dir string) map[string]stamp {
	given := map[string]stamp{}
	b, err := os.ReadFile(filepath.Join(dir, givenFile))
	if err != nil || json.Unmarshal(b, &given) != nil {
		return map[string]stamp{}
	}
	return given
}

// eachOutput goes through the files of outputs/, by their paths below it with slashes. What comes and goes meanwhile
// is left out.
func eachOutput(dir string, f func(below string, info fs.FileInfo)) error {
	root := filepath.Join(dir, WorkFolder, OutputsName)
	return filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return nil
		}
		info, err := d.Info()
		if err != nil {
			return nil
		}
		if below, err := filepath.Rel(root, p); err == nil {
			f(filepath.ToSlash(below), info)
		}
		return nil
	})
}
