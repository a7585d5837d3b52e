package hosttest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
)

// spaces are nsenter's flags for the namespaces that the process pid holds.
func spaces(pid int) []string {
	flags := []string{"-t", strconv.Itoa(pid), "--net", "--uts", "--mount"}
	mine, _ := os.Readlink("/proc/self/ns/user")
	if its, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/user", pid)); err == nil && its != mine {
		flags = append(flags, "--user")
	}
	return flags
}

// holdHost starts what holds a host's namespaces; with another user namespace if the host is emulated.
func (n *Net) holdHost(emulated bool) int {
	n.t.Helper()
	if !emulated {
		return n.hold("--net", "--uts", "--mount", "--propagation", "private")
	}
	all := []syscall.SysProcIDMap{{ContainerID: 0, HostID: 0, Size: 1 << 16}}
	cmd := exec.Command("sh", "-c", "mount --make-rprivate / && echo up; exec sleep 100000")
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWNET | syscall.CLONE_NEWUTS | syscall.CLONE_NEWNS | syscall.CLONE_NEWUSER,
		UidMappings: all, GidMappings: all, GidMappingsEnableSetgroups: true,
	}
	return n.holdBy(cmd)
}

func (h *Host) spaces() []string { return spaces(h.pid) }

// magic is how the kernel knows programs of other machines.
var magic = map[string]string{
	"aarch64": `\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00:\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff`,
}

// emulate makes the host one of another kind: the kernel's table of interpreters is one of its user namespace.
func (h *Host) emulate() {
	h.net.t.Helper()
	qemu, err := exec.LookPath("qemu-" + h.machine)
	if err != nil || magic[h.machine] == "" {
		h.net.t.Skipf("needs qemu-%s: hosts of another kind are emulated", h.machine)
	}
	uname := filepath.Join(h.Home, ".uname")
	text := fmt.Sprintf("#!/bin/sh\ncase $1 in -sm) echo Linux %[1]s;; -m) echo %[1]s;; *) echo Linux;; esac\n", h.machine)
	if err := os.WriteFile(uname, []byte(text), 0o755); err != nil {
		h.net.t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(h.Home, ".table"), 0o755); err != nil {
		h.net.t.Fatal(err)
	}
	script := fmt.Sprintf("mount -t binfmt_misc none %[1]s && printf '%%s' ':%[2]s:M::%[3]s:%[4]s:F' >%[1]s/register && mount --bind %[5]s /usr/bin/uname",
		filepath.Join(h.net.home, ".table"), h.machine, magic[h.machine], qemu, filepath.Join(h.net.home, ".uname"))
	if out, err := exec.Command("nsenter", append(h.spaces(), "sh", "-c", script)...).CombinedOutput(); err != nil {
		h.net.t.Skipf("needs binfmt_misc in a user namespace (Linux 6.7): %v: %s", err, out)
	}
}
