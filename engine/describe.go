package engine

import (
	"hora/collective"
	"hora/internal/wire"
	"hora/tensor"
)

// stage says what a rank was doing when it came to an operation number.
type stage uint8

const (
	stageCall  stage = 1 + iota // one operation of a caller
	stagePack                   // several named operations packed into one
	stageRound                  // an agreement of named operations
)

// description is what a rank tells the others about the operation that did not match.
type description struct {
	stage     stage
	kind      collective.Kind
	dtype     tensor.DType
	op        tensor.Op
	device    int // 0 the host, 1 an accelerator
	root      int
	pre, post float64
	count     int
	shape     []int
	name      string
	serial    bool // Request.Counted
	sends     []int
	receives  []int
	sized     bool // Alloc was set
	counted   bool // counts were given, though perhaps on the root only
	of, at    int  // length of the grouped call, and place in it; 0 for a call of its own
	calls     uint64
}

const (
	maxDescribedName = 1024
	maxDescribedDims = 32
	maxDescribedList = 128
)

// append adds d's encoding, which fits into transport.MaxDescription.
func (d *description) append(b []byte) []byte {
	b = wire.AppendU8(b, uint8(d.stage))
	b = wire.AppendU8(b, uint8(d.kind))
	b = wire.AppendU8(b, uint8(d.dtype))
	b = wire.AppendU8(b, uint8(d.op))
	b = wire.AppendU8(b, uint8(d.device))
	b = wire.AppendI64(b, int64(d.root))
	b = wire.AppendF64(b, d.pre)
	b = wire.AppendF64(b, d.post)
	b = wire.AppendI64(b, int64(d.count))
	b = wire.AppendInts(b, d.shape[:min(len(d.shape), maxDescribedDims)])
	b = wire.AppendString(b, d.name[:min(len(d.name), maxDescribedName)])
	b = wire.AppendBool(b, d.serial)
	b = wire.AppendInts(b, shortList(d.sends))
	b = wire.AppendInts(b, shortList(d.receives))
	b = wire.AppendBool(b, d.sized)
	b = wire.AppendBool(b, d.counted)
	b = wire.AppendI64(b, int64(d.of))
	b = wire.AppendI64(b, int64(d.at))
	return wire.AppendU64(b, d.calls)
}

// shortList leaves long lists out: they are only read to explain small ones.
func shortList(list []int) []int {
	if len(list) > maxDescribedList {
		return nil
	}
	return list
}

// parseDescription reads what append wrote.
func parseDescription(b []byte) (description, error) {
	dec := wire.NewDecoder(b)
	d, err := decodeDescription(&dec)
	if err != nil {
		return description{}, err
	}
	return d, dec.Done()
}

func decodeDescription(dec *wire.Decoder) (description, error) {
	const most = 1 << 50
	d := description{
		stage:  stage(dec.U8()),
		kind:   collective.Kind(dec.U8()),
		dtype:  tensor.DType(dec.U8()),
		op:     tensor.Op(dec.U8()),
		device: int(dec.U8()),
		root:   dec.Int(-1, most),
		pre:    dec.F64(),
		post:   dec.F64(),
		count:  dec.Int(0, most),
	}
	d.shape = dec.Ints(maxDescribedDims, 0, most)
	d.name, d.serial = dec.String(maxDescribedName), dec.Bool()
	d.sends = dec.Ints(maxDescribedList, 0, most)
	d.receives = dec.Ints(maxDescribedList, 0, most)
	d.sized = dec.Bool()
	d.counted = dec.Bool()
	d.of, d.at, d.calls = dec.Int(0, most), dec.Int(0, most), dec.U64()
	return d, dec.Err()
}

// describe says what r asks.
func describe(r *Request, s stage) description {
	d := description{
		stage: s, kind: r.Kind, dtype: r.Type, op: r.Op, device: min(r.Device, 1), root: r.Root,
		pre: factor(r.Pre), post: factor(r.Post), count: r.Send.Count, shape: r.Shape, name: r.Name, serial: r.Counted,
		sends: r.SendCounts, receives: r.RecvCounts, sized: r.Alloc != nil,
		counted: r.Alloc == nil && (r.SendCounts != nil || r.RecvCounts != nil),
		of:      int(r.of), at: int(r.at),
	}
	switch r.Kind {
	case collective.Broadcast:
		d.count = max(r.Send.Count, r.Recv.Count)
	case collective.Scatter:
		d.count = r.Recv.Count
	}
	return d
}
