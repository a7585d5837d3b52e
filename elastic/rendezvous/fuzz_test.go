package rendezvous

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"hora/internal/wire"
)

// FuzzEvent decodes a journal's record as a coordinator that takes over does.
func FuzzEvent(f *testing.F) {
	f.Add(recordJob, wire.AppendString(nil, "job"))
	connected := wire.AppendI64(wire.AppendU64(nil, 7), 1e18)
	connected = wire.AppendI64(wire.AppendI64(wire.AppendString(connected, "job"), 3), 8)
	f.Add(recordConnected, wire.AppendString(wire.AppendString(connected, "host"), "session"))
	f.Add(recordRequest, wire.AppendBytes(wire.AppendU8(wire.AppendU64(nil, 7), kindPut), []byte("body")))
	f.Add(recordGone, wire.AppendString(wire.AppendU64(nil, 7), "killed"))
	f.Add(recordExited, wire.AppendString(wire.AppendString(wire.AppendI64(wire.AppendU64(nil, 1), -1), "host"), "why"))
	f.Fuzz(func(t *testing.T, kind uint8, body []byte) {
		e, err := decodeRecord(kind, body)
		if err != nil {
			return
		}
		if e.rank < -1 || e.rank > maxRanks || e.hello.Rank < -1 || e.hello.Rank > maxRanks ||
			len(e.body) > len(body) || len(e.reason) > len(body) {
			t.Errorf("%x became %+v", body, e)
		}
	})
}

// FuzzJournal opens a file that something has written anything into: what is kept of
// it can be opened again, and is the same.
func FuzzJournal(f *testing.F) {
	job := message(recordJob, 16, func(b []byte) []byte { return wire.AppendString(b, "job") })
	gone := message(recordGone, 16, func(b []byte) []byte { return wire.AppendString(wire.AppendU64(b, 7), "killed") })
	f.Add(append(job[:len(job):len(job)], gone...))
	f.Add(append(job[:len(job):len(job)], gone[:9]...))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, text []byte) {
		dir := t.TempDir()
		path := filepath.Join(dir, "journal")
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		j, err := OpenJournal(dir, "job", false)
		if err != nil {
			return
		}
		n := len(j.past)
		j.Close()
		kept, err := os.ReadFile(path)
		if err != nil || !bytes.HasPrefix(text, kept) {
			t.Fatalf("%x became %x: %v", text, kept, err)
		}
		if j, err = OpenJournal(dir, "job", false); err != nil || len(j.past) != n {
			t.Fatalf("a journal of %d records was opened once, then not: %v", n, err)
		}
		j.Close()
	})
}
