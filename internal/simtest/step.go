package simtest

import (
	"bytes"
	"fmt"
	"math/rand/v2"

	"hora/collective"
	"hora/tensor"
)

// Step is one operation of a history with the inputs of all ranks.
type Step struct {
	Kind       collective.Kind
	Op         tensor.Op
	Type       tensor.DType
	Root       int
	Counts     [][]int // by sender, by receiver, where blocks differ; nil: equal
	Block      int     // elements of an equal block, or of the whole tensor
	InPlace    bool
	Registered bool
	Private    []bool // which ranks bring private memory all the same; nil: none
	Agree      bool

	inputs [][]byte
	got    [][]byte // what each rank received
}

// RandomStep draws an operation of at most most elements a block for that many ranks.
func RandomStep(rng *rand.Rand, ranks, most int) *Step {
	kinds := collective.Kinds()
	k := kinds[rng.IntN(len(kinds))]
	if k == collective.SendTo || k == collective.RecvFrom {
		k = collective.Allreduce
	}
	return StepOf(k, rng, ranks, most)
}

// StepOf draws all but the kind.
func StepOf(k collective.Kind, rng *rand.Rand, ranks, most int) *Step {
	s := &Step{
		Kind: k, Root: rng.IntN(ranks), InPlace: rng.IntN(3) == 0, Registered: rng.IntN(3) == 0,
		Agree: rng.IntN(4) == 0,
	}
	types := tensor.DTypes()
	s.Type = types[rng.IntN(len(types))]
	ops := []tensor.Op{
		tensor.Sum, tensor.Average, tensor.Product, tensor.Min, tensor.Max, tensor.And, tensor.Or,
		tensor.Xor,
	}
	for {
		s.Op = ops[rng.IntN(len(ops))]
		if tensor.Check(s.Op, s.Type) == nil {
			break
		}
	}
	s.Block = rng.IntN(most + 1)
	if rng.IntN(2) == 0 {
		s.uneven(rng, ranks, most)
	}
	if s.Registered && !s.InPlace && rng.IntN(2) == 0 {
		s.Private = make([]bool, ranks)
		for r := range s.Private {
			s.Private[r] = rng.IntN(3) > 0
		}
	}
	s.Fill(rng, ranks)
	return s
}

// uneven gives blocks of different lengths to operations that can have them.
func (s *Step) uneven(rng *rand.Rand, ranks, most int) {
	switch s.Kind {
	case collective.Allgather, collective.ReduceScatter, collective.Gather, collective.Scatter, collective.Alltoall:
	default:
		return
	}
	s.Counts = make([][]int, ranks)
	for r := range s.Counts {
		if s.Kind != collective.Alltoall && r > 0 {
			s.Counts[r] = s.Counts[0]
			continue
		}
		s.Counts[r] = make([]int, ranks)
		for i := range s.Counts[r] {
			s.Counts[r][i] = max(0, rng.IntN(most+2)-1)
		}
	}
}

// Fill draws the inputs.
func (s *Step) Fill(rng *rand.Rand, ranks int) {
	s.inputs, s.got = make([][]byte, ranks), make([][]byte, ranks)
	for r := range ranks {
		n := s.Block
		switch s.Kind {
		case collective.ReduceScatter, collective.Alltoall, collective.Scatter:
			n = s.Block * ranks
			if s.Counts != nil {
				n = sum(s.Counts[r])
			}
		case collective.Allgather, collective.Gather:
			if s.Counts != nil {
				n = s.Counts[0][r]
			}
		}
		s.inputs[r] = Random(rng, n, s.Type)
	}
}

func sum(counts []int) int {
	n := 0
	for _, k := range counts {
		n += k
	}
	return n
}

// String says what the step is, for failures.
func (s *Step) String() string {
	return fmt.Sprintf("%s %s %s root=%d block=%d counts=%v inplace=%t registered=%t private=%v agree=%t",
		s.Kind, s.Op, s.Type, s.Root, s.Block, s.Counts, s.InPlace, s.Registered, s.Private, s.Agree)
}

// memory is n bytes of the rank's, registered if the step wants that.
func (s *Step) memory(r *Rank, n int) []byte {
	if s.Registered {
		return r.Registered(n)
	}
	return make([]byte, n)
}

// Run does the step on one rank. print must be equal on all ranks.
func (s *Step) Run(r *Rank, print uint64) error {
	call, in, out := s.Call(r)
	return s.Done(r, in, out, r.Do(call, print, noDeadline))
}

// Done notes what a rank received and looks whether its input is as it was.
func (s *Step) Done(r *Rank, in, out []byte, err error) error {
	me := r.Rank
	s.got[me] = bytes.Clone(out)
	if err == nil && !s.InPlace && s.Kind != collective.Broadcast && !bytes.Equal(in, s.inputs[me]) {
		return fmt.Errorf("%s: it changed its input", s)
	}
	return err
}

