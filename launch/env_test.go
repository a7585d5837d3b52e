package launch

import (
	"slices"
	"testing"
)

// Plain multi-process JAX finds its coordinator at a port of its own; in a job on one host nobody else does.
func TestWhereJAXMeets(t *testing.T) {
	for host, want := range map[string][]string{
		"127.0.0.1": {"JAX_COORDINATOR_ADDRESS=127.0.0.1:20004", "JAX_COORDINATOR_BIND_ADDRESS=127.0.0.1:20004"},
		"::1":       {"JAX_COORDINATOR_ADDRESS=[::1]:20004", "JAX_COORDINATOR_BIND_ADDRESS=[::1]:20004"},
		"10.0.0.7":  {"JAX_COORDINATOR_ADDRESS=10.0.0.7:20004"},
		"node7":     {"JAX_COORDINATOR_ADDRESS=node7:20004"},
	} {
		its := variables{size: 2, addr: "127.0.0.1:9", masterHost: host, masterPort: 20005}
		var got []string
		for _, v := range its.list() {
			if len(v) > 4 && v[:4] == "JAX_" {
				got = append(got, v)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", host, got, want)
		}
	}
}
