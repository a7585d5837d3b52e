// Package engine decides what a group of ranks does next: whose turn it is, on whose
// thread it runs, what is packed together, and what everybody is told when something
// does not fit.
//
// A [Group] takes [Request]s. In an ordered group the caller's order is the order, as
// in MPI; every operation carries a fingerprint of its sequence number, kind, type,
// count, operator, root, factors, device and name, and of the list that it was given in, so that a difference between
// ranks is one error on every rank and never a hang or a wrong sum. In a named group calls
// may come in any order; ranks agree on what all of them have, optimistically first,
// and after a few equal rounds not at all (see names.go).
//
// The package moves no bytes itself (package collective does), opens no connections,
// reads no environment, and never calls back into its callers except through events.
//
// Goroutines: one worker per group, started by the first submission and bound to an OS
// thread while it lives; one watch per group that sleeps unless an operation is in
// flight. Close joins both. An operation whose caller waits anyway runs on the
// caller's goroutine when nothing is queued before it, and who waits for a named one may
// do his group's work ([Group.Help]).
package engine
