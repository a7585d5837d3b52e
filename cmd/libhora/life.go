package main

/*
#include "lib.h"
*/
import "C"

import (
	"cmp"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"strconv"
	"strings"
	"time"

	"hora"
	"hora/internal/bridge"
)

// leaveTimeout bounds how long shutdown waits to tell the others.
const leaveTimeout = 5 * time.Second

// initSettings are the JSON of hora_init. A C library sees the environment that its
// process was started with, not what Python has put into os.environ since: so callers
// hand it over. Settings win over it.
type initSettings struct {
	Env      map[string]string `json:"env"`
	Settings map[string]string `json:"settings"`
}

// config reads the settings the way FromEnv reads an environment: "peer_timeout" is
// HORA_PEER_TIMEOUT.
func (s *initSettings) config() (hora.Config, error) {
	given := map[string]string{}
	for k, v := range s.Settings {
		given["HORA_"+strings.ToUpper(k)] = v
	}
	if limit, ok := given["HORA_START_TIMEOUT"]; ok && given["HORA_JOIN_TIMEOUT"] == "" {
		given["HORA_JOIN_TIMEOUT"] = limit // what the program says goes before how long its launcher would wait
	}
	secret, serve := given["HORA_SECRET"], given["HORA_SERVE"]
	delete(given, "HORA_SECRET")
	delete(given, "HORA_SERVE")
	delete(given, "HORA_NAMED")
	delete(given, "HORA_ELASTIC")
	lookup := func(name string) string {
		if v, ok := given[name]; ok {
			return v
		}
		return s.Env[name]
	}
	cfg, err := hora.FromEnv(lookup)
	if err != nil {
		return cfg, &failure{C.HORA_SETTINGS, err.Error()}
	}
	if secret != "" {
		b, err := hex.DecodeString(secret)
		if err != nil || len(b) != len(cfg.Secret) {
			return cfg, &failure{C.HORA_SETTINGS, "init: setting secret must be " + strconv.Itoa(2*len(cfg.Secret)) + " hexadecimal digits"}
		}
		copy(cfg.Secret[:], b)
	}
	switch {
	case serve != "":
		if cfg.Serve, err = strconv.ParseBool(serve); err != nil {
			return cfg, &failure{C.HORA_SETTINGS, "init: setting serve must be 0 or 1"}
		}
	case s.Settings["addr"] != "":
		cfg.Serve = true // an address given by hand has no coordinator of `hora run` behind it
	}
	the.record.ask(lookup)
	cfg.Events = &the.record.events
	cfg.Threads = the.threads
	cfg.CheckCalls = false // the program's places are known above the library
	cfg.Timeline = ""      // the library's own goes on from life to life, and programs start and stop it
	return cfg, nil
}

//export horaInit
func horaInit(settings C.hora_str) (answer C.int64_t) {
	defer guard(&answer)
	var s initSettings
	if err := json.Unmarshal([]byte(C.GoString(settings)), &s); err != nil {
		return errOut(argument("init: settings are not JSON: %v", err))
	}
	cfg, err := s.config()
	if err != nil {
		return errOut(err)
	}
	the.mu.Lock()
	defer the.mu.Unlock()
	the.prepare()
	if the.life != nil {
		return 0
	}
	l := newLife()
	if s.elastic() {
		if l.member, err = hora.Enroll(cfg); err != nil {
			return errOut(err)
		}
	}
	l.cfg = cfg
	the.life = l
	named, _ := strconv.ParseBool(s.Settings["named"])
	named = named && l.member == nil // who joins an epoch later than others meets them at its first call
	return the.background(func(*outcome) error { return the.enter(l, named) })
}

func newLife() *life {
	l := &life{joined: make(chan struct{})}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	return l
}

// enter joins the job for l; when that fails there is no life any more.
func (l *library) enter(next *life, named bool) error {
	err := next.join(named)
	if err != nil {
		l.mu.Lock()
		if l.life == next {
			l.life = nil
		}
		l.mu.Unlock()
		next.cancel()
		if next.member != nil {
			next.depart(err)
		}
	}
	close(next.joined)
	return err
}

// depart ends a membership that no epoch has come of; the error of joining is told elsewhere. Who was asked to leave
// says so.
func (l *life) depart(err error) {
	if !errors.Is(err, hora.ErrDrained) {
		_ = l.member.Close()
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), leaveTimeout)
	defer cancel()
	_ = l.member.Leave(ctx, l.member.Asked())
}

