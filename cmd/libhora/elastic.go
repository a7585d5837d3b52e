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

// member is the membership of the present life, if it has one.
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
		return 0
	case errors.Is(err, hora.ErrDrained):
		return 2
	case errors.Is(err, hora.ErrChanged):
		return 1
	default:
		return C.int32_t(errOut(err))
	}
}

//export horaElastic
func horaElastic(settings C.hora_str) (answer C.int64_t) {
	defer guard(&answer)
	var s struct {
		Action string `json:"action"`
		Reason string `json:"reason"`
	}
	if err := json.Unmarshal([]byte(C.GoString(settings)), &s); err != nil {
		return errOut(argument("elastic: settings are not JSON: %v", err))
	}
	m, err := the.member()
	if err != nil {
		return errOut(err)
	}
	switch s.Action {
	case "next":
		return the.next()
	case "finish":
		return the.background(func(o *outcome) error {
			all, err := m.Finish(context.Background())
			if all {
				o.value = 1
			}
			return err
		})
	case "drain":
		m.Drain(s.Reason)
		return 0
	case "leave":
		return the.leave(s.Reason)
	}
	return errOut(argument("elastic: there is no action %q; use next, finish, drain or leave", s.Action))
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
