package jobtest_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"hora"
	"hora/internal/jobtest"
	"hora/tensor"
)

func init() { // fills the table of roles, which nothing changes later
	roles["sum"] = sumRole
	roles["collectives"] = collectivesRole
	roles["mismatch"] = mismatchRole
	roles["late"] = lateRole
	roles["names"] = namesRole
	roles["groups"] = groupsRole
}

func sumRole(ctx context.Context, w *hora.World) error {
	for round := range 50 {
		x := []float32{float32(w.Rank() + round), 1, 2}
		if err := hora.Allreduce(ctx, w.Group(), x, hora.Sum); err != nil {
			return err
		}
		n := w.Size()
		want := float32(n*(n-1)/2 + n*round)
		if x[0] != want || x[1] != float32(n) {
			return fmt.Errorf("round %d: %v, want %v first", round, x, want)
		}
	}
	c := w.Counters()
	fmt.Printf("links shm=%v tcp=%v\n", c.SHM.MessagesSent > 0, c.TCP.MessagesSent > 0)
	fmt.Printf("place %d/%d local %d/%d cross %d/%d\n", w.Rank(), w.Size(), w.LocalRank(), w.LocalSize(), w.CrossRank(), w.CrossSize())
	return nil
}

func TestTwoProcessesShareMemory(t *testing.T) {
	all := start(t, 2, "sum")
	succeed(t, all, 20*time.Second)
	all[0].until("links shm=true tcp=false", time.Second)
	all[1].until("place 1/2 local 1/2 cross 0/1", time.Second)
}

func TestProcessesOverTCP(t *testing.T) {
	all := start(t, 3, "sum", "HORA_LINKS=tcp")
	succeed(t, all, 20*time.Second)
	all[0].until("links shm=false tcp=true", time.Second)
}

// TestTwoHosts has four processes believe that they run on two hosts.
func TestTwoHosts(t *testing.T) {
	file := secretFile(t)
	addr := "127.0.0.1:" + strconv.Itoa(jobtest.FreePort(t))
	var all []*process
	for r := range 4 {
		host := "h" + strconv.Itoa(r/2)
		all = append(all, startOne(t, r, "collectives", []string{
			"HORA_RANK=" + strconv.Itoa(r), "HORA_SIZE=4", "HORA_ADDR=" + addr, "HORA_SERVE=1",
			"HORA_SECRET_FILE=" + file, "HORA_HOST=" + host, "HORA_HOST_ID=" + host,
		}))
	}
	succeed(t, all, 30*time.Second)
	all[3].until("links shm=true tcp=true", time.Second)
	all[3].until("place 3/4 local 1/2 cross 1/2", time.Second)
}

func TestCollectivesInProcesses(t *testing.T) {
	links(t, func(t *testing.T, env string) { succeed(t, start(t, 3, "collectives", env), 30*time.Second) })
}

// TestPeersWithoutCoordinator gives every rank all addresses.
func TestPeersWithoutCoordinator(t *testing.T) {
	file := secretFile(t)
	var peers []string
	for range 3 {
		peers = append(peers, "127.0.0.1:"+strconv.Itoa(jobtest.FreePort(t)))
	}
	links(t, func(t *testing.T, env string) {
		var all []*process
		for r := range peers {
			all = append(all, startOne(t, r, "sum", []string{
				"HORA_RANK=" + strconv.Itoa(r), "HORA_SIZE=3", "HORA_PEERS=" + strings.Join(peers, ","),
				"HORA_SECRET_FILE=" + file, env,
			}))
		}
		succeed(t, all, 20*time.Second)
	})
}

