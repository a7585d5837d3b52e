//go:build !linux

package main

import "runtime"

// guardProgram is none where a process's variables cannot be read.
const guardProgram = ""

// usableCores assumes that this process may run on all cores.
func usableCores() []int {
	cores := make([]int, runtime.NumCPU())
	for i := range cores {
		cores[i] = i
	}
	return cores
}

// freeMemory is unknown here.
func freeMemory() uint64 { return 0 }
