// Package collective runs one operation of a group at a time: allreduce, reduce,
// broadcast, allgather, reduce-scatter, alltoall, gather, scatter, barrier, send
// and receive, and Adasum. Each lies in a file of its own and is written in verbs
// (send, receive, exchange, post, await, reduce); what moves bytes is a
// transport.Mesh, what adds them is internal/kernel.
//
// A Comm picks an algorithm from a static table over (operation, dtype, bytes,
// ranks, hosts), which one string overrides (see Table). Whatever changes the order
// in which an element is added comes from that table alone, so that for a given
// world all ranks hold equal bits, run after run. On memory shared by the ranks of
// a host elements are added in rank order; on message links in the fixed order of
// the algorithm. docs/algorithms.md counts steps and bytes and states the bounds on
// rounding.
//
// The package owns no memory of its callers, never retries, never reorders
// operations (that is the engine's part) and starts no goroutines: an operation
// runs on the goroutine that calls Run. In steady state it allocates nothing.
package collective
