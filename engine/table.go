package engine

import (
	"sync"
	"sync/atomic"

	"hora/transport"
)

// table numbers the units that the ranks have met. All ranks change it in the same
// order with the same values, so it is the same everywhere.
type table struct {
	limit   int
	entries []entry
	index   map[uint64]int32
	clock   uint64 // counts uses, for the choice of what to forget

	mu sync.Mutex // held to change entries' places, and to read by who has not the turn
}

// entry is one known unit.
type entry struct {
	key     uint64
	used    uint64
	runs    uint64
	step    uint64 // hash of the step it last ran in
	packing packState
	asked
}

func (t *table) init(limit int) {
	if limit < 0 {
		limit = defaultNames
	}
	t.limit = max(limit, 1)
	t.index = make(map[uint64]int32)
}

// find returns the number of the unit with that key, -1 when unknown.
func (t *table) find(key uint64) int {
	if i, ok := t.index[key]; ok {
		return int(i)
	}
	return -1
}

// learn gives the key a number, forgetting the unit that was not used for longest when
// the table is full.
func (t *table) learn(key uint64) int {
	if i := t.find(key); i >= 0 {
		return i
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.clock++
	if len(t.entries) < t.limit {
		t.entries = append(t.entries, entry{key: key, used: t.clock})
		i := len(t.entries) - 1
		t.index[key] = int32(i)
		return i
	}
	stale := 0
	for i := range t.entries {
		if t.entries[i].used < t.entries[stale].used {
			stale = i
		}
	}
	delete(t.index, t.entries[stale].key)
	t.entries[stale] = entry{key: key, used: t.clock}
	t.index[key] = int32(stale)
	return stale
}

// ran notes that unit i was run in a step.
func (t *table) ran(i int, step uint64) {
	t.clock++
	e := &t.entries[i]
	e.used, e.step = t.clock, step
	transport.Note(&e.runs, e.runs+1)
}

// times returns how often the unit with that key has run, for who has not the turn.
func (t *table) times(key uint64) uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	if i := t.find(key); i >= 0 {
		return atomic.LoadUint64(&t.entries[i].runs)
	}
	return 0
}

// words returns the number of 64-bit words that hold a bit for each known unit.
func (t *table) words() int { return (len(t.entries) + 63) / 64 }
