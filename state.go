package hora

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"unsafe"

	"hora/tensor"
)

// State is what a training must not lose: parameters, optimizer state, the step. The
// values stay the caller's; State knows where they are, copies them at every Commit,
// puts the copies back after a loss, and gives newcomers what the others have. One
// goroutine uses it at a time.
//
// Register everything before RunElastic, in the same order on every rank.
type State struct {
	items   []item
	commits uint64 // commits of the job so far, as this rank knows; 0 before the first Sync
	first   bool   // without a commit: what is kept are the values from before the first Sync
	resets  []func(*World) error
	news    func() error // set while RunElastic runs: why the epoch is to be left
	fault   error        // of a registration
	step    *int         // the counter named "step", item stepAt; nil when there is none
	stepAt  int
}

// item is one registered value: memory, or a pair of functions.
type item struct {
	name string
	live []byte // the caller's memory; nil when functions stand for the value
	kept []byte // the last commit's bytes
	save func() ([]byte, error)
	load func([]byte) error
}

// NewState makes an empty state.
func NewState() *State { return &State{} }

// Track registers x under name. Its length must not change.
func Track[T Element](s *State, name string, x []T) {
	s.Memory(name, tensor.Of(x).Bytes())
}

// Int registers a counter. One with the name "step" tells the job's report how many steps
// a loss cost.
func (s *State) Int(name string, p *int) {
	if name == "step" {
		s.step, s.stepAt = p, len(s.items)
	}
	s.Memory(name, unsafe.Slice((*byte)(unsafe.Pointer(p)), unsafe.Sizeof(*p)))
}

// Memory registers bytes that the caller owns.
func (s *State) Memory(name string, live []byte) {
	s.add(item{name: name, live: live, kept: make([]byte, len(live))})
}

// Custom registers a value by what turns it into bytes and back. save is called by
// every Commit, load by Restore, and by Sync where another rank's value is taken.
func (s *State) Custom(name string, save func() ([]byte, error), load func([]byte) error) {
	s.add(item{name: name, save: save, load: load})
}

func (s *State) add(it item) {
	for _, o := range s.items {
		if o.name == it.name && s.fault == nil {
			s.fault = fmt.Errorf("register state %q: the name is there already; give every value its own", it.name)
		}
	}
	s.items = append(s.items, it)
}

// OnReset registers a function that is called with the new world each time an epoch
// after the first has begun, before Sync: to change the learning rate for another size.
func (s *State) OnReset(f func(*World) error) { s.resets = append(s.resets, f) }

// Commits counts the commits of the job so far: at most the steps since the last one
// are lost with a worker.
func (s *State) Commits() uint64 { return s.commits }

// Commit keeps a copy of every value, to which a loss returns. An error is news of the
// job that the training function has to return from with that error: RunElastic then
// goes on in the next epoch, and nothing committed is lost.
func (s *State) Commit() error {
	if err := s.keep(); err != nil {
		return err
	}
	s.commits++
	return s.Check()
}

// Check reports such news without a commit: steps since the last one are then done again.
func (s *State) Check() error {
	if s.news == nil {
		return nil
	}
	return s.news()
}

// keep copies all values. A save that fails leaves the last commit as it was.
func (s *State) keep() error {
	var saved [][]byte
	for i := range s.items {
		if it := &s.items[i]; it.save != nil {
			b, err := it.save()
			if err != nil {
				return fmt.Errorf("commit state %q: %w; what was committed before is kept", it.name, err)
			}
			saved = append(saved, b)
		}
	}
	for i := range s.items {
		it := &s.items[i]
		if it.save == nil {
			copy(it.kept, it.live)
			continue
		}
		it.kept, saved = saved[0], saved[1:]
	}
	return nil
}

// Restore puts the last commit back, or the first values where there is none: a rank may
// have got some of another's values when that one was lost, and if nobody else holds a
// commit either, what this rank has is where the job begins again.
func (s *State) Restore() error {
	if s.commits == 0 && !s.first {
		return nil // nobody else's values have come yet
	}
	for i := range s.items {
		it := &s.items[i]
		if it.load == nil {
			copy(it.live, it.kept)
		} else if err := it.load(it.kept); err != nil {
			return fmt.Errorf("restore state %q: %w", it.name, err)
		}
	}
	return nil
}

// undone counts the steps since the last commit, -1 when nobody counts them.
func (s *State) undone() int {
	if s.step == nil || s.commits == 0 {
		return -1
	}
	kept := s.items[s.stepAt].kept
	return max(*s.step-*(*int)(unsafe.Pointer(unsafe.SliceData(kept))), 0)
}

