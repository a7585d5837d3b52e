package launch

import (
	"time"

	"hora/event"
)

// record is what a job tells while it runs: its listeners, its report, and the ledger of one that can be adopted.
type record struct {
	began  time.Time
	events *event.Sink
	story  story
	ledger *ledger // of a job that can be adopted; nil for others
}

// lives reports whether the job's past is being lived through.
func (r *record) lives() bool { return r.ledger != nil && r.ledger.lives.Load() }

// event tells listeners, unless they were told when what is lived through happened.
func (r *record) event(e event.Event) {
	if !r.lives() {
		r.events.Emit(e)
	}
}

// now returns the time since the job's beginning; of what is lived through, the time at which it happened.
func (r *record) now() time.Duration {
	if r.lives() {
		return r.ledger.at
	}
	return time.Since(r.began)
}

// write keeps an entry as one of this moment.
func (r *record) write(e *entry) {
	e.At = r.now()
	r.ledger.write(e)
}

// keepStory keeps what the report is to say of the epochs so far: the coordinator repeats them without their times.
func (r *record) keepStory() {
	if r.ledger != nil {
		r.write(&entry{Kind: entryStory, Story: r.story.sofar()})
	}
}
