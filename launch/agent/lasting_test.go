package agent

import (
	"net"
	"testing"
	"time"
)

// TestALauncherThatHasJustComeIsNotLetGo: that nobody listened at the coordinator's port says nothing about one that
// has come since.
func TestALauncherThatHasJustComeIsNotLetGo(t *testing.T) {
	ours, theirs := net.Pipe()
	defer theirs.Close()
	l := Lead(ours, func() (net.Conn, error) { return nil, net.ErrClosed })
	l.mu.Lock()
	l.wait = time.Minute
	l.mu.Unlock()
	there := func() bool {
		_ = theirs.SetWriteDeadline(time.Now().Add(10 * time.Second))
		_, err := theirs.Write([]byte{0})
		return err == nil
	}
	if !l.Away(time.Hour) || !there() {
		t.Error("it was let go")
	}
	if !l.Away(0) || there() {
		t.Error("a silent one was not let go")
	}
	l.giveUp()
}
