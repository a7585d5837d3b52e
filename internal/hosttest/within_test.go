//go:build linux

package hosttest

import (
	"os"
	"sync"
	"testing"
)

// The program itself stays on its own network, whichever of its threads has worked on a host's: the first thread
// does not end, and what it is in is what /proc/self shows.
func TestTheProgramKeepsItsOwnNetwork(t *testing.T) {
	n := Up(t, "server1")
	was, err := os.Readlink("/proc/self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for range 64 {
		all.Go(func() {
			n.Hosts[0].Do(func() error {
				if is, err := os.Readlink("/proc/thread-self/ns/net"); err != nil || is == was {
					t.Errorf("the work is done on %s (%v), and not on the host's network", is, err)
				}
				return nil
			})
		})
	}
	all.Wait()
	if is, err := os.Readlink("/proc/self/ns/net"); err != nil || is != was {
		t.Errorf("the program is on %s (%v), and was on %s", is, err, was)
	}
}
