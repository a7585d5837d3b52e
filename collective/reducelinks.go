package collective

import (
	"unsafe"

	"hora/internal/kernel"
	"hora/tensor"
)

// Reductions over message links. All add in place in buf, n elements of type t, and
// take what messages bring into the Comm's spare arena. The operand of the lower rank
// always comes first, so that both ends of an exchange hold equal bits.

// allreduce leaves the reduction of all members' buf in every member's buf.
func (p *peers) allreduce(c *Comm, buf unsafe.Pointer, n int, t tensor.DType, call *Call) error {
	if p.n() == 1 {
		return nil
	}
	if p.n() == 2 && forPair(c.op.plan.link) {
		return p.allreducePair(c, buf, buf, n, t, call.Op)
	}
	switch c.op.plan.link {
	case Ring:
		begin, count := c.cut(n, p.n())
		if err := p.ringReduce(c, buf, begin, count, t, call.Op); err != nil {
			return err
		}
		return p.ringGather(c, buf, begin, count, t.Size(), 0)
	case Rabenseifner:
		return p.halve(c, buf, n, t, call.Op)
	case Tree:
		if err := p.treeReduce(c, buf, n, t, call.Op, 0); err != nil {
			return err
		}
		return p.treeSpread(c, buf, n*t.Size(), 0)
	case DoubleTree:
		return p.doubleTree(c, buf, n, t, call.Op)
	default:
		return p.recursiveDoubling(c, buf, n, t, call.Op)
	}
}

// cut divides n elements into nearly equal blocks. It writes the Comm's second pair
// of cuts, since the first may hold the shards of a host.
func (c *Comm) cut(n, blocks int) (begin, count []int) {
	begin, count = c.other[:blocks], c.length[:blocks]
	for i := range begin {
		begin[i] = block(n, blocks, i)
		count[i] = block(n, blocks, i+1) - begin[i]
	}
	return begin, count
}

// A fold makes the number of members a power of two: of the first 2×rest members the
// even ones hand their elements to the odd one above, sit out, and get the result.
type fold struct {
	power int // members that stay
	rest  int
	at    int // my place among those that stay, -1 when I sit out
}

func (p *peers) fold() fold {
	f := fold{power: floorPow2(p.n())}
	f.rest = p.n() - f.power
	switch {
	case p.me >= 2*f.rest:
		f.at = p.me - f.rest
	case p.me%2 == 1:
		f.at = p.me / 2
	default:
		f.at = -1
	}
	return f
}

// member is who holds a place.
func (f *fold) member(at int) int {
	if at < f.rest {
		return 2*at + 1
	}
	return at + f.rest
}

// enter folds: afterwards the members that stay hold everything.
func (p *peers) enter(c *Comm, f *fold, buf unsafe.Pointer, n int, t tensor.DType, op tensor.Op) error {
	bytes := n * t.Size()
	switch {
	case p.me >= 2*f.rest:
		return nil
	case f.at < 0:
		return p.sendIn(p.me+1, at(buf, 0, bytes), c.segment)
	}
	in := c.spare.take(bytes)
	if err := p.recvIn(p.me-1, in, c.segment); err != nil {
		return err
	}
	kernel.Reduce(buf, pointer(in), buf, n, t, op)
	return nil
}

// leave unfolds: those that sat out get the result.
func (p *peers) leave(c *Comm, f *fold, buf unsafe.Pointer, bytes int) error {
	switch {
	case p.me >= 2*f.rest:
		return nil
	case f.at < 0:
		return p.recvIn(p.me+1, at(buf, 0, bytes), c.segment)
	}
	return p.sendIn(p.me-1, at(buf, 0, bytes), c.segment)
}

// recursiveDoubling exchanges everything with the member 1, 2, 4 … places away:
// ceil(log2 n) steps of all bytes.
func (p *peers) recursiveDoubling(c *Comm, buf unsafe.Pointer, n int, t tensor.DType, op tensor.Op) error {
	f := p.fold()
	if err := p.enter(c, &f, buf, n, t, op); err != nil {
		return err
	}
	bytes := n * t.Size()
	if f.at >= 0 {
		in := c.spare.take(bytes)
		for d := 1; d < f.power; d *= 2 {
			peer := f.member(f.at ^ d)
			if err := p.exchangeIn(peer, at(buf, 0, bytes), peer, in, c.segment); err != nil {
				return err
			}
			ordered(buf, pointer(in), n, t, op, f.at&d == 0)
		}
	}
	return p.leave(c, &f, buf, bytes)
}

// ordered adds in to buf with the lower member's operand first.
func ordered(buf, in unsafe.Pointer, n int, t tensor.DType, op tensor.Op, mineFirst bool) {
	if n == 0 {
		return
	}
	if mineFirst {
		kernel.Reduce(buf, buf, in, n, t, op)
	} else {
		kernel.Reduce(buf, in, buf, n, t, op)
	}
}

