package secret

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"

	"hora/internal/wire"
)

// Anyone stands for a rank that is not known yet.
const Anyone = -1

// Limits of the texts in an Identity. Longer ones are cut and end in a hash.
const (
	maxPurpose = 24
	maxJob     = 128
	maxHost    = 64
	maxReason  = 160
)

// Identity is what one side of a connection says of itself, under its proof.
type Identity struct {
	Purpose string            // what the connection is for, e.g. "rendezvous", "tcp data"
	Job     string            // the job's id
	Epoch   uint64            // the membership epoch; 0 before there is one
	Group   uint64            // the group's id; 0 for the process as a whole
	Rank    int               // who speaks, or Anyone
	Peer    int               // to whom, or Anyone
	Lane    uint32            // which of several connections of a pair
	Host    string            // the speaker's host name, for error texts only
	Cert    [sha256.Size]byte // hash of the speaker's TLS certificate; zero without TLS
}

// TLS says that the speaker goes on in TLS after the proof.
func (id Identity) TLS() bool { return id.Cert != [sha256.Size]byte{} }

// cardBytes is the fixed length of an Identity with a verdict on the wire, so
// that nothing need be decoded to know how much to read before the proof.
const cardBytes = 512

// card is an Identity with the server's verdict.
type card struct {
	id     Identity
	reason string // why the server refuses; empty = accepted
}

func fit(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	sum := sha256.Sum256([]byte(s))
	tail := "#" + hex.EncodeToString(sum[:8])
	return s[:limit-len(tail)] + tail
}

func (c card) encode() [cardBytes]byte {
	var out [cardBytes]byte
	b := out[:0]
	b = wire.AppendString(b, fit(c.id.Purpose, maxPurpose))
	b = wire.AppendString(b, fit(c.id.Job, maxJob))
	b = wire.AppendString(b, fit(c.id.Host, maxHost))
	b = wire.AppendU64(b, c.id.Epoch)
	b = wire.AppendU64(b, c.id.Group)
	b = wire.AppendI64(b, int64(c.id.Rank))
	b = wire.AppendI64(b, int64(c.id.Peer))
	b = wire.AppendU32(b, c.id.Lane)
	b = append(b, c.id.Cert[:]...)
	wire.AppendString(b, fit(c.reason, maxReason))
	return out
}

// decodeCard reads what encode wrote. It is called after the proof only.
func decodeCard(b []byte) (card, error) {
	var c card
	if len(b) != cardBytes {
		return c, wire.ErrShort
	}
	d := wire.NewDecoder(b)
	c.id.Purpose = d.String(maxPurpose)
	c.id.Job = d.String(maxJob)
	c.id.Host = d.String(maxHost)
	c.id.Epoch = d.U64()
	c.id.Group = d.U64()
	c.id.Rank = d.Int(Anyone, 1<<31-1)
	c.id.Peer = d.Int(Anyone, 1<<31-1)
	c.id.Lane = d.U32()
	for i := range c.id.Cert {
		c.id.Cert[i] = d.U8()
	}
	c.reason = d.String(maxReason)
	if err := d.Err(); err != nil {
		return card{}, err
	}
	return c, nil
}

// Match is the usual judgement of a peer: same purpose, job, epoch and group,
// the rank it was meant for, and the same use of TLS. The error reads as the
// reason that the other side is told.
func Match(me, peer Identity) error {
	switch {
	case peer.Purpose != fit(me.Purpose, maxPurpose):
		return fmt.Errorf("this is a connection for %q, that one for %q", me.Purpose, peer.Purpose)
	case peer.Job != fit(me.Job, maxJob):
		return fmt.Errorf("this is job %q, that is job %q", me.Job, peer.Job)
	case peer.Epoch != me.Epoch:
		return fmt.Errorf("this is epoch %d, that is epoch %d", me.Epoch, peer.Epoch)
	case peer.Group != me.Group:
		return fmt.Errorf("this is group %d, that is group %d", me.Group, peer.Group)
	case peer.Peer != Anyone && me.Rank != Anyone && peer.Peer != me.Rank:
		return fmt.Errorf("this is rank %d, rank %d was meant", me.Rank, peer.Peer)
	case me.Peer != Anyone && peer.Rank != me.Peer:
		return fmt.Errorf("this waits for rank %d, that is rank %d", me.Peer, peer.Rank)
	case peer.TLS() != me.TLS():
		return fmt.Errorf("one side uses TLS and the other does not; set it alike on every rank")
	}
	return nil
}
