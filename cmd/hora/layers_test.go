package main

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"hora/bench"
	"hora/internal/hosttest"
)

// TestHierarchicalBesideFlat times an allreduce of two hosts with two ranks each, once with the ranks of a host
// reducing in their memory first and once with all ranks alike, in turn, over a wire of 1 Gbit/s and over one without a
// limit.
func TestHierarchicalBesideFlat(t *testing.T) {
	if os.Getenv("HORA_SOAK") == "" {
		t.Skip("takes long; HORA_SOAK=1 runs it (make soak)")
	}
	n := hosttest.Up(t, "server1", "server2")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	path := n.Hosts[0].Install(self, "hora")
	n.Hosts[1].Install(self, "hora")
	sizes := []int{4, 4 << 10, 64 << 10, 1 << 20, 16 << 20}
	list := strings.Trim(strings.ReplaceAll(fmt.Sprint(sizes), " ", ","), "[]")
	measure := func(layout string) map[int]float64 {
		code, out, errs := n.Hosts[0].Output(3*time.Minute, "env", "HORA_TEST_PROGRAM=1", path, "run", "-np", "4", "-H", "server1:2,server2:2", "--no-tag",
			"env", "HORA_TEST_PROGRAM=1", "HORA_ALGORITHMS=allreduce:0-="+layout, path, benchRankCommand, "allreduce", "any", list)
		slowest, told := map[int]float64{}, 0
		for line := range strings.Lines(out) {
			var size, calls int
			var us float64
			if k, _ := fmt.Sscanf(line, "result allreduce %d %d %f ok", &size, &calls, &us); k == 3 {
				slowest[size] = max(slowest[size], us)
				told++
			}
		}
		if code != 0 || told != 4*len(sizes) {
			t.Fatalf("%s: exit code %d, %d results\n%s%s", layout, code, told, out, errs)
		}
		return slowest
	}
	const rounds = 3
	for _, wire := range []string{"no limit", "1 Gbit/s"} {
		if wire != "no limit" {
			for _, h := range n.Hosts {
				h.Rate(1000)
			}
		}
		hier, flat := map[int][]float64{}, map[int][]float64{}
		for range rounds {
			h, f := measure("hier"), measure("flat")
			for _, size := range sizes {
				hier[size], flat[size] = append(hier[size], h[size]), append(flat[size], f[size])
			}
		}
		for _, size := range sizes {
			slices.Sort(hier[size])
			slices.Sort(flat[size])
			h, f := hier[size][rounds/2], flat[size][rounds/2]
			t.Logf("%-8s  %5s  hierarchical %10.1f µs  flat %10.1f µs  ratio %.2f", wire, bench.FormatSize(size), h, f, f/h)
			if wire != "no limit" && size >= 1<<20 && h > f { // two thirds of the bytes cross
				t.Errorf("%s, %s: hierarchical takes %.0f µs, flat %.0f", wire, bench.FormatSize(size), h, f)
			}
		}
	}
}
