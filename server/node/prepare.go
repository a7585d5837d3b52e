package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"hora/server/backend"
	"hora/server/client"
	"hora/server/environment"
)

// EnvironmentsName is the folder of a node's environments, beside that of its attempts.
const EnvironmentsName = "environments"

// EnvironmentCommand is the hidden subcommand of hora that makes an environment ahead of the job that needs it.
const EnvironmentCommand = "__environment"

// prepare makes the job's environment, or finds it made, and puts its interpreter first. It answers the attempt's exit
// code where there is no environment to run in.
func (k *keeper) prepare() int {
	e := k.task.Document.Environment
	if e == nil {
		return 0
	}
	const ended = 128 + int(syscall.SIGTERM)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	k.mu.Lock()
	if k.why != "" {
		k.mu.Unlock()
		return ended
	}
	k.preparing = cancel
	k.mu.Unlock()
	out := &sink{k: k, err: true}
	place := environment.Place{
		Dir: filepath.Join(filepath.Dir(filepath.Dir(k.dir)), EnvironmentsName), Environ: k.own.Environ(),
		Say: func(text string, own bool) {
			if own {
				text = "hora: environment: " + text
			}
			fmt.Fprintln(out, text)
		},
	}
	made, err := place.Make(ctx, e)
	k.mu.Lock()
	k.preparing = nil
	told := k.why != ""
	k.mu.Unlock()
	switch {
	case told:
		return ended
	case err != nil:
		fmt.Fprintln(out, "hora: make the environment:", err)
		var never *environment.Unresolved
		k.unresolved = errors.As(err, &never)
		return 1
	}
	k.made = made
	if err := k.enter(made); err != nil {
		fmt.Fprintln(out, "hora: enter the environment:", err)
		return 71
	}
	if err := k.box.put(Record{Ready: &backend.Ready{Text: made.String(), Lock: made.Lock}}); err != nil {
		return 71
	}
	return 0
}

// enter puts an environment's programs before all others.
func (k *keeper) enter(made *environment.Made) error {
	path := made.Bin()
	for _, kv := range k.own.Environ() {
		if old, ok := strings.CutPrefix(kv, "PATH="); ok && old != "" {
			path = made.Bin() + string(os.PathListSeparator) + old
		}
	}
	if err := k.own.Setenv("PATH", path); err != nil {
		return err
	}
	return k.own.Setenv("VIRTUAL_ENV", made.Folder)
}

// Ahead makes the environment of a job that waits, unless it is there or being made. Nobody waits for it, and where it
// fails the job will say why. One is made at a time.
func (l *Local) Ahead(e *client.Environment) {
	if e == nil {
		return
	}
	b, err := json.Marshal(e)
	if err != nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ahead == nil {
		l.ahead = map[string]bool{}
	}
	if l.ahead[string(b)] || len(l.ahead) >= aheadMost {
		return
	}
	l.ahead[string(b)] = true
	go func() {
		l.aheadTurn.Lock()
		defer l.aheadTurn.Unlock()
		l.makeAhead(string(b))
		l.mu.Lock()
		delete(l.ahead, string(b))
		l.mu.Unlock()
	}()
}

// aheadMost bounds how many environments wait to be made ahead.
const aheadMost = 100

// aheadWithin bounds how long one that is made ahead keeps the others waiting.
const aheadWithin = time.Hour

func (l *Local) makeAhead(question string) {
	dir := filepath.Join(filepath.Dir(l.Dir), EnvironmentsName)
	var log *os.File
	if l.User.as(func() (err error) {
		if err = os.MkdirAll(dir, 0o700); err == nil {
			log, err = os.OpenFile(filepath.Join(dir, "ahead.log"), os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
		}
		return err
	}) != nil {
		return
	}
	defer log.Close()
	ctx, cancel := context.WithTimeout(context.Background(), aheadWithin)
	defer cancel()
	c := exec.CommandContext(ctx, l.Hora, EnvironmentCommand, dir)
	c.Dir, c.Env, c.Stdin, c.Stdout, c.Stderr = dir, l.Environ, strings.NewReader(question), log, log
	c.SysProcAttr = l.User.process() // a signal to the server leaves it alone
	_ = c.Run()
}
