package collective

import "unsafe"

// claimLines asks for the cache lines from p on to be owned by this core.
//
//go:noescape
func claimLines(p unsafe.Pointer, lines int)
