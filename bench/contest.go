package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// moreRounds is how many times the usual rounds a row that is measured again takes. The
// median then stands on three times as many, of two moments that lie minutes apart.
const moreRounds = 2

// triedRounds is after how many rounds a configuration at less than half of the best of
// each of its rows drops out of them.
const triedRounds = 2

// contest is what the rounds of one operation have brought: its combinations are those of
// hora's links that the same peers' turns are compared to. Everybody's turns have the same
// indices, so that ratios are formed within a round; who sat one out has nil there.
type contest struct {
	op       string
	link     string // tcp, or one of those over memory, which are all the same to a peer
	np       int
	links    []Combination
	turns    map[string][]results       // by configuration, then by round
	trips    map[string][]trips         // of the same turns
	failures map[string]error           // the first of each configuration
	able     map[string][]int           // sizes that a configuration has not failed at
	without  map[string]map[int]error   // sizes that a configuration has nothing for
	dropped  map[string]map[int]float64 // sizes that it dropped out of, with its share of the best it was compared to
}

// contests groups combinations whose peers do the same.
func contests(combos []Combination, cores int, missing map[string]error) []*contest {
	var all []*contest
	for _, c := range combos {
		i := slices.IndexFunc(all, func(k *contest) bool {
			return k.op == c.Op && k.np == c.NP && (k.link == "tcp") == (c.Link == "tcp")
		})
		if i < 0 {
			i = len(all)
			all = append(all, &contest{op: c.Op, link: c.Link, np: c.NP})
		}
		all[i].links = append(all[i].links, c)
	}
	for _, k := range all {
		k.begin(cores, missing)
	}
	return all
}

func (k *contest) begin(cores int, missing map[string]error) {
	k.turns, k.failures, k.able = map[string][]results{}, map[string]error{}, map[string][]int{}
	k.trips = map[string][]trips{}
	k.without, k.dropped = map[string]map[int]error{}, map[string]map[int]float64{}
	for _, name := range k.names() {
		k.without[name], k.dropped[name] = map[int]error{}, map[int]float64{}
		for _, c := range k.links {
			for _, size := range c.Sizes {
				if slices.Contains(k.able[name], size) || !slices.Contains(competitors(c), name) {
					continue
				}
				if err := lacks(name, k.op, k.np, cores, size); err != nil {
					k.without[name][size] = err
					continue
				}
				k.able[name] = append(k.able[name], size)
			}
		}
		slices.Sort(k.able[name])
		if err := missing[programOf(name)]; err != nil {
			k.failures[name], k.able[name] = err, nil
		}
	}
}

func competitors(c Combination) []string {
	return append([]string{"hora/" + c.Link}, configurations(c.Op, c.Link, c.Peers)...)
}

func (k *contest) names() []string {
	var all []string
	for _, c := range k.links { // hora's first: the picture of a round is one of a moment
		all = append(all, "hora/"+c.Link)
	}
	for _, c := range k.links {
		for _, name := range competitors(c) {
			if !slices.Contains(all, name) {
				all = append(all, name)
			}
		}
	}
	return all
}

// peers and sizes are those of any of its combinations.
func (k *contest) peers() (all []string) {
	for _, c := range k.links {
		for _, p := range c.Peers {
			if !slices.Contains(all, p) {
				all = append(all, p)
			}
		}
	}
	return all
}

