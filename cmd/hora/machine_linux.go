package main

import (
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"hora/launch/machine"
)

// guardProgram is this program by a name that does not tell which.
const guardProgram = "/proc/self/exe"

// How a terminal's settings are read, and changed once what was written has been shown.
const (
	getTerminal = unix.TCGETS
	setTerminal = unix.TCSETSW
)

// usableCores are the cores that this process may run on.
func usableCores() []int {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		return firstCores(runtime.NumCPU())
	}
	var cores []int
	for cpu := range len(set) * 64 {
		if set.IsSet(cpu) {
			cores = append(cores, cpu)
		}
	}
	return cores
}

// freeMemory is what may be used without swapping and before the kernel ends somebody, 0
// when unknown: what the system has or could free, or what a control group leaves us.
func freeMemory() uint64 { return freeMemoryUnder("/") }

func freeMemoryUnder(root string) uint64 {
	left := numberBehind(filepath.Join(root, "/proc/meminfo"), "MemAvailable:") << 10
	for _, dir := range machine.Cgroup(root, "memory") {
		limit, used := numberIn(filepath.Join(dir, "memory.max")), numberIn(filepath.Join(dir, "memory.current"))
		if limit == 0 { // version 1
			limit, used = numberIn(filepath.Join(dir, "memory.limit_in_bytes")), numberIn(filepath.Join(dir, "memory.usage_in_bytes"))
		}
		if limit == 0 {
			continue
		}
		// What was read from files can be dropped.
		used -= min(used, numberBehind(filepath.Join(dir, "memory.stat"), "inactive_file"))
		if room := max(limit-min(used, limit), 10); left == 0 || room < left {
			left = room
		}
	}
	return left / 10 * 9
}

// numberIn is the number that a file holds; none, as "max" is, is 0.
func numberIn(path string) uint64 {
	text, _ := os.ReadFile(path)
	n, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// numberBehind is the number behind a name that begins a line of a file, 0 where there is none.
func numberBehind(path, name string) uint64 {
	text, _ := os.ReadFile(path)
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); len(f) > 1 && f[0] == name {
			n, _ := strconv.ParseUint(f[1], 10, 64)
			return n
		}
	}
	return 0
}

func firstCores(n int) []int {
	cores := make([]int, n)
	for i := range cores {
		cores[i] = i
	}
	return cores
}
