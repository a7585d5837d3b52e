package engine

import (
	"slices"
	"strings"
)

// A list of named operations is known by its first name, without the count that front ends put
// there ("g_1of3"): so ranks that bring lists of other lengths under one name meet, and are
// refused together. Of lists under one key a rank offers the oldest; those behind it wait until
// that one is done. So they are matched in the order in which each rank makes them.
//
// Nor is a place part of it that front ends put behind the name of a call which need not be made on
// every rank: one that goes into a branch alone meets the others' next call, and all are refused.

// places are what front ends write there.
var places = [...]string{" in a branch", " in a loop"}

// nameKey returns the key of a unit of n operations whose first is called name.
func nameKey(name string, n int) uint64 {
	if stem, ok := listStem(name, n); ok {
		return uint64(fingerprint(printSeed).mix(2).text(anywhere(stem)))
	}
	return uint64(fingerprint(printSeed).mix(1).text(anywhere(name)))
}

// anywhere returns a name without its place.
func anywhere(name string) string {
	for _, p := range places {
		if short, ok := strings.CutSuffix(name, p); ok {
			return short
		}
	}
	return name
}

// unitKey returns the key of the unit that rs form.
func unitKey(rs []Request) uint64 {
	first := 0
	for first < len(rs)-1 && rs[first].pair() {
		first++
	}
	return nameKey(rs[first].Name, max(together(rs), 1))
}

// listStem returns what stands before "_1of3" in the first name of a list of three.
func listStem(name string, n int) (string, bool) {
	at := len(name)
	for ; n > 0; n /= 10 {
		if at--; at < 0 || int(name[at]-'0') != n%10 {
			return "", false
		}
	}
	return strings.CutSuffix(name[:at], "_1of")
}

// succeed has the next pending unit of u's key, which stands at from or behind, take u's place:
// u is no longer pending. mu is held.
func (n *names) succeed(u, from *unit) {
	delete(n.byKey, u.key)
	for v := from; v != nil; v = v.next {
		if v.key == u.key {
			n.byKey[v.key] = v
			n.news = true
			return
		}
	}
}

// dropList ends what is left of the list that o is the first of: its length differs between
// ranks, and no rank runs the rest. o itself is the caller's. The turn is held.
func (n *names) dropList(o *op, wrong error) {
	from, to := o.place-int(o.at), o.place-int(o.at)+int(o.of)
	for i, m := range n.members {
		if m == nil || m == o || m.place < from || m.place >= to {
			continue
		}
		n.members[i], n.gaps = nil, true
		n.completeAll([]*op{m}, wrong)
	}
}

func dropped(o *op) bool { return o == nil }

// undropped returns members[from:to] without those that dropList has ended.
func (n *names) undropped(from, to int) []*op {
	members := n.members[from:to]
	if n.gaps {
		members = slices.DeleteFunc(members, dropped)
	}
	return members
}
