package hora

import (
	"fmt"
	"log/slog"
	"sync"

	"hora/internal/secret"
)

// refusals is what becomes of the connections that this process's listeners refuse: the job's coordinator hears of
// them, so that one log tells of all ranks in few words. A rank listens before it knows the coordinator, and strangers
// may keep it from there for long: what they do meanwhile is told to the coordinator once it is found. Where there is
// none, or it has gone, this process's own log hears of them.
type refusals struct {
	*secret.Strangers
	log *slog.Logger

	mu    sync.Mutex                // guards the rest; not held while hear is called
	hear  func(secret.Refused) bool // the coordinator's; nil while there is none
	seeks bool                      // the coordinator is looked for
	kept  secret.Refused            // for it
	over  bool                      // this process has left: its log says no more
}

func newRefusals(log *slog.Logger) *refusals {
	r := &refusals{log: log}
	r.Strangers = secret.NewStrangers(r.told)
	return r
}

// told hands on what the listeners tell.
func (r *refusals) told(what secret.Refused) {
	r.mu.Lock()
	hear, over := r.hear, r.over
	if hear == nil && r.seeks && !over {
		r.kept = secret.Refused{Count: r.kept.Count + what.Count, Last: what.Last}
		r.mu.Unlock()
		return
	}
	r.mu.Unlock()
	if hear != nil && hear(what) || over {
		return
	}
	r.say(what)
}

func (r *refusals) say(what secret.Refused) {
	r.log.Warn(fmt.Sprintf("%v; strangers are kept out, and nothing is lost by it", what))
}

// seek says that a coordinator is looked for, which will hear of all.
func (r *refusals) seek() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.hear, r.seeks = nil, true
}

// found says how the coordinator hears of refusals from now on.
func (r *refusals) found(hear func(secret.Refused) bool) {
	r.mu.Lock()
	kept := r.kept
	r.hear, r.seeks, r.kept = hear, false, secret.Refused{}
	r.mu.Unlock()
	if kept.Count > 0 && !hear(kept) {
		r.say(kept)
	}
}

// leave tells the coordinator what it has not been told, or the log if none was found.
func (r *refusals) leave() {
	if r == nil {
		return
	}
	r.mu.Lock()
	kept := r.kept
	r.over, r.kept = true, secret.Refused{}
	r.mu.Unlock()
	if kept.Count > 0 {
		r.say(kept)
	}
	r.Close()
}