func (k *contest) sizes() (all []int) {
	for _, c := range k.links {
		all = append(all, c.Sizes...)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// rounds lets hora and every peer's configurations take their turn, n times. What a
// configuration has failed at it is not asked again; what it had measured before stands,
// and the later rounds go on with that.
func (r *runner) rounds(ctx context.Context, k *contest, wanted []int, n int) {
	for range n {
		for _, name := range k.names() {
			if ctx.Err() != nil {
				break
			}
			sizes := slices.DeleteFunc(slices.Clone(wanted), func(n int) bool {
				_, out := k.dropped[name][n]
				return out || !slices.Contains(k.able[name], n)
			})
			var res results
			var at trips
			if len(sizes) > 0 {
				var err error
				at[0] = r.trip()
				if res, err = r.turn(ctx, k, name, sizes); err != nil {
					k.able[name] = slices.DeleteFunc(k.able[name],
						func(n int) bool { return slices.Contains(sizes, n) && res[n] == 0 })
					r.failed(ctx, name, err, k.failures)
				}
				at[1] = r.trip()
			}
			k.turns[name], k.trips[name] = append(k.turns[name], res), append(k.trips[name], at)
		}
		if len(k.turns["hora/"+k.links[0].Link]) == triedRounds {
			k.drop()
		}
	}
}

// drop takes out of each row the configurations that took more than twice the row's best:
// the better of their rounds is looked at, and one that another row still needs stays.
func (k *contest) drop() {
	for _, name := range k.names() {
		if programOf(name) == "" {
			continue
		}
		for _, size := range k.able[name] {
			mine, share := k.least(name, size), 0.0
			if mine == 0 {
				continue
			}
			for _, c := range k.links {
				for _, peer := range c.Peers {
					all := configurations(c.Op, c.Link, []string{peer})
					if !slices.Contains(c.Sizes, size) || !slices.Contains(all, name) {
						continue
					}
					share = max(share, k.best(all, size)/mine)
				}
			}
			if share < 0.5 {
				k.dropped[name][size] = share
			}
		}
	}
}

// least is the better of a configuration's rounds, 0 without one.
func (k *contest) least(name string, size int) float64 {
	least := 0.0
	for _, res := range k.turns[name] {
		if t := res[size]; t > 0 && (least == 0 || t < least) {
			least = t
		}
	}
	return least
}

// best is the least of some configurations' times.
func (k *contest) best(names []string, size int) float64 {
	best := 0.0
	for _, name := range names {
		if t := k.least(name, size); t > 0 && (best == 0 || t < best) {
			best = t
		}
	}
	return best
}

// remeasure measures the rows that cfg.Again names with further rounds, beside those that they
// have: a machine that others use too is slow for minutes, and the first rounds of a
// combination all fall into the same one. No round is left out of the median for that.
func (r *runner) remeasure(ctx context.Context, all []*contest) {
	for _, k := range all {
		var sizes []int
		for _, row := range r.rows(k) {
			if row.Ratio > 0 && r.cfg.Again(row) && !slices.Contains(sizes, row.Bytes) {
				sizes = append(sizes, row.Bytes)
			}
		}
		if len(sizes) == 0 || ctx.Err() != nil {
			continue
		}
		slices.Sort(sizes)
		names := make([]string, len(sizes))
		for i, n := range sizes {
			names[i] = FormatSize(n)
		}
		more := moreRounds * r.cfg.Rounds
		r.cfg.Say("again, %d more rounds: %s over %s, %d ranks, %s", more, k.op, k.over(), k.np, strings.Join(names, ", "))
		r.rounds(ctx, k, sizes, more)
	}
}

func (k *contest) over() string {
	var links []string
	for _, c := range k.links {
		links = append(links, c.Link)
	}
	return strings.Join(links, " and ")
}

func (r *runner) rows(k *contest) []Row {
	var rows []Row
	for _, c := range k.links {
		for _, peer := range c.Peers {
			for _, size := range c.Sizes {
				rows = append(rows, r.row(k, c, peer, size))
			}
		}
	}
	return rows
}

// row forms the ratios of one size, round by round, and says who failed at it: without
// hora, or without any of the peer's configurations, there is no ratio.
func (r *runner) row(k *contest, c Combination, peer string, size int) Row {
	row := Row{Op: c.Op, Link: c.Link, NP: c.NP, Bytes: size, DType: "float32", Peer: peer, Sched: "other", Unit: unitOf(c.Op)}
	if r.realtime {
		row.Sched = "rr"
	}
	ourselves, names := "hora/"+c.Link, configurations(c.Op, c.Link, []string{peer})
	all := r.samples(k, ourselves, names, size)
	var ours, theirs, ratios, extras []float64
	won := map[string]int{}
	for _, s := range all {
		ours = append(ours, s.us)
		if s.peer > 0 {
			won[s.by]++
			theirs, ratios, extras = append(theirs, s.peer), append(ratios, s.peer/s.us), append(extras, s.us-s.peer)
		}
	}
	row.Paces = byPace(all)
	row.HoraUS, row.PeerUS, row.Failure = median(ours), median(theirs),
		k.failure(ourselves, peer, names, size, len(ratios) > 0)
	if len(ratios) == 0 && row.Failure == "" {
		row.Failure = "interrupted"
	}
	if len(ratios) > 0 && (k.failures[ourselves] == nil || slices.Contains(k.able[ourselves], size)) {
		row.RatioMin, row.Ratio, row.RatioMax = slices.Min(ratios), median(ratios), slices.Max(ratios)
		row.RatioLow, row.RatioHigh, row.ExtraHigh = quantile(ratios, 0.25), quantile(ratios, 0.75),
			quantile(extras, 0.75)
	}
	if len(ratios) > r.cfg.Rounds {
		row.Rounds = len(ratios)
	}
	if len(names) > 1 {
		row.Best = winners(won)
		for _, name := range names {
			if share, out := k.dropped[name][size]; out {
				row.Dropped = append(row.Dropped, fmt.Sprintf("%s %.2f", name, share))
			}
		}
	}
	return row
}

// samples are the rounds of a row in which hora has a time, each with the best time of a peer's configurations whose
// turn fell into the same pace as hora's. Where no round has such a one, all are compared with all.
func (r *runner) samples(k *contest, ourselves string, names []string, size int) []sample {
	least := r.leastTrip
	for {
		var all []sample
		for i, mine := range k.turns[ourselves] {
			s := sample{us: mine[size], pace: k.pace(ourselves, i, least)}
			if s.us <= 0 || s.pace == changing {
				continue
			}
			for _, name := range names {
				if i >= len(k.turns[name]) || k.pace(name, i, least) != s.pace {
					continue
				}
				if t := k.turns[name][i][size]; t > 0 && (s.peer == 0 || t < s.peer) {
					s.peer, s.by = t, name
				}
			}
			all = append(all, s)
		}
		if least == 0 || slices.ContainsFunc(all, func(s sample) bool { return s.peer > 0 }) {
			return all
		}
		least = 0
	}
}

// pace is that of a configuration's turn in a round.
func (k *contest) pace(name string, round int, least float64) pace {
	if round >= len(k.trips[name]) {
		return unknown
	}
	return k.trips[name][round].told(least)
}

// winners names who was the best, the most often first, with the number of rounds.
func winners(won map[string]int) []string {
	var names []string
	for name := range won {
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b string) int {
		if won[a] != won[b] {
			return won[b] - won[a]
		}
		return strings.Compare(a, b)
	})
	for i, name := range names {
		names[i] = fmt.Sprintf("%s %d", name, won[name])
	}
	return names
}

const missing = "is missing: "

// failure is the first one, at a size, of hora or of a peer's configurations. What one of
// many has not got, by its nature, is none beside a ratio.
func (k *contest) failure(ourselves, peer string, names []string, size int, ratio bool) string {
	for _, name := range append([]string{ourselves}, names...) {
		err := k.without[name][size]
		if err == nil && !slices.Contains(k.able[name], size) {
			err = k.failures[name]
		}
		var no *MissingPeer
		switch {
		case err == nil, ratio && errors.As(err, &lacking{}):
		case errors.As(err, &no):
			text := missing + "it takes the packages " + no.Packages
			if !strings.HasPrefix(peer, no.Peer) { // one of those that the best is chosen from
				text = no.Peer + " " + text
			}
			return text
		default:
			short, _, _ := strings.Cut(name, "/")
			return fmt.Sprintf("%s: %v", short, err)
		}
	}
	return ""
}
