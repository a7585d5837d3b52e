package transport

import "time"

// PairSeq is the bit of Stamp.Seq that marks an operation which only two ranks
// know of (a user's send and receive). Such operations are numbered per ordered
// pair; all others are numbered per group, 1, 2, 3 …, equally on every rank. Links
// never compare a number of one kind with a number of the other.
const PairSeq = uint64(1) << 63

// Stamp names one operation of a group: its number and the fingerprint of what
// this rank was asked to do. Equal numbers with different fingerprints are a
// mismatch.
type Stamp struct{ Seq, Print uint64 }

// Mesh is one rank's links to the other ranks of one group.
//
// One goroutine at a time drives it; only Fail, Close and Counters may be called
// from any goroutine. Memory given to a verb belongs to the caller again when the
// verb returns. No verb allocates in steady state.
//
// Whatever a verb has already completed stands even if a peer is lost afterwards:
// links report a loss only to those who still wait for something.
//
// After *PeerLostError, *DeadlineError or Fail every later wait on the mesh fails
// with the same error (who has given up on an operation can no longer know what
// its peers still read). After *MismatchError and Explain the mesh goes on with
// the next operation.
type Mesh interface {
	// Rank is this process's place in the group, Size the number of ranks.
	Rank() int
	Size() int
	// Hosts holds for each rank the index of its host, numbered by first
	// appearance. The slice is the mesh's own: read only.
	Hosts() []int
	// HostName is the name of a rank's host as error texts show it.
	HostName(rank int) string
	// Board is the memory shared with the other ranks on this host, nil when
	// there is none or when this rank is alone here.
	Board() *Board

	// Begin starts an operation: all verbs until the next Begin belong to it. The
	// zero deadline means none.
	Begin(s Stamp, deadline time.Time)
	// Send returns when p may be reused, which may be before it is received.
	Send(to int, p []byte) error
	// Recv fills p. A message of this operation with another length or stamp is a
	// *MismatchError, and nothing is stored beyond p.
	Recv(from int, p []byte) error
	// Exchange sends and receives at once and progresses both, so that it cannot
	// deadlock when every rank exchanges. Either slice may be empty; an empty
	// message is still a message. A negative rank leaves that half out.
	Exchange(to int, out []byte, from int, in []byte) error
	// Explain is called after a *MismatchError, by every rank that got one: it
	// tells all ranks that the present operation failed to match, hands them this
	// rank's description (at most MaxDescription bytes) and returns everybody's, in
	// rank order; nil stands for a rank that was lost or did not come to this
	// operation within the peer timeout. A rank that waits in a verb of this
	// operation gets a *MismatchError and so comes to Explain as well. The
	// operation after it works normally.
	Explain(mine []byte) ([][]byte, error)

	// Tell hands a rank a control message of at most MaxTell bytes, outside of any
	// operation: from any goroutine, without waiting for the peer, best effort (an
	// error says that it was not sent). OnTell installs who hears them; nil drops
	// them. What peers tell before it was first called is kept, within a bound, and
	// handed over in order and before what comes later. f is called on a goroutine of
	// the link, or within OnTell, even while the driver is blocked or idle; it does
	// not block, and msg is valid only during the call.
	Tell(to int, msg []byte) error
	OnTell(f func(from int, msg []byte))

	// Fail ends every present and later wait with err, here and, as far as the
	// link can tell them, on the other ranks.
	Fail(err error)
	// Counters are the bytes and messages sent and received so far, by link.
	Counters() Counters
	// Close leaves the group: peers that still wait for this rank learn that it
	// left. It is idempotent and joins the mesh's goroutines.
	Close() error
}

// FailureNotifier is what a mesh may implement besides Mesh: f is called once,
// from any goroutine, when the mesh has failed (a rank lost, Fail called), or at
// once if it already has.
type FailureNotifier interface {
	OnFail(f func(error))
}

// MaxDescription is the greatest length of one rank's description in Explain.
// Longer ones are cut.
const MaxDescription = 4096 - 64

// MaxTell is the greatest length of one control message.
const MaxTell = 16 << 10

// Traffic is what went over one kind of link. Bytes are payload; a message is one
// Send or Recv, or one posted part of a board operation.
type Traffic struct{ BytesSent, BytesReceived, MessagesSent, MessagesReceived uint64 }

// Add returns the sum of two counts.
func (t Traffic) Add(o Traffic) Traffic {
	return Traffic{
		t.BytesSent + o.BytesSent, t.BytesReceived + o.BytesReceived,
		t.MessagesSent + o.MessagesSent, t.MessagesReceived + o.MessagesReceived,
	}
}

// Counters are a mesh's traffic by kind of link.
type Counters struct{ SHM, TCP, Mem Traffic }

// Add returns the sum of two meshes' counters.
func (c Counters) Add(o Counters) Counters {
	return Counters{c.SHM.Add(o.SHM), c.TCP.Add(o.TCP), c.Mem.Add(o.Mem)}
}
