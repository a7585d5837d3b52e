package main

/*
#include "lib.h"
*/
import "C"

// horaPlace tells a compiled program who it is: a group's rank and size, when it runs.
//
//export horaPlace
func horaPlace(handle C.uint64_t, rank, size *C.int32_t) (answer C.int32_t) {
	defer guard(&answer)
	g, err := the.find(uint64(handle))
	if err != nil {
		return C.int32_t(errOut(err))
	}
	*rank, *size = C.int32_t(g.g.Rank()), C.int32_t(g.g.Size())
	return 0
}
