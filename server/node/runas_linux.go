package node

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime"
	"syscall"
	"unsafe"
)

func mayRunAs() error {
	if os.Geteuid() != 0 {
		return errors.New("--run-as is for nodes that root has started, who alone may run what is another user's: start it as root, or leave --run-as out")
	}
	return nil
}

func ownerOf(info fs.FileInfo) uint32 { return info.Sys().(*syscall.Stat_t).Uid }

// as calls f with the user's rights to files. They are a thread's own, so they hold for what f does itself and for
// nothing that it lets others do.
func (u *User) as(f func() error) error {
	if u == nil {
		return f()
	}
	runtime.LockOSThread()
	before, err := syscall.Getgroups()
	if err != nil {
		runtime.UnlockOSThread()
		return err
	}
	was := make([]uint32, len(before))
	for i, g := range before {
		was[i] = uint32(g)
	}
	// Where they cannot be taken back the thread stays locked, and ends with its goroutine.
	if err := rights(u.Groups, u.GID, u.UID); err != nil {
		return errors.Join(fmt.Errorf("take the rights of user %s: %w: start the node as root with all capabilities", u.Name, err), restore(was))
	}
	err = f()
	return errors.Join(err, restore(was))
}

func restore(groups []uint32) error {
	err := rights(groups, uint32(os.Getegid()), uint32(os.Geteuid()))
	if err == nil {
		runtime.UnlockOSThread()
	}
	return err
}

// rights sets what this thread may do with files.
func rights(groups []uint32, gid, uid uint32) error {
	var first unsafe.Pointer
	if len(groups) > 0 {
		first = unsafe.Pointer(&groups[0])
	}
	if _, _, e := syscall.RawSyscall(syscall.SYS_SETGROUPS, uintptr(len(groups)), uintptr(first), 0); e != 0 {
		return e
	}
	runtime.KeepAlive(groups)
	for _, c := range []struct {
		call uintptr
		id   uint32
	}{{syscall.SYS_SETFSGID, gid}, {syscall.SYS_SETFSUID, uid}} {
		_, _, _ = syscall.RawSyscall(c.call, uintptr(c.id), 0, 0) // answers what was before, and no error
		if is, _, _ := syscall.RawSyscall(c.call, ^uintptr(0), 0, 0); uint32(is) != c.id {
			return syscall.EPERM
		}
	}
	return nil
}

// process are the rights of a process that is started for the user.
func (u *User) process() *syscall.SysProcAttr {
	a := &syscall.SysProcAttr{Setsid: true}
	if u != nil {
		a.Credential = &syscall.Credential{Uid: u.UID, Gid: u.GID, Groups: u.Groups}
	}
	return a
}
