package dataset

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"hora/dataset/plan"
)

// Part is a mixture's member.
type Part struct {
	Name   string   `json:"name"`
	Weight string   `json:"weight"` // a decimal number
	Source []string `json:"source"`
}

// Mixed is several data as one endless sequence of rows, in which each member has as
// many as its weight says. It is cut into epochs of so many rows; a member that comes to
// its end begins its next epoch, and one that does not goes on where it stood.
//
// A Mixed has one owner; a Reader takes what it needs with it.
type Mixed struct {
	parts  []Part
	sets   []*Set
	seed   uint64
	rows   int64  // of an epoch
	origin string // the array that says which member a row is of; "": none
	shares
}

// shares are the weights from a row of the sequence on. They do not change: other
// weights are other shares.
type shares struct {
	mix   *plan.Mix
	began int64
	base  []int64 // rows that each member had handed out before
	each  []int64 // rows of each member's epoch
}

// OpenMix opens each member as Open does. cfg says everything but the sources.
func OpenMix(ctx context.Context, cfg Config, parts []Part, rows int64, origin string) (*Mixed, error) {
	m := &Mixed{parts: parts, seed: cfg.Seed, origin: origin}
	weights := make([]string, len(parts))
	sum := 0.0
	for i := range parts {
		weights[i] = parts[i].Weight
		share, _ := strconv.ParseFloat(weights[i], 64) // NewMix says what is wrong with it
		sum += share
	}
	var err error
	if m.mix, err = plan.NewMix(weights); err != nil {
		return nil, fmt.Errorf("open a mixture: %w", err)
	}
	if cfg.Memory == 0 {
		cfg.Memory = defaultMemory
	}
	for i, p := range parts {
		share, _ := strconv.ParseFloat(p.Weight, 64)
		c := cfg
		c.Source, c.Seed = p.Source, plan.MemberSeed(cfg.Seed, i)
		c.Memory = max(1<<20, int64(float64(cfg.Memory)*share/sum))
		c.Threads = max(1, cfg.Threads/len(parts))
		s, err := Open(ctx, c)
		if err != nil {
			m.Close()
			return nil, fmt.Errorf("open the mixture's member %q: %w", p.Name, err)
		}
		m.sets = append(m.sets, s)
		m.each = append(m.each, s.rows)
	}
	m.sets[0].hold = cfg.Memory // batches of all members are in its slots
	m.base = make([]int64, len(parts))
	if err := m.alike(); err != nil {
		m.Close()
		return nil, err
	}
	m.rows = rows
	for i := range parts { // until the first member would begin anew
		if n := m.mix.Longest(i, m.each[i]); rows == 0 && n > 0 && (m.rows == 0 || n < m.rows) {
			m.rows = n
		}
	}
	if m.rows < 1 || m.rows > 1<<50 {
		m.Close()
		return nil, fmt.Errorf("open a mixture: an epoch of %d rows; give rows= a positive number", m.rows)
	}
	return m, nil
}

// alike checks that all members' batches are made alike.
func (m *Mixed) alike() error {
	first := m.sets[0]
	for i := range first.fields {
		if first.fields[i].Name == m.origin {
			return fmt.Errorf("open a mixture: origin=%q, and the data have an array of that name; choose another", m.origin)
		}
	}
	for k, s := range m.sets {
		if len(s.fields) != len(first.fields) {
			return fmt.Errorf(
				"open a mixture: %q has %d arrays (%s) and %q has %d (%s); say with columns= which are read",
				m.parts[0].Name, len(first.fields), first.arrays(), m.parts[k].Name, len(s.fields), s.arrays(),
			)
		}
		for i := range s.fields {
			a, b := &first.fields[i], &s.fields[i]
			if a.Name != b.Name || a.Type != b.Type || a.Width != b.Width || a.Count != b.Count || a.Mask != b.Mask ||
				a.Item != b.Item || a.text != b.text {
				return fmt.Errorf("open a mixture: %s in %q, and %s in %q; read arrays that are alike with columns=, nulls= and ragged=, or write the data again", a.about(), m.parts[0].Name, b.about(), m.parts[k].Name)
			}
		}
	}
	return nil
}

func (s *Set) arrays() string {
	var names []string
	for i := range s.fields {
		names = append(names, s.fields[i].Name)
	}
	return strings.Join(names, ", ")
}

// about says what an array is, for messages.
func (f *field) about() string {
	text := fmt.Sprintf("%q is %s", f.Name, f.Type)
	switch {
	case f.lists:
		text += "[…]"
	case f.Count > 0:
		text += fmt.Sprintf("[%d]", f.Count)
	}
	if f.Mask {
		text += " with nulls"
	}
	return text
}

// Rows is how many rows an epoch has; Files, Blocks and List are those of all members.
func (m *Mixed) Rows() int64 { return m.rows }

// Files counts those of all members.
func (m *Mixed) Files() int {
	n := 0
	for _, s := range m.sets {
		n += s.Files()
	}
	return n
}

// Blocks counts those of all members.
func (m *Mixed) Blocks() int {
	n := 0
	for _, s := range m.sets {
		n += s.Blocks()
	}
	return n
}

// List answers the row groups of all members.
func (m *Mixed) List() []Block {
	var all []Block
	for _, s := range m.sets {
		all = append(all, s.List()...)
	}
	return all
}

// Skipped lists what was left out of any member.
func (m *Mixed) Skipped() []Skipped {
	all := []Skipped{}
	for _, s := range m.sets {
		all = append(all, s.Skipped()...)
	}
	return all
}

