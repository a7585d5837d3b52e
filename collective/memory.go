package collective

// String is the word by which docs/algorithms.md speaks of that way.
func (r ready) String() string {
	return [...]string{inParts: "twoshot", inHeader: "inline", inSlots: "oneshot", inPlace: "direct", peeked: "peek", staged: "staged"}[r]
}

// Memory says which way the last operation went through the memory of this host: the
// table proposes, and what all ranks brought decides. It is empty without such memory.
// Tests ask it whether what they asked for was done.
func (c *Comm) Memory() string {
	if c.board == nil {
		return ""
	}
	return c.op.ready.String()
}

// InPlace reports that the last operation read and wrote registered memory where it lies.
// All ranks of a host agree on it.
func (c *Comm) InPlace() bool { return c.board != nil && c.op.ready == inPlace }
