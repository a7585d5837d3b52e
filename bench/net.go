package bench

import (
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"io"
	"math"
	"math/bits"
	"slices"
	"strconv"
	"time"

	"hora"
	"hora/tensor"
)

// Net is what MeasureNet found between hosts, one rank on each.
type Net struct {
	Hosts     []string    `json:"hosts"`
	Pairs     []Pair      `json:"pairs"`
	Clocks    []Clock     `json:"clocks"`
	Allreduce []Predicted `json:"allreduce"`
	Same      [][2]string `json:"same,omitempty"` // two names of one machine: what is between them is no network
	Advice    string      `json:"advice"`
}

// Pair is the way from one host to another.
type Pair struct {
	From    string  `json:"from"`
	To      string  `json:"to"`
	Latency float64 `json:"latency_us"` // of a small message, one way
	Rate    float64 `json:"gbit_s"`     // of large ones
}

// Clock is how far a host's clock is before the first host's.
type Clock struct {
	Host   string  `json:"host"`
	Offset float64 `json:"offset_ms"`
	Bound  float64 `json:"bound_ms"` // the offset is known within this much
}

// Predicted is an allreduce among all hosts beside what the pairs' figures let expect.
type Predicted struct {
	Bytes     int     `json:"bytes"`
	Predicted float64 `json:"predicted_us"`
	Measured  float64 `json:"measured_us"`
}

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

