// Package demo is the trainer of `hora demo`: a small network on real digits, trained
// by several processes over the public API of package hora, started through launch.
//
// It is written to be read first. It owns the network, the optimizers, the step loop
// and the pages that the demo shows; it never opens a connection of its own and reads
// no environment. A worker runs in one goroutine; the front end has one more that
// reads the workers' reports.
package demo
