package engine

// Registered tensors of some size are reduced faster one by one, where they lie, than
// through a pack; smaller ones are not, and private ones are not. Whether a tensor is
// registered on every rank nobody knows beforehand, but an operation's headers tell all
// ranks alike. So the table, which is the same everywhere, learns it from what ran: a
// unit's tensors are packed; if that pack had to be copied somewhere, they go alone once;
// if all of them were reduced where they lay, they go on so, and otherwise are packed from
// then on. No message is spent on it, and no bit depends on it: ranks that share memory
// add in rank order either way.

// aloneLeast is from which size on, up to nearMost, a registered tensor goes alone: two
// ranks gain 1.25 times at 12 KiB and 1.6 at 32, four on two processors nothing below 32.
const aloneLeast = 12 << 10

// packState is what the table knows of how a unit's tensors go.
type packState uint8

const (
	untried packState = iota // no pack with them was copied yet
	trying                   // they go alone to see
	inPlace                  // they go alone
	copied                   // they are packed
)

// goesAlone finds a unit's place in the table, -1 if it has none, and whether its tensors of
// some size go alone.
func (n *names) goesAlone(u *unit) (entry int, alone bool) {
	if !n.g.near || u.stem != "" {
		return -1, false
	}
	i := n.table.find(u.key)
	if i < 0 {
		return -1, false
	}
	l := n.table.entries[i].packing
	return i, l == trying || l == inPlace
}

func (o *op) sizedAlone() bool {
	return packs(o) && o.Send.Len() >= aloneLeast && o.Send.Len() <= nearMost
}

// laid notes how a batch went. Whoever runs a step that is one operation need not: it has
// nothing to be packed with.
func (n *names) laid(members []*op) {
	if !n.g.near || len(members) == 1 && !members[0].alone {
		return
	}
	direct := n.g.comm.InPlace()
	for _, o := range members {
		if o.entry < 0 || !o.sizedAlone() {
			continue
		}
		e := &n.table.entries[o.entry]
		switch {
		case o.alone && !direct:
			e.packing = copied
		case o.alone && e.packing == trying:
			e.packing = inPlace
		case !o.alone && !direct && e.packing == untried:
			e.packing = trying
		}
	}
}

// unlearn has all ranks begin anew with the units of members, whose packs differed.
func (n *names) unlearn(members []*op) {
	for _, o := range members {
		if o.alone = false; o.entry >= 0 {
			n.table.entries[o.entry].packing = untried
		}
	}
}
