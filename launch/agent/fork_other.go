//go:build !linux

package agent

import (
	"syscall"
)

type forker struct{}

func newForker() *forker { return &forker{} }

func (f *forker) close() {}

// fork starts a program in a process group of its own.
func (f *forker) fork(path string, argv []string, dir string, env []string, files [3]uintptr, _ []int) (int, error) {
	return syscall.ForkExec(path, argv, &syscall.ProcAttr{
		Dir: dir, Env: env, Files: files[:], Sys: &syscall.SysProcAttr{Setpgid: true},
	})
}
