package device

import "fmt"

// Side is one side of an operation on one rank: nothing (no Counts), one whole (one
// count) or a part for each rank. Parts lie one behind the other, in rank order.
type Side struct {
	At     Ptr
	Counts []int // elements
}

func (s *Side) longest() int {
	n := 0
	for _, c := range s.Counts {
		n = max(n, c)
	}
	return n
}

// Slot is pinned host memory for one turn: what goes down, and what comes back. They
// may be the same memory for operations that work in place.
type Slot struct {
	In, Out Ptr
	// Down and Up mark the ends of the slot's copies.
	Down, Up Event
}

// Turn is what the host does with one slot: counts per rank or whole, in elements.
type Turn struct {
	Index     int
	In, Out   Ptr
	InCounts  []int
	OutCounts []int
}

// Staging carries operations on device memory through host memory: while the host works
// on one chunk, the next comes down and the one before goes up. One thread drives it.
type Staging struct {
	Queue Queue
	Down  Stream
	Up    Stream
	Slots []Slot
	Bytes int // of In and of Out

	in, out []int
}

// Chunk is how many elements of size bytes each part may have in one turn. It depends
// only on what all ranks know: whether either side has parts.
func (s *Staging) Chunk(size, parts int) int { return max(1, s.Bytes/size/max(1, parts)) }

// Turns is how many turns one rank needs for its sides.
func (s *Staging) Turns(in, out *Side, chunk int) int {
	return (max(in.longest(), out.longest()) + chunk - 1) / chunk
}

// Run does turns turns: it begins when ready has come, calls work for each on the
// calling thread, and marks the end of the last copy as done.
func (s *Staging) Run(in, out *Side, size, chunk, turns int, ready, done Event, work func(*Turn) error) error {
	if max(len(in.Counts), len(out.Counts))*chunk*size > s.Bytes {
		return fmt.Errorf("stage tensor: %d parts of %d elements do not fit %d bytes", max(len(in.Counts), len(out.Counts)), chunk, s.Bytes)
	}
	for _, stream := range []Stream{s.Down, s.Up} {
		if err := s.Queue.Await(stream, ready); err != nil {
			return err
		}
	}
	if turns > 0 {
		if err := s.fetch(in, size, chunk, 0); err != nil {
			return err
		}
	}
	t := Turn{}
	for i := range turns {
		if i+1 < turns { // on its way while the host works on i
			if err := s.fetch(in, size, chunk, i+1); err != nil {
				return err
			}
		}
		slot := &s.Slots[i%len(s.Slots)]
		if err := s.Queue.Ended(slot.Down); err != nil {
			return err
		}
		s.in, s.out = clamp(s.in[:0], in, i, chunk), clamp(s.out[:0], out, i, chunk)
		t = Turn{Index: i, In: slot.In, Out: slot.Out, InCounts: s.in, OutCounts: s.out}
		if err := work(&t); err != nil {
			return err
		}
		if err := s.deliver(out, size, chunk, i); err != nil {
			return err
		}
	}
	return s.Queue.Record(done, s.Up)
}

// fetch queues the copies of turn i from the device. They wait until what the slot held
// last, in this run or one before, has gone up; an event never recorded is no wait.
func (s *Staging) fetch(in *Side, size, chunk, i int) error {
	slot := &s.Slots[i%len(s.Slots)]
	if err := s.Queue.Await(s.Down, slot.Up); err != nil {
		return err
	}
	if err := s.move(in, slot.In, size, chunk, i, true); err != nil {
		return err
	}
	return s.Queue.Record(slot.Down, s.Down)
}

// deliver queues the copies of turn i to the device.
func (s *Staging) deliver(out *Side, size, chunk, i int) error {
	slot := &s.Slots[i%len(s.Slots)]
	if err := s.move(out, slot.Out, size, chunk, i, false); err != nil {
		return err
	}
	return s.Queue.Record(slot.Up, s.Up)
}

// move copies one chunk of every part; in the slot they lie close together.
func (s *Staging) move(side *Side, slot Ptr, size, chunk, i int, down bool) error {
	base := side.At
	for _, count := range side.Counts {
		n := min(chunk, count-i*chunk)
		if n > 0 {
			at := base + Ptr(i*chunk*size)
			var err error
			if down {
				err = s.Queue.Copy(slot, at, n*size, s.Down)
			} else {
				err = s.Queue.Copy(at, slot, n*size, s.Up)
			}
			if err != nil {
				return err
			}
			slot += Ptr(n * size)
		}
		base += Ptr(count * size)
	}
	return nil
}

// clamp appends what turn i has of each part.
func clamp(to []int, side *Side, i, chunk int) []int {
	for _, count := range side.Counts {
		to = append(to, min(chunk, max(0, count-i*chunk)))
	}
	return to
}
