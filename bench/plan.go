package bench

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Plan says what a run measures.
type Plan struct {
	NP     []int
	Ops    []string
	Links  []string
	Sizes  []int
	Peers  []string
	Rounds int
}

// The names that a plan may hold.
var (
	AllOps   = []string{"allreduce", "reducescatter", "allgather", "broadcast", "alltoall", "reduce", "barrier", "named", "plan", "waiting", "memory"}
	AllLinks = []string{"shm", "registered", "tcp"}
	AllPeers = []string{"gloo", "gloo_spin", "openmpi", "openmpi_tuned", "impi", "roofline", "ordered", "best"}
)

// everyPeer is what "all" stands for.
var everyPeer = []string{"gloo", "gloo_spin", "openmpi", "openmpi_tuned", "impi", "best"}

// Widen replaces "all" among the peers: every competitor stands beside those that the goals
// name. It reports whether it was there.
func (p *Plan) Widen() bool {
	if !slices.Contains(p.Peers, "all") {
		return false
	}
	p.Peers = slices.Clone(everyPeer)
	return true
}

// unitOf is in what an operation is measured; "": microseconds.
func unitOf(op string) string {
	if op == "memory" {
		return "KiB"
	}
	return ""
}

// DefaultSizes are the sizes at which the goals are stated.
func DefaultSizes() []int {
	return []int{4, 64, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20, 64 << 20}
}

// Validate names everything that is wrong with a plan at once.
func (p *Plan) Validate() error {
	var faults []string
	for _, list := range []struct {
		what    string
		have    []string
		allowed []string
	}{{"operation", p.Ops, AllOps}, {"link", p.Links, AllLinks}, {"peer", p.Peers, AllPeers}} {
		for _, name := range list.have {
			if name == "all" && list.what == "peer" {
				continue
			}
			if !slices.Contains(list.allowed, name) {
				faults = append(faults, fmt.Sprintf("no %s is called %q (there are %s)", list.what, name, strings.Join(list.allowed, ", ")))
			}
		}
	}
	for _, np := range p.NP {
		if np < 1 || np > 256 {
			faults = append(faults, fmt.Sprintf("%d ranks is not between 1 and 256", np))
		}
	}
	if p.Rounds < 1 {
		faults = append(faults, "at least one round is needed")
	}
	if len(faults) > 0 {
		return fmt.Errorf("plan benchmark: %s", strings.Join(faults, "; "))
	}
	return nil
}

// ParseSizes reads "4..64Mi" (the default sizes in that range) or a list such as
// "4,64Ki,1Mi".
func ParseSizes(s string) ([]int, error) {
	if low, high, ok := strings.Cut(s, ".."); ok {
		from, err := parseSize(low)
		if err != nil {
			return nil, err
		}
		to, err := parseSize(high)
		if err != nil {
			return nil, err
		}
		var sizes []int
		for _, n := range DefaultSizes() {
			if n >= from && n <= to {
				sizes = append(sizes, n)
			}
		}
		if len(sizes) == 0 {
			return nil, fmt.Errorf("read sizes %q: the range holds none of the sizes that are measured; give a list such as 4,64Ki,1Mi", s)
		}
		return sizes, nil
	}
	var sizes []int
	for _, part := range strings.Split(s, ",") {
		n, err := parseSize(part)
		if err != nil {
			return nil, err
		}
		sizes = append(sizes, n)
	}
	slices.Sort(sizes)
	return slices.Compact(sizes), nil
}

func parseSize(s string) (int, error) {
	text, unit := strings.TrimSuffix(strings.TrimSpace(s), "B"), 1
	for suffix, u := range map[string]int{"Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30} {
		if t, ok := strings.CutSuffix(text, suffix); ok {
			text, unit = t, u
		}
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > 1<<40/unit || n*unit < 4 {
		return 0, fmt.Errorf("read size %q: want a number of bytes from 4, such as 4, 64Ki or 1Mi", s)
	}
	return n * unit / 4 * 4, nil
}

// FormatSize is the short form of a size: 4, 64Ki, 1Mi.
func FormatSize(n int) string {
	switch {
	case n >= 1<<20 && n%(1<<20) == 0:
		return strconv.Itoa(n>>20) + "Mi"
	case n >= 1<<10 && n%(1<<10) == 0:
		return strconv.Itoa(n>>10) + "Ki"
	}
	return strconv.Itoa(n)
}

// callsFor is how often a size is timed; peers/measure.h has the same table.
func callsFor(bytes int) int {
	switch {
	case bytes <= 4096:
		return 2000
	case bytes <= 65536:
		return 600
	case bytes <= 1<<20:
		return 120
	case bytes <= 8<<20:
		return 30
	}
	return 9
}

func warmCalls(calls int) int { return calls/10 + 2 }
