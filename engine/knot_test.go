package engine

import (
	"reflect"
	"slices"
	"testing"
)

// standing is a rank that waits in waits and has given its groups, all of ranks, that.
func standing(rank int, ranks []int, given []Given, waits ...Awaited) Standing {
	for i := range given {
		given[i].Ranks = ranks
	}
	return Standing{Rank: rank, Waits: waits, Given: given}
}

// knotCase is what ranks say, and who of them wait for each other for ever.
type knotCase struct {
	what string
	said []Standing
	want []int
}

var two, three = []int{0, 1}, []int{0, 1, 2}

func inCall(g, n uint64) Awaited        { return Awaited{Group: g, Kind: AwaitedCall, Call: n} }
func inName(g, key uint64) Awaited      { return Awaited{Group: g, Kind: AwaitedName, Call: key} }
func inRecv(g uint64, from int) Awaited { return Awaited{Group: g, Kind: AwaitedRecv, Peer: from} }

func knotsOfCalls() []knotCase {
	calls := func(a, b uint64) []Given { return []Given{{Group: 1, Calls: a}, {Group: 2, Calls: b}} }
	names := func(a uint64, key ...uint64) []Given { return []Given{{Group: 1, Calls: a}, {Group: 2, Keys: key}} }
	return []knotCase{
		{"two groups crosswise", []Standing{standing(0, two, calls(5, 4), inCall(1, 5)), standing(1, two, calls(4, 5), inCall(2, 5))}, two},
		{"the other has come", []Standing{standing(0, two, calls(5, 4), inCall(1, 5)), standing(1, two, calls(5, 5), inCall(2, 5))}, nil},
		{"one has another thread that may come", []Standing{standing(0, two, calls(5, 4), inCall(1, 5)), {Rank: 1}}, nil},
		{"one computes", []Standing{standing(0, two, calls(5, 4), inCall(1, 5))}, nil},
		{
			"two threads each, all held",
			[]Standing{
				standing(0, two, calls(5, 5), inCall(1, 5), inCall(2, 5)),
				standing(1, two, []Given{{Group: 1, Calls: 4}, {Group: 2, Calls: 4}, {Group: 3, Calls: 9}},
					inCall(3, 9)),
			},
			nil, // rank 0 is no member of group 3 here, so nothing holds rank 1
		},
		{
			"two threads each, one of them free to go on",
			[]Standing{
				standing(0, two, calls(5, 5), inCall(1, 5), inCall(2, 5)),
				standing(1, two, calls(4, 5), inCall(2, 5)),
			},
			nil,
		},
		{"names and order", []Standing{standing(0, two, names(5), inCall(1, 5)), standing(1, two, names(4, 77), inName(2, 77))}, two},
		{
			"the name's result is on its way",
			[]Standing{
				standing(0, two, []Given{{Group: 1, Calls: 5}, {Group: 2, Ended: 8}}, inCall(1, 5)),
				standing(1, two, []Given{{Group: 1, Calls: 4}, {Group: 2, Ended: 7, Keys: []uint64{77}}},
					inName(2, 77)),
			},
			nil,
		},
		{
			"the other has joined",
			[]Standing{
				standing(0, two, []Given{{Group: 1, Calls: 5}, {Group: 2, Joined: true}}, inCall(1, 5)),
				standing(1, two, names(4, 77), inName(2, 77)),
			},
			nil,
		},
		{
			"a join and an ordered call",
			[]Standing{
				standing(0, two, []Given{{Group: 1, Calls: 4}, {Group: 2, Joined: true}},
					Awaited{Group: 2, Kind: AwaitedJoin}),
				standing(1, two, names(5), inCall(1, 5)),
			},
			two,
		},
	}
}

func knotsOfMessages() []knotCase {
	return []knotCase{
		{
			"receives in a ring",
			[]Standing{
				standing(0, three, []Given{{Group: 1}}, inRecv(1, 2)),
				standing(1, three, []Given{{Group: 1}}, inRecv(1, 0)),
				standing(2, three, []Given{{Group: 1}}, inRecv(1, 1)),
			},
			three,
		},
		{
			"a message of the ring is on its way",
			[]Standing{
				standing(0, three, []Given{{Group: 1}}, inRecv(1, 2)),
				standing(1, three, []Given{{Group: 1}}, inRecv(1, 0)),
				standing(2, three, []Given{{Group: 1, Sent: []uint64{1, 0, 0}}}, inRecv(1, 1)),
			},
			nil,
		},
		{
			"from anybody, while one may send",
			[]Standing{
				standing(0, three, []Given{{Group: 1}}, inRecv(1, AnyRank)),
				standing(1, three, []Given{{Group: 1}}, inRecv(1, 0)),
			},
			nil,
		},
		{
			"from anybody, and nobody can",
			[]Standing{
				standing(0, three, []Given{{Group: 1}}, inRecv(1, AnyRank)),
				standing(1, three, []Given{{Group: 1}}, inRecv(1, 0)),
				standing(2, three, []Given{{Group: 1}}, inRecv(1, 0)),
			},
			three,
		},
		{
			"a send that nobody receives",
			[]Standing{
				standing(0, two, []Given{{Group: 1, Calls: 4}}, Awaited{Group: 1, Kind: AwaitedSend, Peer: 1, Call: 9}),
				standing(1, two, []Given{{Group: 1, Calls: 5, Open: []Offer{{0, 9}}}}, inCall(1, 5)),
			},
			two,
		},
		{
			"a send that is being received",
			[]Standing{
				standing(0, two, []Given{{Group: 1, Calls: 4}}, Awaited{Group: 1, Kind: AwaitedSend, Peer: 1, Call: 9}),
				standing(1, two, []Given{{Group: 1, Calls: 5}}, inCall(1, 5)),
			},
			nil,
		},
		{
			"one who waits for the knot is not in it",
			[]Standing{
				standing(0, three, []Given{{Group: 1, Calls: 5}, {Group: 2, Calls: 4}, {Group: 3}}, inRecv(3, 1)),
				standing(1, three, []Given{{Group: 1, Calls: 4}, {Group: 2, Calls: 4}, {Group: 3}}, inRecv(3, 0)),
				standing(2, three, []Given{{Group: 1, Calls: 5}, {Group: 2, Calls: 4}, {Group: 3}}, inCall(1, 5)),
			},
			two,
		},
		{"a message to itself", []Standing{standing(0, two, []Given{{Group: 1}}, inRecv(1, 0))}, []int{0}},
	}
}

// TestKnot: what proves that ranks wait for each other for ever, and everything close to it
// that does not.
func TestKnot(t *testing.T) {
	for _, c := range append(knotsOfCalls(), knotsOfMessages()...) {
		if got := Knot(c.said); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", c.what, got, c.want)
		}
		for _, s := range c.said {
			back, err := ParseStanding(s.Append(nil))
			if err != nil || !reflect.DeepEqual(back.Append(nil), s.Append(nil)) {
				t.Errorf("%s: read back %+v, %v", c.what, back, err)
			}
		}
	}
}

// FuzzStanding reads what no rank would say.
func FuzzStanding(f *testing.F) {
	s := standing(1, []int{0, 1}, []Given{{Group: 1, Name: "world", Calls: 3, Keys: []uint64{4}, Open: []Offer{{0, 1}}}},
		Awaited{Group: 1, Kind: AwaitedCall, Call: 3, What: "allreduce"})
	f.Add(s.Append(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		if s, err := ParseStanding(b); err == nil {
			Knot([]Standing{s, s})
		}
	})
}
