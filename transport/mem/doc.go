// Package mem is a mesh whose ranks are goroutines of one process: messages are
// copied between queues, waits are condition variables, time is package time. It
// therefore runs inside testing/synctest bubbles, where a day of timeouts passes at
// once, and it is what Go programs use that hold several ranks in one process.
//
// A Script makes it fail on purpose: ranks die at their n-th message, links are cut,
// delayed, garbled. Ranks that share a host in the layout also get a
// transport.Board over plain heap memory.
//
// The package starts no goroutines. Timers that it sets run for microseconds, and
// Close stops them.
package mem
