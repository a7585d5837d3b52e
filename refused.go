package hora

import (
	"fmt"
	"log/slog"
	"sync/atomic"

	"hora/elastic/rendezvous"
	"hora/internal/secret"
)

// refusals is what becomes of the connections that this process's listeners refuse: the job's coordinator hears of
// them, so that one log tells of all ranks in few words; while there is none to hear it, this process's own log does.
type refusals struct {
	*secret.Strangers
	client atomic.Pointer[rendezvous.Client]
	over   atomic.Bool // this process has left: its log says no more
}

func newRefusals(log *slog.Logger) *refusals {
	r := &refusals{}
	r.Strangers = secret.NewStrangers(func(what secret.Refused) {
		if c := r.client.Load(); c != nil && c.Refused(what) || r.over.Load() {
			return
		}
		log.Warn(fmt.Sprintf("%v; strangers are kept out, and nothing is lost by it", what))
	})
	return r
}

// leave tells the coordinator what it has not been told.
func (r *refusals) leave() {
	if r != nil {
		r.over.Store(true)
		r.Close()
	}
}
