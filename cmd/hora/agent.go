package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"hora/internal/secret"
	"hora/launch"
	"hora/launch/agent"
	"hora/launch/ssh"
)

// agentCommand is the hidden word that makes this program a host's agent. It is looked at before anything else is set
// up, since every job waits for it.
const agentCommand = launch.AgentCommand

// keptFlag says to an agent on another host that a process of ours looks after it.
const keptFlag = "--kept"

// keep is that process. door, where it is not 0, is the file at which the agent waits for launchers.
func keep(args []string, temp string, signals <-chan os.Signal, door int) int {
	var more []*os.File
	if door > 0 {
		more = append(more, os.NewFile(uintptr(door), "door"))
	}
	return front(func(self string) (int, error) {
		return agent.Keep(append([]string{self, agentCommand, keptFlag}, args...), temp, signals, more...)
	})
}

// front runs a process that is only before an agent.
func front(run func(self string) (int, error)) int {
	self, err := os.Executable()
	code := launch.ExitSystem
	if err == nil {
		code, err = run(self)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "hora agent:", err)
	}
	return code
}

// coordinatorCommand makes it a job's coordinator, where that is a process of its own.
const coordinatorCommand = launch.CoordinatorCommand

func coordinator() int {
	// It ends with its input.
	signal.Ignore(syscall.SIGPIPE, syscall.SIGHUP, syscall.SIGINT, syscall.SIGTERM, syscall.SIGQUIT)
	if err := launch.Coordinate(os.Stdin, os.Stdout, os.NewFile(3, "door")); err != nil {
		fmt.Fprintln(os.Stderr, "hora coordinator:", err)
		return launch.ExitBug
	}
	return 0
}

// guardCommand makes it what looks after a job whose launcher and agents have been killed.
const guardCommand = "__guard"

func guard(args []string) int {
	signal.Ignore(syscall.SIGHUP, syscall.SIGINT, syscall.SIGTERM, syscall.SIGQUIT) // it ends with its input
	_ = os.WriteFile("/proc/self/comm", []byte("job-guard"), 0)                     // for ps; a system without it shows another name
	agent.Guard(os.Stdin, args[0])
	return 0
}

// lastingAgent runs an agent that waits for another launcher when its own dies.
func lastingAgent(cfg agent.Config, door int, wait time.Duration) error {
	var line [2 * secret.Bytes]byte
	if _, err := io.ReadFull(os.Stdin, line[:]); err != nil {
		return fmt.Errorf("read the job's secret: %w", err)
	}
	s, err := secret.Parse(line[:])
	if err != nil {
		return err
	}
	f := os.NewFile(uintptr(door), "door")
	ln, err := net.FileListener(f)
	if err != nil {
		return fmt.Errorf("listen for launchers: %w", err)
	}
	f.Close()
	host, _ := os.Hostname()
	stream := agent.Last(ln, s, host, wait)
	defer stream.Close()
	cfg.In, cfg.Out, cfg.Away = stream, stream, stream.Away
	return agent.Run(cfg)
}

func hostAgent(args []string) int {
	cfg := agent.Config{In: os.Stdin, Out: os.Stdout, Temp: os.TempDir(), Getenv: os.Getenv}
	cfg.Home, _ = os.UserHomeDir()
	kept, door, wait := false, 0, time.Duration(0)
	for _, a := range args {
		name, value, _ := strings.Cut(a, "=")
		switch name {
		case "--stdin":
			cfg.Input = os.NewFile(3, "stdin")
			cfg.InputRank, _ = strconv.Atoi(value)
		case "--remote":
			cfg.Remote = true
		case "--guard": // open as long as this process lives, and in no other
			if fd, err := strconv.Atoi(value); err == nil {
				syscall.CloseOnExec(fd)
			}
		case ssh.StayFlag:
			name, limit, _ := strings.Cut(value, ",")
			wait, _ = time.ParseDuration(limit)
			return front(func(self string) (int, error) {
				return agent.Stay([]string{self, agentCommand, "--remote"}, name, wait, os.Stdin, os.Stdout)
			})
		case ssh.ReturnFlag:
			return front(func(string) (int, error) { return agent.Return(value, os.Stdin, os.Stdout) })
		case agent.LastFlag:
			fd, limit, _ := strings.Cut(value, ",")
			door, _ = strconv.Atoi(fd)
			wait, _ = time.ParseDuration(limit)
		case keptFlag:
			kept = true
		}
	}
	// An agent ends when its launcher does, never by what a terminal sends; caught signals are default ones again in
	// the workers, ignored ones would not be.
	caught := make(chan os.Signal, 8)
	signal.Notify(caught, syscall.SIGPIPE, syscall.SIGHUP, syscall.SIGINT, syscall.SIGTERM, syscall.SIGQUIT)
	defer signal.Stop(caught)
	cfg.Signals = caught
	if cfg.Remote && !kept {
		return keep(args, cfg.Temp, caught, door)
	}
	err := error(nil)
	if door > 0 {
		err = lastingAgent(cfg, door, wait)
	} else {
		err = agent.Run(cfg)
	}
	if errors.Is(err, syscall.EPIPE) {
		return 0 // the launcher is gone, by `hora … | head` for one: nobody is there to be told
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "hora agent:", err)
		return launch.ExitBug
	}
	return 0
}
