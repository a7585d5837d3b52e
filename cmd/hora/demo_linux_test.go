package main

import (
	"bytes"
	"io"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// TestDemoOnATerminal: forty columns are enough for every line, NO_COLOR is heeded, the
// last state of the progress stays, and Ctrl-C takes nothing away but the program.
func TestDemoOnATerminal(t *testing.T) {
	for _, c := range []struct {
		extra, epochs string
		interrupt     bool
		code          int
	}{
		{"NO_COLOR=", "2", false, 0},
		{"NO_COLOR=1", "2", false, 0},
		{"NO_COLOR=1", "100000", true, 130},
	} {
		master, slave := terminal(t)
		if err := unix.IoctlSetWinsize(int(slave.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: 40}); err != nil {
			t.Fatal(err)
		}
		self, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(self, "demo", "--ranks", "--epochs", c.epochs)
		cmd.Args[0] = "hora"
		cmd.Env = append(os.Environ(), "HORA_TEST_PROGRAM=1", "TERM=xterm", c.extra)
		cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, slave
		cmd.SysProcAttr = &unix.SysProcAttr{Setsid: true, Setctty: true}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		late := time.AfterFunc(30*time.Second, func() { cmd.Process.Kill() })
		var shown []byte
		read := make(chan struct{})
		go func() {
			defer close(read)
			chunk := make([]byte, 4096)
			for {
				n, err := master.Read(chunk)
				if err != nil {
					return // the last process has closed its end
				}
				if shown = append(shown, chunk[:n]...); c.interrupt && bytes.Contains(shown, []byte("epoch")) {
					c.interrupt = false
					master.Write([]byte{3})
				}
			}
		}()
		slave.Close()
		_ = cmd.Wait() // its exit code tells
		late.Stop()
		<-read
		text := string(shown)
		if got := cmd.ProcessState.ExitCode(); got != c.code {
			t.Errorf("%s --epochs %s: exit code %d, want %d: %q", c.extra, c.epochs, got, c.code, text)
		}
		if colour := strings.Contains(text, "\x1b[32m"); colour != (c.extra == "NO_COLOR=") {
			t.Errorf("%s: colour %v in %q", c.extra, colour, text)
		}
		rows := strings.Split(regexp.MustCompile(`\x1b\[[0-9]*[A-Za-z]`).ReplaceAllString(text, ""), "\n")
		for _, row := range rows {
			row = strings.TrimRight(row, "\r")
			if row = row[strings.LastIndex(row, "\r")+1:]; len([]rune(row)) > 40 {
				t.Errorf("%q does not fit forty columns", row)
			}
		}
		last := text[strings.LastIndex(text, "\x1b[J")+1:]
		if !strings.Contains(last, "] ") || !strings.Contains(last, "rank 1  ") || strings.Contains(last, "^C") {
			t.Errorf("--epochs %s: the last state does not stay: %q", c.epochs, last)
		}
	}
}

// TestDemoWhereMemfdIsRefused has the kernel refuse memfd_create, as the profile of a
// container may: the ranks go by TCP, and the screen says so.
func TestDemoWhereMemfdIsRefused(t *testing.T) {
	refused := make(chan result)
	go func() {
		runtime.LockOSThread() // never unlocked: the filter ends with the thread
		if err := refuse(unix.SYS_MEMFD_CREATE); err != nil {
			refused <- result{code: -1, err: err.Error()}
			return
		}
		self, _ := os.Executable()
		cmd := exec.Command(self, "demo", "--epochs", "1")
		cmd.Env = append(os.Environ(), "HORA_TEST_PROGRAM=1")
		var out, errs bytes.Buffer
		cmd.Stdout, cmd.Stderr = io.Writer(&out), &errs
		_ = cmd.Run() // its exit code tells
		refused <- result{cmd.ProcessState.ExitCode(), out.String(), errs.String()}
	}()
	r := <-refused
	if r.code != 0 {
		t.Fatalf("exit code %d: %s", r.code, r.err)
	}
	goesByTCP(t, r.out, r.err)
}

// refuse has the kernel answer a system call of this thread, and of processes that it
// starts, with EPERM.
func refuse(call uint32) error {
	filter := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS}, // the call's number
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: call, Jf: 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
	}
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	return unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(&program)), 0, 0)
}
