// Package probe measures the ways between hosts, one rank on each, through hora's own links: how long a message takes,
// how fast bytes go, how far clocks are apart, and an allreduce beside what these figures let expect.
//
// It owns what is measured, what is predicted from it and how that is said. It starts no rank, reads no environment and
// no flags, and starts no goroutine: Measure runs on its caller's, in a worker that somebody started on each host.
package probe

import (
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"io"
	"math"
	"slices"
	"time"

	"hora"
	"hora/tensor"
)

const (
	netTurns  = 400                    // small messages per pair
	netWarm   = 100                    // of them not counted
	netAsks   = 30                     // of the other clock
	netLarge  = 16 << 20               // the longest message
	netEnough = 100 * time.Millisecond // a transfer this long says how fast the link is
	netCalls  = 8                      // fewest allreduces per size
	netBudget = 50_000                 // µs for the calls of a size that takes less
	netLong   = 2e6                    // µs: a size predicted to take longer is left out
	netAtOnce = 8                      // up to so many hosts only one pair is measured at a time
)

var netSizes = []int{4, 4 << 10, 64 << 10, 1 << 20, 16 << 20}

// Measure joins the world of cfg, measures each pair of its ranks through hora's own links, then an allreduce among
// all, and rank 0 prints a Net as JSON.
func Measure(ctx context.Context, cfg hora.Config, out io.Writer) error {
	w, err := hora.Join(ctx, cfg)
	if err != nil {
		return err
	}
	defer w.Close()
	n := w.Size()
	if n < 2 {
		return fmt.Errorf("measure the network: there is one rank: name at least two hosts")
	}
	mine := make([]float64, 4*n) // latency, rate, offset, bound: to or from each rank
	for _, pairs := range Rounds(n) {
		for _, p := range pairs {
			if p[0] == w.Rank() || p[1] == w.Rank() {
				if err := measurePair(ctx, w, p, mine); err != nil {
					return fmt.Errorf("measure between %s and %s: %w", w.HostOf(p[0]), w.HostOf(p[1]), err)
				}
			}
		}
		if err := barrier(w.Group()); err != nil {
			return err
		}
	}
	all, err := hora.Allgather(ctx, w.Group(), mine)
	if err != nil {
		return err
	}
	net := report(w, all)
	if net.Same, err = sameMachine(ctx, w); err != nil {
		return err
	}
	if err := measureAllreduce(w, net); err != nil {
		return err
	}
	net.Advice = net.advise()
	if w.Rank() == 0 {
		if err := json.NewEncoder(out).Encode(net); err != nil {
			return fmt.Errorf("write the figures: %w", err)
		}
	}
	return w.Leave(ctx)
}

// sameMachine finds names that stand for one machine, as what shares memory tells it.
func sameMachine(ctx context.Context, w *hora.World) ([][2]string, error) {
	h := fnv.New64a()
	io.WriteString(h, w.Config().HostID)
	ids, err := hora.Allgather(ctx, w.Group(), []int64{int64(h.Sum64())})
	if err != nil {
		return nil, err
	}
	var same [][2]string
	for b, id := range ids {
		if a := slices.Index(ids, id); a < b {
			same = append(same, [2]string{w.HostOf(a), w.HostOf(b)})
		}
	}
	return same, nil
}

// Rounds is every pair of n ranks once: one at a time among few, else in rounds of pairs that share no rank.
func Rounds(n int) [][][2]int {
	var out [][][2]int
	if n <= netAtOnce {
		for a := range n {
			for b := a + 1; b < n; b++ {
				out = append(out, [][2]int{{a, b}})
			}
		}
		return out
	}
	m := n + n%2 // a rank that does not exist gives an odd one a pause
	for r := range m - 1 {
		var round [][2]int
		for i := range m / 2 {
			a, b := (r+i)%(m-1), (r+m-1-i)%(m-1)
			if i == 0 {
				b = m - 1
			}
			if a < n && b < n {
				round = append(round, [2]int{min(a, b), max(a, b)})
			}
		}
		out = append(out, round)
	}
	return out
}

func barrier(g *hora.Group) error {
	_, _, err := g.Run(&hora.Request{Call: hora.Call{Kind: hora.KindBarrier}}, -1)
	return err
}

// measurePair is one end of a pair. What this end learns goes to mine: the latency, the rate at which it receives, and
// on the lower rank how far the other's clock is before its own.
func measurePair(ctx context.Context, w *hora.World, p [2]int, mine []float64) error {
	g, err := w.NewGroup(ctx, p[:], hora.Called("bench net"))
	if err != nil {
		return err
	}
	defer g.Close()
	other := p[1-g.Rank()]
	at := mine[4*other : 4*other+4]
	if at[0], err = exchangeTime(g); err != nil {
		return err
	}
	if at[2], at[3], err = clockOffset(g); err != nil {
		return err
	}
	for sender := range 2 {
		rate, err := transferRate(g, sender)
		if err != nil {
			return err
		}
		if g.Rank() != sender {
			at[1] = rate
		}
	}
	return nil
}

