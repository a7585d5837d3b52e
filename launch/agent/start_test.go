package agent

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"testing"
	"time"

	"hora/internal/wire"
	"hora/launch/protocol"
)

// TestLinesInARowComeAsOnePiece: all of what a worker prints comes, in order, in fewer pieces than lines; and what a
// pipe holds whose writer is nobody's of the job comes without a wait for that.
func TestLinesInARowComeAsOnePiece(t *testing.T) {
	const lines = 400
	for _, abandoned := range []bool{false, true} {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		defer w.Close()
		said, out := io.Pipe()
		a := &agent{out: protocol.NewWriter(out, out, false), events: make(chan any, 1)}
		go a.forward(&proc{rank: 3}, r, 1)
		var want []byte
		for i := range lines {
			want = fmt.Appendln(want, "line", i)
		}
		go func() {
			pace := time.NewTicker(breath / 100)
			defer pace.Stop()
			for line := range bytes.SplitAfterSeq(want, []byte("\n")) {
				if _, err := w.Write(line); err != nil {
					t.Error(err)
				}
				<-pace.C
			}
			if !abandoned {
				w.Close()
			} else if err := r.SetReadDeadline(time.Now()); err != nil {
				t.Error(err)
			}
		}()
		late := time.AfterFunc(10*time.Second, func() { out.Close() })
		var got []byte
		pieces := 0
		for buf := []byte(nil); len(got) < len(want); pieces++ {
			kind, body, err := wire.ReadMessage(said, buf, 2*protocol.Chunk)
			if err != nil {
				break
			}
			m := wire.NewDecoder(body)
			if rank, stream := m.I64(), m.U8(); kind != protocol.SayOutput || rank != 3 || stream != 1 {
				t.Fatalf("message %d of rank %d, stream %d", kind, rank, stream)
			}
			got = append(got, m.Bytes(protocol.Chunk)...)
		}
		<-a.events
		if !late.Stop() {
			t.Error("not all came")
		}
		if !bytes.Equal(got, want) {
			t.Fatalf("abandoned %v: %d bytes of %d", abandoned, len(got), len(want))
		}
		if pieces > lines/4 {
			t.Errorf("%d lines came in %d pieces", lines, pieces)
		}
	}
}
