// Package jobtest is the home of the tests with real jobs: workers in processes of their own, under a launcher, on
// hosts that internal/hosttest makes. Its test program is worker, agent, coordinator and launcher of those jobs.
//
// Self, Start, Ranks and FreePort are for tests of other packages as well, so they import none of ours.
// Goroutines: those of Ranks, which it waits for, and one a started Process, which the end of its test waits for.
package jobtest

import (
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
	"testing"
)

// FreePort returns a port of this machine on which nobody listens at the moment. It is below those that the system
// gives to connections by itself, one of which would have it before it is used.
func FreePort(t testing.TB) int {
	t.Helper()
	for range 100 {
		port := 12000 + rand.IntN(20000)
		if ln, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port))); err == nil {
			ln.Close()
			return port
		}
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	return ln.Addr().(*net.TCPAddr).Port
}

// Ranks runs f for every rank at once, in this process, and waits for all.
func Ranks(t testing.TB, n int, f func(rank int) error) {
	t.Helper()
	errs := make([]error, n)
	var wg sync.WaitGroup
	for r := range n {
		wg.Go(func() { errs[r] = f(r) })
	}
	wg.Wait()
	for r, err := range errs {
		if err != nil {
			t.Errorf("rank %d: %v", r, err)
		}
	}
}
