package hora

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"hora/engine"
	"hora/internal/wire"
	"hora/transport"
)

// Waiting is a thread that waits, without a bound of its own, for a ticket of a group, or in
// the group's Join.
type Waiting struct {
	Group  *Group
	Ticket Ticket
	Join   bool
	Since  time.Duration // how long by now
}

// knots looks for ranks that wait for each other for ever in different groups, and ends those
// groups; see engine.Knot for what proves it. Each rank all of whose threads wait says so to
// rank 0 about five times in DeadlockTimeout, and rank 0 asks those in a knot whether all is
// as they said. One goroutine does it all; nothing runs while a thread does not wait.
type knots struct {
	w     *World
	limit time.Duration
	heard chan note
	stop  chan struct{}
	once  sync.Once
	wg    sync.WaitGroup

	// What this rank is told to end with, and when.
	verdict  <-chan time.Time
	guilty   engine.Standing
	under    uint64 // the number that it was told under
	sentence string

	// Rank 0's.
	said  map[int]said
	nonce uint64
	asked map[int]uint64 // digests that are not confirmed yet; nil while nobody is asked
	deaf  map[int]bool   // who has not heard the verdict yet; nil while there is none
	since time.Time
	knot  []int
	first time.Time // when a knot was found; zero where there was none
	text  string
	// Of a knot that is not proved: what each of its ranks said when it was told of, and when that was.
	doubted   map[int]uint64
	doubtedAt time.Time
}

type note struct {
	from int
	text []byte
}

// said is what a rank said last.
type said struct {
	standing engine.Standing
	digest   uint64
	at       time.Time
}

const (
	noteStanding = 1 + iota // where a rank is: digest, standing
	noteConfirm             // is it so still? number, digest
	noteYes                 // it is: number
	noteVerdict             // digest, number, whether doubt has had its time, sentence
	noteHeard               // the verdict has come: number
	noteAct                 // to all: number
)

func newKnots(w *World) *knots {
	limit := cmp.Or(w.cfg.DeadlockTimeout, defaultDeadlock)
	if w.cfg.Threads == nil || limit < 0 {
		return nil
	}
	return &knots{w: w, limit: limit, heard: make(chan note, 256), stop: make(chan struct{}), said: map[int]said{}}
}

// start begins to look; the world's group is there.
func (k *knots) start() {
	if k != nil {
		k.wg.Add(1)
		go k.run()
	}
}

func (k *knots) close() {
	if k != nil {
		k.once.Do(func() { close(k.stop) })
		k.wg.Wait()
	}
}

// hear takes a note from a link's goroutine. One that finds no room comes again.
func (k *knots) hear(from int, text []byte) {
	select {
	case k.heard <- note{from, slices.Clone(text)}:
	default:
	}
}

// hearing is how long a rank that has heard a verdict waits for the word that all have: who acted
// on it at once could have left before another has heard it.
const hearing = 3 * time.Second

const (
	defaultDeadlock = 5 * time.Second
	doubted         = 120 // times as long waits may last that something outside of our sight may free
)

// patience returns for how long a knot that something outside of our sight may free is left alone.
func (k *knots) patience() time.Duration { return doubted * k.limit }

// pace returns how often a rank that waits says so.
func (k *knots) pace() time.Duration { return max(k.limit/5, 20*time.Millisecond) }

func (k *knots) run() {
	defer k.wg.Done()
	tick := time.NewTicker(k.pace())
	defer tick.Stop()
	for {
		select {
		case <-k.stop:
			return
		case n := <-k.heard:
			k.take(n)
		case <-k.verdict:
			k.verdict = nil
			k.end(&k.guilty, &engine.DeadlockError{Text: k.sentence})
		case <-tick.C:
			if s, digest, ok := k.look(); ok {
				k.tell(0, s.Append(wire.AppendU64([]byte{noteStanding}, digest)))
			}
		}
	}
}

func (k *knots) tell(to int, text []byte) {
	switch {
	case to == k.w.cfg.Rank:
		k.take(note{to, text})
	case len(text) < transport.MaxTell:
		k.w.group.engine.Note(to, text)
	}
}

