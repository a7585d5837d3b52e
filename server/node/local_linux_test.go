package node

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"hora/server/snapshot"
)

// TestWhatIsToldBeginsNothing: a server that was restored, or a node whose folder was emptied, tells an elastic job its
// slots where nothing of it is left. It began there again as the same attempt, whose first lines then counted as had.
func TestWhatIsToldBeginsNothing(t *testing.T) {
	l := &Local{Dir: t.TempDir(), Hora: "/bin/false"}
	g := Gang{Job: 1, Attempt: 1, Tell: true}
	if err := l.Start(g); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(l.Folder(1, 1)); err == nil {
		t.Error("it has a folder now")
	}
	if err := os.MkdirAll(l.Folder(1, 1), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(l.Folder(1, 1), jobFile), []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := l.Start(g); err != nil {
		t.Error(err)
	}
	if len(l.alive) > 0 {
		t.Error("what has not begun was started by being told something")
	}
}

// TestStartsOfOneAttemptTakeTurns: an elastic job is told of more slots while its folder is made. Both starts made it
// anew, and one of them found the folder gone under its hands.
func TestStartsOfOneAttemptTakeTurns(t *testing.T) {
	sum := sha256.Sum256([]byte("pass"))
	content := hex.EncodeToString(sum[:])
	m := &snapshot.Manifest{Files: []snapshot.File{{Path: "train.py", Mode: 0o644, Hash: content}}}
	list, hash, err := m.Encode()
	if err != nil {
		t.Fatal(err)
	}
	var inside atomic.Int32
	var others sync.WaitGroup
	again := make(chan struct{}, 2)
	l := &Local{Dir: t.TempDir(), Hora: "/bin/true"}
	start := func() {
		if err := l.Start(Gang{Job: 1, Attempt: 1, Code: hash}); err != nil {
			t.Error(err)
		}
	}
	l.Open = func(h string) (io.ReadCloser, error) {
		if h == hash {
			return io.NopCloser(bytes.NewReader(list)), nil
		}
		if inside.Add(1) == 1 {
			others.Go(start)
			select {
			case <-again: // the other one is here as well
			case <-time.After(200 * time.Millisecond):
			}
		} else {
			again <- struct{}{}
		}
		return io.NopCloser(strings.NewReader("pass")), nil
	}
	start()
	others.Wait()
	if n := inside.Load(); n != 1 {
		t.Errorf("the folder was made %d times", n)
	}
	if _, err := os.Stat(filepath.Join(l.Folder(1, 1), WorkFolder, "train.py")); err != nil {
		t.Error(err)
	}
}
