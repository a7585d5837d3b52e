package collective

import "unsafe"

// Moves over message links: spread one member's bytes to all, gather blocks.

// treeSpread gives root's n bytes to all by a binomial tree, one segment behind the
// other: ceil(log2 n) steps deep.
func (p *peers) treeSpread(c *Comm, buf unsafe.Pointer, n, root int) error {
	size := p.n()
	rel := (p.me - root + size) % size
	low := floorPow2(size) * 2 // the distance to my parent; the root's is greater than any
	if rel != 0 {
		low = rel & -rel
	}
	for from, first := 0, true; first || from < n; from, first = from+c.segment, false {
		seg := at(buf, from, min(c.segment, n-from))
		if rel != 0 {
			if err := p.recv((rel-low+root)%size, seg); err != nil {
				return err
			}
		}
		for d := low / 2; d >= 1; d /= 2 {
			if rel+d >= size {
				continue
			}
			if err := p.send((rel+d+root)%size, seg); err != nil {
				return err
			}
		}
	}
	return nil
}

// edge is where block i begins, end past the last one.
func edge(begin []int, end, i int) int {
	if i >= len(begin) {
		return end
	}
	return begin[i]
}

// treeDeal sends each member counted from root its block of root's buf, blocks in
// that order, by a binomial tree: a member gets its whole subtree's blocks at once.
// All members use a buf of all blocks.
func (p *peers) treeDeal(c *Comm, buf unsafe.Pointer, begin []int, end, size, root int) error {
	n := p.n()
	rel := (p.me - root + n) % n
	low := floorPow2(n) * 2
	if rel != 0 {
		low = rel & -rel
		mine := at(buf, edge(begin, end, rel)*size, edge(begin, end, rel+low)*size-edge(begin, end, rel)*size)
		if err := p.recvIn((rel-low+root)%n, mine, c.segment); err != nil {
			return err
		}
	}
	for d := low / 2; d >= 1; d /= 2 {
		if rel+d >= n {
			continue
		}
		theirs := at(buf, edge(begin, end, rel+d)*size, edge(begin, end, rel+2*d)*size-edge(begin, end, rel+d)*size)
		if err := p.sendIn((rel+d+root)%n, theirs, c.segment); err != nil {
			return err
		}
	}
	return nil
}

// treeCollect is treeDeal backwards: root's buf gets all members' blocks.
func (p *peers) treeCollect(c *Comm, buf unsafe.Pointer, begin []int, end, size, root int) error {
	n := p.n()
	rel := (p.me - root + n) % n
	for d := 1; d < n; d *= 2 {
		if rel&d != 0 {
			mine := at(buf, edge(begin, end, rel)*size, edge(begin, end, rel+d)*size-edge(begin, end, rel)*size)
			return p.sendIn((rel-d+root)%n, mine, c.segment)
		}
		if rel+d >= n {
			continue
		}
		theirs := at(buf, edge(begin, end, rel+d)*size, edge(begin, end, rel+2*d)*size-edge(begin, end, rel+d)*size)
		if err := p.recvIn((rel+d+root)%n, theirs, c.segment); err != nil {
			return err
		}
	}
	return nil
}

// ringGather gives every member's block to all: member i holds block i-shift of buf
// and in n-1 steps the blocks go round upwards.
func (p *peers) ringGather(c *Comm, buf unsafe.Pointer, begin, count []int, size, shift int) error {
	n := p.n()
	for s := range n - 1 {
		give, take := (p.me-s-shift+2*n)%n, (p.me-s-1-shift+2*n)%n
		out := at(buf, begin[give]*size, count[give]*size)
		in := at(buf, begin[take]*size, count[take]*size)
		if err := p.exchangeIn((p.me+1)%n, out, (p.me-1+n)%n, in, c.segment); err != nil {
			return err
		}
	}
	return nil
}

// bruckGather does the same in ceil(log2 n) steps of all blocks collected so far.
func (p *peers) bruckGather(c *Comm, buf unsafe.Pointer, begin, count []int, size int) error {
	n := p.n()
	total := 0
	for _, k := range count {
		total += k * size
	}
	got := pointer(c.spare.take(total)) // blocks me, me+1, me+2 …
	copyAt(got, 0, buf, begin[p.me]*size, count[p.me]*size)
	have := count[p.me] * size
	for d := 1; d < n; d *= 2 {
		out, in := 0, 0
		for i := range min(d, n-d) {
			out += count[(p.me+i)%n] * size
			in += count[(p.me+d+i)%n] * size
		}
		if err := p.exchangeIn((p.me-d+n)%n, at(got, 0, out), (p.me+d)%n, at(got, have, in), c.segment); err != nil {
			return err
		}
		have += in
	}
	from := count[p.me] * size
	for i := 1; i < n; i++ {
		b := (p.me + i) % n
		copyAt(buf, begin[b]*size, got, from, count[b]*size)
		from += count[b] * size
	}
	return nil
}
