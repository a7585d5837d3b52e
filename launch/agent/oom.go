package agent

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"hora/launch/machine"
)

// oomCounter watches how many processes the kernel has ended for want of memory, and which, where it tells that.
type oomCounter struct {
	file  string
	last  int
	names *oomNames
}

// openOOM finds the record nearest to this process under root ("" is the real one): that of its own control group or,
// where a container hides that, of the whole container; that of the machine where groups keep none.
func openOOM(root string) oomCounter {
	o := oomCounter{names: openNames(root)}
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

// ended says whether the kernel has ended a worker for want of memory. The counter is that of all who share a control
// group, other jobs among them: where the kernel names whom it has ended, a worker that was killed by somebody else is
// told apart. child is for a shell that tells so of a child, whose number nobody knows.
func (o *oomCounter) ended(pid int, child bool) bool {
	grown := o.grew()
	others := o.names.read()
	switch {
	case child:
		return grown
	case o.names.has(pid):
		return true
	}
	return grown && !others
}