// TestForeignLauncherOnOneHost starts ranks as torchrun does, without secret or address,
// beside the files of a run that was killed.
func TestForeignLauncherOnOneHost(t *testing.T) {
	dir := t.TempDir()
	stale := filepath.Join(dir, "hora-"+strconv.Itoa(os.Getuid()))
	if err := hora.NewSecret().WriteFile(filepath.Join(stale, "torchrun-none-29500-0-0.secret")); err != nil {
		t.Fatal(err)
	}
	old := "127.0.0.1:" + strconv.Itoa(jobtest.FreePort(t))
	if err := os.WriteFile(filepath.Join(stale, "torchrun-none-29500-0-0.addr"), []byte(old), 0o600); err != nil {
		t.Fatal(err)
	}
	var all []*process
	for _, r := range []int{1, 2, 0} { // rank 0 comes last
		all = append(all, startOne(t, r, "sum", []string{
			"RANK=" + strconv.Itoa(r), "LOCAL_RANK=" + strconv.Itoa(r), "WORLD_SIZE=3", "LOCAL_WORLD_SIZE=3",
			"MASTER_ADDR=127.0.0.1", "MASTER_PORT=29500", "TORCHELASTIC_RUN_ID=none", "TORCHELASTIC_RESTART_COUNT=0",
			"HORA_RUN_DIR=" + dir,
		}))
	}
	succeed(t, all, 30*time.Second)
	left, err := os.ReadDir(stale)
	if err != nil || len(left) > 0 {
		t.Errorf("files are left behind: %v %v", left, err)
	}
}

// TestByHand starts ranks with the lines of docs/launching.md, and then with a secret and an address.
func TestByHand(t *testing.T) {
	page, err := os.ReadFile("docs/launching.md")
	if err != nil {
		t.Fatal(err)
	}
	lines := regexp.MustCompile("(?s)```\n(HORA_RANK=0 [^`]*)```").FindSubmatch(page)
	if lines == nil {
		t.Fatal("docs/launching.md shows no start by hand")
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("timeout", "30", "sh", "-c", strings.ReplaceAll(string(lines[1]), "python train.py", `"$WORKER"`))
	cmd.Env = append(os.Environ(), roleVariable+"=sum", "WORKER="+exe, "HORA_RUN_DIR="+t.TempDir())
	said, err := cmd.CombinedOutput()
	for _, place := range []string{"place 0/2 local 0/2 cross 0/1", "place 1/2 local 1/2 cross 0/1"} {
		if err != nil || !strings.Contains(string(said), place) {
			t.Errorf("%s: %v, no %q in\n%s", lines[1], err, place, said)
		}
	}
	var all []*process
	secret, port := secretFile(t), jobtest.FreePort(t)
	for _, r := range []int{1, 0} {
		all = append(all, startOne(t, r, "sum", []string{
			"HORA_RANK=" + strconv.Itoa(r), "HORA_SIZE=2", "HORA_ADDR=127.0.0.1:" + strconv.Itoa(port), "HORA_SECRET_FILE=" + secret,
		}))
	}
	succeed(t, all, 30*time.Second)
	// Elsewhere there is no file to meet by.
	p := startOne(t, 0, "sum", []string{"HORA_RANK=0", "HORA_SIZE=2", "HORA_ADDR=server1:29600", "HORA_RUN_DIR=" + t.TempDir()})
	if code := p.wait(20 * time.Second); code == 0 || !strings.Contains(p.out.String(), "set HORA_SECRET_FILE on every host") {
		t.Errorf("code %d:\n%s", code, p.out.String())
	}
}

func secretFile(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "job", "secret")
	if err := hora.NewSecret().WriteFile(file); err != nil {
		t.Fatal(err)
	}
	return file
}

