package engine

import (
	"encoding/binary"
	"math"
	"math/bits"
	"unsafe"

	"hora/collective"
)

// fingerprint is a 64-bit fingerprint of what a request asks, equal on all ranks that ask the
// same. It is not a secret and not a signature: it finds mistakes.
type fingerprint uint64

const (
	printSeed = 0x9e3779b97f4a7c15
	printMul  = 0xd6e8feb86659fd93
)

// mix folds v into p.
func (p fingerprint) mix(v uint64) fingerprint {
	hi, lo := bits.Mul64(uint64(p)^v, printMul)
	return fingerprint(hi ^ lo ^ printSeed)
}

func (p fingerprint) text(s string) fingerprint {
	p = p.mix(uint64(len(s)))
	b := unsafe.Slice(unsafe.StringData(s), len(s))
	for len(b) >= 8 {
		p = p.mix(binary.LittleEndian.Uint64(b))
		b = b[8:]
	}
	var tail uint64
	for i, c := range b {
		tail |= uint64(c) << (8 * i)
	}
	return p.mix(tail)
}

func (p fingerprint) ints(list []int) fingerprint {
	p = p.mix(uint64(len(list)))
	for _, v := range list {
		p = p.mix(uint64(v))
	}
	return p
}

// fingerprintOf covers everything that must be equal on all ranks. What may differ is
// left out and checked by the links, which know every message's length: blocks that
// counts give to gather, scatter and alltoall.
func fingerprintOf(r *Request) fingerprint {
	p := fingerprint(printSeed)
	p = p.mix(uint64(r.Kind) | uint64(r.Type)<<8 | uint64(r.Op)<<16 | uint64(min(r.Device, 1))<<24 |
		uint64(uint32(r.Root))<<32)
	if r.Pre != 0 && r.Pre != 1 || r.Post != 0 && r.Post != 1 {
		p = p.mix(math.Float64bits(factor(r.Pre))).mix(math.Float64bits(factor(r.Post)) + 1)
	}
	switch r.Kind {
	case collective.Allreduce, collective.Reduce:
		p = p.mix(uint64(r.Send.Count))
	case collective.Broadcast:
		p = p.mix(uint64(max(r.Send.Count, r.Recv.Count)))
	case collective.Allgather:
		if r.Alloc == nil && r.RecvCounts == nil {
			p = p.mix(uint64(r.Send.Count))
		}
		p = p.ints(r.RecvCounts)
	case collective.ReduceScatter:
		p = p.mix(uint64(r.Send.Count)).ints(r.RecvCounts)
	case collective.Alltoall:
		if r.Alloc == nil && r.SendCounts == nil {
			p = p.mix(uint64(r.Send.Count))
		}
	case collective.Gather:
		if r.RecvCounts == nil {
			p = p.mix(uint64(r.Send.Count))
		}
	case collective.Scatter:
		if r.SendCounts == nil {
			p = p.mix(uint64(r.Recv.Count))
		}
	}
	// Whether blocks differ decides the algorithm, so it must be known to all.
	if r.RecvCounts != nil && r.Alloc == nil {
		p = p.mix(2)
	}
	if r.SendCounts != nil && r.Alloc == nil {
		p = p.mix(3)
	}
	if r.Alloc != nil {
		p = p.mix(1)
	}
	if r.Agree {
		p = p.mix(4)
	}
	if len(r.Starts) > 0 {
		p = p.ints(r.Starts)
	}
	if len(r.Shape) > 0 {
		p = p.ints(fixedShape(r))
	}
	if r.of > 0 {
		p = p.mix(5 | uint64(r.of)<<8 | uint64(r.at)<<40)
	}
	if r.Name != "" {
		p = p.text(r.Name)
	}
	if r.Counted {
		p = p.mix(6)
	}
	return p
}

// factor reads the zero value as 1.
func factor(f float64) float64 {
	if f == 0 {
		return 1
	}
	return f
}

// fixedShape returns the part of the shape that all ranks share.
func fixedShape(r *Request) []int {
	if len(r.Shape) == 0 {
		return nil
	}
	switch r.Kind {
	case collective.Allgather, collective.Alltoall, collective.Gather, collective.Scatter:
		return r.Shape[1:]
	}
	return r.Shape
}
