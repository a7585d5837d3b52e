package jobtest_test

import (
	"os/exec"
	"testing"
	"time"

	"hora/internal/jobtest"
)

// TestAStartedProcessIsHeardAndEnds has a process answer, say no more and end.
func TestAStartedProcessIsHeardAndEnds(t *testing.T) {
	p := jobtest.Start(t, exec.Command("sh", "-c", `read word; echo "$word back"; exit 3`))
	p.Tell("there and")
	if line, ok := p.Next(20 * time.Second); !ok || line != "there and back" {
		t.Errorf("heard %q, %t", line, ok)
	}
	if line, ok := p.Next(20 * time.Second); ok {
		t.Errorf("heard %q too", line)
	}
	<-p.Ended
	if code := p.ProcessState.ExitCode(); code != 3 {
		t.Errorf("ended with %d", code)
	}
}

// TestAStartedProcessEndsWithItsTest leaves one behind that would wait for ever.
func TestAStartedProcessEndsWithItsTest(t *testing.T) {
	var p *jobtest.Process
	t.Run("inner", func(t *testing.T) { p = jobtest.Start(t, exec.Command("sh", "-c", "exec sleep 1000")) })
	select {
	case <-p.Ended:
	default:
		t.Error("the process outlives its test")
	}
}
