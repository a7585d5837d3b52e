package agent

import (
	"slices"
	"strings"
	"testing"

	"hora/launch/machine"
)

func TestThreadsOfUnboundWorkersWaitAsleep(t *testing.T) {
	for _, c := range []struct {
		env   string
		share machine.Share
		want  string
	}{
		{"A=1", machine.Share{Cores: 2}, "A=1 OMP_NUM_THREADS=2"},
		{"OMP_NUM_THREADS=2", machine.Share{Cores: 2}, "OMP_NUM_THREADS=2"},
		{"OMP_NUM_THREADS=2", machine.Share{Cores: 1}, "OMP_NUM_THREADS=2 OMP_WAIT_POLICY=passive"},
		{"OMP_NUM_THREADS=4,1", machine.Share{Cores: 3}, "OMP_NUM_THREADS=4,1 OMP_WAIT_POLICY=passive"},
		{"OMP_NUM_THREADS=2", machine.Share{Cores: 1, CPUs: []int{0}}, "OMP_NUM_THREADS=2"},
		{"OMP_NUM_THREADS=2 OMP_WAIT_POLICY=active", machine.Share{Cores: 1}, "OMP_NUM_THREADS=2 OMP_WAIT_POLICY=active"},
		{"OMP_NUM_THREADS=2 GOMP_SPINCOUNT=100", machine.Share{Cores: 1}, "GOMP_SPINCOUNT=100 OMP_NUM_THREADS=2"},
		{"OMP_NUM_THREADS=many", machine.Share{Cores: 1}, "OMP_NUM_THREADS=many"},
	} {
		got := threads(strings.Fields(c.env), c.share)
		slices.Sort(got)
		if s := strings.Join(got, " "); s != c.want {
			t.Errorf("%s with %+v: %s, want %s", c.env, c.share, s, c.want)
		}
	}
}