func collectivesRole(ctx context.Context, w *hora.World) error {
	g, n, me := w.Group(), w.Size(), w.Rank()
	check := func(what string, got, want any) error {
		if fmt.Sprint(got) != fmt.Sprint(want) {
			return fmt.Errorf("%s gave %v, want %v", what, got, want)
		}
		return nil
	}
	x := []int32{int32(me), 1}
	err := hora.Reduce(ctx, g, x, hora.Max, n-1)
	if err == nil && me == n-1 {
		err = check("reduce", x, []int32{int32(n - 1), 1})
	}
	x = []int32{int32(me), 7}
	err = errors.Join(err, hora.Broadcast(ctx, g, x, 1), check("broadcast", x, []int32{1, 7}))
	mine := slices.Repeat([]int64{int64(me)}, me+1)
	all, e := hora.Allgather(ctx, g, mine)
	var want []int64
	for r := range n {
		want = append(want, slices.Repeat([]int64{int64(r)}, r+1)...)
	}
	err = errors.Join(err, e, check("allgather", all, want))
	all, e = hora.Gather(ctx, g, mine, 1)
	if me == 1 {
		e = errors.Join(e, check("gather", all, want))
	}
	err = errors.Join(err, e)
	part := make([]int64, me+1)
	var whole []int64
	if me == 1 {
		whole = want
	}
	err = errors.Join(err, hora.Scatter(ctx, g, part, whole, 1), check("scatter", part, mine))
	share, e := hora.ReduceScatter(ctx, g, slices.Repeat([]float64{1}, n+1), hora.Sum)
	size := 1
	if me == 0 {
		size = 2
	}
	err = errors.Join(err, e, check("reducescatter", share, slices.Repeat([]float64{float64(n)}, size)))
	counts := make([]int, n)
	counts[0] = me
	back, from, e := hora.Alltoall(ctx, g, make([]uint8, me), counts)
	if me == 0 {
		ramp := make([]int, n)
		for i := range ramp {
			ramp[i] = i
		}
		err = errors.Join(err, check("alltoall counts", from, ramp), check("alltoall", len(back), n*(n-1)/2))
	}
	err = errors.Join(err, e, hora.Barrier(ctx, g))
	y := []float32{float32(me)}
	got := []float32{-1}
	if me%2 == 0 && me+1 < n {
		err = errors.Join(err, hora.Send(ctx, g, y, me+1), hora.Recv(ctx, g, got, me+1), check("recv", got[0], me+1))
	} else if me%2 == 1 {
		err = errors.Join(err, hora.Recv(ctx, g, got, me-1), hora.Send(ctx, g, y, me-1), check("recv", got[0], me-1))
	}
	if err != nil {
		return err
	}
	return sumRole(ctx, w)
}

func mismatchRole(ctx context.Context, w *hora.World) error {
	for _, named := range []bool{false, true} {
		g := w.Group()
		if named {
			var err error
			if g, err = w.NewGroup(ctx, nil, hora.Named()); err != nil {
				return err
			}
		}
		for _, kind := range []string{"type", "operation", "shape", "scale", "operator", "root", "device", "counts"} {
			r := mismatched(kind, w.Rank() == 1, g.Size(), w.Rank())
			_, _, err := g.Run(&r, -1)
			fmt.Printf("%s %v: %v\n", kind, named, err)
			if err := hora.Allreduce(ctx, g, []float32{1}, hora.Sum); err != nil {
				return fmt.Errorf("after %s: %w", kind, err)
			}
		}
	}
	return nil
}

// mismatched is a request of which the odd rank has another idea than the rest.
func mismatched(kind string, odd bool, size, me int) hora.Request {
	x := tensor.Of(make([]float32, 6))
	r := hora.Request{Call: hora.Call{Kind: hora.KindAllreduce, Type: x.Type, Send: x, Recv: x}, Name: "grad.w"}
	switch kind {
	case "root":
		r.Kind = hora.KindBroadcast
		if odd {
			r.Root = 2
		}
		return r
	case "counts":
		r.Kind = hora.KindAlltoall
		in, out := make([]int, size), make([]int, size)
		for i := range in {
			in[i], out[i] = 1, 1
		}
		if odd {
			in[0] = 2 // nobody sends it two
		}
		total := 0
		for _, c := range in {
			total += c
		}
		r.Send, r.Recv = tensor.Of(make([]float32, size)), tensor.Of(make([]float32, total))
		r.SendCounts, r.RecvCounts = out, in
		return r
	}
	if !odd {
		return r
	}
	switch kind {
	case "type":
		y := tensor.Of(make([]int32, 6))
		r.Type, r.Send, r.Recv = y.Type, y, y
	case "operation":
		r.Kind = hora.KindBroadcast
	case "shape":
		r.Send, r.Recv = x.Slice(0, 5), x.Slice(0, 5)
	case "scale":
		r.Pre = 2
	case "operator":
		r.Op = hora.Min
	case "device":
		r.Device = 1
	}
	return r
}

