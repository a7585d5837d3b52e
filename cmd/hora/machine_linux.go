package main

import (
	"runtime"

	"golang.org/x/sys/unix"
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

// freeMemory is what may be used without swapping, 0 when unknown.
func freeMemory() uint64 {
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil {
		return 0
	}
	return (uint64(info.Freeram) + uint64(info.Bufferram)) * uint64(info.Unit) / 10 * 9
}

func firstCores(n int) []int {
	cores := make([]int, n)
	for i := range cores {
		cores[i] = i
	}
	return cores
}