// exchangeTime is the median time, in µs, in which two ranks exchange four bytes, which is that of one message.
func exchangeTime(g *hora.Group) (float64, error) {
	x := []float32{1}
	v := tensor.Of(x)
	r := hora.Request{Call: hora.Call{Kind: hora.KindAllreduce, Op: tensor.Max, Type: v.Type, Send: v, Recv: v}}
	var took []float64
	for turn := range netTurns {
		began := time.Now()
		if _, _, err := g.Run(&r, -1); err != nil {
			return 0, err
		}
		if turn >= netWarm {
			took = append(took, micros(time.Since(began)))
		}
	}
	return median(took), nil
}

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

// clockOffset asks rank 1 for its time and takes the answer that came soonest. Only rank 0 learns it, in ms.
func clockOffset(g *hora.Group) (offset, bound float64, err error) {
	word := make([]int64, 1)
	v := tensor.Of(word)
	send := hora.Request{Call: hora.Call{Kind: hora.KindSend, Type: v.Type, Peer: 1 - g.Rank(), Send: v}}
	receive := hora.Request{Call: hora.Call{Kind: hora.KindRecv, Type: v.Type, Peer: 1 - g.Rank(), Recv: v}}
	bound = math.Inf(1)
	for range netAsks {
		if g.Rank() == 1 {
			if _, _, err = g.Run(&receive, -1); err == nil {
				word[0] = time.Now().UnixNano()
				_, _, err = g.Run(&send, -1)
			}
			if err != nil {
				return 0, 0, err
			}
			continue
		}
		began := time.Now()
		if _, _, err = g.Run(&send, -1); err == nil {
			_, _, err = g.Run(&receive, -1)
		}
		if err != nil {
			return 0, 0, err
		}
		half := time.Since(began) / 2
		if ms := micros(half) / 1000; ms < bound {
			bound = ms
			offset = float64(word[0]-began.Add(half).UnixNano()) / float64(time.Millisecond)
		}
	}
	if g.Rank() == 1 {
		return 0, 0, nil
	}
	return offset, bound, nil
}

// transferRate is how fast the other rank receives from sender, in Gbit/s: messages that double until one takes long
// enough, and the best of three of those.
func transferRate(g *hora.Group, sender int) (float64, error) {
	best := 0.0
	for size, again := 64<<10, 0; ; {
		if err := barrier(g); err != nil {
			return 0, err
		}
		x := make([]byte, size)
		v := tensor.Of(x)
		r := hora.Request{Call: hora.Call{Kind: hora.KindBroadcast, Type: v.Type, Root: sender, Send: v, Recv: v}}
		if g.Rank() == sender {
			r.Recv = tensor.View{}
		} else {
			r.Send = tensor.View{}
		}
		began := time.Now()
		if _, _, err := g.Run(&r, -1); err != nil {
			return 0, err
		}
		took := time.Since(began)
		// The receiver's clock counts: the sender is done when the bytes are in a socket.
		word := []int64{0}
		if g.Rank() != sender {
			word[0] = int64(took)
		}
		if err := hora.Allreduce(context.Background(), g, word, tensor.Max); err != nil {
			return 0, err
		}
		took = time.Duration(max(word[0], 1))
		switch {
		case took < netEnough && size < netLarge:
			size *= 2
			best = 0
		case again == 2:
			return max(best, gigabits(size, took)), nil
		default:
			again++
			best = max(best, gigabits(size, took))
		}
	}
}

func gigabits(bytes int, took time.Duration) float64 { return 8 * float64(bytes) / float64(took) }

// report makes a Net of what all ranks measured.
func report(w *hora.World, all []float64) *Net {
	n := w.Size()
	net := &Net{}
	for r := range n {
		net.Hosts = append(net.Hosts, w.HostOf(r))
	}
	cell := func(of, with, what int) float64 { return all[4*(n*of+with)+what] }
	for a := range n {
		for b := range n {
			if a != b { // b knows what it received from a
				net.Pairs = append(net.Pairs, Pair{
					From: net.Hosts[a], To: net.Hosts[b], Latency: cell(b, a, 0),
					Rate: cell(b, a, 1),
				})
			}
		}
	}
	for b := range n {
		c := Clock{Host: net.Hosts[b]}
		if b > 0 {
			c.Offset, c.Bound = cell(0, b, 2), cell(0, b, 3)
		}
		net.Clocks = append(net.Clocks, c)
	}
	return net
}

func measureAllreduce(w *hora.World, net *Net) error {
	g := w.Group()
	for _, size := range netSizes {
		predicted := net.Predict(size)
		if predicted > netLong { // equal on all ranks: all have all figures
			continue
		}
		v := tensor.Of(make([]float32, size/4))
		r := hora.Request{Call: hora.Call{Kind: hora.KindAllreduce, Op: tensor.Sum, Type: v.Type, Send: v, Recv: v}}
		var took []float64
		calls := int(min(max(netBudget/max(predicted, 1), netCalls), netTurns))
		for range calls {
			began := time.Now()
			if _, _, err := g.Run(&r, -1); err != nil {
				return err
			}
			took = append(took, micros(time.Since(began)))
		}
		slowest := []float64{median(took[calls/4:])} // the first ones find sleeping peers and cold windows
		if err := hora.Allreduce(context.Background(), g, slowest, tensor.Max); err != nil {
			return err
		}
		net.Allreduce = append(net.Allreduce, Predicted{Bytes: size, Predicted: predicted, Measured: slowest[0]})
	}
	return nil
}
