package launch

// Several hosts may be one machine: names as localhost and 127.0.0.1, or agents that came each by itself. Its cores and
// devices are dealt once.

// same says whether two hosts are one machine.
func same(a, b *link) bool {
	return a == b || a.host != nil && b.host != nil && a.host.Machine != "" && a.host.Machine == b.host.Machine
}

// mates counts the ranks on a host's machine, and those of them on hosts before it.
func (a *admission) mates(l *link) (before, all int) {
	for _, s := range a.crew.seats {
		if !same(a.links.all[s.Host], l) {
			continue
		}
		all++
		if s.Host < l.index {
			before++
		}
	}
	return before, all
}

// firstSlot returns which of its machine's slots a host's first one is. A host that comes back keeps it.
func (a *admission) firstSlot(l *link) int {
	n := 0
	seen := map[string]bool{}
	for _, o := range a.links.all {
		if o.name == l.name {
			break
		}
		if !seen[o.name] && same(o, l) {
			n += a.crew.hosts[o.index].Slots
		}
		seen[o.name] = true
	}
	return n
}

// bedsBefore counts, where workers come and go, the slots of a host's machine that belong to hosts before it, and all
// of them.
func (a *admission) bedsBefore(l *link) (before, all int) {
	for _, o := range a.links.all {
		if o.ended || o.lost || !same(o, l) {
			continue
		}
		slots := a.crew.hosts[o.index].Slots
		if all += slots; o.index < l.index {
			before += slots
		}
	}
	return before, all
}
