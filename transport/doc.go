// Package transport is the contract between an algorithm and the links that carry
// its bytes: what a mesh of ranks can do (Mesh), what it says when something goes
// wrong (PeerLostError, MismatchError, DeadlineError), what it counts (Counters),
// and the protocol by which ranks of one host meet in memory that all of them map
// (Board). Routed joins the board of one host with a mesh to the other hosts.
//
// It owns the layout of shared memory and the rules by which it is read and
// written; it never makes, maps or passes that memory, opens no socket and knows
// no process: transport/shm, transport/tcp and transport/mem do. It starts no
// goroutine except inside Routed.Explain, which waits for it.
package transport
