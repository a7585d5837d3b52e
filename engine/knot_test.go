package engine

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"hora/transport"
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

// TestOfManyNames: a rank that waits for as many names as can be looked at says so in one message, however long their
// words are; of the first ones it says the words, and of each its key.
func TestOfManyNames(t *testing.T) {
	s := standing(0, two, []Given{{Group: 1, Name: "world"}, {Group: 2, Name: "names"}}, inCall(1, 3))
	s.Doubt = strings.Repeat("d", 100)
	for i := range uint64(MaxWaits - 1) {
		a := inName(2, 1000-i)
		a.Nth, a.What = 3, "allreduce "+strings.Repeat("n", 150)
		s.Waits = append(s.Waits, a)
		s.Given[1].Keys = append(s.Given[1].Keys, 1000-i)
	}
	slices.Sort(s.Given[1].Keys)
	s.Waits = append(s.Waits[1:], s.Waits[0])
	b := s.Append(nil)
	if len(b) > transport.MaxTell-64 {
		t.Fatalf("%d bytes", len(b))
	}
	back, err := ParseStanding(b)
	if err != nil || len(back.Waits) != MaxWaits {
		t.Fatalf("%d waits of %d, %v", len(back.Waits), MaxWaits, err)
	}
	for i, a := range back.Waits {
		switch {
		case i < wordedNames && a != s.Waits[i],
			i == wordedNames && a != s.Waits[MaxWaits-1],
			i > wordedNames && a != inName(2, s.Waits[i-1].Call):
			t.Errorf("wait %d reads %+v", i, a)
		}
	}
	back.Given[0].Calls = 3
	other := standing(1, two, []Given{{Group: 1, Calls: 2}, {Group: 2, Name: "names"}}, inName(2, 5))
	if got := Knot([]Standing{back, other}); !slices.Equal(got, two) {
		t.Errorf("%v wait for each other, want %v", got, two)
	}
	other.Given[1].Keys = []uint64{5, back.Waits[MaxWaits-1].Call}
	slices.Sort(other.Given[1].Keys)
	if got := Knot([]Standing{back, other}); got != nil {
		t.Errorf("%v wait for each other, and the last name has come", got)
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
