package elastic

import (
	"testing"
	"time"
)

func TestBlacklistCoolsDown(t *testing.T) {
	const now = 1000 * time.Second
	b := Blacklist{Min: 10 * time.Second, Max: 35 * time.Second, Spread: func() float64 { return 0.5 }}
	a := Spot{"a", -1}
	for i, want := range []time.Duration{11, 22, 35, 35} {
		if got := b.Ban(a, "x", now); got != want*time.Second {
			t.Errorf("failure %d: %v", i, got)
		}
	}
	bans := func(host string, slot int, at time.Duration) bool { return b.Why(host, slot, at) != "" }
	if !bans("a", 0, now+34*time.Second) || bans("a", 0, now+35*time.Second) || bans("b", 0, now) {
		t.Error("a host is banned for its own pause only")
	}
	b.Ban(Spot{"c", 1}, "", now)
	if !bans("c", 1, now) || bans("c", 0, now) || bans("c", -1, now) {
		t.Error("a slot alone is banned")
	}
	for range 100 {
		b.Ban(a, "x", now) // does not overflow
	}
	if bans("a", 0, now+36*time.Second) {
		t.Error("longer than the longest pause")
	}
	b = Blacklist{}
	if b.Ban(a, "x", now) != 0 || !bans("a", 3, 1e6*time.Hour) {
		t.Error("without a range a host is given up for good")
	}
}