func TestMismatchesAreOneErrorEverywhere(t *testing.T) {
	links(t, func(t *testing.T, env string) {
		all := start(t, 3, "mismatch", env)
		succeed(t, all, 60*time.Second)
		first := strings.Split(strings.TrimSpace(all[0].out.String()), "\n")
		if len(first) != 16 {
			t.Fatalf("rank 0 said %q", first)
		}
		for _, p := range all[1:] {
			said := p.out.String()
			if p.rank == 2 && env == "HORA_LINKS=tcp" {
				// A rank whose own counts fit has its data before the others know.
				said = strings.Replace(said, "counts false: <nil>", first[7], 1)
				said = strings.Replace(said, "counts true: <nil>", first[15], 1)
			}
			if said != all[0].out.String() {
				t.Errorf("rank %d says\n%s\nrank 0\n%s", p.rank, p.out.String(), all[0].out.String())
			}
		}
		for i, begins := range []string{
			"type false: Mismatched data types: tensor grad.w is float32 on ranks 0, 2 and int32 on rank 1;",
			"operation false: Mismatched operations: tensor grad.w is allreduce on ranks 0, 2 and broadcast on rank 1;",
			"shape false: Mismatched ALLREDUCE tensor shapes: tensor grad.w is [6] on ranks 0, 2 and [5] on rank 1;",
			"scale false: Mismatched prescale and/or postscale factors: tensor grad.w is prescaled by 1",
			"operator false: Mismatched reduction operation: tensor grad.w is sum on ranks 0, 2 and min on rank 1;",
			"root false: Mismatched BROADCAST root ranks: tensor grad.w is rooted at rank 0 on ranks 0, 2 and rooted at rank 2 on rank 1;",
			"device false: Mismatched ALLREDUCE CPU/GPU device selection: tensor grad.w is on the host (CPU) on ranks 0, 2",
			"counts false: Mismatched ALLTOALL tensor shapes: tensor grad.w: rank 0 sends 1 elements to rank 1, which expects 2;",
		} {
			for _, line := range []string{first[i], strings.Replace(first[i+8], " true:", " false:", 1)} {
				if !strings.HasPrefix(line, begins) {
					t.Errorf("got  %s\nwant %s", line, begins)
				}
			}
		}
	})
}

// lateRole: rank 0 comes to the operation when told to.
func lateRole(ctx context.Context, w *hora.World) error {
	if err := hora.Barrier(ctx, w.Group()); err != nil {
		return err
	}
	fmt.Println("running")
	g, err := w.NewGroup(ctx, nil, hora.Named(), hora.Called("late"))
	if err != nil {
		return err
	}
	if w.Rank() == 0 {
		wrong := []float32{1}
		v := tensor.Of(wrong)
		r := hora.Request{Call: hora.Call{Kind: hora.KindAllreduce, Type: v.Type, Send: v, Recv: v}, Name: "model_1_model"}
		if err := g.Submit([]hora.Request{r}, nil); err != nil {
			return err
		}
		bufio.NewScanner(os.Stdin).Scan()
	}
	x := []float32{1}
	v := tensor.Of(x)
	r := hora.Request{Call: hora.Call{Kind: hora.KindAllreduce, Type: v.Type, Send: v, Recv: v}, Name: "model_model"}
	_, _, err = g.Run(&r, -1)
	fmt.Printf("result %v %v\n", x, err)
	return w.Close()
}

func TestLateRankIsReportedAndAwaited(t *testing.T) {
	all := start(t, 3, "late", "HORA_STALL_WARN=0.3")
	for _, p := range all {
		p.until("running", 20*time.Second)
	}
	text := all[1].until("nearly the same name", 10*time.Second)
	for _, want := range []string{"late: allreduce", "model_model", "Missing ranks: rank 0 (", "model_1_model"} {
		if !strings.Contains(text, want) {
			t.Errorf("the report does not say %q:\n%s", want, text)
		}
	}
	all[0].tell("go on")
	for _, p := range all {
		p.until("result [3] <nil>", 10*time.Second)
	}
}

