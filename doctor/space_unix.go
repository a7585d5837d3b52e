//go:build unix

package doctor

import "golang.org/x/sys/unix"

// space is the size and the free room of a file system in bytes.
func space(path string) (size, free uint64, err error) {
	var s unix.Statfs_t
	if err := unix.Statfs(path, &s); err != nil {
		return 0, 0, err
	}
	return s.Blocks * uint64(s.Bsize), s.Bavail * uint64(s.Bsize), nil
}
