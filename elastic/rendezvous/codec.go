package rendezvous

import (
	"fmt"
	"time"

	"hora/event"
	"hora/internal/secret"
	"hora/internal/wire"
)

// Limits of what a message may hold. Decoders refuse more.
const (
	maxValue   = 64 << 20         // a value of the key-value store
	maxKey     = 4096             // a key of the store
	maxMessage = maxValue + 8<<10 // a whole message
	maxText    = 64 << 10         // a reason, a host, a socket's name
	maxAddrs   = 64               // addresses of one member
	maxRanks   = 1 << 20          // ranks of a job
	maxSession = 64               // the name of a client that may come back
	maxProcess = 64               // a launcher's name of a process
	memberMin  = 5*8 + 3*4 + 4 + 8
)

// The kinds of message. Requests begin with an id that the answer repeats.
const (
	kindHello uint8 = 1 + iota
	kindJoin
	kindMembers
	kindPut
	kindGet
	kindLookup
	kindAdd
	kindDelete
	kindCancel
	kindLeave
	kindBeat
	kindFinish
	kindDrain
	kindRecovered
	kindProgress
	kindRefused // what the worker's listeners have refused
)

const (
	kindEpoch uint8 = 32 + iota
	kindList
	kindValue
	kindNumber
	kindFail
	kindNotice
	kindWelcome // the hello has been heard; how long to try to come back when this connection breaks
)

// message makes one whole message; fill appends its body.
func message(kind uint8, hint int, fill func(b []byte) []byte) []byte {
	b, at := wire.BeginMessage(make([]byte, 0, wire.MessageHeaderBytes+hint), kind)
	if fill != nil {
		b = fill(b)
	}
	return wire.EndMessage(b, at)
}

func appendMember(b []byte, m *Member) []byte {
	for _, v := range [...]int{m.Rank, m.LocalRank, m.LocalSize, m.CrossRank, m.CrossSize} {
		b = wire.AppendI64(b, int64(v))
	}
	b = wire.AppendString(b, m.Host)
	b = wire.AppendString(b, m.HostID)
	b = wire.AppendString(b, m.Unix)
	b = wire.AppendStrings(b, m.Addrs)
	return wire.AppendI64(b, int64(m.Pid))
}

func decodeMember(d *wire.Decoder) Member {
	var m Member
	for _, p := range [...]*int{&m.Rank, &m.LocalRank, &m.LocalSize, &m.CrossRank, &m.CrossSize} {
		*p = d.Int(-1, maxRanks)
	}
	m.Host, m.HostID, m.Unix = d.String(maxText), d.String(maxText), d.String(maxText)
	m.Addrs = d.Strings(maxAddrs, maxText)
	m.Pid = d.Int(0, 1<<31-1)
	return m
}

func decodeMembers(d *wire.Decoder) []Member {
	n := d.Count(maxRanks, memberMin)
	ms := make([]Member, 0, n)
	for range n {
		ms = append(ms, decodeMember(d))
	}
	return ms
}

func (h *Hello) message() []byte {
	return message(kindHello, 96, func(b []byte) []byte {
		b = wire.AppendString(b, h.Job)
		b = wire.AppendI64(b, int64(h.Rank))
		b = wire.AppendI64(b, int64(h.Size))
		b = wire.AppendString(b, h.Host)
		b = wire.AppendString(b, h.Process)
		b = wire.AppendString(b, h.session)
		return wire.AppendBool(b, h.returns)
	})
}

func (n *Notice) message() []byte {
	return message(kindNotice, 32+len(n.Host)+len(n.Reason), func(b []byte) []byte {
		b = wire.AppendU8(b, uint8(n.Kind))
		b = wire.AppendU64(b, n.Epoch)
		b = wire.AppendI64(b, int64(n.Rank))
		b = wire.AppendString(b, n.Host)
		return wire.AppendString(b, n.Reason)
	})
}

func decodeNotice(body []byte) (Notice, error) {
	d := wire.NewDecoder(body)
	n := Notice{
		Kind: NoticeKind(d.U8()), Epoch: d.U64(), Rank: d.Int(-1, maxRanks), Host: d.String(maxText),
		Reason: d.String(maxText),
	}
	return n, d.Done()
}

