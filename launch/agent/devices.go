package agent

import (
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"hora/launch/environ"
	"hora/launch/protocol"
)

// Where several jobs share a machine's devices, who runs them names a folder (environ.SharedDevices) in which devices
// are claimed: a file each, whose name is the device's and whose text is its place among them; one without a text
// is dealt no more. A worker has those whose files its agent has locked, from before its start until its end.
// A lock goes with the agent, which no worker outlives, and needs nobody else: whatever else ends or starts again,
// no device is dealt twice.

// What a worker of another job has may be in use until its process has ended: it is tried again so often, for so long.
const (
	claimEvery  = 50 * time.Millisecond
	claimWithin = 30 * time.Second
)

// later is a worker whose devices are not free yet.
type later struct {
	w     protocol.Worker
	since time.Time
}

// deal gives a worker as many devices as the launcher has counted for it. It reports false where they are not free:
// then the worker is started later, or never.
func (a *agent) deal(w protocol.Worker, env []string, since time.Time) ([]string, []*os.File, bool) {
	dir := environ.Lookup(env, environ.SharedDevices)
	if a.cfg.Getenv != nil && dir == "" {
		dir = a.cfg.Getenv(environ.SharedDevices)
	}
	env = slices.DeleteFunc(slices.Clone(env), func(kv string) bool {
		return strings.HasPrefix(kv, environ.SharedDevices+"=")
	})
	n := len(environ.Devices(w.Env))
	if dir == "" || n == 0 {
		return env, nil, true
	}
	ids, locks, err := claim(dir, n)
	switch {
	case err != nil:
		a.fail(protocol.ExitSystem, fmt.Sprintf("claim devices on %s: %v", a.plan.Host, err))
		return nil, nil, false
	case ids == nil && time.Since(since) > claimWithin:
		a.fail(protocol.ExitSystem, fmt.Sprintf("%d devices for rank %d are not free on %s after %v: look which processes of earlier jobs are left there", n, w.Rank, a.plan.Host, claimWithin))
		return nil, nil, false
	case ids == nil:
		a.awaiting++
		time.AfterFunc(claimEvery, func() { a.events <- later{w, since} })
		return nil, nil, false
	}
	return environ.Merge(env, []string{environ.VisibleDevices + "=" + strings.Join(ids, ",")}), locks, true
}

// claim locks n devices of a folder, the first ones that are free; all or none, and none where there are too few.
func claim(dir string, n int) (ids []string, locks []*os.File, err error) {
	turn, err := os.Open(dir) // one at a time, or two would each have half
	if err != nil {
		return nil, nil, err
	}
	defer turn.Close()
	if err := syscall.Flock(int(turn.Fd()), syscall.LOCK_EX); err != nil {
		return nil, nil, err
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, nil, err
	}
	type device struct {
		place int
		name  string
	}
	var all []device
	for _, e := range entries {
		b, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			return nil, nil, err
		}
		if place, bad := strconv.Atoi(string(b)); bad == nil {
			all = append(all, device{place, e.Name()})
		}
	}
	slices.SortFunc(all, func(x, y device) int { return x.place - y.place })
	for _, d := range all {
		f, err := os.Open(filepath.Join(dir, d.name))
		if err != nil {
			release(locks)
			return nil, nil, err
		}
		id, bad := url.PathUnescape(d.name)
		err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if errors.Is(err, syscall.EWOULDBLOCK) || bad != nil {
			f.Close()
			continue
		}
		if locks = append(locks, f); err != nil {
			release(locks)
			return nil, nil, err
		}
		if ids = append(ids, id); len(ids) == n {
			return ids, locks, nil
		}
	}
	release(locks)
	return nil, nil, nil
}

func release(locks []*os.File) {
	for _, f := range locks {
		f.Close()
	}
}
