// Package simtest runs whole groups in one process: N ranks over transport/mem in a
// synctest bubble, so that timeouts pass at once, with scripted faults and random
// histories. A printed seed repeats what the ranks ask for and which faults they meet;
// in which order the scheduler runs them differs from run to run, and no result may.
// What the ranks compute is held to the plain reference in this package. A few tests
// run ranks as processes over real shared memory as well.
//
// It is for tests only. It starts one goroutine a rank and waits for all of them; a
// rank that hangs fails the test through synctest, which sees that nothing can move.
package simtest
