package engine

import (
	"testing"

	"hora/collective"
	"hora/internal/wire"
	"hora/tensor"
)

func FuzzDescription(f *testing.F) {
	r := sum(make([]float32, 6), "grad.w")
	r.Shape = []int{2, 3}
	d := describe(&r, stageCall)
	f.Add(d.append(nil))
	all := Request{Call: collective.Call{
		Kind: collective.Alltoall, Type: tensor.Int8, SendCounts: []int{1, 2},
		RecvCounts: []int{0, 3},
	}}
	d = describe(&all, stagePack)
	f.Add(d.append(nil))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		d, err := parseDescription(b)
		if err != nil {
			return
		}
		again, err := parseDescription(d.append(nil))
		if err != nil || again.name != d.name || again.count != d.count || len(again.shape) != len(d.shape) {
			t.Errorf("%+v became %+v: %v", d, again, err)
		}
	})
}

// FuzzHear gives a group control messages that no engine would send.
func FuzzHear(f *testing.F) {
	offer := wire.AppendU8(nil, tellOffer)
	offer = wire.AppendU64(offer, 1)
	offer = wire.AppendI64(offer, 0)
	offer = wire.AppendU8(offer, uint8(tensor.Int8))
	offer = wire.AppendU64(offer, 3)
	offer = wire.AppendBool(offer, true)
	f.Add(wire.AppendBytes(offer, []byte("abc")))
	f.Add(bellMessage(3, 1))
	f.Add(question{nonce: 1, seq: 2, name: "x"}.append(nil))
	f.Add(answer{nonce: 1, here: true, last: "y"}.append(nil))
	grant := wire.AppendU8(nil, tellGrant)
	f.Add(wire.AppendU64(wire.AppendU64(grant, 1), 100))
	chunk := wire.AppendU8(nil, tellChunk)
	f.Add(wire.AppendBytes(wire.AppendI64(wire.AppendU64(chunk, 1), 0), make([]byte, 10)))
	f.Add(wire.AppendU64([]byte{tellTaken}, 5))
	f.Add(wire.AppendString(wire.AppendU64([]byte{tellRefuse}, 1), "why"))
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, named := range []bool{false, true} {
			c := newCluster(t, 2, false, Config{Named: named, StallWarn: -1})
			c.groups[0].hear(1, b)
			for _, g := range c.groups {
				g.Close()
			}
			c.mem.Close()
		}
	})
}

// FuzzShared gives a joined rank descriptions that no lead would send.
func FuzzShared(f *testing.F) {
	r := sum(make([]float32, 6), "grad.w")
	d := describe(&r, stageCall)
	f.Add(d.append(wire.AppendU32(wire.AppendU32(nil, 1), 1)))
	f.Fuzz(func(t *testing.T, b []byte) {
		c := newCluster(t, 1, true, Config{Named: true, StallWarn: -1})
		n := c.groups[0].names
		n.away = true
		if n.applyShared(b) == nil {
			for _, u := range n.chosen {
				if u.count == 0 || u.first == nil {
					t.Errorf("a unit of nothing")
				}
			}
		}
		n.chosen = nil
		c.groups[0].Close()
	})
}
