package elastic

// Event is something that happened to a worker: Join, Leave, Drain, Done, Lost, Finished, Absent or Coming; or End, to
// all of them.
type Event interface{ event() }

// Join is a worker's offer to take part in the next epoch. A member sends it again after an epoch has ended.
type Join struct {
	Worker Worker
	Rank   int // asked for; -1 leaves the choice to the machine. Only the first Join of a worker counts
	Size   int // the size it was started for; 0 when it does not know
	Host   string
	// what its launcher calls its process, of all that it starts as this rank; "" where nobody does
	Process string
}

// Leave is a worker's farewell to the epoch: nobody was lost. It may join again when all others have left too.
type Leave struct{ Worker Worker }

// Lost is a worker's end without farewell. A process that ended before it ever joined has Worker 0 and is named by
// Rank and Host.
type Lost struct {
	Worker Worker
	Reason string // "killed by signal 9", "silent for 10s"
	Rank   int
	Host   string
}

// Drain is a worker's farewell before the work is done: the epoch ends, and it is replaced or the others go on.
type Drain struct {
	Worker Worker
	Reason string
}

// Done says that a member has done its work and waits for the others.
type Done struct{ Worker Worker }

// Finished says that the process of a rank has ended with success and will not join again.
type Finished struct{ Rank int }

// Absent says that no process is there as a rank, nor about to be; or, when it is false, that there is one after all.
// Under Continue the first epoch opens without those that are absent.
type Absent struct {
	Rank int
	Is   bool
}

// Coming says that a process is being started as a rank beside the present epoch; or, when Is is false, that this one
// is waited for no longer. Newcomers that come at once are to be in one epoch: the members hear of them when none is on
// its way any more, and members that ask for a new epoch by themselves meet them in it. It may come after the worker's
// Join, which goes another way. Without a Process it is about whichever is started as the rank.
type Coming struct {
	Rank    int
	Process string
	Is      bool
	More    bool // the worker is one more, and no other's successor
}

// End says that the job is being ended: the members of the open epoch leave it as they can, and none follows.
type End struct{ Reason string }

func (Join) event()     {}
func (Leave) event()    {}
func (Lost) event()     {}
func (Drain) event()    {}
func (Done) event()     {}
func (Finished) event() {}
func (Absent) event()   {}
func (Coming) event()   {}
func (End) event()      {}

// Action is what the caller has to do: Open, Ended, Left, Changed, Complete or Refuse.
type Action interface{ action() }

// Open says that an epoch begins with these members, by rank. The slice is the machine's; it is never changed.
type Open struct {
	Epoch   uint64
	Members []Place
}

// Ended says that an epoch is over because of a rank (-1 for none in particular): tell every member.
type Ended struct {
	Epoch  uint64
	Rank   int
	Host   string
	Reason string
	// Parted: the rank has committed and left, so that what it took part in may end first.
	Parted bool
}

// Left says that a member has finished and the epoch's others may go on.
type Left struct {
	Epoch uint64
	Rank  int
	Host  string
}

// Changed says that a newcomer waits: members are to join again at their next commit.
type Changed struct {
	Epoch uint64
	Host  string
}

// Complete says that every member has done its work: the job is over, and no loss changes that.
type Complete struct{ Epoch uint64 }

// Refuse says that a worker may not take part.
type Refuse struct {
	Worker Worker
	Reason string
	Final  bool // asking again is useless
}

func (Open) action()     {}
func (Ended) action()    {}
func (Left) action()     {}
func (Changed) action()  {}
func (Complete) action() {}
func (Refuse) action()   {}
