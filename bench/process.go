package bench

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// runner starts the ranks of one measurement: hora's own or a peer's.
type runner struct {
	cfg      Config
	programs map[string]string // built peers
	realtime bool              // SCHED_RR is allowed
	// leastTrip is the least that a cache line took to the other core so far, in nanoseconds; 0: nobody could tell.
	leastTrip float64
}

// limit bounds one measurement of one competitor.
func (r *runner) limit() time.Duration {
	if r.cfg.Limit > 0 {
		return r.cfg.Limit
	}
	return 3 * time.Minute
}

// results are microseconds by size.
type results map[int]float64

// command prefixes argv with what binds it to a core (core < 0: nowhere) and raises it.
func (r *runner) command(ctx context.Context, core int, argv ...string) *exec.Cmd {
	var prefix []string
	if r.realtime {
		prefix = append(prefix, "chrt", "-r", "5")
	}
	if core >= 0 {
		prefix = append(prefix, "taskset", "-c", strconv.Itoa(core))
	}
	argv = append(prefix, argv...)
	return withItsOwn(exec.CommandContext(ctx, argv[0], argv[1:]...))
}

// withItsOwn gives cmd a process group, so that what it has started ends with it.
func withItsOwn(cmd *exec.Cmd) *exec.Cmd {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 5 * time.Second
	return cmd
}

// together runs commands at once and merges what they print: the slowest counts, and a
// size that one of them has not measured is left out. The first that fails ends the
// others; what all had measured until then comes with the error.
func together(ctx context.Context, cmds []*exec.Cmd, sizes []int, stop context.CancelFunc) (results, error) {
	began := time.Now()
	out := make([]printed, len(cmds))
	errs := make([]printed, len(cmds))
	failed := make([]error, len(cmds))
	var wg sync.WaitGroup
	for i, cmd := range cmds {
		cmd.Stdout, cmd.Stderr = &out[i], &errs[i]
		if err := cmd.Start(); err != nil {
			// Perhaps only because one before it has failed by now: that is told then.
			failed[i] = fmt.Errorf("start %s: %w", filepath.Base(cmd.Path), err)
			stop()
			break
		}
		wg.Add(1)
		go func() {
			defer wg.Done()
			if failed[i] = cmd.Wait(); failed[i] != nil {
				stop()
			}
		}()
	}
	wg.Wait()
	merged, told := results{}, map[int]int{}
	var problem error
	ended := false // by a signal: where another said why it ended, that was first (gloo aborts when a peer has gone)
	for i := range cmds {
		mine := results{}
		if err := mine.add(out[i].text); err != nil && problem == nil {
			problem = err
		}
		for size, us := range mine {
			merged[size] = max(merged[size], us)
			told[size]++
		}
		consequence := errors.Is(failed[i], context.Canceled) // one before it had failed when it was to start
		if failed[i] != nil && (problem == nil || ended && !consequence && !bySignal(failed[i])) {
			problem = failed[i]
			ended = bySignal(failed[i])
			if said := cause(string(errs[i].text)); said != "" {
				problem = fmt.Errorf("%w: %s", problem, said)
			}
		}
	}
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		problem = fmt.Errorf("no end after %s: it hangs", time.Since(began).Round(100*time.Millisecond))
	}
	maps.DeleteFunc(merged, func(size int, _ float64) bool { return told[size] < len(cmds) })
	for _, size := range sizes {
		if problem == nil && merged[size] == 0 {
			problem = fmt.Errorf("it ended well without a result of %s", FormatSize(size))
		}
	}
	return merged, problem
}

func bySignal(err error) bool {
	var exit *exec.ExitError
	return errors.As(err, &exit) && exit.ExitCode() < 0
}

// printed keeps the last of what a process prints: results are some dozens of lines, and
// who prints without end is not to fill the memory.
type printed struct{ text []byte }

const mostPrinted = 1 << 20

func (p *printed) Write(b []byte) (int, error) {
	p.text = append(p.text, b...)
	if len(p.text) > 2*mostPrinted {
		p.text = append([]byte(nil), p.text[len(p.text)-mostPrinted:]...)
	}
	return len(b), nil
}

// cause is the line, of what a failed process has printed, that says most: the one in which
// Go's runtime or mpirun names what happened, which rules and dumps follow, else the last.
func cause(text string) string {
	last := ""
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		for _, sign := range []string{"panic: ", "fatal error: ", "SIGSEGV: ", "SIGBUS: ", "SIGQUIT: ", "mpirun noticed that ", "error while loading shared libraries"} {
			if strings.Contains(line, sign) {
				return line
			}
		}
		if strings.Trim(line, "-*=") != "" {
			last = line
		}
	}
	return last
}

// add reads "result OP BYTES CALLS MICROSECONDS ok" lines and keeps the slowest. A wrong
// result is no measurement, and the others stand.
func (rs results) add(text []byte) (problem error) {
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(line)
		if len(f) != 6 || f[0] != "result" {
			continue
		}
		size, err := strconv.Atoi(f[2])
		us, err2 := strconv.ParseFloat(f[4], 64)
		if err != nil || err2 != nil || !(us > 0) || math.IsInf(us, 0) {
			return fmt.Errorf("read result %q: not a size and a time", strings.TrimSpace(line))
		}
		if f[5] != "ok" {
			if problem == nil {
				problem = fmt.Errorf("verify %s of %s: the result is wrong", f[1], FormatSize(size))
			}
			continue
		}
		rs[size] = max(rs[size], us)
	}
	return problem
}

