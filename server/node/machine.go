package node

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"hora/launch/environ"
)

// Memory is what this machine has, in bytes; 0 where nobody says.
func Memory() int64 {
	f, err := os.Open("/proc/meminfo")
	if err != nil {
		return 0
	}
	defer f.Close()
	for in := bufio.NewScanner(f); in.Scan(); {
		var kb int64
		if rest, ok := strings.CutPrefix(in.Text(), "MemTotal:"); ok {
			if _, err := fmt.Sscanf(rest, "%d kB", &kb); err == nil {
				return kb << 10
			}
		}
	}
	return 0
}

// GPUs counts the devices that an environment lets programs see, else NVIDIA's.
func GPUs(env []string) int {
	if n := len(environ.Devices(env)); n > 0 {
		return n
	}
	all, _ := filepath.Glob("/proc/driver/nvidia/gpus/*")
	return len(all)
}

// Machine tells this machine, since its start, from others; "" where it cannot. What has files of its own, as a
// container has, is another one: its devices may be others under the same names.
func Machine() string {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	files, err := os.Readlink("/proc/self/ns/mnt")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(boot)) + " " + files
}

// Inherited is what jobs get of an environment: all but what belongs to the program that offers the machine, and hora's
// folder first in PATH, so that the interpreter beside it is python.
func Inherited(environ []string, hora string) []string {
	var all []string
	path := filepath.Dir(hora)
	for _, kv := range environ {
		name, value, _ := strings.Cut(kv, "=")
		switch {
		case name == "PATH":
			if value != "" {
				path += string(os.PathListSeparator) + value
			}
		case name == "HORA_TOKEN", name == "HORA_TOKEN_FILE", name == "HORA_SERVER", name == "OLDPWD", name == "PWD":
		default:
			all = append(all, kv)
		}
	}
	return append(all, "PATH="+path)
}

// Lock makes sure that one process has a folder; it goes with the process.
func Lock(dir string) (*os.File, error) { return takeLock(dir) }
