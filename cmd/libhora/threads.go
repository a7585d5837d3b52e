package main

/*
#include "lib.h"
*/
import "C"

import (
	"time"

	"hora"
)

// mostThreads is how many threads that wait are looked at.
const mostThreads = 128

// threads says what the threads that have called hora wait for; all is false where one of them
// does something else, or waits for what package hora knows nothing of.
func (l *library) threads() (list []hora.Waiting, all bool) {
	var tickets [mostThreads]C.uint64_t
	var since [mostThreads]C.int64_t
	n := int(C.libhora_threads(&tickets[0], &since[0], mostThreads))
	now := C.libhora_now()
	for i := range l.tables.all {
		if g := l.tables.all[i].Load(); n > 0 && g != nil && g.isMaking() {
			return nil, false // what was asked by name meanwhile is with nobody yet
		}
	}
	for i := range max(n, 0) {
		w := hora.Waiting{Since: time.Duration(now - since[i])}
		table, t := unpack(tickets[i])
		if table == 0 {
			g, ok := l.joins.Load(uint64(tickets[i]))
			if !ok {
				return nil, false
			}
			w.Group, w.Join = g.(*hora.Group), true
		} else if g := l.tables.at(table); g != nil {
			w.Group, w.Ticket = g.g, t
		} else {
			return nil, false
		}
		list = append(list, w)
	}
	return list, n > 0
}
