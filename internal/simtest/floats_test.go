package simtest

import "unsafe"

// unsafeFloats sees bytes as float32.
func unsafeFloats(b []byte) []float32 {
	if len(b) < 4 {
		return nil
	}
	return unsafe.Slice((*float32)(pointer(b)), len(b)/4)
}
