package transport

import (
	"errors"
	"testing"
	"time"
)

// arrive has boards begin an operation and post their headers.
func arrive(seq uint64, boards ...*Board) {
	for _, b := range boards {
		b.Begin(Stamp{Seq: seq}, time.Time{})
		b.Arrive(nil)
	}
}

// withdraw runs Withdraw and gives a channel that is closed when it returns.
func withdraw(b *Board, err error, last uint32) <-chan struct{} {
	done := make(chan struct{})
	go func() {
		defer close(done)
		b.Withdraw(err, last)
	}()
	return done
}

func blocked(t *testing.T, done <-chan struct{}, what string) {
	t.Helper()
	select {
	case <-done:
		t.Errorf("it returned although %s", what)
	case <-time.After(20 * time.Millisecond):
	}
}

// TestWithdrawWaitsForWhoMayTouch: who has arrived and has not posted the last phase
// may still use the memory that it found; everything else is waited for by nobody.
func TestWithdrawWaitsForWhoMayTouch(t *testing.T) {
	lost := &PeerLostError{Rank: 3, Reason: "killed"}
	b := boards(t, 4, BoardConfig{Lost: func(seat int) bool { return seat == 3 }})
	arrive(5, b[0], b[1], b[3]) // 3 has died since, 2 has not come
	done := withdraw(b[0], lost, 1)
	blocked(t, done, "seat 1 may touch its memory")
	if err := b[2].Sound(); !errors.As(err, new(*PeerLostError)) {
		t.Errorf("who arrives now finds %v", err)
	}
	b[1].Post(1)
	<-done

	b = boards(t, 3, BoardConfig{})
	arrive(6, b...)
	for _, x := range b {
		x.Post(1)
	}
	done = withdraw(b[0], lost, 2)
	blocked(t, done, "seats 1 and 2 are in phase 1 of 2")
	other := withdraw(b[1], lost, AllPhases)
	blocked(t, done, "seat 2 is in phase 1 of 2")
	b[2].Leave()
	<-done
	<-other

	b = boards(t, 2, BoardConfig{PeerTimeout: 50 * time.Millisecond})
	arrive(7, b...)
	began := time.Now()
	b[0].Withdraw(ErrClosed, AllPhases)
	if took := time.Since(began); took < 50*time.Millisecond {
		t.Errorf("it gave seat 1 %v", took)
	}
	if err := b[1].Sound(); err == nil || !err.(*PeerLostError).Left() {
		t.Errorf("a rank that closed the group in the operation is %v", err)
	}
}

// TestCatchUpWaitsForWhoIsBehind: who went on from a mismatch to which another rank had
// not come must not post over what that one may still read of the operation before.
func TestCatchUpWaitsForWhoIsBehind(t *testing.T) {
	b := boards(t, 2, BoardConfig{PeerTimeout: 20 * time.Millisecond})
	arrive(1, b...)
	b[0].Begin(Stamp{Seq: 2}, time.Time{})
	b[0].Arrive(nil)
	if texts, err := b[0].Explain([]byte("mine")); err != nil || texts[1] != nil {
		t.Fatal(texts, err)
	}
	b[0].Begin(Stamp{Seq: 3}, time.Time{})
	if ok, err := b[0].CatchUp(0); ok || err != nil {
		t.Errorf("seat 1 is still in operation 1: %t %v", ok, err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		if ok, err := b[0].CatchUp(-1); !ok || err != nil {
			t.Errorf("%t %v", ok, err)
		}
	}()
	blocked(t, done, "seat 1 is in operation 1")
	arrive(2, b[1])
	<-done
	if ok, err := b[0].CatchUp(0); !ok || err != nil {
		t.Errorf("%t %v", ok, err)
	}
}
