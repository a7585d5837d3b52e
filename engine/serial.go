package engine

// A front end that lets callers leave names out makes them by counting its calls, as
// Horovod's does: "allreduce.noname.17". Its requests say so (Request.Counted). Such a
// name never comes again, but the one that the next call makes differs in its number
// alone. The table of known names has no place for it, and a plan knows it by its stem,
// what stands before the number. Ranks whose numbers differ withdraw from the planned
// step and agree by whole names.
//
// The table is alike on all ranks, so all must take a name for a counted one or none: it
// is one where it was everybody's oldest, with prints that are equal, or the next step of
// everybody's plan. Chosen in any other way its unit has no stem.

// stemOf returns the stem of a counted name, empty for every other name.
func stemOf(counted bool, name string) string {
	if !counted {
		return ""
	}
	i := len(name)
	for i > 0 && '0' <= name[i-1] && name[i-1] <= '9' {
		i--
	}
	if i < 2 || i == len(name) || name[i-1] != '.' {
		return ""
	}
	return name[:i]
}

// counted returns the stem of what runs now, if that is one operation with a counted name.
func (n *names) counted() string {
	if len(n.chosen) != 1 {
		return ""
	}
	return n.chosen[0].stem
}

// oldestOf returns the unit of that stem that has waited longest. mu is held.
func (n *names) oldestOf(stem string) *unit {
	for u := n.firstPending; u != nil; u = u.next {
		if u.stem == stem {
			return u
		}
	}
	return nil
}

// fits reports whether r is the one operation of step s.
func (n *names) fits(s *plannedStep, r *Request) bool {
	if s.stem != "" {
		return len(r.Name) > len(s.stem) && r.Name[:len(s.stem)] == s.stem && stemOf(r.Counted, r.Name) == s.stem
	}
	return s.name == r.Name && r.Name != "" && !r.Counted && n.table.entries[s.entry].key == s.keys[0]
}

// differently reports that ranks of one planned step brought operations with different
// names.
func differently(all []description) bool {
	first := ""
	for i := range all {
		switch {
		case all[i].stage == 0:
		case first == "":
			first = all[i].name
		case all[i].name != first:
			return true
		}
	}
	return false
}
