package main

/*
#include "lib.h"
*/
import "C"

import (
	"context"
	"encoding/json"
	"errors"
	"strconv"
	"strings"
	"time"

	"hora"
)

// errNotElastic is for jobs whose launcher replaces nobody.
var errNotElastic = &failure{C.HORA_FAILED, "this job cannot go on in another epoch: start it with `hora run --restarts N` (lost workers are replaced) or --min-np N (the others go on without them)"}

// elastic reports whether init is to keep the connection to the coordinator over all
// epochs of the job: when asked to, or when the launcher says that the job is elastic.
func (s *initSettings) elastic() bool {
	said, given := s.Settings["elastic"]
	if !given {
		said = s.Env["HOROVOD_ELASTIC"]
	}
	yes, _ := strconv.ParseBool(said)
	return yes
}

// member returns the membership of the present life, if it has one.
func (l *library) member() (*hora.Membership, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.life == nil {
		return nil, errNoWorld
	}
	if l.life.member == nil {
		return nil, errNotElastic
	}
	return l.life.member, nil
}

//export horaNews
func horaNews() (answer C.int32_t) {
	defer guard(&answer)
	m, err := the.member()
	switch {
	case err == errNotElastic:
		return 0
	case err != nil:
		return C.int32_t(errOut(err))
	}
	switch err := m.News(); {
	case err == nil:
		coming, going := m.HostNews()
		switch {
		case coming && going:
			return 5
		case going:
			return 4
		case coming:
			return 3
		}
		return 0
	case errors.Is(err, hora.ErrDrained):
		return 2
	case errors.Is(err, hora.ErrChanged):
		return 1
	default:
		return C.int32_t(errOut(err))
	}
}

// action is the JSON of hora_action.
type action struct {
	Action     string `json:"action"`
	Reason     string `json:"reason"`      // of drain and leave; of recovered: why the epoch before ended
	Nanos      int64  `json:"nanos"`       // of recovered: since this rank knew
	Steps      int    `json:"steps"`       // of recovered: done again; -1 where nobody counts them
	Path       string `json:"path"`        // of start_timeline
	MarkCycles bool   `json:"mark_cycles"` // of start_timeline
	Name       string `json:"name"`        // of parts: an operation's
	Parts      string `json:"parts"`       // of parts: what it is made of
	Code       int    `json:"code"`        // of exit: what the process ends with where its program says 0

	// Of doubt: threads (their pthread_t) that may call hora one day, their names, and a signal whose handler may.
	Strangers []uint64 `json:"strangers"`
	Names     []string `json:"names"`
	Signal    string   `json:"signal"`
}

//export horaAction
func horaAction(settings C.hora_str) (answer C.int64_t) {
	defer guard(&answer)
	var a action
	text := C.GoString(settings)
	if err := json.Unmarshal([]byte(text), &a); err != nil {
		return errOut(argument("act: settings are not JSON: %v", err))
	}
	switch a.Action {
	case "next", "finish", "drain", "leave", "recovered":
		m, err := the.member()
		if err != nil {
			return errOut(err)
		}
		return the.elastic(m, &a)
	case "start_timeline", "stop_timeline":
		if err := the.record.act(a.Action == "start_timeline", a.Path, a.MarkCycles); err != nil {
			return errOut(err)
		}
		return 0
	case "exit":
		C.libhora_verdict(C.int(a.Code))
		return 0
	case "doubt":
		the.noteDoubt(&a)
		return 0
	case "parts":
		the.record.tell(a.Name, a.Parts)
		return 0
	}
	if strings.HasPrefix(a.Action, "data_") {
		return the.data.act(text)
	}
	return errOut(argument("act: there is no action %q; use next, finish, drain, leave, recovered, start_timeline, stop_timeline, parts, doubt, exit, or those of data", a.Action))
}

func (l *library) elastic(m *hora.Membership, a *action) C.int64_t {
	switch a.Action {
	case "next":
		return l.next()
	case "finish":
		return l.background(func(o *outcome) error {
			all, err := m.Finish(context.Background())
			if all {
				o.value = 1
			}
			return err
		})
	case "leave":
		return l.leave(a.Reason)
	case "recovered":
		m.Recovered(time.Duration(a.Nanos), a.Steps, a.Reason)
		return 0
	}
	m.Drain(a.Reason)
	return 0
}

// next leaves the present epoch and joins the next one over the same membership. Groups
// and plans of the old epoch are closed.
func (l *library) next() C.int64_t {
	l.mu.Lock()
	defer l.mu.Unlock()
	old := l.life
	if old == nil || old.member == nil {
		return errOut(errNoWorld)
	}
	now := newLife()
	now.member = old.member
	l.life = now
	return l.background(func(*outcome) error {
		old.cancel()
		<-old.joined
		l.closeGroups(old)
		return l.enter(now, false)
	})
}
