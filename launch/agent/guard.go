package agent

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// A launcher that is killed is outlived by its agents, which end all that they have started; an agent that is killed by
// the launcher. Where both are killed at once, workers end by the parent-death signal, and a third process of ours, the
// guard, ends what the workers had started and removes the secret. What dies with all three is swept by the next agent
// of the same user on the host.

// Guard runs the guard: when launcher and agents are gone it ends what carries the variables of their workers, and
// removes their secrets under temp. A launcher that has seen to that itself ends the guard first.
func Guard(in io.Reader, temp string) {
	var agents []int
	for s := bufio.NewScanner(in); s.Scan(); {
		if pid, err := strconv.Atoi(strings.TrimPrefix(s.Text(), "agent ")); err == nil {
			agents = append(agents, pid)
		}
	}
	for _, pid := range agents {
		endMarked(filepath.Join(temp, strings.TrimSuffix(secretPattern(pid), "*")), 20)
		Forget(temp, pid)
	}
}

// sweepDead ends and removes what killed agents of this user have left under temp: folders whose owner holds them no
// more, and the processes that were given them.
func sweepDead(temp string) {
	dirs, _ := filepath.Glob(filepath.Join(temp, "hora-[0-9]*-[0-9]*"))
	for _, dir := range dirs {
		f := abandoned(dir)
		if f == nil {
			continue
		}
		endMarked(dir+"/", 2)
		ours, _ := filepath.Glob(filepath.Join(dir, "result.*"))
		for _, file := range append(ours, filepath.Join(dir, "secret"), filepath.Join(dir, "call")) {
			_ = os.Remove(file)
		}
		_ = os.Remove(dir) // not, where somebody keeps something else there
		f.Close()
	}
}

// abandoned opens the folder of an agent that is gone; nil when it is not, or when the folder is no such thing.
func abandoned(dir string) *os.File {
	st, err := os.Lstat(dir)
	if err != nil || !st.IsDir() || st.Mode().Perm() != 0o700 {
		return nil
	}
	if sys, ok := st.Sys().(*syscall.Stat_t); !ok || int(sys.Uid) != os.Getuid() {
		return nil
	}
	f, err := os.OpenFile(dir, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_DIRECTORY, 0)
	if err != nil {
		return nil
	}
	pid, err := strconv.Atoi(strings.Split(filepath.Base(dir), "-")[1])
	// An agent in another container may use the same folder for temporary files: its lock is seen here, its process is
	// not.
	if err != nil || isAgent(pid) || syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) != nil {
		f.Close()
		return nil
	}
	return f
}

// isAgent says whether a process is an agent, of whatever job.
func isAgent(pid int) bool {
	line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	return err == nil && (bytes.Contains(line, []byte("\x00__agent\x00")) || bytes.Contains(line, []byte("\x00agent\x00--kept\x00")))
}

// endMarked ends all processes of this user that were given a secret's file under a prefix, until so many looks in a
// row have found none: who is just being forked, or starts another program, shows no variables, on a busy machine for
// tens of milliseconds.
func endMarked(prefix string, looks int) {
	end := time.Now().Add(10 * time.Second)
	for quiet := 0; quiet < looks && time.Now().Before(end); quiet++ {
		for _, pid := range bearing("HORA_SECRET_FILE=" + prefix) {
			quiet = -1
			_ = syscall.Kill(pid, syscall.SIGKILL) // it may have ended
		}
		time.Sleep(10 * time.Millisecond) // some may have been forked meanwhile
	}
}

// bearing lists the processes with a variable that begins so.
func bearing(prefix string) (pids []int) {
	files, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil || !bytes.HasPrefix(b, []byte(prefix)) && !bytes.Contains(b, []byte("\x00"+prefix)) {
			continue
		}
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file))); err == nil && pid != os.Getpid() {
			pids = append(pids, pid)
		}
	}
	return pids
}
