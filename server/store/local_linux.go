package store

import (
	"fmt"
	"syscall"
)

// local refuses folders on network file systems: the database's log needs shared memory and honest locks.
func local(dir string) error {
	var st syscall.Statfs_t
	if err := syscall.Statfs(dir, &st); err != nil {
		return err
	}
	names := map[int64]string{
		0x6969: "NFS", 0x517b: "SMB", 0xff534d42: "CIFS", 0xfe534d42: "SMB2", 0x01021997: "9p", 0x0bd00bd0: "Lustre",
		0x00c36400: "Ceph",
	}
	if name := names[int64(uint32(st.Type))]; name != "" {
		return fmt.Errorf("open %s: it is on %s, where a database is not safe: give a --dir on a disk of this machine", dir, name)
	}
	return nil
}
