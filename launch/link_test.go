package launch

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"testing"

	"hora/internal/wire"
	"hora/launch/protocol"
	"hora/launch/reach"
)

// brokenOff is the way to an agent that could come back, and says some of what a worker has left and no more.
type brokenOff struct {
	reach.Way
	io.Reader
}

func (brokenOff) Greet() (*reach.Host, error) { return &reach.Host{}, nil }
func (brokenOff) Write(b []byte) (int, error) { return len(b), nil }
func (brokenOff) Finish() error               { return nil }
func (brokenOff) End(error) *reach.Lost       { return &reach.Lost{} }
func (brokenOff) Back() *protocol.Back        { return &protocol.Back{From: 1} }
func (b brokenOff) Read(p []byte) (int, error) {
	return b.Reader.Read(p)
}

// TestHalfAResultIsLeftForAnHeirAlone: where nobody can adopt the job its results are whole or not there.
func TestHalfAResultIsLeftForAnHeirAlone(t *testing.T) {
	for _, book := range []*ledger{nil, {seen: map[numbered]bool{}}} {
		dir := t.TempDir()
		spec := &settings{Place: Place{Results: dir, Stdout: io.Discard, Stderr: io.Discard}}
		out, err := newOutput(spec, 1)
		if err != nil {
			t.Fatal(err)
		}
		ls := &links{spec: spec, record: &record{ledger: book}, mail: &mailbox{events: make(chan any, 8)}, out: out}
		half := wire.AppendMessage(nil, protocol.SayResult, resultPart(false, 0, "half"))
		way := brokenOff{Reader: bytes.NewReader(half)}
		l := &link{way: way, writer: protocol.NewWriter(way, finisher{way}, true)}
		ls.hear(l)
		l.reader.Wait()
		l.writer.Close()
		_, err = os.Stat(filepath.Join(dir, "rank.0.part-0"))
		if adoptable := book != nil; (err == nil) != adoptable {
			t.Errorf("can be adopted: %v; half a result is left: %v", adoptable, err)
		}
	}
}
