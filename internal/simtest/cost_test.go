package simtest

import (
	"math/bits"

	"hora/collective"
	"hora/tensor"
)

// What each algorithm sends over message links, as docs/algorithms.md states it and
// worked out apart from the code: an operation that took another way than it was told
// sends something else.

// sending is one operation on message links among the members of a list of ranks.
type sending struct {
	emit    func(from, to, bytes int)
	ranks   []int
	size    int // bytes of an element as it travels
	segment int
}

// pieces emits n elements cut into segments of whole elements; chunks emits bytes. What
// is empty is one empty message.
func (s *sending) pieces(from, to, n int) {
	step := max(s.segment/s.size, 1)
	for first := true; first || n > 0; first = false {
		s.emit(s.ranks[from], s.ranks[to], min(n, step)*s.size)
		n -= min(n, step)
	}
}

func (s *sending) chunks(from, to, n int) {
	for left, first := n*s.size, true; first || left > 0; first = false {
		s.emit(s.ranks[from], s.ranks[to], min(left, s.segment))
		left -= min(left, s.segment)
	}
}

// even cuts n elements into nearly equal blocks.
func even(n, blocks int) []int {
	out := make([]int, blocks)
	for i := range out {
		out[i] = n / blocks
		if i < n%blocks {
			out[i]++
		}
	}
	return out
}

// barrier is a dissemination round.
func (s *sending) barrier() {
	for d := 1; d < len(s.ranks); d *= 2 {
		for i := range s.ranks {
			s.emit(s.ranks[i], s.ranks[(i+d)%len(s.ranks)], 0)
		}
	}
}

// up is a binomial tree towards root, of everything; down the same from it.
func (s *sending) up(root, n int) {
	for rel := 1; rel < len(s.ranks); rel++ {
		s.chunks((rel+root)%len(s.ranks), (rel&(rel-1)+root)%len(s.ranks), n)
	}
}

func (s *sending) down(root, n int) {
	for rel := 1; rel < len(s.ranks); rel++ {
		s.chunks((rel&(rel-1)+root)%len(s.ranks), (rel+root)%len(s.ranks), n)
	}
}

// subtrees is a binomial tree that carries each member's blocks and those below it.
func (s *sending) subtrees(root int, blocks []int, down bool) {
	n := len(s.ranks)
	for rel := 1; rel < n; rel++ {
		child, parent := (rel+root)%n, (rel&(rel-1)+root)%n
		if !down {
			child, parent = parent, child
		}
		s.chunks(parent, child, sum(blocks[rel:min(n, rel+rel&-rel)]))
	}
}

// reduceRing passes each member all blocks but its own; gatherRing all but the one that its
// successor holds at first, which is its own number less shift.
func (s *sending) reduceRing(blocks []int) {
	for me := range s.ranks {
		for b, count := range blocks {
			if b != me {
				s.pieces(me, (me+1)%len(s.ranks), count)
			}
		}
	}
}

func (s *sending) gatherRing(blocks []int, shift int) {
	n := len(s.ranks)
	for me := range s.ranks {
		for b, count := range blocks {
			if b != (me+1-shift+n)%n {
				s.chunks(me, (me+1)%n, count)
			}
		}
	}
}

// folded runs f among a power of two of the members; the others hand theirs to one of these.
func (s *sending) folded(n int, f func(stay []int)) {
	power := 1 << (bits.Len(uint(len(s.ranks))) - 1)
	rest := len(s.ranks) - power
	var stay []int
	for m := range s.ranks {
		switch {
		case m >= 2*rest || m%2 == 1:
			stay = append(stay, m)
		default:
			s.chunks(m, m+1, n)
			s.chunks(m+1, m, n)
		}
	}
	f(stay)
}

func (s *sending) doubling(n int) {
	s.folded(n, func(stay []int) {
		for d := 1; d < len(stay); d *= 2 {
			for at := range stay {
				s.chunks(stay[at], stay[at^d], n)
			}
		}
	})
}

func (s *sending) halving(n int) {
	s.folded(n, func(stay []int) {
		blocks := even(n, len(stay))
		for d := len(stay) / 2; d >= 1; d /= 2 {
			for at := range stay {
				theirs := (at ^ d) &^ (d - 1) // the half that the other one keeps
				s.chunks(stay[at], stay[at^d], sum(blocks[theirs:theirs+d]))
			}
		}
		for d := 1; d < len(stay); d *= 2 {
			for at := range stay {
				s.chunks(stay[at], stay[at^d], sum(blocks[at&^(d-1):at&^(d-1)+d]))
			}
		}
	})
}

