package agent

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"hora/launch/protocol"
)

// refusal says why a command could not be started in dir, what to do about it, and with which code the launcher ends.
// path is where the command was found, "" when it was not.
func refusal(command, path, dir string, err error) (code int, why string) {
	missing := errors.Is(err, fs.ErrNotExist) || errors.Is(err, exec.ErrNotFound)
	interpreter := ""
	if path != "" {
		interpreter = shebang(path)
	}
	switch {
	case missing && strings.HasSuffix(interpreter, "\r"):
		return protocol.ExitNotFound, "its first line ends in a carriage return, as Windows writes it: run sed -i 's/\\r$//' on it, or put its interpreter before it"
	case missing && interpreter != "":
		return protocol.ExitNotFound, fmt.Sprintf("its first line asks for %s, which is not there: correct it, or put an interpreter before the command", interpreter)
	case missing && isFile(filepath.Join(dir, command)) && !strings.ContainsRune(command, '/'):
		return protocol.ExitNotFound, fmt.Sprintf("it is a file and no command: write its interpreter before it (python %[1]s), or ./%[1]s", command)
	case missing && sentence(command, dir):
		return protocol.ExitNotFound, "there is no such command, but its first word is one: write the words without quotes around all of them"
	case missing:
		return protocol.ExitNotFound, "there is no such command: install it there, or give its full path"
	case errors.Is(err, errFolder):
		return protocol.ExitNotRunnable, "it is a folder: name the program in it"
	case errors.Is(err, fs.ErrPermission):
		return protocol.ExitNotRunnable, "it is not executable: run chmod +x on it, or put its interpreter before it"
	case errors.Is(err, syscall.ENOEXEC):
		return protocol.ExitNotRunnable, "it is no program for this machine and has no #! line: put its interpreter before it, or use a build for this machine"
	case errors.Is(err, syscall.EMFILE), errors.Is(err, syscall.ENFILE):
		return protocol.ExitSystem, fmt.Sprintf("%v: raise the limit with ulimit -n", err)
	case errors.Is(err, syscall.EAGAIN):
		return protocol.ExitSystem, fmt.Sprintf("%v: there are too many processes: raise the limit with ulimit -u, or start fewer ranks", err)
	case errors.Is(err, syscall.ENOMEM):
		return protocol.ExitSystem, fmt.Sprintf("%v: free memory there, or start fewer ranks", err)
	case errors.Is(err, syscall.E2BIG):
		return protocol.ExitSystem, fmt.Sprintf("%v: the command line and the environment are too large: unset what is not needed", err)
	}
	return protocol.ExitSystem, fmt.Sprintf("%v: mend that on the host, or leave the host away", err)
}

// sentence says of a command that it is several words in one, the first of which can be started.
func sentence(command, dir string) bool {
	words := strings.Fields(command)
	if len(words) < 2 {
		return false
	}
	if strings.ContainsRune(words[0], '/') && !filepath.IsAbs(words[0]) {
		words[0] = filepath.Join(dir, words[0])
	}
	_, err := exec.LookPath(words[0])
	return err == nil
}

// errFolder is a folder where a program should be.
var errFolder = errors.New("is a folder")

func isFile(path string) bool {
	st, err := os.Stat(path)
	return err == nil && st.Mode().IsRegular()
}

// shebang returns the interpreter that a script's first line names, "" for anything else.
func shebang(path string) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	line, err := bufio.NewReaderSize(f, 256).ReadSlice('\n')
	text, ok := strings.CutPrefix(string(line), "#!")
	if !ok || err != nil {
		return ""
	}
	text = strings.Trim(text, " \t\n")
	name, _, _ := strings.Cut(text, " ")
	return name
}
