//go:build !linux

package store

// local cannot tell file systems apart here.
func local(string) error { return nil }
