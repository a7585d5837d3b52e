//go:build !linux

package engine

// wakeAll does nothing: without a futex, C threads look again every millisecond.
func wakeAll(*uint32) {}
