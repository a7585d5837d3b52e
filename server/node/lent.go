package node

import (
	"maps"
	"os"
	"path/filepath"
	"slices"

	"hora/storage/credentials"
)

// lentFolder has the keys to storage that went along with a job, a file each, of its user alone.
const lentFolder = "credentials"

func putLent(dir string, all map[string]string) error {
	if len(all) == 0 {
		return nil
	}
	at := filepath.Join(dir, lentFolder)
	if err := os.Mkdir(at, 0o700); err != nil {
		return err
	}
	if err := credentials.Set(all).Check(); err != nil { // so that each name is one of a file's
		return err
	}
	for name, value := range all {
		if err := os.WriteFile(filepath.Join(at, name), []byte(value), 0o600); err != nil {
			return err
		}
	}
	return nil
}

// takeLent gives them to the job: the variables that name files name these, the others hold what was sent. What the
// node itself has for the same storage goes, since libraries would take it first.
func takeLent(dir string, own Process, document map[string]string) error {
	names := slices.Sorted(maps.Keys(document))
	for _, name := range credentials.Foreign(names) {
		if err := own.Unsetenv(name); err != nil {
			return err
		}
	}
	for _, name := range names {
		value := filepath.Join(dir, lentFolder, name)
		if !credentials.IsFile(name) {
			b, err := os.ReadFile(value)
			if err != nil {
				return err
			}
			value = string(b)
		}
		if err := own.Setenv(name, value); err != nil {
			return err
		}
	}
	return nil
}

// lentSecrets are what of them must stand in no log.
func lentSecrets(dir string) []string {
	all := credentials.Set{}
	entries, _ := os.ReadDir(filepath.Join(dir, lentFolder)) // none where nothing went along
	for _, e := range entries {
		if b, err := os.ReadFile(filepath.Join(dir, lentFolder, e.Name())); err == nil {
			all[e.Name()] = string(b)
		}
	}
	return all.Secrets()
}
