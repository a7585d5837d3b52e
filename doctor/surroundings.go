package doctor

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

func (m *Machine) checkNetwork(context.Context) []Finding {
	cards, err := net.Interfaces()
	if err != nil {
		return []Finding{problem("", "the interfaces can not be listed: %v", err)}
	}
	var all []Finding
	usable := 0
	for _, c := range cards {
		if c.Flags&net.FlagUp == 0 || c.Flags&net.FlagLoopback != 0 {
			continue
		}
		addrs, err := c.Addrs()
		if err != nil || len(addrs) == 0 {
			continue
		}
		var text []string
		for _, a := range addrs {
			text = append(text, a.String())
		}
		if strings.HasPrefix(c.Name, "docker") || strings.HasPrefix(c.Name, "veth") || strings.HasPrefix(c.Name, "br-") {
			all = append(all, Finding{State: Good, Text: fmt.Sprintf("%s %s (a container bridge: not used between hosts)", c.Name, strings.Join(text, " "))})
			continue
		}
		usable++
		speed := ""
		if s := m.read(filepath.Join("/sys/class/net", c.Name, "speed")); s != "" && !strings.HasPrefix(s, "-") {
			speed = ", " + s + " Mbit/s"
		}
		all = append(all, Finding{State: Good, Text: fmt.Sprintf("%s %s, MTU %d%s", c.Name, strings.Join(text, " "), c.MTU, speed)})
	}
	if usable == 0 {
		all = append(all, note("nothing, for jobs on this host alone", "no interface but loopback has an address: other hosts can not be reached"))
	}
	return all
}

func (m *Machine) checkSSH(ctx context.Context) []Finding {
	text, err := m.Command(ctx, "ssh", "-V")
	if err != nil {
		return []Finding{note("install openssh-client to start jobs on several hosts", "ssh was not found")}
	}
	return good("%s", firstLine(text))
}

func (m *Machine) checkGPU(ctx context.Context) []Finding {
	text, err := m.Command(ctx, "nvidia-smi", "--query-gpu=index,name,memory.total,memory.used", "--format=csv,noheader")
	if err != nil {
		if errors.Is(err, exec.ErrNotFound) {
			return append(good("no NVIDIA driver: training on the processor"), m.listNCCL(ctx)...)
		}
		return []Finding{problem("nvidia-smi shows the driver's own words", "nvidia-smi failed: %v", err)}
	}
	var all []Finding
	for _, line := range strings.Split(strings.TrimSpace(text), "\n") {
		all = append(all, Finding{State: Good, Text: line})
	}
	if users, err := m.Command(ctx, "nvidia-smi", "--query-compute-apps=pid,name,used_memory", "--format=csv,noheader"); err == nil && strings.TrimSpace(users) != "" {
		for _, line := range strings.Split(strings.TrimSpace(users), "\n") {
			all = append(all, note("end it if it is not yours to keep", "memory of a GPU is held by process %s", line))
		}
	}
	nccl := m.listNCCL(ctx)
	if len(nccl) == 0 {
		nccl = []Finding{note("python3 -m pip install torch (its CUDA wheels bring their own), or install libnccl2", "no libnccl in the system's folders nor in a Python's packages")}
	}
	return append(all, nccl...)
}

// listNCCL tells where NVIDIA's collective library is, and for whom.
func (m *Machine) listNCCL(ctx context.Context) []Finding {
	var all []Finding
	if found := m.systemNCCL(); len(found) > 0 {
		all = good("%s", strings.Join(found, " "))
	}
	for _, p := range m.pythons(ctx) {
		if len(p.nccl) > 0 {
			all = append(all, good("%s (for %s)", strings.Join(p.nccl, " "), p.name)...)
		}
	}
	return all
}

// systemNCCL lists the library's files that any program would find.
func (m *Machine) systemNCCL() []string {
	patterns := []string{"/usr/lib/*/libnccl.so*", "/usr/lib64/libnccl.so*", "/usr/local/cuda/lib64/libnccl.so*", "/usr/local/lib/libnccl.so*"}
	for _, dir := range filepath.SplitList(m.Lookup("LD_LIBRARY_PATH")) {
		if dir != "" {
			patterns = append(patterns, filepath.Join(dir, "libnccl.so*"))
		}
	}
	var found []string
	for _, pattern := range patterns {
		paths, _ := filepath.Glob(filepath.Join(m.Root, pattern))
		for _, p := range paths {
			if !slices.Contains(found, p) {
				found = append(found, p)
			}
		}
	}
	return found
}

func firstLine(s string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(s), "\n")
	return line
}

// RunCommand is a Machine's Command on the real system, at most ten seconds.
func RunCommand(ctx context.Context, name string, args ...string) (string, error) {
	ctx, stop := context.WithTimeout(ctx, 10*time.Second)
	defer stop()
	out, err := exec.CommandContext(ctx, name, args...).CombinedOutput()
	return string(out), err
}
