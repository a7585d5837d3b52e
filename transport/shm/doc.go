// Package shm is the link between ranks on one host: a segment of memory that all
// of them map, with a transport.Board in it, byte rings for messages, mailboxes
// for control messages, and registered buffers that are reduced where they lie.
//
// The lowest rank of the host makes the segment (a memfd: it has no name, so there
// is nothing to attack and nothing to leak) and hands it over a unix socket to who
// has the same user and proves the job's secret; nothing is decoded before that.
// Either all ranks map it or none uses it: then Open fails everywhere with an
// *UnavailableError and the caller goes by TCP. Only Linux has this link; elsewhere
// every call returns that error.
//
// The package never interprets what operations mean and never retries one.
//
// Goroutines: a Listener runs one that accepts, one that has fences reach this process
// and ends, and one per connection that is not claimed yet. A Link runs one per peer
// process that waits for its end (parked on a pidfd, no thread), one that beats once a
// second, one that hears control messages and one per control connection (on the lowest
// rank: to each other rank). Close joins them all.
package shm
