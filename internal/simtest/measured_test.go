//go:build linux

package simtest

import (
	"fmt"
	"hash/crc64"
	"math/rand/v2"
	"strings"
	"testing"

	"hora/collective"
	"hora/tensor"
)

// measuredAll runs calls of one size again and again, as often as trials of the other way come twice, and prints by
// which ways they went and a sum over all bits of all results.
func measuredAll(p *process, rank int) (string, error) {
	const n = 40_000
	ways := map[string]int{}
	table := crc64.MakeTable(crc64.ECMA)
	var sum uint64
	for _, kind := range []collective.Kind{
		collective.Allreduce, collective.Broadcast, collective.Allgather, collective.Alltoall,
	} {
		rng := rand.New(rand.NewPCG(5, uint64(rank)))
		send, recv := make([]float32, 2*n), make([]float32, 4*n)
		for i := range send {
			send[i] = rng.Float32()*2 - 1
		}
		call := &collective.Call{Kind: kind, Type: tensor.Float32, Send: tensor.Of(send), Recv: tensor.Of(recv[:2*n])}
		switch kind {
		case collective.Allreduce:
			call.Op = tensor.Average
		case collective.Allgather:
			call.Recv = tensor.Of(recv)
		case collective.Broadcast:
			if call.Root = 1; rank != 1 {
				call.Send = tensor.View{Type: tensor.Float32}
			}
		}
		var first uint64
		for i := range 300 {
			clear(recv)
			if err := p.run(call); err != nil {
				return "", err
			}
			ways[p.comm.Memory()]++
			got := crc64.Checksum(call.Recv.Bytes(), table)
			if i == 0 {
				first = got
			}
			if got != first {
				return "", fmt.Errorf("%v number %d, by %s, has other bits than the first", kind, i, p.comm.Memory())
			}
		}
		if kind != collective.Alltoall { // of which each rank has another result
			sum = sum*31 + first
		}
	}
	return fmt.Sprintf("%d %d %d", ways["peek"], ways["twoshot"], sum), nil
}

// TestMeasuredChoice: both ranks take the same way in the same call, both ways are taken, and no bit of a result
// depends on them: neither from call to call nor from rank to rank, nor where one way is forced.
func TestMeasuredChoice(t *testing.T) {
	results := map[string]string{}
	for _, way := range []string{"measured", "peek", "twoshot"} {
		var table []string
		for _, kind := range []string{"allreduce", "broadcast", "allgather", "alltoall"} {
			table = append(table, kind+":0-="+way)
		}
		lines := start(t, 2, strings.Join(table, ";"), "measured")
		if lines[0] != lines[1] {
			t.Fatalf("%s: rank 0 says %q and rank 1 %q", way, lines[0], lines[1])
		}
		var peeked, parts int
		var sum uint64
		if _, err := fmt.Sscan(strings.TrimPrefix(lines[0], "done "), &peeked, &parts, &sum); err != nil {
			t.Fatalf("%q: %v", lines[0], err)
		}
		t.Logf("%s: %d calls read the other's memory, %d went through parts", way, peeked, parts)
		if results[fmt.Sprint(sum)] = way; len(results) > 1 {
			t.Errorf("results depend on the way: %v", results)
		}
		if way == "twoshot" && peeked > 0 || way == "peek" && parts > 1 {
			t.Errorf("%s was forced: %d by peek, %d by parts", way, peeked, parts)
		}
		if way == "measured" && peeked > 0 && (parts < 4*3*tries || peeked < 4*3*tries) {
			t.Errorf("both ways are to be tried: %d and %d", peeked, parts)
		}
	}
}

const tries = 3 // of each way in a trial, as package collective has it
