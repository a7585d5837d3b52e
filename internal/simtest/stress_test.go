//go:build linux

package simtest

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"hora/collective"
	"hora/engine"
	"hora/internal/jobtest"
	"hora/tensor"
	"hora/transport/shm"
)

// A random history through the engine between real processes that share too few
// processors, while the test stops, continues and kills them. Every rank knows all
// inputs and checks each result itself; what a loss has ended is allowed to fail, never
// to be wrong, and nobody may touch a rank's memory after its error.

// arenaBytes is the registered memory of a rank.
const arenaBytes = 24 << 20

// stressed is one rank.
type stressed struct {
	g          *engine.Group
	rank, size int
	named      bool
	shared     *rand.Rand // draws alike on all ranks
	own        *rand.Rand
	arena      []byte
	used       int
	trail      uint64 // of all results that the ranks hold alike
	done       int
}

// stress is the command "stress <seed> <batches> ordered|named|heavy" of a process.
func stress(link *shm.Link, part int, words []string) (string, error) {
	var s uint64
	var batches int
	if _, err := fmt.Sscan(strings.Join(words[:2], " "), &s, &batches); err != nil {
		return "", err
	}
	p := &stressed{rank: link.Rank(), size: link.Size(), named: words[2] == "named"}
	p.shared, p.own = rand.New(rand.NewPCG(s, 1)), rand.New(rand.NewPCG(s, uint64(10+p.rank)))
	buf, err := link.Buffer(context.Background(), arenaBytes)
	if err != nil {
		return "", err
	}
	p.arena = buf.Bytes()
	p.g, err = engine.New(link, engine.Config{
		Named: p.named, Collective: collective.Config{Part: part}, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return "", err
	}
	defer p.g.Close()
	fmt.Println("begun")
	for p.done < batches {
		switch {
		case words[2] == "heavy":
			err = p.heavy()
		case p.named:
			err = p.training()
		default:
			err = p.batch(p.draw(1+p.shared.IntN(3), ""), false)
		}
		if err == nil && p.done%8 == 0 {
			err = p.compare()
		}
		if err != nil {
			return p.after(err)
		}
	}
	return fmt.Sprintf("all %d %016x", p.done, p.trail), nil
}

// after judges the error that ended the history: only a loss may, and from then on this
// rank's memory is its own.
func (p *stressed) after(err error) (string, error) {
	var lost *engine.OperationError
	if !errors.As(err, &lost) || p.g.Err() == nil {
		return "", err
	}
	for i := range p.arena {
		p.arena[i] = 0xa5
	}
	<-time.After(150 * time.Millisecond)
	for i, b := range p.arena {
		if b != 0xa5 {
			return "", fmt.Errorf("wrong: byte %d of this rank's memory was written after %w", i, err)
		}
	}
	return fmt.Sprintf("lost %d", p.done), nil
}

// registered is memory of the arena, or private where there is no more.
func (p *stressed) registered(n int) []byte {
	at := (p.used+63)&^63 + p.own.IntN(3)*8
	if at+n > len(p.arena) {
		return make([]byte, n)
	}
	p.used = at + n
	b := p.arena[at : at+n : at+n]
	clear(b)
	return b
}

// request is one operation in flight.
type request struct {
	step    *Step
	name    string
	in, out []byte
	ticket  engine.Ticket
}

// draw makes n operations, most of them small.
func (p *stressed) draw(n int, name string) []*request {
	list := make([]*request, n)
	for i := range list {
		most := 1 << p.shared.IntN(13)
		if p.shared.IntN(30) == 0 {
			most = 1 << (13 + p.shared.IntN(7))
		}
		s := RandomStep(p.shared, p.size, most)
		for p.shared.IntN(2) == 0 && s.Kind != collective.Allreduce {
			s = RandomStep(p.shared, p.size, most)
		}
		list[i] = &request{step: s, name: fmt.Sprint(name, i)}
	}
	return list
}

// batch has all operations in flight at once, started and awaited in ways of this
// rank's own; mixed says that each rank has its own order.
func (p *stressed) batch(list []*request, mixed bool) error {
	p.used = 0
	r := &Rank{Rank: p.rank, Size: p.size, Registered: p.registered}
	order := p.own.Perm(len(list))
	for i := range list {
		if mixed {
			i = order[i]
		}
		if err := p.start(r, list[i], mixed); err != nil {
			return err
		}
	}
	for _, i := range p.own.Perm(len(list)) {
		q := list[i]
		if _, err := p.g.Wait(q.ticket, -1); err != nil {
			return fmt.Errorf("wait for %s: %w", q.step, err)
		}
	}
	for _, q := range list {
		if err := errors.Join(q.step.Done(r, q.in, q.out, nil), q.step.VerifyRank(p.rank)); err != nil {
			return fmt.Errorf("wrong: batch %d: %w", p.done, err)
		}
		if k := q.step.Kind; k == collective.Allreduce || k == collective.Allgather || k == collective.Broadcast {
			h := fnv.New64a()
			fmt.Fprint(h, p.trail)
			h.Write(q.out)
			p.trail = h.Sum64()
		}
	}
	p.done++
	return nil
}

func (p *stressed) start(r *Rank, q *request, mixed bool) error {
	call, in, out := q.step.Call(r)
	q.in, q.out, q.ticket = in, out, 0
	ask := engine.Request{Call: *call}
	if p.named {
		ask.Name = q.name
	}
	if p.own.IntN(3) == 0 {
		var one [1]engine.Ticket
		if err := p.g.Submit([]engine.Request{ask}, one[:]); err != nil {
			return fmt.Errorf("submit %s: %w", q.step, err)
		}
		q.ticket = one[0]
		return nil
	}
	budget := time.Duration(p.own.IntN(3)) * 100 * time.Microsecond
	if !mixed && p.own.IntN(2) == 0 {
		budget = -1
	}
	ticket, _, err := p.g.Run(&ask, budget)
	q.ticket = ticket
	if err != nil {
		return fmt.Errorf("run %s: %w", q.step, err)
	}
	return nil
}

// training repeats a few named operations with new values, as the steps of a training
// do, in one order or each rank in its own, now and then with one more between them.
func (p *stressed) training() error {
	list := p.draw(1+p.shared.IntN(5), "t")
	for range 2 + p.shared.IntN(12) {
		for _, q := range list {
			q.step.Fill(p.shared, p.size)
		}
		now := list
		if p.shared.IntN(8) == 0 {
			now = append(p.draw(1, "x"), list...)
		}
		if err := p.batch(now, p.shared.IntN(5) == 0); err != nil {
			return err
		}
	}
	return nil
}

// heavy repeats one operation on large registered memory, so that most of the time
// ranks read and write each other's.
func (p *stressed) heavy() error {
	kinds := []collective.Kind{
		collective.Allreduce, collective.Allreduce, collective.Allgather, collective.Broadcast,
		collective.ReduceScatter, collective.Alltoall,
	}
	s := &Step{
		Kind: kinds[p.shared.IntN(len(kinds))], Type: tensor.Float32, Block: 1<<18 + p.shared.IntN(1<<19),
		Registered: true, InPlace: p.shared.IntN(2) == 0, Root: p.shared.IntN(p.size),
	}
	if s.Kind != collective.Allreduce && s.Kind != collective.Broadcast {
		s.Block /= p.size
	}
	if s.Kind == collective.Allreduce && p.shared.IntN(2) == 0 {
		s.InPlace, s.Private = false, make([]bool, p.size)
		for r := range s.Private {
			s.Private[r] = p.shared.IntN(2) == 0
		}
	}
	s.Fill(p.shared, p.size)
	r := &Rank{Rank: p.rank, Size: p.size, Registered: p.registered}
	var in, out []byte
	for range 50 {
		p.used = 0
		var call *collective.Call
		call, in, out = s.Call(r)
		ask := engine.Request{Call: *call}
		if _, _, err := p.g.Run(&ask, -1); err != nil {
			return fmt.Errorf("run %s: %w", s, err)
		}
	}
	if err := errors.Join(s.Done(r, in, out, nil), s.VerifyRank(p.rank)); err != nil {
		return fmt.Errorf("wrong: batch %d: %w", p.done, err)
	}
	p.done++
	return nil
}

// compare holds the ranks' results to each other.
func (p *stressed) compare() error {
	all := make([]uint64, p.size)
	r := engine.Request{Name: "trail", Call: collective.Call{
		Kind: collective.Allgather, Type: tensor.Uint64, Send: tensor.Of([]uint64{p.trail}), Recv: tensor.Of(all),
	}}
	if _, _, err := p.g.Run(&r, -1); err != nil {
		return err
	}
	for _, other := range all {
		if other != p.trail {
			return fmt.Errorf("wrong: after %d batches the ranks' results differ: %x", p.done, all)
		}
	}
	return nil
}

// crowd are the processes of one history.
type crowd struct {
	ranks   []*jobtest.Process
	ended   []chan struct{} // closed when all that a rank said has been heard
	mu      sync.Mutex      // guards answers
	answers []string
	begun   chan struct{} // a token for every rank that has
}

func (c *crowd) signal(rank int, s syscall.Signal) { _ = c.ranks[rank].Process.Signal(s) }

// listen takes what a rank says until it ends.
func (c *crowd) listen(rank int) {
	defer close(c.ended[rank])
	for line := range c.ranks[rank].Lines {
		if line == "begun" {
			c.begun <- struct{}{}
			continue
		}
		c.mu.Lock()
		c.answers[rank] = line
		c.mu.Unlock()
	}
	<-c.ranks[rank].Ended
}

func gather(t *testing.T, ranks, part int, command string) *crowd {
	t.Helper()
	c := &crowd{answers: make([]string, ranks), begun: make(chan struct{}, ranks), ended: make([]chan struct{}, ranks)}
	for i := range c.ended {
		c.ended[i] = make(chan struct{})
	}
	c.ranks = launch(t, ranks, "", command, fmt.Sprint("HORA_SIM_PART=", part))
	for i := range ranks {
		go c.listen(i)
	}
	t.Cleanup(func() {
		for i := range ranks {
			c.signal(i, syscall.SIGKILL)
			<-c.ended[i]
		}
	})
	return c
}

// disturb stops and continues ranks until the history is over; if kill, it ends one of
// them at a random moment, more often than not while another one is stopped. It gives
// the rank that it killed, or -1.
func (c *crowd) disturb(rng *rand.Rand, kill bool) (victim int) {
	victim = -1
	pause := func(most int) {
		select {
		case <-c.ended[0]:
		case <-time.After(time.Duration(rng.IntN(most)) * time.Millisecond):
		}
	}
	for left := rng.IntN(20); ; left-- {
		over := true
		for i := range c.ended {
			select {
			case <-c.ended[i]:
			default:
				over = over && i == victim
			}
		}
		if over {
			return victim
		}
		r := rng.IntN(len(c.ranks))
		c.signal(r, syscall.SIGSTOP)
		pause(20)
		if kill && left <= 0 && victim < 0 {
			victim = rng.IntN(len(c.ranks))
			c.signal(victim, syscall.SIGKILL)
			pause(100)
		}
		c.signal(r, syscall.SIGCONT)
		pause(30)
	}
}

// TestSharedMemoryUnderStress runs such histories; HORA_SOAK=1 for long.
func TestSharedMemoryUnderStress(t *testing.T) {
	s := seed(t)
	rng := rand.New(rand.NewPCG(s, 3))
	rounds, batches := 5, 120
	if testing.Short() {
		rounds, batches = 3, 40
	}
	if soak() {
		rounds, batches = 200, 600
	}
	for round := range rounds {
		mode := []string{"ordered", "named", "heavy"}[round%3]
		ranks, part, kill := 2+rng.IntN(3), []int{0, 0, 256, 4096}[rng.IntN(4)], round%2 == 1
		if mode == "heavy" {
			ranks, part, kill = 3, 0, true
		}
		command := fmt.Sprintf("stress %d %d %s", rng.Uint64(), batches, mode)
		t.Logf("round %d: %d ranks, part %d, kill %t: %s", round, ranks, part, kill, command)
		c := gather(t, ranks, part, command)
		for range ranks {
			select {
			case <-c.begun:
			case <-time.After(time.Minute):
				t.Fatal("the ranks do not begin")
			}
		}
		victim := c.disturb(rng, kill)
		trail := ""
		for r := range ranks {
			<-c.ended[r]
			_, rest, _ := strings.Cut(c.answers[r], " ")
			word, more, _ := strings.Cut(rest, " ")
			switch {
			case r == victim:
			case word == "all" && (trail == "" || trail == more):
				trail = more
			case word == "lost" && victim >= 0:
			default:
				t.Errorf("rank %d of round %d ended with %q", r, round, c.answers[r])
			}
		}
		t.Logf("%q, killed rank %d", c.answers, victim)
		if t.Failed() {
			return
		}
	}
}