// Remember keeps the lists of all members' files for later messages.
func (m *Mixed) Remember() {
	for _, s := range m.sets {
		s.Remember()
	}
}

// Mixing says in a line what is mixed with what.
func (m *Mixed) Mixing() string {
	var all []string
	for i, s := range m.sets {
		all = append(all, fmt.Sprintf("%s (weight %s): %s", m.parts[i].Name, m.parts[i].Weight, s.Mixing()))
	}
	return strings.Join(all, "; ")
}

// Fields are the arrays of a batch.
func (m *Mixed) Fields() []Field {
	all := m.sets[0].Fields()
	if m.origin != "" {
		all = append(all, m.originField())
	}
	return all
}

func (m *Mixed) originField() Field { return Field{Name: m.origin, Type: "int32", Width: 4, Text: -1} }

// Close gives back what no batch holds.
func (m *Mixed) Close() {
	for _, s := range m.sets {
		s.Close()
	}
}

// draws fills counts with the rows that each member has handed out before a row of the
// sequence.
func (h *shares) draws(row int64, counts []int64) error {
	if row < h.began {
		return fmt.Errorf("read a mixture: row %d lies before row %d, at which its weights were changed; begin with a later epoch, or open it anew", row, h.began)
	}
	h.mix.Before(row-h.began, counts)
	for i := range counts {
		counts[i] += h.base[i]
	}
	return nil
}

// place is a row of the sequence.
func (m *Mixed) place(epoch uint64, position int64) (int64, error) {
	if position < 0 || position > m.rows || epoch >= uint64((1<<62)/m.rows) {
		return 0, fmt.Errorf("read a mixture: row %d of %d in epoch %d", position, m.rows, epoch)
	}
	return int64(epoch)*m.rows + position, nil
}

// State is where the mixture stands at a position of an epoch.
func (m *Mixed) State(epoch uint64, position int64) (*plan.MixState, error) {
	row, err := m.place(epoch, position)
	if err != nil {
		return nil, err
	}
	counts := make([]int64, len(m.sets))
	if err := m.draws(row, counts); err != nil {
		return nil, err
	}
	st := &plan.MixState{
		Version: plan.Version, Seed: m.seed, Rows: m.rows, Epoch: epoch, Position: position, Began: m.began,
	}
	for i, s := range m.sets {
		st.Members = append(st.Members, plan.Member{
			Name: m.parts[i].Name, Weight: m.parts[i].Weight, Data: s.fingerprint,
			Epoch: uint64(counts[i] / m.each[i]), Position: counts[i] % m.each[i],
			Lanes: s.lanes, Window: s.window, Part: s.rowsOfParts,
		})
	}
	return st, nil
}

// Resume takes over the order, the weights and the places that a state was saved with.
func (m *Mixed) Resume(from *plan.MixState) error {
	if len(from.Members) != len(m.sets) {
		return fmt.Errorf("go on from saved state: it is of a mixture of %d members (%s) and this one has %d; give the same ones, with weight 0 for those that rest", len(from.Members), names(from), len(m.sets))
	}
	next := shares{began: from.Began, each: m.each, base: make([]int64, len(m.sets))}
	var weights []string
	for i, member := range from.Members {
		s := m.sets[i]
		if member.Name != m.parts[i].Name {
			return fmt.Errorf("go on from saved state: its member %d is %q and here it is %q; give the members in the order of that time: %s", i, member.Name, m.parts[i].Name, names(from))
		}
		if err := s.Resume(&plan.State{
			Version: plan.Version, Data: member.Data, Seed: plan.MemberSeed(from.Seed, i), Epoch: member.Epoch,
			Position: member.Position, Lanes: member.Lanes, Window: member.Window, Part: member.Part,
		}); err != nil {
			return fmt.Errorf("member %q of the mixture: %w", member.Name, err)
		}
		weights = append(weights, member.Weight)
	}
	var err error
	if next.mix, err = plan.NewMix(weights); err != nil {
		return fmt.Errorf("go on from saved state: %w", err)
	}
	next.mix.Before(from.Row()-from.Began, next.base)
	for i, member := range from.Members {
		if member.Epoch > uint64((1<<62)/m.each[i]) {
			return errors.New("go on from saved state: a member's epoch cannot be; give what state_dict() answered")
		}
		next.base[i] = int64(member.Epoch)*m.each[i] + member.Position - next.base[i]
		if next.base[i] < 0 {
			return fmt.Errorf("go on from saved state: its member %q stands before where it began; give what state_dict() answered", member.Name)
		}
		m.parts[i].Weight = member.Weight
	}
	m.shares, m.seed, m.rows = next, from.Seed, from.Rows
	return nil
}

func names(s *plan.MixState) string {
	var all []string
	for _, m := range s.Members {
		all = append(all, m.Name)
	}
	return strings.Join(all, ", ")
}

// Weigh gives the members other weights from a position on. The rows before it stay
// what they were.
func (m *Mixed) Weigh(weights []string, epoch uint64, position int64) error {
	if len(weights) != len(m.sets) {
		return fmt.Errorf("weigh a mixture: %d weights for %d members", len(weights), len(m.sets))
	}
	mix, err := plan.NewMix(weights)
	if err != nil {
		return fmt.Errorf("weigh a mixture: %w", err)
	}
	row, err := m.place(epoch, position)
	if err != nil {
		return err
	}
	base := make([]int64, len(m.sets))
	if err := m.draws(row, base); err != nil {
		return err
	}
	m.shares = shares{mix: mix, began: row, base: base, each: m.each}
	for i := range m.parts {
		m.parts[i].Weight = weights[i]
	}
	return nil
}
