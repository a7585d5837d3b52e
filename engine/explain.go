package engine

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"hora/collective"
)

// explain tells all ranks what this one was asked, hears what they were, and puts the
// difference into one sentence that is the same on every rank. apart says that the ranks are
// in calls of different lengths. The last result is an error of the links, which ends the group.
func (g *Group) explain(r *Request) (wrong *MismatchError, apart bool, err error) {
	mine := describe(r, stageCall)
	all, err := g.descriptions(&mine)
	if err != nil {
		return nil, false, err
	}
	return g.mismatch(all), lengthsDiffer(all), nil
}

// lengthsDiffer reports that ranks are in calls of different lengths.
func lengthsDiffer(all []description) bool {
	first := -1
	for i := range all {
		switch {
		case all[i].stage == 0:
		case first < 0:
			first = i
		case all[i].of != all[first].of || all[i].at != all[first].at:
			return true
		}
	}
	return false
}

// descriptions exchanges what everybody was doing in the present operation. Ranks that
// did not answer have stage 0.
func (g *Group) descriptions(mine *description) ([]description, error) {
	mine.calls = g.calls()
	texts, err := g.mesh.Explain(mine.append(nil))
	if err != nil {
		return nil, err
	}
	all := make([]description, len(texts))
	for i, b := range texts {
		if b == nil {
			continue
		}
		if all[i], err = parseDescription(b); err != nil {
			return nil, fmt.Errorf("explain mismatch: description of rank %d: %w", g.worldRank(i), err)
		}
	}
	return all, nil
}

// mismatch names the first thing that differs: operation, type, shape, factors,
// operator, root, device; Horovod's order, but for the operation, which may be the
// reason why types differ (a barrier has none). What belongs together comes first, then names, since ranks that are
// in different tensors differ in the rest for that reason.
func (g *Group) mismatch(all []description) *MismatchError {
	name := ""
	var first *description
	for i := range all {
		if all[i].stage != 0 {
			if first == nil {
				first = &all[i]
			}
			if name == "" {
				name = all[i].name
			}
		}
	}
	if first == nil {
		return &MismatchError{Text: "Mismatched operations: no rank could say what it did; look for errors on the other ranks."}
	}
	d := difference{g: g, all: all, name: name, kind: first.kind}
	upper := strings.ToUpper(first.kind.String())
	text := d.of("Mismatched lengths of a grouped call:", "give lists of one length on every rank", (*description).together, (*description).together)
	if text == "" {
		text = d.of("Mismatched tensor names:", "call operations in the same order on every rank, or use a group that matches them by name",
			func(d *description) string { return d.kind.String() + " " + quoted(d.name) },
			func(d *description) string { return d.name })
	}
	for _, c := range []struct {
		words, hint string
		of          func(*description) string
	}{
		{"Mismatched operations:", "call the same operation on every rank", func(d *description) string { return d.kind.String() }},
		{"Mismatched data types:", "cast to one type on every rank", func(d *description) string { return d.dtype.String() }},
		{"Mismatched " + upper + " tensor shapes:", "give tensors of one shape on every rank", (*description).form},
		{"Mismatched prescale and/or postscale factors:", "give the same factors on every rank", (*description).factors},
		{"Mismatched reduction operation:", "give the same operator on every rank", (*description).operator},
		{"Mismatched " + upper + " root ranks:", "name the same root on every rank", (*description).rootRank},
		{"Mismatched " + upper + " CPU/GPU device selection:", "put the tensor on the same kind of device on every rank", (*description).place},
		{"Mismatched names:", "let every rank leave the name out, or none", (*description).counting},
	} {
		if text != "" {
			break
		}
		text = d.of(c.words, c.hint, c.of, c.of)
	}
	if text == "" {
		text = d.blocks(upper)
	}
	return &MismatchError{Name: name, Text: text + d.count()}
}

// difference words one difference between descriptions.
type difference struct {
	g    *Group
	all  []description
	name string
	kind collective.Kind
}

// tallied are the ranks that have one property alike.
type tallied struct {
	key   string
	of    *description // the first of them
	ranks []int
}

// tally sorts who came by one property, in rank order.
func (d *difference) tally(key func(*description) string) (found []tallied) {
	for i := range d.all {
		if d.all[i].stage == 0 {
			continue
		}
		k := key(&d.all[i])
		j := slices.IndexFunc(found, func(c tallied) bool { return c.key == k })
		if j < 0 {
			j, found = len(found), append(found, tallied{key: k, of: &d.all[i]})
		}
		found[j].ranks = append(found[j].ranks, d.g.worldRank(i))
	}
	return found
}