// core is where rank r of np runs: its own core while there are enough.
func (r *runner) core(rank, np int) int {
	if np > len(r.cfg.Cores) {
		return -1
	}
	return r.cfg.Cores[rank]
}

func sizeList(sizes []int) string {
	text := make([]string, len(sizes))
	for i, n := range sizes {
		text[i] = strconv.Itoa(n)
	}
	return strings.Join(text, ",")
}

// hora runs np of our own ranks, which find each other through rank 0's address.
func (r *runner) hora(parent context.Context, op, link string, np int, sizes []int) (results, error) {
	ctx, stop := context.WithTimeout(parent, r.limit())
	defer stop()
	dir, err := os.MkdirTemp("", "hora-bench-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	env, err := rankEnvironment(dir, np)
	if err != nil {
		return nil, err
	}
	var cmds []*exec.Cmd
	for rank := range np {
		argv := append(append([]string{}, r.cfg.Self...), op, link, sizeList(sizes))
		cmd := r.command(ctx, r.core(rank, np), argv...)
		cmd.Env = append(append(append([]string{}, r.cfg.Environ...), env...), "HORA_RANK="+strconv.Itoa(rank),
			"HORA_LOCAL_RANK="+strconv.Itoa(rank))
		cmds = append(cmds, cmd)
	}
	return together(ctx, cmds, sizes, stop)
}

// peer runs one configuration of a competitor: openmpi, openmpi-ring, impi, gloo-ring, …
func (r *runner) peer(parent context.Context, which, op, link string, np int, sizes []int) (results, error) {
	ctx, stop := context.WithTimeout(parent, r.limit())
	defer stop()
	switch programOf(which) {
	case "roofline":
		cmd := r.command(ctx, -1, r.programs["roofline"], sizeList(sizes))
		cmd.Env = r.cfg.Environ
		return together(ctx, []*exec.Cmd{cmd}, sizes, stop)
	case "openmpi":
		return together(ctx, []*exec.Cmd{r.mpirun(ctx, which, op, link, np, sizes)}, sizes, stop)
	case "impi":
		return together(ctx, []*exec.Cmd{r.hydra(ctx, op, link, np, sizes)}, sizes, stop)
	}
	dir, err := os.MkdirTemp("", "hora-gloo-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	algorithm := strings.TrimPrefix(which, "gloo-")
	if spin, ok := strings.CutPrefix(which, "gloo_spin-"); ok {
		algorithm = "spin-" + spin
	}
	var cmds []*exec.Cmd
	for rank := range np {
		cmd := r.command(ctx, r.core(rank, np), r.programs["gloo"], strconv.Itoa(rank), strconv.Itoa(np), dir,
			algorithm, op, sizeList(sizes))
		cmd.Env = r.cfg.Environ
		cmds = append(cmds, cmd)
	}
	return together(ctx, cmds, sizes, stop)
}

// mpirun is Open MPI under one of mpiSettings.
func (r *runner) mpirun(ctx context.Context, which, op, link string, np int, sizes []int) *exec.Cmd {
	args := []string{"mpirun", "--allow-run-as-root", "-np", strconv.Itoa(np)}
	if np > len(r.cfg.Cores) {
		// It yields by itself where ranks share processors, but goes by the machine's: under
		// an affinity to fewer of them it would poll a whole turn of the scheduler each time.
		args = append(args, "--oversubscribe", "--bind-to", "none", "--mca", "mpi_yield_when_idle", "1")
	} else if cores := r.cfg.Cores[:np]; cores[np-1] == np-1 {
		args = append(args, "--bind-to", "core")
	} else {
		// It counts the machine's cores, and would leave those that this process may run on.
		args = append(args, "--cpu-list", sizeList(cores), "--bind-to", "cpu-list:ordered")
	}
	set := settingOf(which)
	if link == "tcp" && set.only != "tcp" {
		args = append(args, "--mca", "btl", "tcp,self", "--mca", "btl_tcp_if_include", "lo")
	}
	cmd := r.command(ctx, -1, append(append(args, set.args...), r.programs["openmpi"], op, sizeList(sizes))...)
	cmd.Env = append(slices.Clone(r.cfg.Environ), set.env...)
	// Asked to end, it removes the memory that its ranks share, which outlives them in
	// /dev/shm. What does not heed it is killed after the delay and swept away.
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	return cmd
}

// hydra is Intel MPI's mpirun. Left to itself it would let ranks of a host meet in shared
// memory also where TCP is asked for.
func (r *runner) hydra(ctx context.Context, op, link string, np int, sizes []int) *exec.Cmd {
	root := r.cfg.Impi
	env := []string{"I_MPI_ROOT=" + root, "LD_LIBRARY_PATH=" + filepath.Join(root, "lib"), "I_MPI_HYDRA_BOOTSTRAP=fork"}
	if link == "tcp" {
		env = append(env, "I_MPI_FABRICS=ofi", "FI_PROVIDER=tcp", "FI_TCP_IFACE=lo", "I_MPI_COLL_INTRANODE=pt2pt")
	} else {
		env = append(env, "I_MPI_FABRICS=shm")
	}
	if np > len(r.cfg.Cores) {
		env = append(env, "I_MPI_PIN=0")
	} else {
		env = append(env, "I_MPI_PIN_PROCESSOR_LIST="+sizeList(r.cfg.Cores[:np]))
	}
	cmd := r.command(ctx, -1, filepath.Join(root, "bin", "mpiexec.hydra"), "-n", strconv.Itoa(np), r.programs["impi"], op, sizeList(sizes))
	cmd.Env = append(slices.Clone(r.cfg.Environ), env...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	return cmd
}
