package agent

import (
	"bytes"
	"io"
	"slices"
	"testing"

	"hora/internal/wire"
	"hora/launch/protocol"
)

// piped is messages as they come through a pipe.
func piped(messages ...[]byte) []byte { return slices.Concat(messages...) }

func packed(kind uint8, body []byte) []byte {
	b, at := wire.BeginMessage(nil, kind)
	return wire.EndMessage(append(b, body...), at)
}

// FuzzCommands gives an agent anything on the pipe from its launcher. What would act on
// this machine, plans, stops and probes, is left to encoding/json or only read.
func FuzzCommands(f *testing.F) {
	f.Add(piped(packed(protocol.CmdPing, nil), packed(protocol.CmdSecret, []byte("00ff")),
		packed(protocol.CmdSignal, wire.AppendI64(wire.AppendI64(nil, -1), 15))))
	f.Add(piped(packed(protocol.CmdWindDown, wire.AppendI64(nil, 5000)), packed(protocol.CmdStart, []byte(`{"rank":1}`))))
	f.Add(packed(protocol.CmdSignal, []byte{1}))
	f.Fuzz(func(t *testing.T, text []byte) {
		a := &agent{
			cfg: Config{In: bytes.NewReader(text)}, out: protocol.NewWriter(io.Discard, nil, false),
			events: make(chan any), procs: map[int]*proc{},
		}
		stop := make(chan struct{})
		go a.listen(stop)
		for {
			e := <-a.events
			if _, end := e.(hungUp); end {
				break
			}
			switch c := e.(command); c.kind {
			case protocol.CmdPlan, protocol.CmdStop, protocol.CmdProbe:
			default:
				a.obey(c)
			}
		}
		close(stop)
		if err := a.out.Close(); err != nil {
			t.Error(err)
		}
	})
}
