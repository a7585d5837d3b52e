//go:build linux

package simtest

import (
	"bufio"
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"hora/collective"
	"hora/internal/jobtest"
	"hora/internal/secret"
	"hora/tensor"
	"hora/transport"
	"hora/transport/shm"
)

// Ranks as processes over real shared memory: the test binary starts itself.
const rankEnv = "HORA_SIM_RANK"

func TestMain(m *testing.M) {
	if text := os.Getenv(rankEnv); text != "" {
		if err := rankMain(text); err != nil {
			fmt.Println("error", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// rankMain is one rank: it opens the links, then runs what its command says and
// prints one line.
func rankMain(text string) error {
	var rank, ranks int
	var table, command string
	if _, err := fmt.Sscanf(text, "%d/%d %q %q", &rank, &ranks, &table, &command); err != nil {
		return err
	}
	if ranks <= runtime.NumCPU() {
		bind(rank)
	}
	runtime.LockOSThread()
	in := bufio.NewScanner(os.Stdin)
	var s secret.Secret
	s[0] = 7
	cfg := shm.Config{Secret: s, Job: "sim", Rank: rank, Host: "here", Oversubscribed: ranks > runtime.NumCPU()}
	for i := range ranks {
		cfg.Ranks = append(cfg.Ranks, i)
	}
	if rank == 0 {
		ln, err := shm.Listen(s, shm.ListenConfig{Job: "sim", Host: "here"})
		if err != nil {
			return err
		}
		defer ln.Close()
		cfg.Listener, cfg.Leader = ln, ln.Addr()
		fmt.Println(ln.Addr())
	} else {
		in.Scan()
		cfg.Leader = in.Text()
	}
	link, err := shm.Open(context.Background(), cfg)
	if err != nil {
		return err
	}
	defer link.Close()
	part, _ := strconv.Atoi(os.Getenv("HORA_SIM_PART"))
	words := strings.Fields(command)
	if words[0] == "stress" {
		line, err := stress(link, part, words[1:])
		if err == nil {
			fmt.Println("done", line)
		}
		return err
	}
	comm, err := collective.New(link, collective.Config{Table: table, Part: part})
	if err != nil {
		return err
	}
	p := &process{link: link, comm: comm}
	line, err := "", error(nil)
	switch words[0] {
	case "peek":
		line, err = peekAll(link, p)
	case "measured":
		line, err = measuredAll(p, rank)
	default:
		line, err = p.do(words)
	}
	if err != nil {
		return err
	}
	fmt.Println("done", line)
	return nil
}

func bind(cpu int) {
	var set unix.CPUSet
	set.Set(cpu)
	tasks, _ := os.ReadDir("/proc/self/task")
	for _, e := range tasks {
		tid, _ := strconv.Atoi(e.Name())
		_ = unix.SchedSetaffinity(tid, &set)
	}
	runtime.GOMAXPROCS(2)
}

type process struct {
	link *shm.Link
	comm *collective.Comm
	seq  uint64
}

func (p *process) run(call *collective.Call) error {
	p.seq++
	return p.comm.Run(transport.Stamp{Seq: p.seq, Print: 9}, call, time.Time{})
}

// do is "<operation> <bytes> <times> private|registered": it times the operation on
// float32, the buffer rewritten before each, and prints median and least nanoseconds
// and the allocations of all.
func (p *process) do(words []string) (string, error) {
	kind, err := collective.ParseKind(words[0])
	if err != nil {
		return "", err
	}
	bytes, _ := strconv.Atoi(words[1])
	times, _ := strconv.Atoi(words[2])
	call, fill, err := p.call(kind, bytes, words[3] == "registered")
	if err != nil {
		return "", err
	}
	batch := 1
	if bytes <= 1024 {
		batch = 100
	}
	took := make([]time.Duration, 0, times/batch+1)
	barrier := collective.Call{Kind: collective.Barrier}
	var before, after runtime.MemStats
	for i := range times / batch {
		if i == times/batch/10+1 {
			took = took[:0]
			runtime.ReadMemStats(&before)
		}
		if err := p.run(&barrier); err != nil {
			return "", err
		}
		var spent time.Duration
		if batch > 1 { // the clock costs as much as the operation
			start := time.Now()
			for range batch {
				fill()
				if err := p.run(call); err != nil {
					return "", err
				}
			}
			spent = time.Since(start)
		} else {
			fill()
			if err := p.run(&barrier); err != nil { // the ranks start together
				return "", err
			}
			start := time.Now()
			if err := p.run(call); err != nil {
				return "", err
			}
			spent = time.Since(start)
		}
		took = append(took, spent/time.Duration(batch))
	}
	runtime.ReadMemStats(&after)
	if kind == collective.Allreduce {
		v := math.Float32frombits(binary.LittleEndian.Uint32(call.Recv.Bytes()))
		if want := float32(p.link.Size()); v != want {
			return "", fmt.Errorf("the sum is %v, want %v", v, want)
		}
	}
	slices.Sort(took)
	return fmt.Sprintf("%d %d %d", took[len(took)/2].Nanoseconds(), took[0].Nanoseconds(), after.Mallocs-before.Mallocs), nil
}

func (p *process) memory(n int, registered bool) ([]byte, error) {
	if !registered {
		return make([]byte, n), nil
	}
	buf, err := p.link.Buffer(context.Background(), n)
	if err != nil {
		return nil, err
	}
	return buf.Bytes(), nil
}

func (p *process) call(kind collective.Kind, bytes int, registered bool) (*collective.Call, func(), error) {
	size := p.link.Size()
	own := bytes / size / 4 * 4
	send, recv := bytes, bytes
	switch kind {
	case collective.Allgather, collective.Gather:
		send, recv = own, own*size
	case collective.ReduceScatter, collective.Scatter:
		send, recv = own*size, own
	case collective.Alltoall:
		send, recv = own*size, own*size
	}
	in, err := p.memory(send, registered)
	if err != nil {
		return nil, nil, err
	}
	out := in
	if kind != collective.Allreduce && kind != collective.Broadcast && kind != collective.Reduce {
		if out, err = p.memory(recv, registered); err != nil {
			return nil, nil, err
		}
	}
	x := unsafeFloats(in)
	call := &collective.Call{
		Kind: kind, Type: tensor.Float32, Send: View(in, tensor.Float32),
		Recv: View(out, tensor.Float32),
	}
	return call, func() {
		for i := range x {
			x[i] = 1
		}
	}, nil
}

// launch starts ranks that run a command; rank 0 says first where it is.
func launch(t testing.TB, ranks int, table, command string, env ...string) []*jobtest.Process {
	t.Helper()
	all := make([]*jobtest.Process, ranks)
	for i := range all {
		all[i] = jobtest.Start(t, jobtest.Self(t, append(env, fmt.Sprintf("%s=%d/%d %q %q", rankEnv, i, ranks, table, command))...))
	}
	leader, _ := all[0].Next(time.Minute)
	for _, p := range all[1:] {
		p.Tell(leader)
	}
	return all
}

// start runs a command on processes and gives each one's answer.
func start(t testing.TB, ranks int, table, command string) []string {
	t.Helper()
	answers := make([]string, ranks)
	late := time.After(time.Minute)
	for i, p := range launch(t, ranks, table, command) {
		select {
		case <-p.Ended:
		case <-late:
			t.Fatalf("rank %d takes more than a minute", i)
		}
		for line := range p.Lines {
			answers[i] = line
		}
		if !p.ProcessState.Success() {
			t.Errorf("rank %d: %v: %s", i, p.ProcessState, answers[i])
		}
	}
	return answers
}

// numbers are the slowest rank's times and the most allocations.
func numbers(t testing.TB, answers []string) (median, least, mallocs int) {
	for _, a := range answers {
		var m, l, k int
		if _, err := fmt.Sscanf(a, "done %d %d %d", &m, &l, &k); err != nil {
			t.Fatalf("a rank answered %q", a)
		}
		median, least, mallocs = max(median, m), max(least, l), max(mallocs, k)
	}
	return median, least, mallocs
}

// TestNoAllocations holds every operation between processes to no allocation at all.
func TestNoAllocations(t *testing.T) {
	for _, c := range []string{
		"allreduce 4 10000", "allreduce 4096 2000", "allreduce 65536 500", "allreduce 1048576 50", "allreduce 4194304 50",
		"broadcast 100000 200", "allgather 100000 200", "reducescatter 100000 200", "alltoall 100000 200",
		"gather 100000 200", "scatter 100000 200", "reduce 100000 200", "barrier 0 10000",
	} {
		for _, memory := range []string{"private", "registered"} {
			if testing.Short() && memory == "registered" {
				continue
			}
			_, _, mallocs := numbers(t, start(t, 2, "", c+" "+memory))
			// ReadMemStats itself and the runtime's own goroutines may allocate a few.
			if mallocs > 20 {
				t.Errorf("%s %s: %d allocations", c, memory, mallocs)
			}
		}
	}
}

// TestSpeed prints times where HORA_SIM_SPEED names what to run, as in
// "2 allreduce private 4 65536"; for tuning by hand under chrt -r 5.
func TestSpeed(t *testing.T) {
	words := strings.Fields(os.Getenv("HORA_SIM_SPEED"))
	if len(words) < 4 {
		return
	}
	ranks, _ := strconv.Atoi(words[0])
	for _, size := range words[3:] {
		bytes, _ := strconv.Atoi(size)
		times := max(20, min(20000, 200<<20/max(bytes, 1)/10))
		m, l, k := numbers(t, start(t, ranks, os.Getenv("HORA_SIM_TABLE"), fmt.Sprintf("%s %d %d %s", words[1], bytes, times, words[2])))
		fmt.Printf("%-13s %-10s %9d B  median %10.2f us  least %10.2f us  mallocs %d\n", words[1], words[2], bytes, float64(m)/1e3, float64(l)/1e3, k)
	}
}
