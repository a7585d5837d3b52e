package job

// State is where a job stands. Jobs pass through the states in this order; Paused goes back to Queued.
type State string

// The states of a job.
const (
	Queued    State = "queued"    // waits for slots
	Preparing State = "preparing" // has slots; its environment and files are made
	Running   State = "running"
	Paused    State = "paused"    // gave its slots back and waits to be resumed
	Finished  State = "finished"  // ended with exit code 0
	Failed    State = "failed"    // ended otherwise
	Cancelled State = "cancelled" // ended because somebody asked for it
)

// States returns all states, in their order.
func States() []State {
	return []State{Queued, Preparing, Running, Paused, Finished, Failed, Cancelled}
}

// Ended reports whether no other state follows.
func (s State) Ended() bool { return s == Finished || s == Failed || s == Cancelled }

// Next reports whether a job in state s may be in state to next.
func (s State) Next(to State) bool {
	switch to {
	case Queued: // a job that lost its slots to another, or a node, queues again
		return s == Preparing || s == Running || s == Paused
	case Preparing:
		return s == Queued
	case Running:
		return s == Queued || s == Preparing
	case Paused:
		return s == Queued || s == Preparing || s == Running
	case Finished:
		return s == Running
	case Failed, Cancelled:
		return s != "" && !s.Ended()
	}
	return false
}