// request is any message of a worker, decoded.
type request struct {
	kind   uint8
	id     uint64
	hello  Hello
	member Member
	ranks  []int
	key    string
	value  []byte // a view of the message
	delta  int64
	reason string

	recovery Recovery
	progress event.Work
}

func decodeRequest(kind uint8, body []byte) (request, error) {
	r := request{kind: kind}
	d := wire.NewDecoder(body)
	if kind != kindHello && kind != kindBeat && kind != kindProgress {
		r.id = d.U64()
	}
	switch kind {
	case kindHello:
		r.hello = Hello{
			Job: d.String(maxText), Rank: d.Int(-1, maxRanks), Size: d.Int(0, maxRanks),
			Host: d.String(maxText), Process: d.String(maxProcess), session: d.String(maxSession), returns: d.Bool(),
		}
	case kindJoin:
		r.member = decodeMember(&d)
	case kindMembers:
		r.ranks = d.Ints(maxRanks, 0, maxRanks)
	case kindPut:
		r.key, r.value = d.String(maxKey), d.Bytes(maxValue)
	case kindGet, kindLookup, kindDelete:
		r.key = d.String(maxKey)
	case kindAdd:
		r.key, r.delta = d.String(maxKey), d.I64()
	case kindDrain:
		r.reason = d.String(maxText)
	case kindRecovered:
		r.recovery = Recovery{Epoch: d.U64(), Took: time.Duration(d.I64()), Steps: d.Int(-1, 1<<62)}
	case kindProgress:
		r.progress = event.Work{
			Elapsed: time.Duration(d.I64()), Operations: d.I64(), Bytes: d.I64(),
			Inside: time.Duration(d.I64()),
		}
	case kindCancel, kindLeave, kindBeat, kindFinish:
	default:
		return r, fmt.Errorf("message of unknown kind %d", kind)
	}
	return r, d.Done()
}

func progressMessage(p event.Work) []byte {
	return message(kindProgress, 32, func(b []byte) []byte {
		for _, v := range [...]int64{int64(p.Elapsed), p.Operations, p.Bytes, int64(p.Inside)} {
			b = wire.AppendI64(b, v)
		}
		return b
	})
}

func refusedMessage(r secret.Refused) []byte {
	return message(kindRefused, 16+len(r.Last), func(b []byte) []byte {
		return wire.AppendString(wire.AppendI64(b, int64(r.Count)), r.Last)
	})
}

func decodeRefused(body []byte) (secret.Refused, error) {
	d := wire.NewDecoder(body)
	r := secret.Refused{Count: d.Int(0, 1<<40), Last: d.String(maxText)}
	return r, d.Done()
}

func failure(id uint64, final bool, reason string) []byte {
	return message(kindFail, 16+len(reason), func(b []byte) []byte {
		b = wire.AppendU64(b, id)
		b = wire.AppendBool(b, final)
		return wire.AppendString(b, reason)
	})
}

func number(id uint64, n int64) []byte {
	return message(kindNumber, 16, func(b []byte) []byte {
		return wire.AppendI64(wire.AppendU64(b, id), n)
	})
}

func value(id uint64, found bool, v []byte) []byte {
	return message(kindValue, 16+len(v), func(b []byte) []byte {
		b = wire.AppendU64(b, id)
		b = wire.AppendBool(b, found)
		return wire.AppendBytes(b, v)
	})
}

// answer is any message of the coordinator that answers a request, decoded.
type answer struct {
	kind    uint8
	epoch   Epoch
	members []Member
	found   bool
	value   []byte
	number  int64
	final   bool
	reason  string
}

func decodeAnswer(kind uint8, body []byte) (id uint64, a answer, err error) {
	a.kind = kind
	d := wire.NewDecoder(body)
	id = d.U64()
	switch kind {
	case kindEpoch:
		a.epoch = Epoch{Number: d.U64(), Rank: d.Int(0, maxRanks), Size: d.Int(1, maxRanks), Members: decodeMembers(&d)}
	case kindList:
		a.members = decodeMembers(&d)
	case kindValue:
		a.found, a.value = d.Bool(), d.Bytes(maxValue)
	case kindNumber:
		a.number = d.I64()
	case kindFail:
		a.final, a.reason = d.Bool(), d.String(maxText)
	default:
		return id, a, fmt.Errorf("message of unknown kind %d", kind)
	}
	return id, a, d.Done()
}
