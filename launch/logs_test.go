package launch

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// modes lists what lies under a folder, itself included, with its permissions.
func modes(t *testing.T, folder string) map[string]fs.FileMode {
	t.Helper()
	all := map[string]fs.FileMode{}
	err := filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		st, err := d.Info()
		if err == nil {
			name, _ := filepath.Rel(folder, path)
			all[name] = st.Mode().Perm()
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// What a job writes down is its user's alone, unless the folder that the user names is open to others.
func TestLogsAreAsOpenAsTheirFolder(t *testing.T) {
	defer syscall.Umask(syscall.Umask(0o022))
	for _, c := range []struct {
		folder, below, files fs.FileMode
	}{{0, 0o700, 0o600}, {0o700, 0o700, 0o600}, {0o750, 0o750, 0o640}, {0o755, 0o755, 0o644}, {0o777, 0o755, 0o644}} {
		above := filepath.Join(t.TempDir(), "new")
		dir := filepath.Join(above, "logs")
		if c.folder != 0 {
			if err := os.MkdirAll(dir, 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.Chmod(dir, c.folder); err != nil {
				t.Fatal(err)
			}
		}
		spec := testSpec(nil)
		spec.LogDir, spec.Report = dir, filepath.Join(dir, "report.json")
		if c.folder == 0 {
			spec.Report = ""
		}
		script(t, spec, `echo out; echo err >&2`)
		for name, mode := range modes(t, above) {
			want := c.files
			switch {
			case name == ".":
				want = 0o700
			case name == "logs":
				want = max(c.folder, 0o700)
			case strings.HasSuffix(name, "rank.0"), strings.HasSuffix(name, "rank.1"):
				want = c.below
			}
			if mode != want {
				t.Errorf("in a folder of mode %04o: %s has %04o, not %04o", c.folder, name, mode, want)
			}
		}
	}
}
