package doctor

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
)

func (m *Machine) read(path string) string {
	text, err := os.ReadFile(filepath.Join(m.Root, path))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
}

// field is the value of "name: value" or "name value" in a file of such lines.
func field(text, name string) string {
	for _, line := range strings.Split(text, "\n") {
		if rest, ok := strings.CutPrefix(line, name); ok {
			return strings.TrimSpace(strings.TrimLeft(rest, ":\t "))
		}
	}
	return ""
}

func (m *Machine) checkHora(context.Context) []Finding {
	return good("version %s, %s/%s", m.Version, runtime.GOOS, runtime.GOARCH)
}

func (m *Machine) checkKernel(context.Context) []Finding {
	release := m.read("/proc/sys/kernel/osrelease")
	if release == "" {
		return []Finding{note("on macOS and others hora uses TCP between ranks", "no /proc: this is no Linux system")}
	}
	var major, minor int
	if _, err := fmt.Sscanf(release, "%d.%d", &major, &minor); err != nil {
		return []Finding{note("", "release %s", release)}
	}
	if major < 5 || major == 5 && minor < 3 {
		return []Finding{problem("a kernel from 5.3 on has pidfd, by which the end of a peer is noticed at once", "release %s is old", release)}
	}
	return good("Linux %s", release)
}

func (m *Machine) checkCores(context.Context) []Finding {
	info := m.read("/proc/cpuinfo")
	model := field(info, "model name")
	var found []string
	flags := " " + field(info, "flags") + " " + field(info, "Features") + " "
	for _, f := range []string{"avx2", "avx512f", "asimd"} {
		if strings.Contains(flags, " "+f+" ") {
			found = append(found, f)
		}
	}
	n := runtime.NumCPU()
	nodes, _ := filepath.Glob(filepath.Join(m.Root, "/sys/devices/system/node/node[0-9]*"))
	text := fmt.Sprintf("%d usable, %d NUMA %s, %s (%s)", n, max(len(nodes), 1), plural(len(nodes), "node", "nodes"), model, strings.Join(found, " "))
	all := good("%s", text)
	if quota, group := m.groupCores(); quota > 0 && quota < float64(n) {
		all = append(all, note(fmt.Sprintf("start at most %d ranks here, or ask for a larger share", max(int(quota), 1)),
			"the container or control group (%s) may use %.1f of %d cores: ranks that spin will be throttled", group, quota, n))
	}
	if threads, err := strconv.Atoi(m.Lookup("OMP_NUM_THREADS")); err == nil && threads > 1 && n/threads < 2 {
		all = append(all, note(fmt.Sprintf("unset it, so that each rank gets its cores' number, or start at most %d here", max(n/threads, 1)),
			"OMP_NUM_THREADS=%d on %d cores: the threads of two ranks would poll each other off them", threads, n))
	}
	return all
}

func plural(n int, one, many string) string {
	if n <= 1 {
		return one
	}
	return many
}

func (m *Machine) checkMemory(context.Context) []Finding {
	info := m.read("/proc/meminfo")
	total, free := kilobytes(field(info, "MemTotal")), kilobytes(field(info, "MemAvailable"))
	if total == 0 {
		return []Finding{note("", "size unknown")}
	}
	all := good("%.1f GiB, %.1f GiB available", total/(1<<20), free/(1<<20))
	if limit, group := m.groupMemory(); limit > 0 && limit/1024 < total {
		all = append(all, note("start only as many ranks here as fit in that, or ask for a larger share", "the container or control group (%s) may use %.1f GiB", group, limit/(1<<30)))
	}
	if free < total/20 {
		all = append(all, problem("end what is not needed: the kernel ends processes when nothing is left", "%.1f %% of the memory is available", free/total*100))
	}
	return all
}

func kilobytes(s string) float64 {
	f := strings.Fields(s)
	if len(f) == 0 {
		return 0
	}
	n, err := strconv.ParseFloat(f[0], 64)
	if err != nil {
		return 0
	}
	return n
}

func (m *Machine) checkLimits(context.Context) []Finding {
	limits := m.read("/proc/self/limits")
	var all []Finding
	soft := func(name string) (int, bool) {
		f := strings.Fields(field(limits, name))
		if len(f) == 0 {
			return 0, false
		}
		n, err := strconv.Atoi(f[0])
		return n, err == nil
	}
	if n, ok := soft("Max open files"); ok && n < 4096 {
		all = append(all, note("ulimit -n 65536, or LimitNOFILE= of the service", "%d open files: too few for jobs of several hundred ranks", n))
	}
	if n, ok := soft("Max locked memory"); ok && n < 64<<20 {
		all = append(all, note("ulimit -l unlimited, only where network cards with RDMA or pinned GPU buffers are used", "%d KiB may be locked", n>>10))
	}
	if n, ok := soft("Max address space"); ok {
		f := note("ulimit -v unlimited, where the shell or the batch system set it", "%.1f GiB of address space: frameworks reserve far more than they use, CUDA above all", float64(n)/(1<<30))
		if n < 4<<30 {
			f.State = Problem
		}
		all = append(all, f)
	}
	if len(all) == 0 {
		return good("open files, locked memory and address space are ample")
	}
	return all
}

func (m *Machine) checkSharedMemory(context.Context) []Finding {
	size, free, err := space(filepath.Join(m.Root, "/dev/shm"))
	if err != nil {
		return []Finding{note("hora itself needs none: its segments are memfds", "/dev/shm is missing: DataLoader workers of PyTorch will fail")}
	}
	if size < 256<<20 {
		return []Finding{note("docker run --shm-size=2g; hora itself needs none: its segments are memfds",
			"/dev/shm has %d MiB: DataLoader workers of PyTorch may fail", size>>20)}
	}
	return good("/dev/shm has %.1f GiB, %.1f GiB free", float64(size)/(1<<30), float64(free)/(1<<30))
}

func (m *Machine) checkRights(context.Context) []Finding {
	status := m.read("/proc/self/status")
	var all []Finding
	if field(status, "Seccomp") == "2" {
		all = append(all, note("if hora says that memfd or pidfd is refused, allow memfd_create, pidfd_open and sched_setaffinity in the profile",
			"a seccomp filter is active (a container, usually)"))
	}
	if scope := m.read("/proc/sys/kernel/yama/ptrace_scope"); scope == "2" || scope == "3" {
		all = append(all, note("nothing: hora does not need it; debuggers do", "ptrace is restricted (scope %s)", scope))
	}
	if len(all) == 0 {
		return good("no filter of system calls, no restriction of ptrace")
	}
	return all
}
