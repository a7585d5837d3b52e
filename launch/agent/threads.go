package agent

import (
	"strconv"
	"strings"

	"hora/launch/environ"
	"hora/launch/machine"
)

// threads tells OpenMP in a worker's environment how many threads fit its share of the cores, and how they wait.
//
// Threads of OpenMP poll for each other. Bound to fewer cores than they are they notice; unbound they count the whole
// machine's cores as their own, and those of one rank poll away the time that another's work waits for. Two ranks of
// two threads on two cores under real-time scheduling took 15 ms for what takes 9 where they sleep, and on another
// machine 64 to 84 for 6.
func threads(env []string, share machine.Share) []string {
	env = environ.Default(env, "OMP_NUM_THREADS", strconv.Itoa(share.Cores))
	if tooMany(env, share) == 0 || environ.Lookup(env, "GOMP_SPINCOUNT") != "" {
		return env
	}
	return environ.Default(env, "OMP_WAIT_POLICY", "passive")
}

// tooMany returns the number of threads that a worker asks for where they are more than its share and it is not bound;
// else 0.
func tooMany(env []string, share machine.Share) int {
	first, _, _ := strings.Cut(environ.Lookup(env, "OMP_NUM_THREADS"), ",") // one number a level
	if n, err := strconv.Atoi(strings.TrimSpace(first)); err == nil && n > share.Cores && share.CPUs == nil {
		return n
	}
	return 0
}
