package protocol

import (
	"fmt"
	"strconv"
	"strings"
	"syscall"
)

// Exit codes of the launcher. docs/exit-codes.md is their table.
const (
	ExitUsage       = 2
	ExitNoHost      = 68
	ExitHost        = 69
	ExitBug         = 70
	ExitSystem      = 71
	ExitLogs        = 73
	ExitTimeout     = 75
	ExitNotRunnable = 126
	ExitNotFound    = 127
	ExitSignal      = 128 // plus the signal's number
)

// Error is a job that could not begin: one sentence and the exit code for it.
type Error struct {
	Code int
	Text string
}

func (e *Error) Error() string { return e.Text }

// Fault returns an Error.
func Fault(code int, format string, a ...any) *Error { return &Error{code, fmt.Sprintf(format, a...)} }

// SignalName names a signal as kill -l does.
func SignalName(s syscall.Signal) string {
	names := map[syscall.Signal]string{
		syscall.SIGHUP: "SIGHUP", syscall.SIGINT: "SIGINT", syscall.SIGQUIT: "SIGQUIT", syscall.SIGILL: "SIGILL",
		syscall.SIGTRAP: "SIGTRAP", syscall.SIGABRT: "SIGABRT", syscall.SIGBUS: "SIGBUS", syscall.SIGFPE: "SIGFPE",
		syscall.SIGKILL: "SIGKILL", syscall.SIGUSR1: "SIGUSR1", syscall.SIGSEGV: "SIGSEGV", syscall.SIGUSR2: "SIGUSR2",
		syscall.SIGPIPE: "SIGPIPE", syscall.SIGALRM: "SIGALRM", syscall.SIGTERM: "SIGTERM", syscall.SIGCONT: "SIGCONT",
		syscall.SIGSTOP: "SIGSTOP", syscall.SIGTSTP: "SIGTSTP", syscall.SIGXCPU: "SIGXCPU", syscall.SIGXFSZ: "SIGXFSZ",
		syscall.SIGSYS: "SIGSYS",
	}
	if n, ok := names[s]; ok {
		return n
	}
	return fmt.Sprintf("signal %d", int(s))
}

// CommandName returns how messages write a command: quoted where its end would not be seen.
func CommandName(command string) string {
	if strings.ContainsAny(command, " \t\n\"'") {
		return strconv.Quote(command)
	}
	return command
}

// JobOver is the reason by which a hub refuses agents that come when the job has ended.
const JobOver = "the job has ended"
