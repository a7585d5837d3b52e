package main

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"hora/launch"
)

// apart is the sentence about a Python script that ran on several ranks as if each were alone, "" where there is
// nothing to say. Only Python is spoken of: who starts hostname, or a shell, on each rank means that.
func apart(command []string, out *launch.Outcome) string {
	script := pythonScript(command)
	if script == "" || !out.Apart {
		return ""
	}
	return fmt.Sprintf("%s has not joined the job: it ran on each rank for itself, as if alone: call hora.init(), hvd.init() or torch.distributed's init_process_group in it, unless it shares out its work by RANK alone", script)
}

var interpreter = regexp.MustCompile(`^(python|pypy|ipython)[0-9.]*$`)

// pythonScript is the script or module that a command has Python run; "" where it runs something else, or code given on
// the command line.
func pythonScript(command []string) string {
	at := slices.IndexFunc(command, func(word string) bool { return interpreter.MatchString(filepath.Base(word)) })
	if at < 0 {
		if name := command[0]; strings.HasSuffix(name, ".py") || startsPython(name) {
			return filepath.Base(name)
		}
		return ""
	}
	for rest := command[at+1:]; len(rest) > 0; rest = rest[1:] {
		switch word := rest[0]; {
		case word == "-m" && len(rest) > 1:
			return module(rest[1])
		case strings.HasPrefix(word, "-m"):
			return module(word[2:])
		case word == "-X", word == "-W":
			rest = rest[min(1, len(rest)-1):]
		case word == "-", strings.HasPrefix(word, "-c"), strings.HasPrefix(word, "-V"),
			strings.HasPrefix(word, "-h"), strings.HasPrefix(word, "--"):
			return ""
		case !strings.HasPrefix(word, "-"):
			return filepath.Base(word)
		}
	}
	return ""
}

// module is a module that -m names; hora's own are the start of something else, or functions that hora.run tells of.
func module(name string) string {
	if name == "hora" || strings.HasPrefix(name, "hora.") {
		return ""
	}
	return name
}

// startsPython says whether a program is a script that names Python in its first line.
func startsPython(name string) bool {
	path, err := exec.LookPath(name)
	if err != nil {
		return false
	}
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	line, _ := bufio.NewReaderSize(f, 512).ReadSlice('\n')
	return strings.HasPrefix(string(line), "#!") && strings.Contains(string(line), "python")
}