// look returns where this rank is, if each of its threads that has called hora has waited for long
// and nothing of what it waits for can be on its way to an end.
func (k *knots) look() (s engine.Standing, digest uint64, ok bool) {
	waits, doubt, all := k.w.cfg.Threads()
	if !all || len(waits) == 0 {
		return s, 0, false
	}
	s.Rank = k.w.cfg.Rank
	sum := fnv.New64a()
	for _, t := range waits {
		if t.Since < k.limit || t.Group == nil {
			return s, 0, false
		}
		a, ok := t.Group.engine.Standing(t.Ticket)
		if t.Join {
			a, ok = t.Group.engine.StandingJoin()
		}
		if !ok {
			return s, 0, false
		}
		a.Group = t.Group.id
		s.Waits = append(s.Waits, a)
		fmt.Fprintln(sum, t.Ticket, t.Join)
	}
	k.w.mu.Lock()
	groups := make([]*Group, 0, len(k.w.groups))
	for g := range k.w.groups {
		groups = append(groups, g)
	}
	k.w.mu.Unlock()
	slices.SortFunc(groups, func(a, b *Group) int {
		return strings.Compare(strconv.FormatUint(a.id, 36), strconv.FormatUint(b.id, 36))
	})
	for _, g := range groups {
		v, ok := g.engine.Given()
		if !ok {
			return s, 0, false
		}
		v.Group, v.Name, v.Ranks = g.id, g.name, g.ranks
		s.Given = append(s.Given, v)
	}
	_, _ = sum.Write(s.Append(nil))
	s.Doubt = doubt // which may change while all is as it was
	return s, sum.Sum64(), true
}

func (k *knots) take(n note) {
	d := wire.NewDecoder(n.text)
	switch d.U8() {
	case noteStanding:
		digest := d.U64()
		s, err := engine.ParseStanding(n.text[9:])
		if d.Err() != nil || err != nil || s.Rank != n.from {
			return
		}
		k.said[n.from] = said{s, digest, time.Now()}
		k.seek()
	case noteConfirm:
		nonce, digest := d.U64(), d.U64()
		if _, now, ok := k.look(); ok && now == digest && d.Done() == nil {
			k.tell(0, wire.AppendU64([]byte{noteYes}, nonce))
		}
	case noteYes:
		if d.U64() == k.nonce && k.asked != nil {
			delete(k.asked, n.from)
			if len(k.asked) == 0 {
				k.judge()
			}
		}
	case noteVerdict:
		digest, nonce, late, text := d.U64(), d.U64(), d.Bool(), d.String(transport.MaxTell)
		s, now, ok := k.look()
		if ok && now == digest && d.Done() == nil && k.verdict == nil && (late || s.Doubt == "") {
			k.guilty, k.sentence, k.verdict, k.under = s, text, time.After(hearing), nonce
			for _, g := range k.waitedIn(&s) {
				g.engine.Doom(&engine.DeadlockError{Text: text})
			}
			k.tell(0, wire.AppendU64([]byte{noteHeard}, nonce))
		}
	case noteHeard:
		if d.U64() == k.nonce && k.deaf != nil {
			delete(k.deaf, n.from)
			if len(k.deaf) == 0 {
				k.deaf = nil
				for _, r := range k.knot {
					k.tell(r, wire.AppendU64([]byte{noteAct}, k.nonce))
				}
			}
		}
	case noteAct:
		if d.U64() == k.under && k.verdict != nil {
			k.verdict = time.After(0)
		}
	}
}

// seek looks for a knot in what was said lately, and asks those in it once more.
func (k *knots) seek() {
	if (k.asked != nil || k.deaf != nil) && time.Since(k.since) < k.limit/2 {
		return
	}
	k.asked, k.deaf = nil, nil
	var list []engine.Standing
	for r, s := range k.said {
		if time.Since(s.at) > k.limit {
			delete(k.said, r)
			continue
		}
		list = append(list, s.standing)
	}
	knot := engine.Knot(list)
	switch {
	case knot == nil:
		k.first = time.Time{}
		return
	case k.first.IsZero():
		k.first = time.Now()
	}
	if time.Since(k.first) < k.pace() { // others may be in it, and say so in a moment
		return
	}
	k.nonce++
	k.knot, k.since, k.asked = knot, time.Now(), map[int]uint64{}
	k.text = k.words()
	for _, r := range knot {
		k.asked[r] = k.said[r].digest
	}
	nonce := k.nonce
	for _, r := range knot {
		k.tell(r, wire.AppendU64(wire.AppendU64([]byte{noteConfirm}, nonce), k.said[r].digest))
	}
}

// judge tells the ranks of the knot, which have all confirmed it. Where something on one of them may yet free it,
// nothing is proved: it is said, once, and ended when all has been the same for so long that nobody is to be expected
// any more.
func (k *knots) judge() {
	k.asked = nil
	late := false
	if free := k.liberators(); free != "" {
		now := map[int]uint64{}
		for _, r := range k.knot {
			now[r] = k.said[r].digest
		}
		if !maps.Equal(now, k.doubted) {
			k.doubted, k.doubtedAt = now, time.Now()
			k.w.cfg.Log.Warn(fmt.Sprintf("%s; nothing is ended for %v, since %s may yet free them",
				strings.Replace(k.text, " and can never go on", "", 1), k.patience(), free))
		}
		if late = time.Since(k.doubtedAt) > k.patience(); !late {
			return
		}
		k.text += fmt.Sprintf("; it has been so for %v", k.patience())
	}
	k.deaf = map[int]bool{}
	for _, r := range k.knot {
		k.deaf[r] = true
	}
	digests := k.said
	k.said, k.first = map[int]said{}, time.Time{}
	for _, r := range k.knot {
		b := wire.AppendU64(wire.AppendU64([]byte{noteVerdict}, digests[r].digest), k.nonce)
		k.tell(r, wire.AppendString(wire.AppendBool(b, late), k.text))
	}
}

