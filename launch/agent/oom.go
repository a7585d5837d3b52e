package agent

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"hora/launch/machine"
)

// oomCounter watches how many processes the kernel has ended for want of memory.
type oomCounter struct {
	file string
	last int
}

// openOOM finds the record nearest to this process under root ("" is the real one): that of its own control group or,
// where a container hides that, of the whole container; that of the machine where groups keep none.
func openOOM(root string) oomCounter {
	var o oomCounter
	var files []string
	if dirs := machine.Cgroup(root, "memory"); len(dirs) > 0 {
		// What is between the two is left out: version 1's counters know nothing of the groups below theirs.
		for _, dir := range []string{dirs[0], dirs[len(dirs)-1]} {
			files = append(files, filepath.Join(dir, "memory.events"), filepath.Join(dir, "memory.oom_control"))
		}
	}
	for _, o.file = range append(files, filepath.Join(root, "/proc/vmstat")) {
		var known bool
		if o.last, known = o.read(); known {
			break
		}
	}
	return o
}

func (o *oomCounter) read() (n int, known bool) {
	b, err := os.ReadFile(o.file)
	if err != nil {
		return 0, false
	}
	for line := range strings.Lines(string(b)) {
		if v, ok := strings.CutPrefix(line, "oom_kill "); ok {
			n, err = strconv.Atoi(strings.TrimSpace(v))
			return n, err == nil
		}
	}
	return 0, false
}

// grew says whether the kernel has ended a process since the last call.
func (o *oomCounter) grew() bool {
	n, _ := o.read()
	grown := n > o.last
	o.last = n
	return grown
}
