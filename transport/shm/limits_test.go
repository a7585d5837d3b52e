//go:build linux

package shm

import (
	"errors"
	"fmt"
	"testing"
)

func TestMemoryRoom(t *testing.T) {
	files := func(max, current, stat string) func(string) ([]byte, error) {
		return func(path string) ([]byte, error) {
			switch path {
			case "/proc/self/cgroup":
				return []byte("1:name=systemd:/old\n0::/job/7\n"), nil
			case "/sys/fs/cgroup/job/7/memory.max":
				return []byte(max), nil
			case "/sys/fs/cgroup/job/7/memory.current":
				return []byte(current), nil
			case "/sys/fs/cgroup/job/7/memory.stat":
				return []byte(stat), nil
			}
			return nil, fmt.Errorf("read %s: no such file", path)
		}
	}
	for _, c := range []struct {
		max, current, stat string
		room               int64
		ok                 bool
	}{
		{"1000\n", "400\n", "anon 5\ninactive_file 100\n", 700, true},
		{"1000\n", "400\n", "", 600, true},
		{"max\n", "400\n", "", 0, false},
		{"", "", "", 0, false},
	} {
		room, ok := memoryRoom(files(c.max, c.current, c.stat))
		if room != c.room || ok != c.ok {
			t.Errorf("%q of %q used: %d %v, want %d %v", c.current, c.max, room, ok, c.room, c.ok)
		}
	}
	nothing := func(string) ([]byte, error) { return nil, errors.New("no") }
	if _, ok := memoryRoom(nothing); ok {
		t.Error("a limit without control groups")
	}
}

func TestCrowded(t *testing.T) {
	on := func(cpus ...byte) join { return join{cpus: cpus} }
	for name, c := range map[string]struct {
		joins []join
		want  bool
	}{
		"one each":           {[]join{on(1), on(2)}, false},
		"both on one":        {[]join{on(1), on(1)}, true},
		"free on two":        {[]join{on(3), on(3)}, false},
		"three on two":       {[]join{on(3), on(3), on(3)}, true},
		"one bound, one not": {[]join{on(1), on(3)}, false},
		"high numbers":       {[]join{on(0, 0, 1), on(0, 0, 2)}, false},
		"somebody was told":  {[]join{on(1), {cpus: []byte{2}, oversubscribed: true}}, true},
		"unknown":            {[]join{{}, {}}, false},
	} {
		if got := crowded(c.joins); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// TestManyRanks opens more ranks than a board's memory is touched for in advance.
func TestManyRanks(t *testing.T) {
	n := eagerSeats + 4
	links := openAll(t, n, nil)
	each(t, n, func(i int) error {
		for seq := uint64(1); seq <= 3; seq++ {
			if err := barrier(links[i], seq); err != nil {
				return err
			}
		}
		return nil
	})
}
