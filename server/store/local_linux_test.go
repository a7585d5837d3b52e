package store

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestAFolderOnTheNetworkIsRefused, by its file system's number, also where that has a sign; one on a disk is not, nor
// is one that a link leads to.
func TestAFolderOnTheNetworkIsRefused(t *testing.T) {
	is := func(kind int64) error {
		return localBy("there", func(dir string, st *syscall.Statfs_t) error {
			if st.Type = kind; dir != "there" {
				t.Errorf("asked of %s", dir)
			}
			return nil
		})
	}
	for kind, name := range networked {
		want := "open there: it is on " + name + ", where a database is not safe: give a --dir on a disk of this machine"
		for _, k := range []int64{kind, int64(int32(uint32(kind)))} {
			if err := is(k); err == nil || err.Error() != want {
				t.Errorf("%s (%x): %v", name, k, err)
			}
		}
	}
	for name, kind := range map[string]int64{"ext4": 0xef53, "xfs": 0x58465342, "btrfs": 0x9123683e, "tmpfs": 0x01021994} {
		if err := is(kind); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	dir := t.TempDir()
	link := filepath.Join(dir, "link")
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	if err := local(link); err != nil {
		t.Error(err)
	}
	if err := local(filepath.Join(dir, "missing")); err == nil || !strings.Contains(err.Error(), "no such file") {
		t.Errorf("of no folder it says %v", err)
	}
}

// TestAFolderThatCannotBeMade: the error says what to give instead.
func TestAFolderThatCannotBeMade(t *testing.T) {
	const says = "make the folder /proc/x: no such file or directory: give another --dir, in a folder where you may write"
	if _, err := Open("/proc/x"); err == nil || err.Error() != says {
		t.Errorf("it says %v", err)
	}
}
