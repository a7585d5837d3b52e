package launch

import "fmt"

// Started says that a worker's process runs.
type Started struct {
	Rank int
	Host string
	Pid  int
}

func (e *Started) String() string {
	return fmt.Sprintf("rank %d started on %s as pid %d", e.Rank, e.Host, e.Pid)
}

// Opened says that an epoch has opened: the ranks of Joined that follow take part in it.
type Opened struct {
	Epoch uint64
	Size  int
}

func (e *Opened) String() string { return fmt.Sprintf("epoch %d has %d ranks", e.Epoch, e.Size) }

// Joined says that a worker has become a member of the present epoch.
type Joined struct{ Rank int }

func (e *Joined) String() string { return fmt.Sprintf("rank %d has joined", e.Rank) }

// Exited says that a worker's process has ended.
type Exited struct {
	Rank  int
	Host  string
	Cause string
}

func (e *Exited) String() string { return fmt.Sprintf("rank %d on %s: %s", e.Rank, e.Host, e.Cause) }

// Warning is what somebody should know although the job goes on.
type Warning struct{ Host, Text string }

func (e *Warning) String() string { return e.Text }

// Note tells what the launcher does, for --verbose.
type Note struct{ Text string }

func (e *Note) String() string { return e.Text }
