//go:build !linux

package dataset

func large([]byte) {}
