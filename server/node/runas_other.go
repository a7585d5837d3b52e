//go:build !linux

package node

import (
	"errors"
	"io/fs"
	"os"
	"syscall"
)

func mayRunAs() error {
	return errors.New("--run-as is for nodes with Linux: start hora as the user whom jobs are to run as")
}

func ownerOf(fs.FileInfo) uint32 { return uint32(os.Geteuid()) }

func (u *User) as(f func() error) error { return f() }

func (u *User) process() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} }
