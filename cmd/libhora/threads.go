package main

/*
#include "lib.h"
*/
import "C"

import (
	"fmt"
	"time"

	"hora"
	"hora/internal/bridge"
)

// mostThreads is how many waits are looked at: those of threads, and of graphs that a framework
// runs, where hundreds of operations may stand side by side.
const mostThreads = bridge.MostWaits

// threads says what the threads that have called hora wait for; all is false where one of them
// does something else, or waits for what package hora knows nothing of. doubt is who else may yet
// free them: what the action doubt told, or a framework's other threads.
func (l *library) threads() (list []hora.Waiting, doubt string, all bool) {
	var tickets [mostThreads]C.uint64_t
	var since [mostThreads]C.int64_t
	var lent, others C.int
	n := int(C.libhora_threads(&tickets[0], &since[0], mostThreads, &lent, &others))
	now := C.libhora_now()
	switch {
	case others > 0 && lent == 0:
		return nil, "", false
	case lent > 0:
		doubt = "runs a framework's compiled program, whose other threads"
	default:
		if p := l.doubt.Load(); p != nil {
			doubt = *p
		}
	}
	for i := range l.tables.all {
		if g := l.tables.all[i].Load(); n > 0 && g != nil && g.isMaking() {
			return nil, "", false // what was asked by name meanwhile is with nobody yet
		}
	}
	for i := range max(n, 0) {
		w := hora.Waiting{Since: time.Duration(now - since[i])}
		table, t := unpack(tickets[i])
		if table == 0 {
			g, ok := l.joins.Load(uint64(tickets[i]))
			if !ok {
				return nil, "", false
			}
			w.Group, w.Join = g.(*hora.Group), true
		} else if g := l.tables.at(table); g != nil {
			w.Group, w.Ticket = g.g, t
		} else {
			return nil, "", false
		}
		list = append(list, w)
	}
	return list, doubt, n > 0
}

// noteDoubt takes what a language runtime knows of who may free this process's waits: its own
// threads, of which those count that have not called hora, and a signal that has a handler.
func (l *library) noteDoubt(a *action) {
	var strange []string
	for i, t := range a.Strangers {
		if i < len(a.Names) && C.libhora_seated(C.uint64_t(t)) == 0 {
			strange = append(strange, a.Names[i])
		}
	}
	doubt := ""
	switch {
	case len(strange) == 1:
		doubt = fmt.Sprintf("has a thread %s that has not called hora so far and", strange[0])
	case len(strange) > 1:
		doubt = fmt.Sprintf("has %d threads that have not called hora so far (%s, …), which", len(strange), strange[0])
	case a.Signal != "":
		doubt = fmt.Sprintf("has a handler of %s, which", a.Signal)
	}
	l.doubt.Store(&doubt)
}
