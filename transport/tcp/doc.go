// Package tcp carries a group's messages between processes over TCP.
//
// It owns a process's listener and connections: data connections, driven by the
// caller's thread through raw non-blocking sockets, and one control connection
// per pair of processes for heartbeats, news of lost ranks and the mismatch
// protocol. Every connection proves the job's secret, both ways, before anything
// else is read from it.
//
// It never reads more of a message than the receiver expects, never resolves
// names, never retries an operation, and takes no lock around I/O.
//
// Goroutines: a Node runs one to accept, one per connection in mid-proof, two per
// control connection and one ticker; a Mesh runs one per connection being dialled
// and, with TLS, two per data connection. Node.Close and Mesh.Close join them.
package tcp
