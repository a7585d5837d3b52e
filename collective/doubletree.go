package collective

import (
	"math/bits"
	"unsafe"

	"hora/internal/kernel"
	"hora/tensor"
)

// node is a member's place in a balanced binary tree whose in-order walk is the
// members in order; -1 is nobody.
type node struct{ parent, left, right int }

// place finds member at in the tree over n members.
func place(n, at int) node {
	lo, hi, parent := 0, n, -1
	for {
		mid := (lo + hi) / 2
		if mid == at {
			return node{parent, middle(lo, mid), middle(mid+1, hi)}
		}
		parent = mid
		if at < mid {
			hi = mid
		} else {
			lo = mid + 1
		}
	}
}

func middle(lo, hi int) int {
	if lo >= hi {
		return -1
	}
	return (lo + hi) / 2
}

// doubleTree is an allreduce by two binary trees at once, each with half of the
// elements; the second is the first shifted by one member, so that who is a leaf in
// one is inside the other. Segments follow each other: segment k goes up while
// segment k-depth comes down. All members do their parts of these moves in one
// order, so that sends which wait for their receiver cannot make a circle.
func (p *peers) doubleTree(c *Comm, buf unsafe.Pointer, n int, t tensor.DType, op tensor.Op) error {
	members := p.n()
	depth := bits.Len(uint(members))
	trees := [2]node{place(members, p.me), place(members, (p.me+1)%members)}
	half := (n + 1) / 2
	step := max(c.segment/t.Size(), 1)
	for k := 0; (k-depth)*step < half; k++ {
		for i := range trees {
			if s := segment(n, half, i, k, step); s.n > 0 {
				if err := p.up(c, &trees[i], i, unsafe.Add(buf, s.from*t.Size()), s.n, t, op); err != nil {
					return err
				}
			}
		}
		for i := range trees {
			if s := segment(n, half, i, k-depth, step); s.n > 0 {
				if err := p.down(&trees[i], i, at(buf, s.from*t.Size(), s.n*t.Size())); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// segment is the k-th piece of tree i's half.
func segment(n, half, i, k, step int) run {
	from, end := i*half, half
	if i == 1 {
		end = n
	}
	from += k * step
	if k < 0 || from >= end {
		return run{}
	}
	return run{from, min(step, end-from)}
}

// who is the member with that place in tree i.
func (p *peers) who(place, i int) int {
	return (place - i + p.n()) % p.n()
}

func (p *peers) up(c *Comm, me *node, i int, buf unsafe.Pointer, n int, t tensor.DType, op tensor.Op) error {
	bytes := n * t.Size()
	in := c.spare.take(bytes)
	if me.left >= 0 {
		if err := p.recv(p.who(me.left, i), in); err != nil {
			return err
		}
		kernel.Reduce(buf, pointer(in), buf, n, t, op)
	}
	if me.right >= 0 {
		if err := p.recv(p.who(me.right, i), in); err != nil {
			return err
		}
		kernel.Reduce(buf, buf, pointer(in), n, t, op)
	}
	if me.parent >= 0 {
		return p.send(p.who(me.parent, i), at(buf, 0, bytes))
	}
	return nil
}

func (p *peers) down(me *node, i int, b []byte) error {
	if me.parent >= 0 {
		if err := p.recv(p.who(me.parent, i), b); err != nil {
			return err
		}
	}
	for _, child := range [2]int{me.left, me.right} {
		if child >= 0 {
			if err := p.send(p.who(child, i), b); err != nil {
				return err
			}
		}
	}
	return nil
}
