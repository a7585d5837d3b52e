package secret

import (
	"errors"
	"net"
	"strings"
	"sync"
	"testing"
	"time"
)

// Of 60,000 refusals from all sides, the first three are told as they come and the rest in one word at its time; none
// is told twice or lost.
func TestStrangersAreToldInFewWords(t *testing.T) {
	var mu sync.Mutex
	var told []Refused
	words := make(chan struct{}, 100)
	s := NewStrangers(func(r Refused) {
		mu.Lock()
		told = append(told, r)
		mu.Unlock()
		words <- struct{}{}
	}).Telling(3, 300*time.Millisecond)
	began := time.Now()
	var all sync.WaitGroup
	for range 6 {
		all.Go(func() {
			for range 10000 {
				s.Refuse("at a port", errors.New("not hora's"))
			}
		})
	}
	all.Wait()
	limit := 3 + int(time.Since(began)/(300*time.Millisecond))
	mu.Lock()
	early := len(told)
	mu.Unlock()
	if early < 3 || early > limit {
		t.Fatalf("%d words at once, not 3", early)
	}
	count := func() (n int) {
		mu.Lock()
		defer mu.Unlock()
		for _, r := range told {
			n += r.Count
		}
		return n
	}
	for count() < 60000 {
		select {
		case <-words:
		case <-time.After(5 * time.Second):
			t.Fatalf("%d refusals were told of", count())
		}
	}
	if text := told[0].String(); text != "refused a connection at a port: not hora's" {
		t.Error(text)
	}
	if text := told[len(told)-1].String(); !strings.Contains(text, "more connections, the last at a port") {
		t.Error(text)
	}
	// One more, and the end: what has not been told is told then, and nothing after it.
	s.Telling(3, time.Hour)
	s.Add(Refused{5, "later"})
	s.Close()
	s.Add(Refused{7, "too late"})
	s.Close()
	if n := count(); n != 60005 {
		t.Errorf("%d were told of, not 60005", n)
	}
	(*Strangers)(nil).Refuse("nowhere", net.ErrClosed)
	(*Strangers)(nil).Close()
}

// Who looks whether somebody listens and goes is nobody to tell of; who is pushed out is.
func TestWordlessVisitorsAreNotToldOf(t *testing.T) {
	var log safeBuffer
	g := gate(t, New(), &log, GateConfig{Where: "at a test's port"})
	c, err := net.Dial("tcp", g.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
	if c, err = net.Dial("tcp", g.Addr().String()); err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.Write([]byte("GET / HTTP/1.1\r\n\r\n"))
	c.SetDeadline(soon())
	c.Read(make([]byte, 1)) // until it is closed
	g.Close()
	if text := log.String(); strings.Count(text, "\n") > 1 || strings.Contains(text, "without a word") {
		t.Error(text)
	}
}

func TestRoomForALargeStart(t *testing.T) {
	if Room(2) != Unproven || Room(0) != Unproven {
		t.Error(Room(2))
	}
	if n := Room(1 << 40); n < Unproven || n > 1<<30 {
		t.Error(n)
	}
}