// halve is Rabenseifner's algorithm: recursive halving leaves each member one reduced
// block, recursive doubling gathers the blocks.
func (p *peers) halve(c *Comm, buf unsafe.Pointer, n int, t tensor.DType, op tensor.Op) error {
	f := p.fold()
	if err := p.enter(c, &f, buf, n, t, op); err != nil {
		return err
	}
	size := t.Size()
	if f.at >= 0 {
		lo, hi := 0, f.power // blocks that I still reduce
		for d := f.power / 2; d >= 1; d /= 2 {
			mid := lo + d
			keepLow := f.at&d == 0
			give, keep := window(n, f.power, lo, mid), window(n, f.power, mid, hi)
			if keepLow {
				give, keep = keep, give
			}
			in := c.spare.take(keep.n * size)
			peer := f.member(f.at ^ d)
			if err := p.exchangeIn(peer, at(buf, give.from*size, give.n*size), peer, in, c.segment); err != nil {
				return err
			}
			ordered(shift(buf, keep.from*size, keep.n), pointer(in), keep.n, t, op, keepLow)
			if keepLow {
				hi = mid
			} else {
				lo = mid
			}
		}
		for d := 1; d < f.power; d *= 2 {
			from := f.at &^ (d - 1)
			mine, theirs := window(n, f.power, from, from+d), window(n, f.power, from^d, from^d+d)
			peer := f.member(f.at ^ d)
			if err := p.exchangeIn(peer, at(buf, mine.from*size, mine.n*size), peer,
				at(buf, theirs.from*size, theirs.n*size), c.segment); err != nil {
				return err
			}
		}
	}
	return p.leave(c, &f, buf, n*size)
}

// run is n elements from element from on.
type run struct{ from, n int }

// window is blocks [lo, hi) of n elements cut into that many blocks.
func window(n, blocks, lo, hi int) run {
	from := block(n, blocks, lo)
	return run{from, block(n, blocks, hi) - from}
}

// ringReduce leaves in member i's block i the sum of all members' block i. The sum
// of block i begins at member i+1 and goes round upwards: n-1 steps of one block.
func (p *peers) ringReduce(c *Comm, buf unsafe.Pointer, begin, count []int, t tensor.DType, op tensor.Op) error {
	n, size := p.n(), t.Size()
	for s := 1; s < n; s++ {
		give, take := (p.me-s+n)%n, (p.me-s-1+2*n)%n
		out := at(buf, begin[give]*size, count[give]*size)
		if err := p.exchangeAdd((p.me+1)%n, out, (p.me-1+n)%n, c, shift(buf, begin[take]*size, count[take]),
			count[take], t, op); err != nil {
			return err
		}
	}
	return nil
}

// exchangeAdd exchanges in segments and adds each to dst while it is in the cache.
// What arrives is the earlier operand: the sum so far.
func (p *peers) exchangeAdd(to int, out []byte, from int, c *Comm, dst unsafe.Pointer, n int, t tensor.DType,
	op tensor.Op,
) error {
	size := t.Size()
	step := max(c.segment/size, 1)
	in := c.spare.take(min(step, n) * size)
	for first := true; first || len(out) > 0 || n > 0; first = false {
		o, i := min(len(out), step*size), min(n, step)
		t1, f1 := p.ranks[to], p.ranks[from]
		if o == 0 && !first {
			t1 = -1
		}
		if i == 0 && !first {
			f1 = -1
		}
		if err := p.mesh.Exchange(t1, out[:o], f1, in[:i*size]); err != nil {
			return err
		}
		if i > 0 {
			kernel.Reduce(dst, pointer(in), dst, i, t, op)
		}
		out, n, dst = out[o:], n-i, shift(dst, i*size, n-i)
	}
	return nil
}

// treeReduce leaves the sum in root's buf, by a binomial tree over the members
// counted from root: ceil(log2 n) steps of all bytes.
func (p *peers) treeReduce(c *Comm, buf unsafe.Pointer, n int, t tensor.DType, op tensor.Op, root int) error {
	size := p.n()
	rel := (p.me - root + size) % size
	bytes := n * t.Size()
	for d := 1; d < size; d *= 2 {
		if rel&d != 0 {
			return p.sendIn((rel-d+root)%size, at(buf, 0, bytes), c.segment)
		}
		if rel+d >= size {
			continue
		}
		in := c.spare.take(bytes)
		if err := p.recvIn((rel+d+root)%size, in, c.segment); err != nil {
			return err
		}
		ordered(buf, pointer(in), n, t, op, true)
	}
	return nil
}
