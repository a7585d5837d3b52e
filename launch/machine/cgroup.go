package machine

import (
	"os"
	"path"
	"path/filepath"
	"strings"
)

// Cgroup lists the directories of this process's control group for a controller, "cpu" or "memory": its own first, then
// those above it up to the mount. Version 1's hierarchy of that controller goes before version 2's. In a container
// /proc may name a path of the host that is not mounted: then the mount itself, which is the container's group, is all
// there is. root is the root of the file system to read; "" is the real one.
func Cgroup(root, controller string) []string {
	list, _ := os.ReadFile(filepath.Join(root, "/proc/self/cgroup"))
	mount, group := "/sys/fs/cgroup", "/"
	for line := range strings.Lines(string(list)) {
		f := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(f) != 3 {
			continue
		}
		if f[1] == "" {
			group = f[2]
		}
		if strings.Contains(","+f[1]+",", ","+controller+",") {
			mount, group = path.Join(mount, controller), f[2]
			break
		}
	}
	var dirs []string
	for at := path.Clean("/" + group); ; at = path.Dir(at) {
		dir := filepath.Join(root, mount, at)
		if st, err := os.Stat(dir); err == nil && st.IsDir() {
			dirs = append(dirs, dir)
		}
		if at == "/" {
			return dirs
		}
	}
}
