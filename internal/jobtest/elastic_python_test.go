package jobtest_test

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"math"
	"testing"

	"hora/elastic"
	"hora/internal/hosttest"
)

// TestSoakOfPythonWorkersOverHosts is TestSoakOverHosts with workers written in Python: what
// @hora.elastic.run makes of kills, stops, cuts, drains and joins.
func TestSoakOfPythonWorkersOverHosts(t *testing.T) {
	events := soakCount(t, 5, 100)
	library := buildLibrary(t)
	for _, policy := range []elastic.Policy{elastic.Replace, elastic.Continue} {
		t.Run(policy.String(), func(t *testing.T) {
			n := hosttest.Up(t, "a", "b", "c")
			home := pythonOn(t, n, library)
			for _, h := range n.Hosts {
				h.Install("python/tests/soak_worker.py", "worker.py")
			}
			soakOn(t, n, policy, events, workers{
				command: []string{"python3", "worker.py"}, course: pythonCourse, env: []string{"PYTHONPATH=" + home + "/python"},
			})
		})
	}
}

// pythonCourse is the digest before every step of python/tests/soak_worker.py that one process does alone.
func pythonCourse(steps int) []string {
	params := make([]int, 1000)
	for i := range params {
		params[i] = i % 17
	}
	var all []string
	for step := range steps + 1 {
		var b []byte
		for i, p := range params {
			b = binary.LittleEndian.AppendUint64(b, math.Float64bits(float64(p)))
			params[i] = (p + (p*31+step*17+i)%1009) % 65521
		}
		sum := sha256.Sum256(b)
		all = append(all, hex.EncodeToString(sum[:8]))
	}
	return all
}
