package engine

import (
	"hora/internal/wire"
	"hora/transport"
)

// Control messages between engines, carried by Mesh.Tell. Each begins with its kind.
const (
	tellBell   = 1 + iota // a round has begun: its number, who rang
	tellAsk               // where are you? number, sequence, name
	tellAnswer            // here: number and an answer
	tellOffer             // a message of a pair, with its data when small
	tellGrant             // the receiver is ready for so many bytes
	tellChunk             // a part of a granted message
	tellTaken             // a small message has been received: its bytes
	tellRefuse            // a message does not fit its receive: why
	tellLeft              // a rank takes part in nothing more: its last operation, who
	tellWatch             // rank 0 wants to know when names are ready, or no longer
	tellReady             // names that a rank had for the first time, and when
	tellNote              // whatever Config.OnNote makes of it
	// the answer to tellLeft of who has not left, and a group's end: its calls, whether it has ended there
	tellStill
)

// hear takes a control message from another rank. It runs on a goroutine of the link
// and does not block. What can not be read is dropped: the sender proved the secret, so
// it is a bug there, and the operation it belongs to will be reported as stalled.
func (g *Group) hear(from int, msg []byte) {
	d := wire.NewDecoder(msg)
	switch d.U8() {
	case tellBell:
		seq, origin := d.U64(), d.Int(0, g.Size()-1)
		if d.Done() == nil && g.names != nil {
			g.names.rung(seq, origin)
		}
	case tellAsk:
		q := question{nonce: d.U64(), seq: d.U64(), name: d.String(maxDescribedName)}
		if d.Done() == nil {
			g.tell(from, g.answer(q).append(nil))
		}
	case tellAnswer:
		if a, err := parseAnswer(&d); err == nil {
			g.answered(from, a)
		}
	case tellWatch:
		if on := d.Bool(); d.Done() == nil && from == 0 && g.names != nil {
			g.names.watched(on)
		}
	case tellReady:
		if g.names != nil {
			g.names.hearReady(from, &d)
		}
	case tellLeft:
		f := farewell{last: d.U64(), rank: d.Int(0, g.Size()-1), calls: d.U64()}
		if d.Done() == nil {
			g.left(f)
		}
	case tellNote:
		if g.cfg.OnNote != nil {
			g.cfg.OnNote(from, msg[1:])
		}
	case tellStill:
		if w := (word{d.U64(), d.Bool()}); d.Done() == nil {
			g.parting.hear(from, w)
		}
	case tellOffer, tellGrant, tellChunk, tellTaken, tellRefuse:
		g.pairs.hear(from, msg[0], &d)
	}
}

// tell sends a control message; who cannot be reached is found lost by the link.
func (g *Group) tell(to int, msg []byte) bool {
	if len(msg) > transport.MaxTell {
		return false
	}
	return g.mesh.Tell(to, msg) == nil
}

// Note tells a rank's Config.OnNote something; false says that it was not sent.
func (g *Group) Note(to int, text []byte) bool { return g.tell(to, append([]byte{tellNote}, text...)) }

func bellMessage(seq uint64, origin int) []byte {
	b := wire.AppendU8(make([]byte, 0, 1+8+8), tellBell)
	b = wire.AppendU64(b, seq)
	return wire.AppendI64(b, int64(origin))
}

// question asks a rank whether it has come to an operation.
type question struct {
	nonce uint64
	seq   uint64 // of an ordered group
	name  string // of a named one
}

func (q question) append(b []byte) []byte {
	b = wire.AppendU8(b, tellAsk)
	b = wire.AppendU64(b, q.nonce)
	b = wire.AppendU64(b, q.seq)
	return wire.AppendString(b, q.name[:min(len(q.name), maxDescribedName)])
}

// answer says where a rank is.
type answer struct {
	nonce   uint64
	here    bool   // it has come to the operation in question, or is past it
	waits   bool   // and waits in it
	last    string // what it finished last
	pending string // what it waits in instead
	nearest string // a pending name that is nearly the one in question
}

func (a answer) append(b []byte) []byte {
	b = wire.AppendU8(b, tellAnswer)
	b = wire.AppendU64(b, a.nonce)
	b = wire.AppendBool(b, a.here)
	b = wire.AppendBool(b, a.waits)
	for _, s := range []string{a.last, a.pending, a.nearest} {
		b = wire.AppendString(b, s[:min(len(s), 2*maxDescribedName)])
	}
	return b
}

func parseAnswer(d *wire.Decoder) (answer, error) {
	a := answer{nonce: d.U64(), here: d.Bool(), waits: d.Bool()}
	a.last = d.String(2 * maxDescribedName)
	a.pending = d.String(2 * maxDescribedName)
	a.nearest = d.String(2 * maxDescribedName)
	return a, d.Done()
}
