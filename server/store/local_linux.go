package store

import (
	"fmt"
	"syscall"
)

// networked are file systems that other machines have too, by what Linux calls them. On others of that kind, FUSE's,
// nobody can tell.
var networked = map[int64]string{
	0x6969: "NFS", 0x517b: "SMB", 0xff534d42: "CIFS", 0xfe534d42: "SMB2", 0x01021997: "9p", 0x0bd00bd0: "Lustre",
	0x00c36400: "Ceph", 0x47504653: "GPFS", 0x19830326: "BeeGFS", 0x5346414f: "AFS", 0x01161970: "GFS2",
	0x7461636f: "OCFS2", 0xaad7aaea: "PanFS",
}

// local refuses folders on network file systems: the database's log needs shared memory and honest locks, and two
// servers on two machines would not see each other's.
func local(dir string) error { return localBy(dir, syscall.Statfs) }

func localBy(dir string, statfs func(string, *syscall.Statfs_t) error) error {
	var st syscall.Statfs_t
	if err := statfs(dir, &st); err != nil {
		return err
	}
	if name := networked[int64(uint32(st.Type))]; name != "" {
		return fmt.Errorf("open %s: it is on %s, where a database is not safe: give a --dir on a disk of this machine", dir, name)
	}
	return nil
}