// liberators says who may yet free the ranks of the knot, as far as they know; empty: nobody.
func (k *knots) liberators() string {
	var free []string
	for _, r := range k.knot {
		if doubt := k.said[r].standing.Doubt; doubt != "" {
			free = append(free, fmt.Sprintf("rank %d %s", r, doubt))
		}
	}
	return strings.Join(free, ", and ")
}

// end fails the groups that this rank waits in.
func (k *knots) end(s *engine.Standing, err error) {
	for _, g := range k.waitedIn(s) {
		g.engine.FailTogether(err)
	}
}

// waitedIn returns the groups that s waits in.
func (k *knots) waitedIn(s *engine.Standing) (groups []*Group) {
	k.w.mu.Lock()
	defer k.w.mu.Unlock()
	for g := range k.w.groups {
		if slices.ContainsFunc(s.Waits, func(a engine.Awaited) bool { return a.Group == g.id }) {
			groups = append(groups, g)
		}
	}
	return groups
}

// mostWords is how many waits a sentence names.
const mostWords = 8

// words returns the sentence about the knot.
func (k *knots) words() string {
	all := map[int]*engine.Standing{}
	for _, r := range k.knot {
		s := k.said[r].standing
		all[r] = &s
	}
	// Of each rank the first wait, as far as there is room, then of each the second: one may have hundreds.
	named, room := map[int]int{}, mostWords
	for i, any := 0, true; any; i++ {
		any = false
		for _, r := range k.knot {
			if room > 0 && i < len(all[r].Waits) {
				named[r]++
				room--
				any = true
			}
		}
	}
	var parts []string
	batches, more := false, 0
	for _, r := range k.knot {
		s := all[r]
		for i := range s.Waits {
			a := &s.Waits[i]
			batches = batches || a.Nth > 1
			if i >= named[r] {
				more++
				continue
			}
			parts = append(parts, wait(s, a, engine.Holders(all, s, a)))
		}
	}
	if more > 0 {
		parts = append(parts, fmt.Sprintf("and %d more", more))
	}
	head := fmt.Sprintf("%s wait for each other and can never go on: ", engine.RankList(k.knot))
	if len(k.knot) == 1 {
		head = fmt.Sprintf("%s waits for itself and can never go on: ", engine.RankList(k.knot))
	}
	text := head + strings.Join(parts, "; ") + "; make the same calls in the same order on every rank"
	if batches {
		text += engine.UnevenCure
	}
	return text
}

// wait says where a rank is, and who has not come there.
func wait(s *engine.Standing, a *engine.Awaited, holders []int) string {
	what := a.What
	if a.Nth > 1 {
		what = "its " + ordinal(a.Nth) + " " + what
	}
	name := ""
	for _, v := range s.Given {
		if v.Group == a.Group {
			name = v.Name
		}
	}
	have := "has"
	if len(holders) > 1 {
		have = "have"
	}
	switch who := engine.RankList(holders); {
	case a.Kind == engine.AwaitedCall:
		return fmt.Sprintf("rank %d is in %s (call %d of group %s), to which %s %s not come", s.Rank, what, a.Call, name, who, have)
	case a.Kind == engine.AwaitedName && a.Nth > 1:
		return fmt.Sprintf("rank %d is in %s (group %s), which %s %s left after %d", s.Rank, what, name, who, have, a.Nth-1)
	case a.Kind == engine.AwaitedRecv:
		return fmt.Sprintf("rank %d is in %s (group %s), and %s %s not sent", s.Rank, what, name, who, have)
	case a.Kind == engine.AwaitedSend:
		return fmt.Sprintf("rank %d is in %s (group %s), which %s does not receive", s.Rank, what, name, who)
	default:
		return fmt.Sprintf("rank %d is in %s (group %s), to which %s %s not come", s.Rank, what, name, who, have)
	}
}

// ordinal returns "1st", "2nd", "6th".
func ordinal(n uint64) string {
	end := "th"
	if n%100 < 11 || n%100 > 13 {
		switch n % 10 {
		case 1:
			end = "st"
		case 2:
			end = "nd"
		case 3:
			end = "rd"
		}
	}
	return strconv.FormatUint(n, 10) + end
}
