package jobtest_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"hora"
)

// Others may have made things in the place where ranks that are started by hand leave files for each other: the ranks
// say so at once, read nothing there, and leave nothing.
func TestRanksByHandTrustOnlyTheirOwnFolder(t *testing.T) {
	join := func(rank int, dir string) error {
		env := map[string]string{
			"HORA_RANK": fmt.Sprint(rank), "HORA_SIZE": "2", "HORA_RUN_DIR": dir, "HORA_JOB": "strange", "HORA_START_TIMEOUT": "0.5",
		}
		cfg, err := hora.FromEnv(func(name string) string { return env[name] })
		if err != nil {
			return err
		}
		w, err := hora.Join(context.Background(), cfg)
		if err == nil {
			w.Close()
		}
		return err
	}
	name := "hora-" + fmt.Sprint(os.Getuid())
	theirs := t.TempDir() // private, and ours, but somebody else says that it be used
	for what, c := range map[string]struct {
		put  func(folder string) error
		want string
	}{
		"fifo":           {func(f string) error { return syscall.Mkfifo(f, 0o700) }, "is no folder"},
		"link to zeros":  {func(f string) error { return os.Symlink("/dev/zero", f) }, "is no folder"},
		"link to a home": {func(f string) error { return os.Symlink(theirs, f) }, "is no folder"},
		"open folder":    {func(f string) error { return openFolder(f) }, "mode 0777"},
		"another's":      {func(f string) error { return givenAway(t, f) }, "belongs to user 12345"},
	} {
		dir := t.TempDir()
		if err := c.put(filepath.Join(dir, name)); err != nil {
			t.Fatal(what, err)
		}
		for rank := range 2 {
			began := time.Now()
			err := join(rank, dir)
			if err == nil || !strings.Contains(err.Error(), c.want) && !(os.Geteuid() != 0 && what == "another's") {
				t.Errorf("%s, rank %d: %v", what, rank, err)
			}
			if took := time.Since(began); took > 450*time.Millisecond*3 {
				t.Errorf("%s, rank %d: it took %v", what, rank, took)
			}
		}
	}
	if left, _ := os.ReadDir(theirs); len(left) > 0 {
		t.Errorf("files were made where a link led: %v", left)
	}
	// In the right folder, files that are none.
	for what, put := range map[string]func(file string) error{
		"fifo": func(f string) error { return syscall.Mkfifo(f, 0o600) },
		"link": func(f string) error { return os.Symlink("/dev/zero", f) },
		"huge": func(f string) error { return os.WriteFile(f, make([]byte, 1<<20), 0o600) },
	} {
		dir := t.TempDir()
		if err := os.Mkdir(filepath.Join(dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := put(filepath.Join(dir, name, "hand-strange-2-0.addr")); err != nil {
			t.Fatal(err)
		}
		if err := join(1, dir); err == nil || !strings.Contains(err.Error(), ".addr") {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func openFolder(f string) error {
	if err := os.Mkdir(f, 0o700); err != nil {
		return err
	}
	return os.Chmod(f, 0o777)
}

func givenAway(t *testing.T, f string) error {
	t.Helper()
	if err := os.Mkdir(f, 0o700); err != nil || os.Geteuid() != 0 {
		return err
	}
	return os.Chown(f, 12345, -1)
}