func (s *sending) allreduce(algorithm collective.Algorithm, n int) {
	members := len(s.ranks)
	step := max(s.segment/s.size, 1)
	switch {
	case members < 2:
	case members == 2 && algorithm == collective.RecursiveDoubling:
		for left := n; left > 0; left -= min(left, step) {
			s.emit(s.ranks[0], s.ranks[1], min(left, step)*s.size)
			s.emit(s.ranks[1], s.ranks[0], min(left, step)*s.size)
		}
	case members == 2 && algorithm == collective.Ring:
		halves := even(n, 2)
		for lo := 0; lo < halves[0]; lo += step {
			for me := range 2 { // the other's share goes, mine comes back
				s.emit(s.ranks[me], s.ranks[1-me], max(0, min(step, halves[1-me]-lo))*s.size)
				s.emit(s.ranks[me], s.ranks[1-me], max(0, min(step, halves[me]-lo))*s.size)
			}
		}
	case algorithm == collective.Ring:
		s.reduceRing(even(n, members))
		s.gatherRing(even(n, members), 0)
	case algorithm == collective.Rabenseifner:
		s.halving(n)
	case algorithm == collective.Tree:
		s.up(0, n)
		s.down(0, n)
	case algorithm == collective.DoubleTree:
		for i, half := range even(n, 2) {
			s.bothWays(0, members, -1, i, half)
		}
	default:
		s.doubling(n)
	}
}

// bothWays is tree i of the two, over places [lo, hi) below parent: segments go up and down.
func (s *sending) bothWays(lo, hi, parent, i, n int) {
	if lo >= hi {
		return
	}
	at, members := (lo+hi)/2, len(s.ranks)
	if parent >= 0 && n > 0 {
		s.pieces((at-i+members)%members, (parent-i+members)%members, n)
		s.pieces((parent-i+members)%members, (at-i+members)%members, n)
	}
	s.bothWays(lo, at, at, i, n)
	s.bothWays(at+1, hi, at, i, n)
}

func (s *sending) broadcast(algorithm collective.Algorithm, root, n int) {
	if len(s.ranks) < 2 {
		return
	}
	if algorithm != collective.ScatterRing {
		s.down(root, n)
		return
	}
	blocks := even(n, len(s.ranks))
	s.subtrees(root, blocks, true)
	s.gatherRing(blocks, root)
}

func (s *sending) allgather(algorithm collective.Algorithm, blocks []int) {
	n := len(s.ranks)
	if algorithm != collective.Bruck {
		s.gatherRing(blocks, 0)
		return
	}
	for d := 1; d < n; d *= 2 {
		for me := range n {
			out := 0
			for i := range min(d, n-d) {
				out += blocks[(me+i)%n]
			}
			s.chunks(me, (me-d+n)%n, out)
		}
	}
}

func (s *sending) alltoall(algorithm collective.Algorithm, step *Step) {
	n := len(s.ranks)
	if step.Counts != nil || algorithm != collective.Bruck || n == 2 {
		for me := range n {
			for d := 1; d < n; d++ {
				to, count := (me+d)%n, step.Block
				if step.Counts != nil {
					count = step.Counts[me][to]
				}
				s.chunks(me, to, count)
			}
		}
		return
	}
	for hop := 1; hop < n; hop *= 2 {
		for me := range n {
			moves := 0
			for d := hop; d < n; d++ {
				moves += d / hop & 1
			}
			s.chunks(me, (me+hop)%n, moves*step.Block)
		}
	}
}

// rooted is gather, or scatter where out: a tree of equal blocks, else one by one.
func (s *sending) rooted(algorithm collective.Algorithm, step *Step, out bool) {
	blocks := even(step.Block*len(s.ranks), len(s.ranks))
	if step.Counts != nil {
		blocks = step.Counts[0]
	} else if algorithm == collective.Tree {
		s.subtrees(step.Root, blocks, out)
		return
	}
	for r, count := range blocks {
		if r != step.Root && out {
			s.chunks(step.Root, r, count)
		} else if r != step.Root {
			s.chunks(r, step.Root, count)
		}
	}
}

// travels is the type as which narrow floats go between hosts up to 64 KiB.
func travels(s *Step, elements int) int {
	switch s.Type {
	case tensor.Float16, tensor.BFloat16, tensor.Float8E4M3, tensor.Float8E5M2:
		if s.Op == tensor.Adasum || elements*s.Type.Size() <= 64<<10 {
			return 4
		}
	}
	return s.Type.Size()
}

