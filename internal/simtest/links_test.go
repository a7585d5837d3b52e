//go:build linux

package simtest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"hora/collective"
	"hora/internal/secret"
	"hora/tensor"
	"hora/transport"
	"hora/transport/shm"
	"hora/transport/tcp"
)

// The product over the real links: ranks are goroutines of this process, on shared memory,
// on TCP over loopback, and on both where a layout has several hosts. Each operation's
// result is held to the plain reference, and what it sent to what its algorithm sends, or,
// on shared memory, the way that it went to the one it was told: who falls back fails.

const (
	realSlot  = 8192    // bytes of a slot of the boards
	realPart  = 4096    // and of a part
	realArena = 4 << 20 // bytes of registered memory of a rank
)

// realWorld is one group on real links. Many configurations run in it, one after another.
type realWorld struct {
	hosts  []int
	ranks  []*Rank
	meshes []transport.Mesh
	near   []*shm.Link // nil where a rank is alone on its host
	nodes  []*tcp.Node
	ln     *shm.Listener
	arenas [][]byte
	used   []int
}

func openReal(ranks int, layout string) (*realWorld, error) {
	w := &realWorld{
		hosts: Hosts(layout, ranks, 3), ranks: make([]*Rank, ranks), meshes: make([]transport.Mesh, ranks),
		near: make([]*shm.Link, ranks), nodes: make([]*tcp.Node, ranks), arenas: make([][]byte, ranks),
		used: make([]int, ranks),
	}
	key := secret.New()
	var err error
	if w.ln, err = shm.Listen(key, shm.ListenConfig{Job: "product", Host: "here"}); err != nil {
		return nil, err
	}
	peers := make([]tcp.Peer, ranks)
	for r := range ranks {
		host := fmt.Sprint("host", w.hosts[r])
		l, err := tcp.Listen(context.Background(), "127.0.0.1:0")
		if err != nil {
			return nil, errors.Join(err, w.close())
		}
		peers[r] = tcp.Peer{Rank: r, Host: host, Addrs: l.Addrs()}
		w.nodes[r], err = tcp.NewNode(l, tcp.NodeConfig{
			Secret: key, Job: "product", Epoch: 1, Rank: r, Host: host,
			PeerTimeout: time.Minute,
		})
		if err != nil {
			return nil, errors.Join(err, w.close())
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := each(ranks, func(r int) error { return w.open(ctx, r, key, peers) }); err != nil {
		return nil, errors.Join(err, w.close())
	}
	return w, nil
}

// open is one rank's part.
func (w *realWorld) open(ctx context.Context, r int, key secret.Secret, peers []tcp.Peer) error {
	var seats []int
	names := make([]string, len(peers))
	for i, h := range w.hosts {
		names[i] = peers[i].Host
		if h == w.hosts[r] {
			seats = append(seats, i)
		}
	}
	cfg := transport.RoutedConfig{Rank: r, Hosts: w.hosts, Names: names}
	if len(seats) > 1 {
		link, err := shm.Open(ctx, shm.Config{
			Secret: key, Job: "product", Epoch: 1, Group: uint64(w.hosts[r]), Rank: r, Ranks: seats, Host: names[r],
			Listener: w.ln, Leader: w.ln.Addr(), PeerTimeout: time.Minute, Oversubscribed: true, SlotBytes: realSlot,
			PartBytes: realPart,
		})
		if err != nil {
			return err
		}
		w.near[r], cfg.Local, cfg.Seats = link, link, seats
		buf, err := link.Buffer(ctx, realArena)
		if err != nil {
			return err
		}
		w.arenas[r] = buf.Bytes()
	} else {
		w.arenas[r] = make([]byte, realArena)
	}
	if len(seats) < len(peers) {
		far, err := w.nodes[r].Open(ctx, tcp.MeshConfig{Group: 1, Rank: r, Peers: peers, Oversubscribed: true})
		if err != nil {
			return err
		}
		cfg.Remote = far
	}
	if cfg.Local == nil && cfg.Remote == nil { // a world of one
		far, err := w.nodes[r].Open(ctx, tcp.MeshConfig{Group: 1, Rank: r, Peers: peers})
		if err != nil {
			return err
		}
		cfg.Remote = far
	}
	m, err := transport.NewRouted(cfg)
	if err != nil {
		return err
	}
	w.meshes[r] = m
	w.ranks[r] = &Rank{Rank: r, Size: len(peers), Registered: func(n int) []byte {
		from := (w.used[r] + 63) &^ 63
		w.used[r] = from + n
		b := w.arenas[r][from : from+n : from+n]
		clear(b)
		return b
	}}
	return nil
}

func (w *realWorld) close() error {
	return each(len(w.ranks), func(r int) error {
		var err error
		if w.meshes[r] != nil {
			err = w.meshes[r].Close()
		} else if w.near[r] != nil {
			err = w.near[r].Close()
		}
		if w.nodes[r] != nil {
			w.nodes[r].Close()
		}
		if r == 0 {
			w.ln.Close()
		}
		return err
	})
}

// each runs f for all ranks at once.
func each(ranks int, f func(r int) error) error {
	errs := make([]error, ranks)
	var all sync.WaitGroup
	for r := range ranks {
		all.Go(func() {
			if err := f(r); err != nil {
				errs[r] = fmt.Errorf("rank %d: %w", r, err)
			}
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

// realCase is one point of the product.
type realCase struct {
	index     int
	ranks     int
	layout    string
	kind      collective.Kind
	algorithm collective.Algorithm // on message links; 0: the standard table's
	memory    string               // how a host's memory is to be used
	flat      bool
	adasum    bool
	seg, part int
}

func (c *realCase) table() string {
	switch {
	case c.memory != "":
		return fmt.Sprintf("%s:0-=%s", c.kind, c.memory)
	case c.algorithm == 0:
		return ""
	case c.flat:
		return fmt.Sprintf("%s:0-=%s+flat", c.kind, c.algorithm)
	case c.layered():
		return fmt.Sprintf("%s:0-=%s+hier", c.kind, c.algorithm)
	}
	return fmt.Sprintf("%s:0-=%s", c.kind, c.algorithm)
}

func (c *realCase) String() string {
	if c.adasum {
		return fmt.Sprintf("case %d: Adasum, %d ranks, layout %s, segment %d, part %d", c.index, c.ranks, c.layout, c.seg, c.part)
	}
	return fmt.Sprintf("case %d: %d ranks, layout %s, table %q, segment %d, part %d", c.index, c.ranks, c.layout, c.table(), c.seg, c.part)
}

// layered reports that a host's memory takes part though there are several.
func (c *realCase) layered() bool {
	switch c.kind {
	case collective.Allreduce, collective.Reduce, collective.Broadcast, collective.Allgather, collective.ReduceScatter:
		return !c.flat && c.layout != "own" && c.layout != "one"
	}
	return false
}

// realProduct lists the cases, those of one world together.
func realProduct(sizes []int) [][]realCase {
	var worlds [][]realCase
	count := 0
	for _, ranks := range sizes {
		for _, layout := range []string{"one", "own", "block", "round", "ragged"} {
			if ranks == 1 && layout != "own" || ranks < 3 && layout != "own" && layout != "one" || ranks < 4 &&
				(layout == "block" || layout == "round") {
				continue // the same as another one
			}
			var list []realCase
			for _, k := range collective.Kinds() {
				for _, c := range choices(ranks, layout, k) {
					for _, chunk := range [][2]int{{0, 0}, {16, 1}, {100, 64}, {1000, 300}} {
						c.index, c.ranks, c.layout, c.kind, c.seg, c.part = count, ranks, layout, k, chunk[0], chunk[1]
						list = append(list, c)
						count++
					}
				}
			}
			worlds = append(worlds, list)
		}
	}
	return worlds
}

// choices are all that the table can choose for an operation on these links.
func choices(ranks int, layout string, k collective.Kind) []realCase {
	if k == collective.SendTo || k == collective.RecvFrom {
		return nil
	}
	out := []realCase{{}}
	switch k {
	case collective.Barrier:
		return out
	case collective.Allreduce:
		out = append(out, realCase{adasum: true})
	}
	if layout == "one" {
		for _, m := range []string{"oneshot+copy", "oneshot+direct", "twoshot+copy", "twoshot+direct"} {
			out = append(out, realCase{memory: m})
		}
		if ranks == 2 && (k == collective.Allreduce || k == collective.Allgather || k == collective.Alltoall) {
			out = append(out, realCase{memory: "peek+copy"}, realCase{memory: "peek+direct"})
		}
		return out
	}
	for _, a := range collective.Offered(k) {
		out = append(out, realCase{algorithm: a})
		if layout != "own" {
			out = append(out, realCase{algorithm: a, flat: true})
		}
	}
	return out
}

// expected is how an operation must go through the memory of the one host; tried says
// that an operation before it has found out whether memory can be peeked at.
func (c *realCase) expected(s *Step, tried *bool) string {
	size, whole := s.Type.Size(), s.elements(c.ranks)*s.Type.Size()
	unit := whole
	switch {
	case s.Counts != nil && (s.Kind == collective.Alltoall || s.Kind == collective.Gather ||
		s.Kind == collective.Scatter):
		return "twoshot" // nobody knows all lengths
	case s.Counts != nil && s.Kind == collective.Allgather:
		unit = 0
		for _, n := range s.Counts[0] {
			unit = max(unit, n*size)
		}
	case s.Kind == collective.Allgather || s.Kind == collective.Gather:
		unit = s.Block * size
	}
	if unit <= transport.InlineBytes {
		return "inline"
	}
	direct, slots := strings.HasSuffix(c.memory, "direct"), strings.HasPrefix(c.memory, "oneshot") && unit <= realSlot
	lends := func(r int) bool {
		return s.Registered && len(s.inputs[r]) > 0 && (s.Private == nil || !s.Private[r])
	}
	inPlace, inSlots := direct, slots
	for r := range c.ranks {
		if (s.Kind == collective.Broadcast || s.Kind == collective.Scatter) && r != s.Root {
			continue
		}
		inPlace = inPlace && lends(r)
		inSlots = inSlots && !(direct && lends(r))
	}
	switch {
	case inPlace:
		return "direct"
	case inSlots:
		return "oneshot"
	case direct && s.Kind == collective.Allreduce && s.Registered:
		return "staged"
	case !strings.HasPrefix(c.memory, "peek") || s.Counts != nil:
		return "twoshot"
	case *tried:
		return "peek"
	}
	*tried = true
	return "twoshot"
}

// run does the case's operations in its world.
func (c *realCase) run(w *realWorld, s uint64) error {
	rng := rand.New(rand.NewPCG(s, uint64(c.index)))
	steps, most := 5, []int{3, 40, 700}[rng.IntN(3)]
	if c.ranks >= 16 {
		steps, most = 3, min(most, 40)
	}
	list := make([]*Step, steps)
	for i := range list {
		list[i] = StepOf(c.kind, rng, c.ranks, most)
		if c.seg == 0 && i == 1 && c.ranks <= 4 {
			list[i] = StepOf(c.kind, rng, c.ranks, 16000)
		}
	}
	for _, step := range list {
		if c.adasum {
			types := []tensor.DType{tensor.Float16, tensor.BFloat16, tensor.Float32, tensor.Float64}
			step.Op, step.Type = tensor.Adasum, types[rng.IntN(len(types))]
			step.Fill(rng, c.ranks)
		}
	}
	if strings.HasPrefix(c.memory, "peek") {
		// the first finds out whether it may
		list[0].Block, list[0].Counts, list[0].Registered, list[0].Private = 700, nil, false, nil
		list[0].Fill(rng, c.ranks)
	}
	if err := each(c.ranks, func(r int) error {
		var err error
		w.ranks[r].Comm, err = collective.New(w.meshes[r],
			collective.Config{Table: c.table(), Segment: c.seg, Part: c.part, Stream: c.part})
		return err
	}); err != nil {
		return err
	}
	tried := false
	for i, step := range list {
		before := w.sent()
		ways := make([]string, c.ranks)
		err := each(c.ranks, func(r int) error {
			w.used[r] = 0
			call, in, out := step.Call(w.ranks[r])
			err := w.ranks[r].Do(call, uint64(i+1), time.Now().Add(time.Minute))
			ways[r] = w.ranks[r].Comm.Memory()
			return step.Done(w.ranks[r], in, out, err)
		})
		if err == nil {
			err = step.Verify()
		}
		if err == nil {
			err = c.judge(step, w, before, ways, &tried)
		}
		if err != nil {
			return fmt.Errorf("%s: step %d: %s: %w", c, i, step, err)
		}
	}
	return nil
}

func (w *realWorld) sent() (t transport.Traffic) {
	for _, m := range w.meshes {
		t = t.Add(m.Counters().TCP)
	}
	return t
}

// judge compares what the operation sent, and how it went, with what it was told.
func (c *realCase) judge(s *Step, w *realWorld, before transport.Traffic, ways []string, tried *bool) error {
	if c.layout == "one" {
		if c.memory == "" {
			return nil
		}
		want := c.expected(s, tried)
		for r, way := range ways {
			if way != want {
				return fmt.Errorf("rank %d went by %s, want %s", r, way, want)
			}
		}
		return nil
	}
	if c.algorithm == 0 && !c.adasum && c.kind != collective.Barrier {
		return nil
	}
	var bytes, messages uint64
	emit := func(from, to, n int) {
		if w.hosts[from] != w.hosts[to] {
			bytes, messages = bytes+uint64(n), messages+1
		}
	}
	segment := c.seg
	if segment == 0 {
		segment = 256 << 10
	}
	hosts := make([][]int, w.hosts[0]+1)
	for r, h := range w.hosts {
		for len(hosts) <= h {
			hosts = append(hosts, nil)
		}
		hosts[h] = append(hosts[h], r)
	}
	layers := c.layered() && !c.adasum
	for _, local := range hosts {
		if s.Kind == collective.Allgather || s.Kind == collective.ReduceScatter {
			layers = layers && len(local) == len(hosts[0])
		}
	}
	switch {
	case c.kind == collective.Barrier:
		s.heads(hosts, emit)
	case layers:
		s.layered(c.algorithm, hosts, segment, emit)
	default:
		s.flat(c.algorithm, c.ranks, segment, emit)
	}
	now := w.sent()
	if b, m := now.BytesSent-before.BytesSent, now.MessagesSent-before.MessagesSent; b != bytes || m != messages {
		return fmt.Errorf("%d bytes in %d messages went over TCP, want %d in %d", b, m, bytes, messages)
	}
	return nil
}

// eachTableFirst moves one case of every table to the front and gives their number.
func eachTableFirst(list []realCase) int {
	seen := map[string]bool{}
	for i := range list {
		if table := fmt.Sprint(list[i].table(), list[i].kind, list[i].adasum); !seen[table] {
			list[len(seen)], list[i] = list[i], list[len(seen)]
			seen[table] = true
		}
	}
	return len(seen)
}

// tour is what a run of the product has done.
type tour struct {
	seed        uint64
	end         time.Time // of an ordinary run
	all, opened int
	runs        int
	told        time.Time
	only        int // the one case to run, -1 for all that there is time for
	replay      string
}

// visit runs what it has time for of one world's cases.
func (p *tour) visit(list []realCase, rng *rand.Rand) error {
	p.all += len(list)
	rng.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	tables := eachTableFirst(list)
	if p.only >= 0 {
		at := slices.IndexFunc(list, func(c realCase) bool { return c.index == p.only })
		if at < 0 {
			return nil
		}
		list, tables = list[at:at+1], 1
	} else if !soak() && time.Now().After(p.end) {
		return nil
	}
	w, err := openReal(list[0].ranks, list[0].layout)
	if err != nil {
		return fmt.Errorf("%s: %w", &list[0], err)
	}
	p.opened++
	for i := range list {
		if !soak() && (i >= tables || p.only < 0 && time.Now().After(p.end)) {
			break
		}
		if err = list[i].run(w, p.seed); err != nil {
			err = fmt.Errorf("%w\nreplay: "+p.replay, err, p.seed, list[i].index)
			break
		}
		p.runs++
		if soak() && time.Since(p.told) > 30*time.Second {
			p.told = time.Now()
			fmt.Printf("real links: %d cases in %d worlds agree with the reference, seed %d\n", p.runs, p.opened, p.seed)
		}
	}
	return errors.Join(err, w.close())
}

// TestRealLinks runs the product over shm and tcp; without HORA_SOAK it draws worlds and
// cases for some seconds. HORA_SIM_CASE names one case to replay.
func TestRealLinks(t *testing.T) {
	p := tour{seed: seed(t), told: time.Now(), only: -1, replay: "HORA_SIM_SEED=%d HORA_SIM_CASE=%d go test -run '^TestRealLinks$' ./internal/simtest"}
	sizes := []int{1, 2, 3, 4, 5, 6, 7, 8, 9, 16}
	if soak() {
		sizes = append(sizes, 64)
		p.replay = "HORA_SOAK=1 " + p.replay
	}
	if text := os.Getenv("HORA_SIM_CASE"); text != "" {
		var err error
		if p.only, err = strconv.Atoi(text); err != nil {
			t.Fatalf("HORA_SIM_CASE=%q is no number", text)
		}
	}
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(20)) // a rank that sleeps in the kernel keeps its processor
	p.end = time.Now().Add(12 * time.Second)
	if testing.Short() {
		p.end = time.Now().Add(3 * time.Second)
	}
	rng := rand.New(rand.NewPCG(p.seed, 5))
	worlds := realProduct(sizes)
	rng.Shuffle(len(worlds), func(i, j int) { worlds[i], worlds[j] = worlds[j], worlds[i] })
	for _, list := range worlds {
		if err := p.visit(list, rng); err != nil {
			t.Fatal(err)
		}
	}
	if p.only >= 0 && p.runs == 0 {
		t.Errorf("there is no case %d among %d", p.only, p.all)
	}
	t.Logf("%d of %d cases, %d of %d worlds", p.runs, p.all, p.opened, len(worlds))
}
