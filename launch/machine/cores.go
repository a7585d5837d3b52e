// Package machine is what launcher and agent need to know and do of the machine they are on: its cores and how they are
// dealt, control groups, addresses, ports, and the tree of processes. It decides nothing about jobs and starts no
// goroutine but those that try addresses, which are joined before Reachable returns.
package machine

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Core is a physical core: its hardware threads among those that this process may use.
type Core struct {
	Node    int // NUMA node
	Threads []int
}

// Cores lists the physical cores under root (a sysfs, "/sys") that have a thread in allowed (nil allows all), in NUMA
// order. Where sysfs tells nothing every allowed CPU is a core of its own.
func Cores(root string, allowed []int) []Core {
	cpus := readList(filepath.Join(root, "devices/system/cpu/online"))
	if allowed != nil {
		if cpus == nil {
			cpus = allowed
		}
		cpus = slices.DeleteFunc(cpus, func(c int) bool { return !slices.Contains(allowed, c) })
	}
	node := map[int]int{}
	dirs, _ := filepath.Glob(filepath.Join(root, "devices/system/node/node[0-9]*"))
	for _, d := range dirs {
		n, err := strconv.Atoi(strings.TrimPrefix(filepath.Base(d), "node"))
		if err != nil {
			continue
		}
		for _, c := range readList(filepath.Join(d, "cpulist")) {
			node[c] = n
		}
	}
	var cores []Core
	seen := map[int]bool{}
	for _, c := range cpus {
		if seen[c] {
			continue
		}
		threads := []int{c}
		for _, t := range readList(filepath.Join(root, "devices/system/cpu", "cpu"+strconv.Itoa(c), "topology/thread_siblings_list")) {
			if t != c && slices.Contains(cpus, t) {
				threads = append(threads, t)
			}
		}
		slices.Sort(threads)
		for _, t := range threads {
			seen[t] = true
		}
		cores = append(cores, Core{Node: node[c], Threads: threads})
	}
	slices.SortStableFunc(cores, func(a, b Core) int { return a.Node - b.Node })
	return cores
}

// readList reads a kernel list such as "0-3,8"; nil when it cannot.
func readList(path string) []int {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil
	}
	return parseList(strings.TrimSpace(string(b)))
}

func parseList(s string) []int {
	var out []int
	for part := range strings.SplitSeq(s, ",") {
		lo, hi, ranged := strings.Cut(part, "-")
		a, err := strconv.Atoi(lo)
		if err != nil {
			return nil
		}
		b := a
		if ranged {
			if b, err = strconv.Atoi(hi); err != nil || b < a || b-a > 1<<16 {
				return nil
			}
		}
		for i := a; i <= b; i++ {
			out = append(out, i)
		}
	}
	return out
}

// FormatList writes CPU numbers as the kernel does.
func FormatList(cpus []int) string {
	cpus = slices.Sorted(slices.Values(cpus))
	var b strings.Builder
	for i := 0; i < len(cpus); {
		j := i
		for j+1 < len(cpus) && cpus[j+1] == cpus[j]+1 {
			j++
		}
		if b.Len() > 0 {
			b.WriteByte(',')
		}
		b.WriteString(strconv.Itoa(cpus[i]))
		if j > i {
			b.WriteByte('-')
			b.WriteString(strconv.Itoa(cpus[j]))
		}
		i = j + 1
	}
	return b.String()
}

// Bind says to which cores a worker is bound.
type Bind uint8

// The ways to bind.
const (
	BindCore Bind = iota // an equal share of the host's cores each, in NUMA order
	BindNone
)

// Share is what one worker may use of its host.
type Share struct {
	CPUs  []int // hardware threads to bind to; nil for no binding
	Cores int   // how many threads of computation fit it, at least 1
}

// Shares deals cores to ranks of one host: equal numbers of whole cores, never across NUMA nodes where the ranks divide
// evenly among the nodes; single hardware threads where there are not enough cores. crowded says that there are fewer
// hardware threads than ranks: then nobody is bound.
func Shares(cores []Core, ranks int, bind Bind) (shares []Share, crowded bool) {
	shares = make([]Share, ranks)
	var threads []int
	for _, c := range cores {
		threads = append(threads, c.Threads...)
	}
	crowded = ranks > len(threads)
	per := max(len(cores)/ranks, 1)
	for i := range shares {
		shares[i].Cores = per
	}
	switch {
	case crowded || bind == BindNone:
	case ranks > len(cores):
		// First threads of all cores, then second ones: neighbours share a core as late as possible.
		var order []int
		for depth := 0; len(order) < len(threads); depth++ {
			for _, c := range cores {
				if depth < len(c.Threads) {
					order = append(order, c.Threads[depth])
				}
			}
		}
		for i := range shares {
			shares[i].CPUs = []int{order[i]}
		}
	default:
		nodes := splitNodes(cores)
		if ranks%len(nodes) != 0 {
			nodes = [][]Core{cores}
		}
		each := ranks / len(nodes)
		for n, cs := range nodes {
			if len(cs) < each { // uneven nodes: deal over all instead
				return Shares(flatten(cores), ranks, bind)
			}
			per := len(cs) / each
			for k := range each {
				s := &shares[n*each+k]
				s.Cores = per
				for _, c := range cs[k*per : (k+1)*per] {
					s.CPUs = append(s.CPUs, c.Threads...)
				}
			}
		}
	}
	return shares, crowded
}

func splitNodes(cores []Core) [][]Core {
	var out [][]Core
	for i, c := range cores {
		if i == 0 || c.Node != cores[i-1].Node {
			out = append(out, nil)
		}
		out[len(out)-1] = append(out[len(out)-1], c)
	}
	return out
}

// flatten forgets the nodes.
func flatten(cores []Core) []Core {
	out := slices.Clone(cores)
	for i := range out {
		out[i].Node = 0
	}
	return out
}
