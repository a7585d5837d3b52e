package launch

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

	"hora/event"
)

// A launcher that is killed is outlived by its agents, which end all that they have started; an agent that is killed by
// the launcher. Where both are killed at once, workers end by the parent-death signal, and a third process of ours, the
// guard, ends what the workers had started and removes the secret. What dies with all three is swept by the next agent of
// the same user on the host.

// guardFlag tells an agent which of its files the guard listens to: it holds that open as long as it lives.
const guardFlag = "--guard"

// guard is the launcher's end of one.
type guard struct {
	r, w    *os.File // a pipe: every launcher and agent has its end w open, the guard reads r
	process *os.Process
}

// openGuard makes what agents are given; the guard itself starts when the workers have been.
func (j *job) openGuard() error {
	if j.spec.Guard == "" {
		return nil
	}
	r, w, err := os.Pipe()
	if err != nil {
		return fault(ExitSystem, "open pipe to the guard: %v: raise the limit with ulimit -n", err)
	}
	j.guard = &guard{r: r, w: w}
	return nil
}

// say tells the guard something. Its pipe takes more than a job ever says.
func (g *guard) say(format string, v ...any) {
	if g != nil {
		fmt.Fprintf(g.w, format+"\n", v...)
	}
}

// startGuard starts it under a name of its own, and without the environment: neither whoever kills all processes called
// hora, nor whoever ends what carries a job's variables, takes it for one of them.
func (j *job) startGuard() {
	g := j.guard
	if g == nil {
		return
	}
	temp, err := filepath.Abs(j.spec.Temp)
	if err != nil {
		temp = j.spec.Temp
	}
	g.process, err = os.StartProcess(j.spec.Guard, []string{"job-guard", "__guard", temp}, &os.ProcAttr{
		Dir: "/", Env: []string{}, Files: []*os.File{g.r, nil, nil}, Sys: detached(),
	})
	if err != nil {
		j.event(&event.Warning{Text: fmt.Sprintf("start the guard: %v: what workers start may stay when launcher and agent are killed together", err)})
	}
}

// close ends the guard: nothing is left.
func (g *guard) close() {
	if g == nil {
		return
	}
	if g.process != nil {
		_ = g.process.Kill() // it may have been ended with all the rest
		_, _ = g.process.Wait()
	}
	g.w.Close()
	g.r.Close()
}

// Guard is the guard: when launcher and agents are gone it ends what carries the variables of their workers, and removes
// their secrets under temp. A launcher that has seen to that itself ends the guard first.
func Guard(in io.Reader, temp string) {
	var agents []int
	for s := bufio.NewScanner(in); s.Scan(); {
		if pid, err := strconv.Atoi(strings.TrimPrefix(s.Text(), "agent ")); err == nil {
			agents = append(agents, pid)
		}
	}
	for _, pid := range agents {
		endMarked(filepath.Join(temp, strings.TrimSuffix(secretPattern(pid), "*")))
		forgetSecrets(temp, pid)
	}
}

// sweepDead ends and removes what killed agents of this user have left under temp: folders whose owner holds them no more,
// and the processes that were given them.
func sweepDead(temp string) {
	dirs, _ := filepath.Glob(filepath.Join(temp, "hora-[0-9]*-[0-9]*"))
	for _, dir := range dirs {
		f := abandoned(dir)
		if f == nil {
			continue
		}
		endMarked(dir + "/")
		_ = os.Remove(filepath.Join(dir, "secret"))
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
	// An agent in another container may use the same folder for temporary files: its lock is seen here, its process is not.
	if err != nil || isAgent(pid) || syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) != nil {
		f.Close()
		return nil
	}
	return f
}

// isAgent says whether a process is an agent, of whatever job.
func isAgent(pid int) bool {
	line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	return err == nil && bytes.Contains(line, []byte("\x00__agent\x00"))
}

// endMarked ends all processes of this user that were given a secret's file under a prefix, until there are none.
func endMarked(prefix string) {
	end := time.Now().Add(10 * time.Second)
	for quiet := 0; quiet < 2 && time.Now().Before(end); quiet++ {
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
