package node

import (
	"testing"
	"time"
)

// TestPausesFitIntoALease: a node that waits for its server renews its keepers' leases only when it tries, so that it
// has to try several times within one, however short the server's patience is.
func TestPausesFitIntoALease(t *testing.T) {
	for _, patience := range []time.Duration{time.Second, 3 * time.Second, time.Minute, time.Hour} {
		l := lease{patience: patience}
		if pause := l.rest(); pause <= 0 || 4*pause > time.Duration(softly*float64(patience)) || pause > 3*time.Second {
			t.Errorf("with a patience of %v it tries every %v", patience, pause)
		}
	}
	if pause := new(lease).rest(); pause != 3*time.Second {
		t.Errorf("before it knows the server's patience it tries every %v", pause)
	}
}
