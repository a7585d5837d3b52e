package collective

import (
	"unsafe"

	"hora/internal/kernel"
	"hora/tensor"
)

// Pipelines through the parts. Each rank runs the same loop of steps; in step k it
// fills its part k mod 2, posts, waits until all have posted, and reads the others'.
// A part is written again two steps later, and who posts step k+1 has finished
// reading step k, so that one wait a step is enough for both directions. Steps are
// counted by the operation's phase, so this also holds from one pipeline to the next.
//
// Seat s's block is count[s] elements from begin[s] on.

// minPart is the least room that one block of a part has.
const minPart = 16

// pieces is how many elements of one block go through a part at once when the part
// is cut into that many blocks.
func (c *Comm) pieces(blocks, size int) int {
	q := c.part / blocks / size
	if line := 64 / size; q > line {
		q -= q % line
	}
	return max(q, 1)
}

func most(counts []int) int {
	m := 0
	for _, k := range counts {
		m = max(m, k)
	}
	return m
}

// reduceBlocks leaves in dst the sum over all seats of this seat's block. dst may be
// that block of src.
func (c *Comm) reduceBlocks(dst, src unsafe.Pointer, begin, count []int, call *Call, t tensor.DType) error {
	size := t.Size()
	q := c.pieces(c.seats, size)
	scaled := call.Pre != 0 && call.Pre != 1
	for at := 0; at < most(count); at += q {
		k := int(c.op.phase)
		mine := c.inPart(c.seat, k)
		for s := range c.seats {
			if n := min(q, count[s]-at); n > 0 && (s != c.seat || scaled) {
				stow(unsafe.Add(mine, s*q*size), unsafe.Add(src, (begin[s]+at)*size), n, t, call.Pre)
			}
		}
		if err := c.together(); err != nil {
			return err
		}
		n := min(q, count[c.seat]-at)
		if n <= 0 {
			continue
		}
		for s := range c.seats {
			c.srcs[s] = unsafe.Add(c.inPart(s, k), c.seat*q*size)
		}
		if !scaled {
			c.srcs[c.seat] = unsafe.Add(src, (begin[c.seat]+at)*size)
		}
		kernel.ReduceAll(unsafe.Add(dst, at*size), c.srcs[:c.seats], n, t, call.Op)
		c.board.Count(0, (c.seats-1)*n*size)
	}
	return nil
}

// shareBlocks gives every seat's block, which lies at src for its owner, to all: into
// dst from begin[s] on. Where only is not negative, only that seat takes them.
func (c *Comm) shareBlocks(dst, src unsafe.Pointer, begin, count []int, size, only int) error {
	q := c.pieces(1, size)
	reads := only < 0 || only == c.seat
	whole := 0
	for _, n := range count {
		whole += n * size
	}
	past := whole >= c.stream
	for at := 0; at < most(count); at += q {
		k := int(c.op.phase)
		n := min(q, count[c.seat]-at)
		if n > 0 && only != c.seat {
			stowAt(c.inPart(c.seat, k), 0, src, at*size, n*size)
		}
		c.step()
		if reads { // while the others arrive, and while this piece of src is in the cache
			putAt(dst, (begin[c.seat]+at)*size, src, at*size, n*size, past)
		}
		if err := c.board.AwaitAll(c.op.phase); err != nil {
			return err
		}
		if !reads {
			continue
		}
		for s := range c.seats {
			if n := min(q, count[s]-at); n > 0 && s != c.seat {
				takeAt(dst, (begin[s]+at)*size, c.inPart(s, k), 0, n*size, past)
				c.board.Count(0, n*size)
			}
		}
	}
	return nil
}

// spread gives bytes [0, n) of from's memory to all seats.
func (c *Comm) spread(p unsafe.Pointer, n, from int) error {
	if c.board == nil {
		return nil
	}
	for at := 0; at < n; at += c.part {
		k := int(c.op.phase)
		now := min(c.part, n-at)
		if from == c.seat {
			stowAt(c.inPart(from, k), 0, p, at, now)
		}
		if err := c.together(); err != nil {
			return err
		}
		if from != c.seat {
			takeAt(p, at, c.inPart(from, k), 0, now, false)
			c.board.Count(0, now)
		}
	}
	return nil
}

// reduceAndShare is the two-shot allreduce: in step k everyone fills in the others'
// shares of chunk k, reduces its own share of it, and takes the results of chunk k-1.
// Where only is not negative, only that seat takes results.
func (c *Comm) reduceAndShare(dst, src unsafe.Pointer, n int, call *Call, only int) error {
	t := call.Type
	size := t.Size()
	q := c.pieces(c.seats, size)
	scaled := call.Pre != 0 && call.Pre != 1
	reads := only < 0 || only == c.seat
	chunk := q * c.seats
	last := (n + chunk - 1) / chunk
	for i := 0; i <= last; i++ {
		k := int(c.op.phase)
		lo := i * chunk
		len := min(chunk, n-lo)
		if i < last {
			mine := c.inPart(c.seat, k)
			for s := range c.seats {
				if s == c.seat && !scaled {
					continue
				}
				b, e := block(len, c.seats, s), block(len, c.seats, s+1)
				stow(unsafe.Add(mine, s*q*size), shift(src, (lo+b)*size, e-b), e-b, t, call.Pre)
			}
		}
		if err := c.together(); err != nil {
			return err
		}
		if i < last {
			b, e := block(len, c.seats, c.seat), block(len, c.seats, c.seat+1)
			c.reduceShare(dst, src, lo+b, e-b, k, q, call, only)
		}
		if i > 0 && reads {
			c.takeShares(dst, lo-chunk, min(chunk, n-lo+chunk), k-1, size)
		}
	}
	return nil
}

// reduceShare reduces my share of chunk k, n elements from element at on, into the
// result part and, where this seat takes results, into dst.
func (c *Comm) reduceShare(dst, src unsafe.Pointer, at, n, k, q int, call *Call, only int) {
	if n == 0 {
		return
	}
	t := call.Type
	size := t.Size()
	for s := range c.seats {
		c.srcs[s] = unsafe.Add(c.inPart(s, k), c.seat*q*size)
	}
	if call.Pre == 0 || call.Pre == 1 {
		c.srcs[c.seat] = unsafe.Add(src, at*size)
	}
	out := c.outPart(c.seat, k)
	if only < 0 || only == c.seat {
		out = unsafe.Add(dst, at*size)
	}
	kernel.ReduceAll(out, c.srcs[:c.seats], n, t, call.Op)
	finish(out, n, call, c.mesh.Size(), t)
	if only < 0 {
		stowAt(c.outPart(c.seat, k), 0, out, 0, n*size)
	}
	c.board.Count(0, (c.seats-1)*n*size)
}

// takeShares copies the others' results of the chunk of len elements from lo on into
// dst.
func (c *Comm) takeShares(dst unsafe.Pointer, lo, len, k, size int) {
	for s := range c.seats {
		if s == c.seat {
			continue
		}
		b, e := block(len, c.seats, s), block(len, c.seats, s+1)
		fetchAt(dst, (lo+b)*size, c.outPart(s, k), 0, (e-b)*size)
		c.board.Count(0, (e-b)*size)
	}
}
