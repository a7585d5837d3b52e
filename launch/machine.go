package launch

import "slices"

// Several host names may stand for one machine, as localhost and 127.0.0.1 do. Its cores and devices are dealt once.

// same says whether two hosts are one machine: this one, or another whose interfaces have the same addresses.
func (j *job) same(a, b *link) bool {
	if a == b || a.local && b.local {
		return true
	}
	mine, its := j.addrsOf(a), j.addrsOf(b)
	return len(mine) > 0 && slices.Equal(mine, its)
}

func (j *job) addrsOf(l *link) []string {
	if !l.local {
		return l.addrs
	}
	if j.addrs == nil {
		j.addrs = listAddrs()
	}
	return j.addrs
}

// mates counts the ranks on a host's machine, and those of them on hosts before it.
func (j *job) mates(l *link) (before, all int) {
	for _, s := range j.seats {
		if !j.same(j.links[s.Host], l) {
			continue
		}
		all++
		if s.Host < l.index {
			before++
		}
	}
	return before, all
}

// firstSlot is which of its machine's slots a host's first one is. A host that comes back keeps it.
func (j *job) firstSlot(l *link) int {
	n := 0
	seen := map[string]bool{}
	for _, o := range j.links {
		if o.name == l.name {
			break
		}
		if !seen[o.name] && j.same(o, l) {
			n += j.hosts[o.index].Slots
		}
		seen[o.name] = true
	}
	return n
}
