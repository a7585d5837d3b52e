package wire

import (
	"fmt"
	"slices"
)

// Kinds of a control message.
const (
	ControlHeartbeat uint8 = 1 // empty body; sent every second
	ControlBye       uint8 = 2 // the origin leaves the group in order
	ControlProbe     uint8 = 3 // the origin has waited long in the operation Seq, Print
	ControlExplain   uint8 = 4 // operation Seq failed to match; Text is the origin's description
	ControlPast      uint8 = 5 // the origin is no longer in operation Seq, where it had Print
	ControlPoison    uint8 = 6 // the origin has given up; Lost is the rank that it lost or -1, Text says why
	ControlWant      uint8 = 7 // please connect lane Seq of this group to the origin
	ControlTell      uint8 = 8 // Text is for the engine of rank To
	ControlLeave     uint8 = 9 // empty body; the sender's process leaves the job in order
	controlLast            = ControlLeave
)

// Roles tell which half of an operation between two ranks the origin has.
const (
	RoleGroup    uint8 = 0 // an operation of the whole group
	RoleSender   uint8 = 1
	RoleReceiver uint8 = 2
	RoleBoth     uint8 = 3
)

// MaxText bounds the text of a control message.
const MaxText = 16 << 10

// maxRank bounds a rank's number.
const maxRank = 1<<31 - 1

// MaxControlBytes bounds the body of a control message.
const MaxControlBytes = 8 + 8 + 8 + 8 + 8 + 8 + 1 + 4 + MaxText

// Control is a message between two processes beside the data.
type Control struct {
	Kind   uint8
	Group  uint64
	Origin int // group rank that speaks; others may pass its message on
	To     int // group rank it is for, or -1: all
	Lost   int // group rank, or -1
	Seq    uint64
	Print  uint64
	Role   uint8
	Text   []byte
}

func hasBody(kind uint8) bool { return kind != ControlHeartbeat && kind != ControlLeave }

const controlBytes = 6*8 + 1 + 4 // of a body without its text

// AppendControl appends the whole message; a longer text than MaxText is cut.
func AppendControl(b []byte, c Control) []byte {
	b, at := BeginMessage(slices.Grow(b, MessageHeaderBytes+controlBytes+min(len(c.Text), MaxText)), c.Kind)
	if hasBody(c.Kind) {
		b = AppendU64(b, c.Group)
		b = AppendI64(b, int64(c.Origin))
		b = AppendI64(b, int64(c.To))
		b = AppendI64(b, int64(c.Lost))
		b = AppendU64(b, c.Seq)
		b = AppendU64(b, c.Print)
		b = AppendU8(b, c.Role)
		b = AppendBytes(b, c.Text[:min(len(c.Text), MaxText)])
	}
	return EndMessage(b, at)
}

// ParseControl decodes a message's body. Text is a view of it.
func ParseControl(kind uint8, body []byte) (Control, error) {
	c := Control{Kind: kind}
	if kind == 0 || kind > controlLast {
		return Control{}, fmt.Errorf("%w: control message of kind %d", ErrValue, kind)
	}
	d := NewDecoder(body)
	if hasBody(kind) {
		c.Group = d.U64()
		c.Origin = d.Int(0, maxRank)
		c.To = d.Int(-1, maxRank)
		c.Lost = d.Int(-1, maxRank)
		c.Seq = d.U64()
		c.Print = d.U64()
		c.Role = d.U8()
		if c.Role > RoleBoth {
			d.Fail(ErrValue)
		}
		c.Text = d.Bytes(MaxText)
	}
	if err := d.Done(); err != nil {
		return Control{}, err
	}
	return c, nil
}
