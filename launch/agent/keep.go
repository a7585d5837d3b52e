package agent

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"

	"hora/launch/machine"
	"hora/launch/protocol"
)

// Keep runs an agent as a child, with this process's standard streams, and ends with it. What an agent that was killed
// leaves behind on its host, detached grandchildren and the job's secret under temp, it ends and removes; on the
// launcher's own host the launcher does so. Signals are passed on, and the files of more are handed to the agent. Keep
// returns the agent's exit code.
func Keep(argv []string, temp string, signals <-chan os.Signal, more ...*os.File) (int, error) {
	return keep(argv, temp, signals, &os.ProcAttr{Files: more}, func(int) {})
}

// KeepBound does what Keep does, for an agent that would not notice this process's end by its streams: the agent gets
// SIGTERM then. One file more is handed to the agent, unless that is nil, and started hears of its process.
func KeepBound(argv []string, temp string, signals <-chan os.Signal, more *os.File, started func(pid int)) (int,
	error,
) {
	runtime.LockOSThread() // which forks, and lives as long as the agent
	defer runtime.UnlockOSThread()
	attr := &os.ProcAttr{Sys: machine.Bound()}
	if more != nil {
		attr.Files = []*os.File{more}
	}
	return keep(argv, temp, signals, attr, started)
}

func keep(argv []string, temp string, signals <-chan os.Signal, attr *os.ProcAttr, started func(pid int)) (int, error) {
	machine.Adopt()
	attr.Files = append([]*os.File{os.Stdin, os.Stdout, os.Stderr}, attr.Files...)
	agent, err := os.StartProcess(argv[0], argv, attr)
	if err != nil {
		return protocol.ExitSystem, fmt.Errorf("start the agent %s: %w", argv[0], err)
	}
	started(agent.Pid)
	ended := make(chan *os.ProcessState, 1)
	go func() {
		state, _ := agent.Wait() // nil when it could not be waited for: then it is gone too
		ended <- state
	}()
	for {
		select {
		case s := <-signals:
			if s == syscall.SIGTERM || s == syscall.SIGINT || s == syscall.SIGQUIT {
				_ = agent.Signal(s) // it may have ended
			}
		case state := <-ended:
			machine.Sweep()
			Forget(temp, agent.Pid)
			if state == nil || state.ExitCode() < 0 {
				return protocol.ExitBug, fmt.Errorf("the agent was killed (%v): look for what killed it, e.g. in dmesg", state)
			}
			return state.ExitCode(), nil
		}
	}
}

// secretPattern names the directory of an agent's secret, for os.MkdirTemp and filepath.Glob.
func secretPattern(pid int) string { return "hora-" + strconv.Itoa(pid) + "-*" }

// Forget removes what an agent that was killed could not.
func Forget(temp string, pid int) {
	left, _ := filepath.Glob(filepath.Join(temp, secretPattern(pid)))
	for _, dir := range left {
		_ = os.RemoveAll(dir) // of an ended job; nobody is left to be told
	}
}