// join makes the world and its table. With named the group for calls by name is made at once, which costs less than at
// the first such call, and while all ranks are here: how far apart they come to that call does not matter then.
func (l *life) join(named bool) error {
	var w *hora.World
	var err error
	if l.member != nil {
		w, err = l.member.Join(l.ctx)
	} else {
		w, err = hora.Join(l.ctx, l.cfg)
	}
	if err != nil {
		return err
	}
	if err := the.record.enter(w); err != nil {
		w.Close()
		return err
	}
	l.world = w
	g := &group{g: w.Group(), lower: bridge.Of(w.Group()), life: l, label: "world"}
	if err := the.tables.add(g, true); err != nil {
		return err
	}
	if named {
		made := make(chan error, 1)
		g.withNamedWithin(cmp.Or(l.cfg.StartTimeout, 30*time.Second), func(_ *group, err error) { made <- err })
		return <-made
	}
	return nil
}

//export horaShutdown
func horaShutdown() (answer C.int64_t) {
	defer guard(&answer)
	return the.leave("")
}

// leave ends the present life. A reason says that this rank leaves before the work is
// done, so that the launcher may replace it.
func (l *library) leave(reason string) C.int64_t {
	l.mu.Lock()
	defer l.mu.Unlock()
	old := l.life
	if old == nil {
		return 0
	}
	l.life = nil
	return l.background(func(*outcome) error {
		old.cancel()
		<-old.joined
		if old.world == nil {
			return nil
		}
		the.tables.each(old, (*group).owe)
		_ = old.world.Finish() // Leave gives its error
		l.closeGroups(old)
		l.record.leave()
		ctx, cancel := context.WithTimeout(context.Background(), leaveTimeout)
		defer cancel()
		if old.member != nil {
			if asked := old.member.Asked(); reason != "" && asked != "" {
				reason = asked
			}
			return old.member.Leave(ctx, reason)
		}
		return old.world.Leave(ctx)
	})
}

// closeGroups closes what was made in a life.
func (l *library) closeGroups(of *life) {
	l.gpus.closeLife(of)
	l.tables.each(of, l.close)
}

// info is what hora_info answers.
type info struct {
	Rank       int            `json:"rank"`
	Size       int            `json:"size"`
	LocalRank  int            `json:"local_rank"`
	LocalSize  int            `json:"local_size"`
	CrossRank  int            `json:"cross_rank"`
	CrossSize  int            `json:"cross_size"`
	Homogenous bool           `json:"homogeneous"`
	Host       string         `json:"host"`
	Hosts      []string       `json:"hosts"`
	Epoch      uint64         `json:"epoch"`
	Elastic    bool           `json:"elastic"`
	Ranks      []int          `json:"ranks"`
	Counters   map[string]any `json:"counters"`
}

//export horaInfo
func horaInfo(handle C.uint64_t) *C.char {
	g, err := the.find(uint64(handle))
	if err != nil {
		errOut(err)
		return nil
	}
	w := g.life.world
	i := info{
		Rank: g.g.Rank(), Size: g.g.Size(), LocalRank: w.LocalRank(), LocalSize: w.LocalSize(),
		CrossRank: w.CrossRank(), CrossSize: w.CrossSize(), Homogenous: w.Homogeneous(), Host: w.Host(),
		Epoch: w.Epoch(), Elastic: g.life.member != nil, Ranks: g.g.Ranks(), Counters: counters(g),
	}
	for _, r := range i.Ranks {
		i.Hosts = append(i.Hosts, w.HostOf(r))
	}
	return answerText(i)
}

// counters adds up the ordered and the named half of a group.
func counters(g *group) map[string]any {
	sum := flatten(g.g.Counters())
	if n := g.named.Load(); n != nil {
		for k, v := range flatten(n.g.Counters()) {
			a, _ := sum[k].(float64)
			b, _ := v.(float64)
			sum[k] = a + b
		}
	}
	return sum
}

// flatten turns {"Shm": {"Bytes": 1}} into {"shm_bytes": 1}.
func flatten(c hora.Counters) map[string]any {
	text, _ := json.Marshal(c)
	var tree map[string]any
	_ = json.Unmarshal(text, &tree) // it was ours a line ago
	flat := map[string]any{}
	var walk func(prefix string, v any)
	walk = func(prefix string, v any) {
		if m, ok := v.(map[string]any); ok {
			for k, v := range m {
				walk(strings.TrimPrefix(prefix+"_"+snake(k), "_"), v)
			}
			return
		}
		flat[prefix] = v
	}
	walk("", tree)
	return flat
}

// snake turns "BytesSent" into "bytes_sent".
func snake(s string) string {
	var b strings.Builder
	for i, r := range s {
		if r >= 'A' && r <= 'Z' {
			if i > 0 && s[i-1] >= 'a' && s[i-1] <= 'z' {
				b.WriteByte('_')
			}
			r += 'a' - 'A'
		}
		b.WriteRune(r)
	}
	return b.String()
}
