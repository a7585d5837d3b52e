package probe

import (
	"fmt"
	"io"
	"math/bits"
	"slices"
	"strconv"
)

// Net is what Measure found between hosts, one rank on each.
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

// median lies in the middle between the two values nearest to it; 0 of nothing.
func median(x []float64) float64 {
	if len(x) == 0 {
		return 0
	}
	x = slices.Sorted(slices.Values(x))
	return (x[(len(x)-1)/2] + x[len(x)/2]) / 2
}
