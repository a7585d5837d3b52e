package rendezvous

import (
	"testing"
	"time"

	"hora/elastic"
	"hora/internal/secret"
)

// TestASilentWorkersEndComesFirst: whoever is lost for its silence may wake up again and write to memory that it
// shares, so the others hear of it only when its process has been ended.
func TestASilentWorkersEndComesFirst(t *testing.T) {
	key := secret.New()
	news := make(chan Notice, 4)
	severed := make(chan string, 1)
	s, addr := serveTCP(t, Config{
		Secret: key, Size: 2, Silence: 300 * time.Millisecond, OnLoss: elastic.Replace, Reported: true,
		OnSevered: func(p Process, _ time.Time, reason string, silent bool) {
			if p.Rank == 1 && silent {
				severed <- reason
			}
		},
	})
	joinOneSilent(t, addr, key, news)
	s.Halted(1, Stopped)
	reason := <-severed
	if reason != "silent for 300ms (HORA_PEER_TIMEOUT, hora run --peer-timeout): its process is stopped" {
		t.Errorf("reason %q", reason)
	}
	select {
	case n := <-news:
		t.Errorf("news before its end: %+v", n)
	case <-time.After(endGrace / 4):
	}
	s.Exited(1, "", "h", reason)
	if n := <-news; n.Kind != NoticeLost || n.Rank != 1 || n.Reason != reason {
		t.Errorf("notice %+v", n)
	}
}
