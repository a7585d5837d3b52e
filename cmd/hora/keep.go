package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"hora/server/node"
)

// keepJob runs one attempt of a submitted job in the folder that its one argument names, and outlives the server that
// started it. hora run is called in this process: its end is the job's.
func keepJob(args []string) int {
	if len(args) != 1 {
		fmt.Fprintln(os.Stderr, "hora: "+node.KeepCommand+" is what a server calls: use hora submit")
		return 2
	}
	signal.Ignore(syscall.SIGHUP)
	// Until hora run listens to it, and after, a SIGTERM must not end the process that tells how the job ended.
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	self := node.Process{
		Setenv: os.Setenv, Unsetenv: os.Unsetenv, Environ: os.Environ,
		Kill: func() { _ = syscall.Kill(os.Getpid(), syscall.SIGKILL) },
	}
	err := node.Keep(args[0], self, func(args []string, out, errs io.Writer) int {
		in, err := os.Open(os.DevNull)
		if err != nil {
			fmt.Fprintln(errs, "hora:", err)
			return 71
		}
		defer in.Close()
		p := &program{ctx: context.Background(), getenv: os.Getenv, stdio: stdio{in, out, errs}, notice: node.Notice}
		return p.main(append([]string{"hora"}, args...))
	})
	switch {
	case errors.Is(err, node.ErrTaken):
		return 0
	case err != nil:
		fmt.Fprintln(os.Stderr, "hora:", err)
		return 71
	}
	return 0
}
