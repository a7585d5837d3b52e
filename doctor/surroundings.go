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

// pythonProbe prints what the interpreter would train with, without importing it.
const pythonProbe = `
import sys, importlib.metadata as m
print("python", sys.version.split()[0], sys.executable)
for n in ("hora", "hora-compat", "torch", "tensorflow", "keras", "jax", "numpy", "horovod"):
    try:
        print(n, m.version(n))
    except m.PackageNotFoundError:
        pass
`

func (m *Machine) checkPython(ctx context.Context) []Finding {
	text, err := m.Command(ctx, "python3", "-c", pythonProbe)
	if err != nil {
		return []Finding{note("install Python 3.10 or newer; Go programs need none", "python3 was not found or does not start")}
	}
	versions := map[string]string{}
	var found []string
	for _, line := range strings.Split(strings.TrimSpace(text), "\n") {
		name, version, _ := strings.Cut(line, " ")
		versions[name] = version
		found = append(found, line)
	}
	all := good("%s", strings.Join(found, ", "))
	if versions["hora"] == "" {
		all = append(all, note("pip install hora (the wheel of this version)", "package hora is not installed for this python3"))
	}
	if versions["horovod"] != "" && versions["hora-compat"] != "" {
		all = append(all, problem("pip uninstall -y horovod; pip install --force-reinstall --no-deps hora-compat",
			"horovod %s is installed over hora-compat: import horovod may load either", versions["horovod"]))
	}
	return all
}

func (m *Machine) checkGPU(ctx context.Context) []Finding {
	text, err := m.Command(ctx, "nvidia-smi", "--query-gpu=index,name,memory.total,memory.used", "--format=csv,noheader")
	if err != nil {
		if errors.Is(err, exec.ErrNotFound) {
			return good("no NVIDIA driver: training on the processor")
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
	return append(all, m.checkNCCL()...)
}

func (m *Machine) checkNCCL() []Finding {
	found := m.NCCL()
	if len(found) == 0 {
		return []Finding{note("PyTorch's CUDA wheels bring their own; else install libnccl2", "no libnccl in the system's folders")}
	}
	return good("%s", strings.Join(found, " "))
}

// NCCL lists the files of NVIDIA's collective library that programs here would find.
func (m *Machine) NCCL() []string {
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
