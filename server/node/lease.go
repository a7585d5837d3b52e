package node

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"hora/server/client"
)

// A server that hears nothing of a node for its patience takes the node for lost, and what ran there runs elsewhere. So
// what a node runs is to have ended by then, or it would run twice: each keeper has a lease, which its node renews. A
// lease counts from when the node sent a sign of life that the server has heard, which is never after the server began
// to be patient. A keeper whose lease runs out ends its job, first as a stop does, then at once. Nobody else is needed
// for that: the node's own process may be gone too.
//
// A server that is not there, since the connection is refused, gives nobody up: then leases go on.

// The parts of the patience after which a keeper ends its job, and after which it ends at once.
const (
	softly = 0.8
	firmly = 0.9
)

// lease is what a node knows of the server's patience.
type lease struct {
	mu       sync.Mutex // guards what follows
	patience time.Duration
	base     time.Time // from which the patience counts, at the earliest
	number   uint64
	sent     map[uint64]time.Time // signs of life that the server has not said to have heard
	telling  atomic.Bool
}

const patienceFile = "patience"

// recall reads what an earlier process of this node has kept.
func (l *lease) recall(dir string) {
	if b, err := os.ReadFile(filepath.Join(dir, patienceFile)); err == nil {
		_ = json.Unmarshal(b, &l.patience)
	}
}

func (l *lease) keep(dir string, patience time.Duration) {
	l.mu.Lock()
	l.patience, l.sent = patience, map[uint64]time.Time{}
	l.mu.Unlock()
	if b, err := json.Marshal(patience); err == nil {
		_ = os.WriteFile(filepath.Join(dir, patienceFile), b, 0o600)
	}
}

// rest bounds the pause between two tries to reach the server: several fit into what is left of a lease.
func (l *lease) rest() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.patience <= 0 {
		return 3 * time.Second
	}
	return min(3*time.Second, l.patience/8)
}

// warning is what the node's owner should know while the server is away.
func (l *lease) warning() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.patience <= 0 {
		return ""
	}
	return fmt.Sprintf("; where the way to it is cut they are ended after %v, since they run elsewhere then", time.Duration(softly*float64(l.patience)).Round(time.Millisecond))
}

// beat is the number of a sign of life that is sent now.
func (l *lease) beat() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.number++
	l.sent[l.number] = time.Now()
	return l.number
}

// heard answers when a sign of life was sent that the server has heard.
func (l *lease) heard(n uint64) time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	at := l.sent[n]
	for k := range l.sent {
		if k <= n {
			delete(l.sent, k)
		}
	}
	return at
}

// left is what a keeper that is told now has; nil without a patience.
func (l *lease) left() *term {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.patience <= 0 || l.base.IsZero() {
		return nil
	}
	gone := time.Since(l.base).Seconds()
	return &term{Soft: softly*l.patience.Seconds() - gone, Firm: firmly*l.patience.Seconds() - gone}
}

// term is how long a keeper has, in seconds.
type term struct {
	Soft float64 `json:"soft"`
	Firm float64 `json:"firm"`
}

// renew tells all keepers of this node how long they have.
func (m *Member) renew(base time.Time) {
	l := &m.lease
	l.mu.Lock()
	if base.After(l.base) {
		l.base = base
	}
	l.mu.Unlock()
	if !l.telling.CompareAndSwap(false, true) { // the next one comes soon
		return
	}
	go func() {
		defer l.telling.Store(false)
		for _, a := range m.Local.Attempts() {
			if t := l.left(); t != nil {
				_ = m.Local.tell(m.Local.Folder(a[0], int(a[1])), order{Term: t})
			}
		}
	}()
}

// timers are a keeper's own part of it.
type timers struct {
	mu         sync.Mutex // guards what follows
	soft, firm *time.Timer
	ended      bool        // the job has, and its end is written down
	cut        atomic.Bool // the lease has run out
}

// term starts a keeper's lease, or renews it.
func (k *keeper) term(t *term) {
	k.timers.mu.Lock()
	defer k.timers.mu.Unlock()
	if k.timers.ended {
		return
	}
	soft, firm := seconds(t.Soft), seconds(t.Firm)
	if k.timers.soft == nil {
		k.timers.soft = time.AfterFunc(soft, func() {
			k.timers.cut.Store(true)
			k.stop(client.Lost)
		})
		k.timers.firm = time.AfterFunc(firm, k.own.Kill)
		return
	}
	k.timers.soft.Reset(soft)
	k.timers.firm.Reset(firm)
}

// over ends the lease: the job has ended by itself.
func (k *keeper) over() {
	k.timers.mu.Lock()
	defer k.timers.mu.Unlock()
	if k.timers.ended = true; k.timers.soft != nil {
		k.timers.soft.Stop()
		k.timers.firm.Stop()
	}
}

func seconds(s float64) time.Duration { return max(time.Duration(s*float64(time.Second)), 0) }