func TestStallEndsTheJob(t *testing.T) {
	all := start(t, 2, "late", "HORA_STALL_WARN=0.2", "HORA_STALL_END=0.6")
	text := all[1].until("result [1] ", 20*time.Second)
	if !strings.Contains(text, "the job ends for it") || !strings.Contains(text, "model_1_model") {
		t.Errorf("rank 1 said:\n%s", text)
	}
}

// namesRole submits tensors in an order of its own, many times.
func namesRole(ctx context.Context, w *hora.World) error {
	g, err := w.NewGroup(ctx, nil, hora.Named())
	if err != nil {
		return err
	}
	const tensors, rounds = 10, 40
	rng := rand.New(rand.NewPCG(uint64(w.Rank()), 7))
	data := make([][]float32, tensors)
	tickets := make([]hora.Ticket, tensors)
	for round := range rounds {
		for _, i := range rng.Perm(tensors) {
			data[i] = slices.Repeat([]float32{float32(i + round)}, 100)
			v := tensor.Of(data[i])
			r := hora.Request{Call: hora.Call{Kind: hora.KindAllreduce, Type: v.Type, Send: v, Recv: v}, Name: fmt.Sprintf("grad.%d", i)}
			if err := g.Submit([]hora.Request{r}, tickets[i:i+1]); err != nil {
				return err
			}
		}
		for i, k := range tickets {
			if done, err := g.Wait(k, 20*time.Second); !done || err != nil {
				return fmt.Errorf("round %d: grad.%d: done %v: %w", round, i, done, err)
			}
			if want := float32(w.Size() * (i + round)); data[i][99] != want {
				return fmt.Errorf("round %d: grad.%d is %v, want %v", round, i, data[i][99], want)
			}
		}
	}
	batches := 3 + w.Rank()
	for range batches {
		if err := hora.Allreduce(ctx, g, []float32{1}, hora.Average); err != nil {
			return err
		}
	}
	last, _, err := g.Join(-1)
	fmt.Printf("joined last: %d\n", last)
	return err
}

func TestNamesInProcesses(t *testing.T) {
	links(t, func(t *testing.T, env string) {
		all := start(t, 3, "names", env)
		succeed(t, all, 60*time.Second)
		for _, p := range all {
			p.until("joined last: 2", time.Second)
		}
	})
}

// groupsRole uses groups of some ranks, at once, and buffers.
func groupsRole(ctx context.Context, w *hora.World) error {
	me := w.Rank()
	if _, err := w.NewGroup(ctx, []int{(me + 1) % w.Size()}); !errors.Is(err, hora.ErrNotMember) {
		return fmt.Errorf("group of others: %v", err)
	}
	half, err := w.NewGroup(ctx, []int{me % 2, me%2 + 2})
	if err != nil {
		return err
	}
	for i := range 20 {
		x := []int64{int64(me)}
		if err := hora.Allreduce(ctx, half, x, hora.Sum); err != nil {
			return err
		}
		if x[0] != int64(2*(me%2)+2) {
			return fmt.Errorf("round %d: %v", i, x)
		}
	}
	b, err := w.Group().Buffer(ctx, 1<<20)
	if err != nil {
		return err
	}
	for i := range b {
		b[i] = byte(me)
	}
	if err := hora.Allreduce(ctx, w.Group(), b, hora.Sum); err != nil {
		return err
	}
	if b[0] != 6 || b[len(b)-1] != 6 {
		return fmt.Errorf("buffer: %d … %d", b[0], b[len(b)-1])
	}
	if err := hora.Barrier(ctx, w.Group()); err != nil {
		return err
	}
	if err := w.Group().Free(b); err != nil {
		return err
	}
	if err := half.Close(); err != nil {
		return err
	}
	return hora.Barrier(ctx, w.Group())
}

func TestGroupsAndBuffers(t *testing.T) {
	links(t, func(t *testing.T, env string) { succeed(t, start(t, 4, "groups", env), 30*time.Second) })
}
