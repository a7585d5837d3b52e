//go:build !linux

package main

import (
	"runtime"

	"golang.org/x/sys/unix"
)

// guardProgram is none where a process's variables cannot be read.
const guardProgram = ""

// How a terminal's settings are read, and changed once what was written has been shown.
const (
	getTerminal = unix.TIOCGETA
	setTerminal = unix.TIOCSETAW
)

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