// Sync gives every rank of w the values of the rank with the most commits, the lowest
// of them, and counts as a commit. RunElastic calls it when an epoch begins.
func (s *State) Sync(ctx context.Context, w *World) error { return s.sync(ctx, w, true) }

// sync moves nothing when all ranks hold the same commit already, unless forced.
func (s *State) sync(ctx context.Context, w *World, force bool) error {
	if s.fault != nil {
		return s.fault
	}
	if s.commits == 0 && !s.first {
		if err := s.keep(); err != nil {
			return err
		}
		s.first = true
	}
	g := w.Group()
	print, text := s.layout()
	all, err := Allgather(ctx, g, []uint64{s.commits, print, uint64(len(s.items))})
	if err != nil {
		return fmt.Errorf("synchronise state: %w", err)
	}
	root, same := 0, true
	for r := range g.Size() {
		at := all[3*r : 3*r+3]
		if at[1] != print || at[2] != uint64(len(s.items)) {
			return s.explain(ctx, g, text)
		}
		same = same && at[0] == all[0]
		if at[0] > all[3*root] {
			root = r
		}
	}
	if all[3*root] == 0 && w.Epoch() > 1 && w.Rank() == 0 {
		w.cfg.Log.Warn("no rank holds a commit: the training begins with the first values", "epoch", w.Epoch())
	}
	if force || !same || all[0] == 0 {
		if err := s.receive(ctx, g, root); err != nil {
			return err
		}
	}
	s.commits = max(all[3*root], 1)
	return s.keep()
}

// layout returns what two ranks' states must have in common, as a number and in words.
func (s *State) layout() (print uint64, text string) {
	h := fnv.New64a()
	for _, it := range s.items {
		size := fmt.Sprint(len(it.live), " bytes")
		if it.load != nil {
			size = "functions"
		}
		text += fmt.Sprintf(", %q of %s", it.name, size)
	}
	h.Write([]byte(text))
	if len(text) > 2 {
		text = text[2:]
	}
	return h.Sum64(), text
}

// explain names the first rank whose state differs from rank 0's; all ranks call it.
func (s *State) explain(ctx context.Context, g *Group, text string) error {
	all, err := Allgather(ctx, g, []byte(text))
	lens, err2 := Allgather(ctx, g, []int64{int64(len(text))})
	if err := errors.Join(err, err2); err != nil {
		return fmt.Errorf("synchronise state: %w", err)
	}
	zero, at := string(all[:lens[0]]), lens[0]
	for r := 1; r < len(lens); r++ {
		if theirs := string(all[at : at+lens[r]]); theirs != zero {
			return &InvalidError{Text: fmt.Sprintf("synchronise state: rank 0 registered %s, rank %d %s; register the same values on every rank, before RunElastic",
				cutShort(zero), r, cutShort(theirs))}
		}
		at += lens[r]
	}
	return errors.New("synchronise state: the ranks' values differ")
}

func cutShort(s string) string {
	if s == "" {
		return "nothing"
	}
	if len(s) > 200 {
		s = s[:200] + "…"
	}
	return s
}

// receive broadcasts every value from root.
func (s *State) receive(ctx context.Context, g *Group, root int) error {
	mine := g.Rank() == root
	var sizes []int64
	var saved [][]byte
	var fault error
	for i := range s.items {
		it := &s.items[i]
		if it.load == nil {
			continue
		}
		size := int64(0)
		if mine {
			b, err := it.save()
			if size = int64(len(b)); err != nil {
				fault, size = fmt.Errorf("save state %q for the other ranks: %w", it.name, err), -1
			}
			saved = append(saved, b)
		}
		sizes = append(sizes, size)
	}
	if len(sizes) > 0 {
		if err := Broadcast(ctx, g, sizes, root); err != nil {
			return fmt.Errorf("synchronise state: %w", err)
		}
	}
	if fault != nil {
		return fault
	}
	custom := 0
	for i := range s.items {
		it := &s.items[i]
		x := it.live
		if it.load != nil {
			switch size := sizes[custom]; {
			case size < 0:
				return fmt.Errorf("synchronise state: rank %d could not save %q; its own error says why", root, it.name)
			case mine:
				x = saved[custom]
			default:
				x = make([]byte, size)
			}
			custom++
		}
		if len(x) > 0 {
			if err := Broadcast(ctx, g, x, root); err != nil {
				return fmt.Errorf("synchronise state %q: %w", it.name, err)
			}
		}
		if it.load != nil && !mine {
			if err := it.load(x); err != nil {
				return fmt.Errorf("take state %q from rank %d: %w", it.name, root, err)
			}
		}
	}
	return nil
}
