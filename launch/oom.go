package launch

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// oomCounter watches how many processes the kernel has ended for want of memory in a cgroup.
type oomCounter struct {
	file string
	last int
}

// openOOM reads the counter of a cgroup's directory; "" finds this process's.
func openOOM(dir string) oomCounter {
	if dir == "" {
		dir = ownCgroup("/proc/self/cgroup", "/sys/fs/cgroup")
	}
	o := oomCounter{file: filepath.Join(dir, "memory.events")}
	if _, err := os.Stat(o.file); err != nil {
		o.file = filepath.Join(dir, "memory.oom_control")
	}
	o.last = o.read()
	return o
}

// ownCgroup finds the memory cgroup that list (a /proc/PID/cgroup) names, under root: version 2's or version 1's.
func ownCgroup(list, root string) string {
	b, _ := os.ReadFile(list)
	unified := root
	for line := range strings.SplitSeq(string(b), "\n") {
		parts := strings.SplitN(line, ":", 3)
		switch {
		case len(parts) != 3:
		case parts[1] == "":
			unified = filepath.Join(root, parts[2])
		case strings.Contains(","+parts[1]+",", ",memory,"):
			return filepath.Join(root, "memory", parts[2])
		}
	}
	return unified
}

func (o *oomCounter) read() int {
	b, err := os.ReadFile(o.file)
	if err != nil {
		return 0
	}
	for line := range strings.SplitSeq(string(b), "\n") {
		if v, ok := strings.CutPrefix(line, "oom_kill "); ok {
			n, _ := strconv.Atoi(strings.TrimSpace(v))
			return n
		}
	}
	return 0
}

// grew says whether the kernel has ended a process since the last call.
func (o *oomCounter) grew() bool {
	n := o.read()
	grown := n > o.last
	o.last = n
	return grown
}