// elements is how many one rank holds when all blocks are together.
func (s *Step) elements(ranks int) int {
	switch {
	case s.Kind == collective.Allreduce || s.Kind == collective.Reduce || s.Kind == collective.Broadcast:
		return s.Block
	case s.Counts != nil:
		return sum(s.Counts[0])
	}
	return s.Block * ranks
}

// flat is what a step sends when all ranks talk over links alike.
func (s *Step) flat(algorithm collective.Algorithm, ranks, segment int, emit func(from, to, bytes int)) {
	m := &sending{emit: emit, size: s.Type.Size(), segment: segment}
	for r := range ranks {
		m.ranks = append(m.ranks, r)
	}
	if s.Agree || s.Kind.Rooted() {
		m.barrier()
	}
	n := s.elements(ranks)
	if n == 0 && (s.Counts == nil || s.Kind == collective.Allgather || s.Kind == collective.ReduceScatter) {
		return
	}
	blocks := even(s.Block*ranks, ranks)
	if s.Counts != nil {
		blocks = s.Counts[0]
	}
	if s.Kind.Reduces() {
		m.size = travels(s, n)
	}
	switch s.Kind {
	case collective.Allreduce:
		if s.Op == tensor.Adasum {
			m.doubling(n)
			return
		}
		m.allreduce(algorithm, n)
	case collective.Reduce:
		if algorithm != collective.Ring {
			m.up(s.Root, n)
			return
		}
		m.reduceRing(even(n, ranks))
		for r, count := range even(n, ranks) {
			if r != s.Root {
				m.chunks(r, s.Root, count)
			}
		}
	case collective.Broadcast:
		m.broadcast(algorithm, s.Root, n)
	case collective.Allgather:
		m.allgather(algorithm, blocks)
	case collective.ReduceScatter:
		if algorithm == collective.Ring {
			m.reduceRing(blocks)
		} else {
			m.doubling(n)
		}
	case collective.Alltoall:
		m.alltoall(algorithm, s)
	case collective.Gather:
		m.rooted(algorithm, s, false)
	case collective.Scatter:
		m.rooted(algorithm, s, true)
	}
}

// layered is what a step sends between hosts when each host reduces and shares in memory.
func (s *Step) layered(algorithm collective.Algorithm, hosts [][]int, segment int, emit func(from, to, bytes int)) {
	ranks, shards := 0, len(hosts[0])
	for _, local := range hosts {
		ranks, shards = ranks+len(local), min(shards, len(local))
	}
	if s.Agree || s.Kind.Rooted() {
		s.flatBarrier(ranks, emit)
	}
	n := s.elements(ranks)
	if n == 0 {
		return
	}
	m := &sending{emit: emit, size: s.Type.Size(), segment: segment}
	if s.Kind.Reduces() {
		m.size = travels(s, n)
	}
	home := 0 // the host of the root
	for h, local := range hosts {
		for _, r := range local {
			if r == s.Root {
				home = h
			}
		}
	}
	across := func(seat int) {
		m.ranks = m.ranks[:0]
		for _, local := range hosts {
			m.ranks = append(m.ranks, local[seat])
		}
	}
	cut := even(n, max(1, min(shards, n*m.size/min(4096, segment))))
	blocks := even(s.Block*ranks, ranks)
	if s.Counts != nil {
		blocks = s.Counts[0]
	}
	switch s.Kind {
	case collective.Allreduce, collective.Reduce:
		for seat, count := range cut {
			across(seat)
			if s.Kind == collective.Reduce && count > 0 {
				m.up(home, count)
			} else if count > 0 {
				m.allreduce(algorithm, count)
			}
		}
	case collective.Broadcast:
		across(0)
		m.ranks[home] = s.Root
		m.broadcast(algorithm, home, n)
	case collective.Allgather, collective.ReduceScatter:
		for seat := range hosts[0] {
			across(seat)
			of := make([]int, len(hosts))
			for h, local := range hosts {
				of[h] = blocks[local[seat]]
			}
			if s.Kind == collective.Allgather {
				m.allgather(algorithm, of)
			} else {
				m.reduceRing(of)
			}
		}
	}
}

// heads is a barrier: one rank a host takes part.
func (s *Step) heads(hosts [][]int, emit func(from, to, bytes int)) {
	m, ranks := &sending{emit: emit}, 0
	for _, local := range hosts {
		m.ranks = append(m.ranks, local[0])
		ranks += len(local)
	}
	if s.Agree {
		s.flatBarrier(ranks, emit)
	}
	m.barrier()
}

func (s *Step) flatBarrier(ranks int, emit func(from, to, bytes int)) {
	m := &sending{emit: emit}
	for r := range ranks {
		m.ranks = append(m.ranks, r)
	}
	m.barrier()
}
