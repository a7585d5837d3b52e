package machine

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// box writes a sysfs with threads per core and cores per node.
func box(t *testing.T, nodes, cores, threads int) string {
	t.Helper()
	root := t.TempDir()
	total := nodes * cores * threads
	put := func(path, text string) {
		path = filepath.Join(root, "devices/system", path)
		os.MkdirAll(filepath.Dir(path), 0o755)
		if err := os.WriteFile(path, []byte(text+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	put("cpu/online", fmt.Sprintf("0-%d", total-1))
	of := make([][]int, nodes)
	for core := range nodes * cores {
		var siblings []int
		for k := range threads {
			siblings = append(siblings, core+k*nodes*cores)
		}
		for _, c := range siblings {
			put(fmt.Sprintf("cpu/cpu%d/topology/thread_siblings_list", c), FormatList(siblings))
		}
		of[core%nodes] = append(of[core%nodes], siblings...) // nodes interleave, as on many servers
	}
	for n, cpus := range of {
		put(fmt.Sprintf("node/node%d/cpulist", n), FormatList(cpus))
	}
	return root
}

func TestSharesFollowNodesAndThreads(t *testing.T) {
	for _, c := range []struct {
		nodes, cores, threads, ranks int
		want                         string
		crowded                      bool
	}{
		{1, 4, 1, 2, "0-1/2 2-3/2", false},
		{1, 4, 2, 2, "0-1,4-5/2 2-3,6-7/2", false},
		{2, 2, 2, 2, "0,2,4,6/2 1,3,5,7/2", false},
		{2, 2, 2, 4, "0,4/1 2,6/1 1,5/1 3,7/1", false},
		{1, 2, 2, 4, "0/1 1/1 2/1 3/1", false},
		{1, 4, 1, 3, "0/1 1/1 2/1", false},
		{1, 2, 1, 3, "/1 /1 /1", true},
		{2, 3, 1, 3, "0,2/2 4,1/2 3,5/2", false},
	} {
		shares, crowded := Shares(Cores(box(t, c.nodes, c.cores, c.threads), nil), c.ranks, BindCore)
		var got []string
		for _, s := range shares {
			got = append(got, fmt.Sprintf("%s/%d", FormatList(s.CPUs), s.Cores))
		}
		want := strings.ReplaceAll(c.want, "4,1/", "1,4/")
		if strings.Join(got, " ") != want || crowded != c.crowded {
			t.Errorf("%d nodes of %d cores of %d threads, %d ranks: %v %v, want %s", c.nodes, c.cores, c.threads, c.ranks, got, crowded, want)
		}
	}
}
