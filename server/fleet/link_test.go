package fleet

import (
	"bufio"
	"encoding/json"
	"io"
	"net"
	"testing"
	"time"

	"hora/server/node"
)

// TestANodeThatComesAtTheEnd: one that is being let in while the server ends does not hold it up.
func TestANodeThatComesAtTheEnd(t *testing.T) {
	f := New(Config{Here: &node.Local{}, Patience: time.Hour, Beat: time.Hour})
	ours, theirs := net.Pipe()
	defer theirs.Close()
	go func() {
		_ = json.NewEncoder(theirs).Encode(node.Hello{Protocol: node.Protocol, Name: "late", Pool: "p", Slots: 1})
		_, _ = io.Copy(io.Discard, theirs)
	}()
	done := make(chan struct{})
	go func() {
		defer close(done)
		f.Enter(ours, bufio.NewReader(ours), Gate{
			Check: func(*node.Hello) error { return nil },
			Token: func(*node.Hello) (string, error) { f.Close(); return "", nil },
		})
	}()
	select {
	case <-done:
	case <-time.After(10 * time.Second):
		t.Fatal("the node is still heard")
	}
}
