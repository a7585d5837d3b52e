package engine

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"hora/collective"
)

// explain tells all ranks what this one was asked, hears what they were, and puts the
// difference into one sentence that is the same on every rank. The second result is
// an error of the links, which ends the group.
func (g *Group) explain(r *Request) (*MismatchError, error) {
	mine := describe(r, stageCall)
	all, err := g.descriptions(&mine)
	if err != nil {
		return nil, err
	}
	return g.mismatch(all), nil
}

// descriptions exchanges what everybody was doing in the present operation. Ranks that
// did not answer have stage 0.
func (g *Group) descriptions(mine *description) ([]description, error) {
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
// reason why types differ (a barrier has none). Names come first, since ranks that are
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
	text := d.of("Mismatched tensor names:", "call operations in the same order on every rank, or use a group that matches them by name",
		func(d *description) string { return d.kind.String() + " " + quoted(d.name) }, func(d *description) string { return d.name })
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
	} {
		if text != "" {
			break
		}
		text = d.of(c.words, c.hint, c.of, c.of)
	}
	if text == "" {
		text = d.blocks(upper)
	}
	return &MismatchError{Name: name, Text: text}
}

// difference words one difference between descriptions.
type difference struct {
	g    *Group
	all  []description
	name string
	kind collective.Kind
}

// of is the sentence for one property, empty when it is equal everywhere. key decides,
// show is printed.
func (d *difference) of(words, hint string, show, key func(*description) string) string {
	var keys []string
	ranks := map[string][]int{}
	shown := map[string]string{}
	for i := range d.all {
		if d.all[i].stage == 0 {
			continue
		}
		k := key(&d.all[i])
		if _, known := ranks[k]; !known {
			keys = append(keys, k)
			shown[k] = show(&d.all[i])
		}
		ranks[k] = append(ranks[k], d.g.worldRank(i))
	}
	if len(keys) < 2 {
		return ""
	}
	var b strings.Builder
	b.WriteString(words)
	if d.name != "" && !strings.HasPrefix(words, "Mismatched tensor names") {
		fmt.Fprintf(&b, " tensor %s is", quoted(d.name))
	} else {
		b.WriteString(" the call is")
	}
	for i, k := range keys {
		switch {
		case i > 0 && i == len(keys)-1:
			b.WriteString(" and")
		case i > 0:
			b.WriteString(",")
		}
		fmt.Fprintf(&b, " %s on %s", shown[k], rankList(ranks[k]))
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

func (d *description) form() string {
	if d.kind == collective.Barrier {
		return ""
	}
	// What a count says may differ between ranks.
	variable := d.kind == collective.Allgather || d.kind == collective.Alltoall || d.kind == collective.Gather || d.kind == collective.Scatter
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

// rankList is "rank 3", "ranks 0-2, 5".
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