// MeasureNet joins the world of cfg, measures each pair of its ranks through hora's own links, then an allreduce among
// all, and rank 0 prints a Net as JSON.
func MeasureNet(ctx context.Context, cfg hora.Config, out io.Writer) error {
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
				net.Pairs = append(net.Pairs, Pair{From: net.Hosts[a], To: net.Hosts[b], Latency: cell(b, a, 0), Rate: cell(b, a, 1)})
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

// model is α in µs and β in µs a byte: those of the slowest way, which all wait for.
func (n *Net) model() (alpha, beta float64) {
	for _, p := range n.Pairs {
		alpha = max(alpha, p.Latency)
		if p.Rate > 0 {
			beta = max(beta, 8/(p.Rate*1000))
		}
	}
	return alpha, beta
}

// Predict is the time in µs of an allreduce of so many bytes over message links, the best of the algorithms that
// docs/algorithms.md counts: recursive doubling, halving and doubling, ring.
func (n *Net) Predict(bytes int) float64 {
	alpha, beta := n.model()
	ranks, s := float64(len(n.Hosts)), float64(bytes)
	if ranks < 2 {
		return 0
	}
	steps := float64(bits.Len(uint(len(n.Hosts) - 1)))
	most := 2 * (ranks - 1) / ranks * s * beta
	return min(steps*(alpha+s*beta), 2*steps*alpha+most, 2*(ranks-1)*alpha+most)
}

// advise is the one sentence to take home.
func (n *Net) advise() string {
	if len(n.Same) > 0 {
		return fmt.Sprintf("%s and %s are two names of one machine, so these are no figures of a network, and nothing is predicted from them: name each machine once.", n.Same[0][0], n.Same[0][1])
	}
	slow, far := n.Pairs[0], n.Pairs[0]
	for _, p := range n.Pairs {
		if p.Rate < slow.Rate {
			slow = p
		}
		if p.Latency > far.Latency {
			far = p
		}
	}
	var rates, latencies, others []float64
	for _, p := range n.Pairs {
		rates, latencies = append(rates, p.Rate), append(latencies, p.Latency)
		if p != slow {
			others = append(others, p.Rate)
		}
	}
	rate, latency, other := median(rates), median(latencies), median(others)
	last := n.last()
	alpha, beta := n.model()
	switch {
	case slow.Rate < other/2.5 && len(n.Hosts) == 2:
		return fmt.Sprintf("From %s to %s runs at %s Gbit/s and the other way at %s, and every allreduce waits for the slower one: look at that cable, port and route, and at what else uses it.",
			slow.From, slow.To, digits(slow.Rate), digits(other))
	case slow.Rate < other/2.5:
		return fmt.Sprintf("From %s to %s runs at %s Gbit/s where the others have %s, and every allreduce waits for it: look at that cable, port and route, or leave one of the two hosts out.",
			slow.From, slow.To, digits(slow.Rate), digits(other))
	case len(n.Pairs) > 2 && far.Latency > 4*latency && far.Latency > 500:
		return fmt.Sprintf("A message from %s to %s takes %s ms where the others take %s, and every allreduce waits for it: look at the route between them, or leave one of the two hosts out.",
			far.From, far.To, digits(far.Latency/1000), digits(latency/1000))
	case last != nil && last.Measured > 3*last.Predicted:
		return fmt.Sprintf("An allreduce of %s takes %.1f times what the network needs, so processors are the limit, not the network: give ranks free cores.",
			SizeText(last.Bytes), last.Measured/last.Predicted)
	case alpha > 1000:
		return fmt.Sprintf("A message takes %s ms, so tensors below %s cost the same as that much: pack small ones together (a larger fusion threshold) and communicate less often.",
			digits(alpha/1000), SizeText(int(alpha/beta)))
	case rate < 2.5:
		return fmt.Sprintf("At %s Gbit/s the gradients of 100 million float32 parameters take %s s a step: send them in 16 bits, or accumulate several batches before each step.",
			digits(rate), digits(n.Predict(400_000_000)/1e6))
	}
	return fmt.Sprintf("All ways are alike: the gradients of 100 million float32 parameters take about %s s a step, less what overlaps with computing.", digits(n.Predict(400_000_000)/1e6))
}

// digits writes a figure with the two digits that one looks at, and never as 1e+02.
func digits(x float64) string {
	if x >= 10 {
		return strconv.FormatFloat(x, 'f', 0, 64)
	}
	return strconv.FormatFloat(x, 'g', 2, 64)
}

func (n *Net) last() *Predicted {
	if len(n.Allreduce) == 0 {
		return nil
	}
	return &n.Allreduce[len(n.Allreduce)-1]
}

// SizeText is a size in words.
func SizeText(bytes int) string {
	switch {
	case bytes >= 1<<20:
		return fmt.Sprintf("%d MiB", bytes>>20)
	case bytes >= 1<<10:
		return fmt.Sprintf("%d KiB", bytes>>10)
	}
	return fmt.Sprintf("%d bytes", bytes)
}

// WritePage prints a Net for people.
func (n *Net) WritePage(w io.Writer) error {
	var b []byte
	line := func(format string, a ...any) { b = fmt.Appendf(b, format+"\n", a...) }
	width := 4
	for _, h := range n.Hosts {
		width = max(width, len(h))
	}
	line("%-*s  %-*s  %12s  %12s", width, "from", width, "to", "latency, µs", "Gbit/s")
	for _, p := range n.Pairs {
		line("%-*s  %-*s  %12.1f  %12.2f", width, p.From, width, p.To, p.Latency, p.Rate)
	}
	line("")
	for _, c := range n.Clocks[1:] {
		line("clock of %s: %+.2f ms beside %s's (within %.2f)", c.Host, c.Offset, n.Hosts[0], c.Bound)
	}
	line("")
	if len(n.Same) > 0 {
		line("%-12s  %14s", "allreduce", "measured, µs")
		for _, a := range n.Allreduce {
			line("%-12s  %14.1f", SizeText(a.Bytes), a.Measured)
		}
		line("\n%s", n.Advice)
		_, err := w.Write(b)
		return err
	}
	line("%-12s  %14s  %14s", "allreduce", "predicted, µs", "measured, µs")
	for _, a := range n.Allreduce {
		line("%-12s  %14.1f  %14.1f", SizeText(a.Bytes), a.Predicted, a.Measured)
	}
	line("\n%s", n.Advice)
	_, err := w.Write(b)
	return err
}

func median(x []float64) float64 { return quantile(x, 0.5) }

// quantile lies between the two values nearest to it, in proportion; 0 of nothing.
func quantile(x []float64, part float64) float64 {
	if len(x) == 0 {
		return 0
	}
	x = slices.Sorted(slices.Values(x))
	at := part * float64(len(x)-1)
	below := int(at)
	above := min(below+1, len(x)-1)
	return x[below] + (at-float64(below))*(x[above]-x[below])
}
