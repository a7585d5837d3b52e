package collective

import (
	"math/bits"

	"hora/transport"
)

// peers is a set of ranks that run an algorithm over message links; algorithms speak
// of its members by index.
type peers struct {
	mesh  transport.Mesh
	ranks []int
	me    int
}

func (p *peers) n() int { return len(p.ranks) }

func (p *peers) send(to int, b []byte) error   { return p.mesh.Send(p.ranks[to], b) }
func (p *peers) recv(from int, b []byte) error { return p.mesh.Recv(p.ranks[from], b) }

func (p *peers) exchange(to int, out []byte, from int, in []byte) error {
	return p.mesh.Exchange(p.ranks[to], out, p.ranks[from], in)
}

// sendIn sends b in segments of at most seg bytes; recvIn receives it so.
func (p *peers) sendIn(to int, b []byte, seg int) error {
	for len(b) > seg {
		if err := p.send(to, b[:seg]); err != nil {
			return err
		}
		b = b[seg:]
	}
	return p.send(to, b)
}

func (p *peers) recvIn(from int, b []byte, seg int) error {
	for len(b) > seg {
		if err := p.recv(from, b[:seg]); err != nil {
			return err
		}
		b = b[seg:]
	}
	return p.recv(from, b)
}

// exchangeIn exchanges in segments; the two sides may be of different lengths, and
// an empty one still counts as one message when the other end sends one.
func (p *peers) exchangeIn(to int, out []byte, from int, in []byte, seg int) error {
	for first := true; first || len(out) > 0 || len(in) > 0; first = false {
		o, i := min(len(out), seg), min(len(in), seg)
		t, f := p.ranks[to], p.ranks[from]
		if o == 0 && !first {
			t = -1
		}
		if i == 0 && !first {
			f = -1
		}
		if err := p.mesh.Exchange(t, out[:o], f, in[:i]); err != nil {
			return err
		}
		out, in = out[o:], in[i:]
	}
	return nil
}

// barrier is the dissemination barrier: in round k everyone signals the member 2^k
// above and hears from the one 2^k below, ceil(log2 n) rounds. The links compare
// fingerprints, so it is also how all ranks learn that one came with another call.
func (p *peers) barrier() error {
	n := p.n()
	for d := 1; d < n; d *= 2 {
		if err := p.exchange((p.me+d)%n, nil, (p.me-d+n)%n, nil); err != nil {
			return err
		}
	}
	return nil
}

// floorPow2 is the greatest power of two ≤ n, n ≥ 1.
func floorPow2(n int) int { return 1 << (bits.Len(uint(n)) - 1) }

// block is where the i-th of n nearly equal blocks of count elements begins; the
// first count%n blocks hold one element more.
func block(count, n, i int) int { return count/n*i + min(i, count%n) }