// Call is one rank's part of the step, with its input and where the result will be.
func (s *Step) Call(r *Rank) (call *collective.Call, in, out []byte) {
	if s.Private != nil && s.Private[r.Rank] {
		in = make([]byte, len(s.inputs[r.Rank]))
	} else {
		in = s.memory(r, len(s.inputs[r.Rank]))
	}
	copy(in, s.inputs[r.Rank])
	call = &collective.Call{Kind: s.Kind, Op: s.Op, Type: s.Type, Root: s.Root, Agree: s.Agree, Send: View(in, s.Type)}
	out = in
	size, me := s.Type.Size(), r.Rank
	root := s.Root == me
	switch s.Kind {
	case collective.Allreduce, collective.Reduce:
		if !s.InPlace {
			out = s.memory(r, len(in))
		}
	case collective.Broadcast:
		if !root {
			call.Send = tensor.View{}
			out = s.memory(r, len(s.inputs[s.Root]))
		}
	case collective.Allgather, collective.Gather:
		out = s.gathering(r, call, in)
	case collective.ReduceScatter:
		own, counts := s.Block, []int(nil)
		if s.Counts != nil {
			counts = s.Counts[0]
			own = counts[me]
		}
		out = s.memory(r, own*size)
		if s.InPlace {
			from := s.Block * me
			if counts != nil {
				from = sum(counts[:me])
			}
			out = in[from*size : (from+own)*size]
		}
		call.RecvCounts = counts
	case collective.Scatter:
		own := s.Block
		if s.Counts != nil {
			own = s.Counts[0][me]
			call.SendCounts = []int{}
			if root {
				call.SendCounts = s.Counts[0]
			}
		}
		if !root {
			call.Send = tensor.View{}
		}
		out = s.memory(r, own*size)
	case collective.Alltoall:
		n := s.Block * r.Size
		if s.Counts != nil {
			call.SendCounts, call.RecvCounts = s.Counts[me], make([]int, r.Size)
			for i := range r.Size {
				call.RecvCounts[i] = s.Counts[i][me]
			}
			n = sum(call.RecvCounts)
		}
		out = s.memory(r, n*size)
	}
	call.Recv = View(out, s.Type)
	return call, in, out
}

// gathering is the memory that receives all blocks; in place it also holds mine.
func (s *Step) gathering(r *Rank, call *collective.Call, in []byte) []byte {
	size, me := s.Type.Size(), r.Rank
	total, from := s.Block*r.Size, s.Block*me
	if s.Counts != nil {
		total, from = sum(s.Counts[0]), sum(s.Counts[0][:me])
		call.RecvCounts = s.Counts[0]
		if s.Kind == collective.Gather && s.Root != me {
			call.RecvCounts = []int{}
		}
	}
	if s.Kind == collective.Gather && s.Root != me {
		return nil
	}
	out := s.memory(r, total*size)
	if s.InPlace && len(in) > 0 {
		copy(out[from*size:], in)
		call.Send = View(out[from*size:from*size+len(in)], s.Type)
	}
	return out
}

// Verify compares what all ranks got with the reference.
func (s *Step) Verify() error {
	for r, got := range s.got {
		if s.Kind == collective.Allreduce && !bytes.Equal(got, s.got[0]) {
			return fmt.Errorf("%s: rank %d: its bits differ from rank 0's", s, r)
		}
		if err := s.VerifyRank(r); err != nil {
			return err
		}
	}
	return nil
}

// VerifyRank compares what one rank got with the reference.
func (s *Step) VerifyRank(r int) error {
	if err := s.verify(r, s.got[r]); err != nil {
		return fmt.Errorf("%s: rank %d: %w", s, r, err)
	}
	return nil
}

func (s *Step) verify(r int, got []byte) error {
	size := s.Type.Size()
	switch s.Kind {
	case collective.Allreduce:
		return s.wrong(got, s.inputs)
	case collective.Reduce:
		if r == s.Root {
			return s.wrong(got, s.inputs)
		}
	case collective.Broadcast:
		return same(got, s.inputs[s.Root])
	case collective.Allgather, collective.Gather:
		if s.Kind == collective.Allgather || r == s.Root {
			return same(got, bytes.Join(s.inputs, nil))
		}
	case collective.ReduceScatter:
		from, n := s.Block*r, s.Block
		if s.Counts != nil {
			from, n = sum(s.Counts[0][:r]), s.Counts[0][r]
		}
		blocks := make([][]byte, len(s.inputs))
		for i, in := range s.inputs {
			blocks[i] = in[from*size : (from+n)*size]
		}
		return s.wrong(got, blocks)
	case collective.Scatter:
		return same(got, s.block(s.Root, r))
	case collective.Alltoall:
		var want []byte
		for i := range s.inputs {
			want = append(want, s.block(i, r)...)
		}
		return same(got, want)
	}
	return nil
}

// block is what from sends to to.
func (s *Step) block(from, to int) []byte {
	size := s.Type.Size()
	at, n := s.Block*to, s.Block
	if s.Counts != nil {
		at, n = sum(s.Counts[from][:to]), s.Counts[from][to]
	}
	return s.inputs[from][at*size : (at+n)*size]
}

func (s *Step) wrong(got []byte, inputs [][]byte) error {
	if at, have, want := Wrong(got, inputs, s.Type, s.Op); at >= 0 {
		return fmt.Errorf("element %d is %v, want %v", at, have, want)
	}
	return nil
}

func same(got, want []byte) error {
	if bytes.Equal(got, want) {
		return nil
	}
	for i := range min(len(got), len(want)) {
		if got[i] != want[i] {
			return fmt.Errorf("byte %d of %d is %d, want %d", i, len(want), got[i], want[i])
		}
	}
	return fmt.Errorf("%d bytes, want %d", len(got), len(want))
}
