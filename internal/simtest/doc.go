// Package simtest runs whole groups in one process: N ranks over transport/mem in a
// synctest bubble, so that timeouts pass at once and a run ends the same way every
// time, with scripted faults and random histories. What the ranks compute is held to
// the plain reference in this package.
//
// It is for tests only. It starts one goroutine a rank and waits for all of them; a
// rank that hangs fails the test through synctest, which sees that nothing can move.
package simtest
