package launch

// Several hosts may be one machine: names as localhost and 127.0.0.1, or agents that came each by itself. Its cores and
// devices are dealt once.

// same says whether two hosts are one machine.
func same(a, b *link) bool {
	return a == b || a.host != nil && b.host != nil && a.host.Machine != "" && a.host.Machine == b.host.Machine
}

// mates counts the ranks on a host's machine, and those of them on hosts before it.
func (c *crew) mates(l *link) (before, all int) {
	for _, s := range c.seats {
		if !same(c.links[s.Host], l) {
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
func (c *crew) firstSlot(l *link) int {
	n := 0
	seen := map[string]bool{}
	for _, o := range c.links {
		if o.name == l.name {
			break
		}
		if !seen[o.name] && same(o, l) {
			n += c.hosts[o.index].Slots
		}
		seen[o.name] = true
	}
	return n
}

// bedsBefore counts, where workers come and go, the slots of a host's machine that belong to hosts before it, and all
// of them.
func (c *crew) bedsBefore(l *link) (before, all int) {
	for _, o := range c.links {
		if o.ended || o.lost || !same(o, l) {
			continue
		}
		slots := c.hosts[o.index].Slots
		if all += slots; o.index < l.index {
			before += slots
		}
	}
	return before, all
}