// of returns the sentence for one property, empty when it is equal everywhere. key decides,
// show is printed.
func (d *difference) of(words, hint string, show, key func(*description) string) string {
	found := d.tally(key)
	if len(found) < 2 {
		return ""
	}
	var b strings.Builder
	b.WriteString(words)
	if d.name != "" && !strings.HasPrefix(words, "Mismatched tensor names") && !strings.HasPrefix(words, "Mismatched lengths") {
		fmt.Fprintf(&b, " tensor %s is", quoted(d.name))
	} else {
		b.WriteString(" the call is")
	}
	for i, c := range found {
		switch {
		case i > 0 && i == len(found)-1:
			b.WriteString(" and")
		case i > 0:
			b.WriteString(",")
		}
		fmt.Fprintf(&b, " %s on %s", show(c.of), rankList(c.ranks))
	}
	fmt.Fprintf(&b, "; %s.", hint)
	return b.String()
}

// blocks explains counts that do not fit together although everything else does.
func (d *difference) blocks(upper string) string {
	for i := range d.all {
		for j := range d.all {
			s, r := d.all[i].sends, d.all[j].receives
			if j < len(s) && i < len(r) && s[j] != r[i] {
				return fmt.Sprintf("Mismatched %s tensor shapes: tensor %s: rank %d sends %d elements to rank %d, which expects %d; give counts that agree.",
					upper, quoted(d.name), d.g.worldRank(i), s[j], d.g.worldRank(j), r[i])
			}
		}
	}
	return fmt.Sprintf("Mismatched %s tensor shapes: tensor %s: the counts of the ranks do not fit together; give counts that agree on every rank.", upper, quoted(d.name))
}

// count tells how many calls each rank has made in the group: a call that one of them missed
// shows there.
func (d *difference) count() string {
	var parts []string
	for _, c := range d.tally(func(d *description) string { return callCount(d.calls) }) {
		parts = append(parts, c.key+" on "+rankList(c.ranks))
	}
	return " (Calls so far in " + d.g.called() + ": " + strings.Join(parts, ", ") + ".)"
}

// callCount returns "1 call", "2 calls".
func callCount(n uint64) string {
	if n == 1 {
		return "1 call"
	}
	return strconv.FormatUint(n, 10) + " calls"
}

// called returns the group in messages.
func (g *Group) called() string { return "group " + g.cfg.Name }

// together says how many tensors the call brought, and which of them this is where the ranks
// are not at the first.
func (d *description) together() string {
	text := "of 1 tensor"
	if d.of > 1 {
		text = fmt.Sprintf("of %d tensors", d.of)
	}
	if d.at > 0 {
		text += fmt.Sprintf(", at number %d of them,", d.at+1)
	}
	return text
}

func (d *description) form() string {
	if d.kind == collective.Barrier {
		return ""
	}
	// What a count says may differ between ranks.
	variable := d.kind == collective.Allgather || d.kind == collective.Alltoall || d.kind == collective.Gather ||
		d.kind == collective.Scatter
	variable = variable && (d.sized || d.counted)
	if len(d.shape) > 0 && (d.kind != collective.Scatter || variable) {
		dims := make([]string, len(d.shape))
		for i, n := range d.shape {
			dims[i] = strconv.Itoa(n)
		}
		if variable {
			dims[0] = "any"
		}
		return "[" + strings.Join(dims, ", ") + "]"
	}
	switch {
	case d.sized:
		return "of any length"
	case variable && d.kind != collective.Allgather:
		return "cut by counts"
	case len(d.receives) > 0:
		return fmt.Sprintf("%d elements in blocks of %v", d.count, d.receives)
	}
	return fmt.Sprintf("[%d]", d.count)
}

func (d *description) factors() string {
	return fmt.Sprintf("prescaled by %g and postscaled by %g", d.pre, d.post)
}

func (d *description) operator() string {
	if !d.kind.Reduces() {
		return ""
	}
	return d.op.String()
}

// counting says whether the name is the caller's or counts its calls.
func (d *description) counting() string {
	if d.serial {
		return quoted(d.name) + " made by counting calls"
	}
	return quoted(d.name) + " given by the program"
}

func (d *description) rootRank() string {
	if !d.kind.Rooted() {
		return ""
	}
	return "rooted at rank " + strconv.Itoa(d.root)
}

func (d *description) place() string {
	if d.device == 0 {
		return "on the host (CPU)"
	}
	return "on an accelerator (GPU)"
}

func quoted(name string) string {
	if name == "" {
		return "without a name"
	}
	return name
}

// RankList returns "rank 3", "ranks 0-2, 5".
func RankList(ranks []int) string { return rankList(ranks) }

// rankList does what RankList does.
func rankList(ranks []int) string {
	ranks = slices.Clone(ranks)
	slices.Sort(ranks)
	var parts []string
	for i := 0; i < len(ranks); {
		j := i
		for j+1 < len(ranks) && ranks[j+1] == ranks[j]+1 {
			j++
		}
		if j > i {
			parts = append(parts, fmt.Sprintf("%d-%d", ranks[i], ranks[j]))
		} else {
			parts = append(parts, strconv.Itoa(ranks[i]))
		}
		i = j + 1
	}
	if len(ranks) == 1 {
		return "rank " + parts[0]
	}
	return "ranks " + strings.Join(parts, ", ")
}
