package simtest

import (
	"encoding/binary"
	"fmt"
	"math/bits"
	"testing"

	"hora/collective"
	"hora/tensor"
	"hora/transport/mem"
)

// TestThousandRanks runs small operations over a thousand ranks, each a host of its
// own, and holds the messages that a rank sends to a logarithm.
func TestThousandRanks(t *testing.T) {
	const ranks = 1000
	log := uint64(bits.Len(uint(ranks - 1))) // 10
	type count struct{ barrier, sum uint64 }
	counts := make([]count, ranks)
	errs := Run(t, World{Ranks: ranks}, func(r *Rank) error {
		if err := r.Do(&collective.Call{Kind: collective.Barrier}, 1, noDeadline); err != nil {
			return err
		}
		counts[r.Rank].barrier = r.Mesh.Counters().Mem.MessagesSent
		x := make([]byte, 8)
		binary.LittleEndian.PutUint64(x, uint64(r.Rank))
		v := View(x, tensor.Int64)
		call := &collective.Call{Kind: collective.Allreduce, Type: tensor.Int64, Send: v, Recv: v}
		if err := r.Do(call, 2, noDeadline); err != nil {
			return err
		}
		counts[r.Rank].sum = r.Mesh.Counters().Mem.MessagesSent - counts[r.Rank].barrier
		if got := binary.LittleEndian.Uint64(x); got != ranks*(ranks-1)/2 {
			return fmt.Errorf("sum is %d", got)
		}
		return nil
	})
	Must(t, errs)
	for r, c := range counts {
		if c.barrier != log {
			t.Errorf("rank %d sent %d messages in the barrier, want %d", r, c.barrier, log)
		}
		// The largest power of two below has log-1 doublings; folding adds one.
		if c.sum == 0 || c.sum > log {
			t.Errorf("rank %d sent %d messages in the allreduce, want at most %d", r, c.sum, log)
		}
	}
}

// TestHundredHosts does the same over hosts of ten ranks that share memory: only one
// rank a host talks to others.
func TestHundredHosts(t *testing.T) {
	const ranks = 200
	w := World{Ranks: ranks, Mem: mem.Config{Hosts: Hosts("block", ranks, 10)}}
	w.Mem.Board.SlotBytes, w.Mem.Board.PartBytes = 4096, 4096
	sent := make([]uint64, ranks)
	errs := Run(t, w, func(r *Rank) error {
		x := []byte{byte(r.Rank), 0, 0, 0}
		v := View(x, tensor.Int32)
		call := &collective.Call{Kind: collective.Allreduce, Op: tensor.Max, Type: tensor.Int32, Send: v, Recv: v}
		if err := r.Do(call, 1, noDeadline); err != nil {
			return err
		}
		sent[r.Rank] = r.Mesh.Counters().Mem.MessagesSent
		if x[0] != ranks-1 {
			return fmt.Errorf("max is %d", x[0])
		}
		return nil
	})
	Must(t, errs)
	log := uint64(bits.Len(ranks/10 - 1))
	for r, n := range sent {
		if r%10 == 0 && (n == 0 || n > log) || r%10 != 0 && n != 0 {
			t.Errorf("rank %d sent %d messages to other hosts", r, n)
		}
	}
}
