// Package bench measures hora's collectives beside gloo's and Open MPI's, in one run.
//
// It owns the plan of a run, the peers' programs (C and C++ sources under peers/, built
// when first needed), the goals in targets.json and the tables and pictures of results.
// It reads no environment and no flags. Run has one goroutine that owns the run and one
// reader per child process; all are joined before it returns.
//
// The rules for honest numbers: every rank rewrites its input before each timed call,
// and an untimed barrier brings the ranks together; each call is timed alone, a rank's figure is its median, the
// slowest rank counts; competitors run in turn within a round, and a ratio is formed within its round, to the
// best that a peer's settings reach in it; all
// are bound while ranks ≤ cores and free above; all run under SCHED_RR, without which a
// run proves nothing on a busy machine; results are verified between the timed calls.
package bench
