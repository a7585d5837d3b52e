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

// contest is what the rounds of one combination have brought. Everybody's turns have the
// same indices, so that ratios are formed within a round; who sat one out has nil there.
type contest struct {
	Combination
	turns    map[string][]results // by configuration, then by round
	failures map[string]error     // the first of each configuration
	able     map[string][]int     // sizes that a configuration has not failed at
}

func newContest(c Combination, missing map[string]error) *contest {
	k := &contest{c, map[string][]results{}, map[string]error{}, map[string][]int{}}
	for _, name := range k.names() {
		k.able[name] = slices.Clone(c.Sizes)
		if err := missing[programOf(name)]; err != nil {
			k.failures[name], k.able[name] = err, nil
		}
	}
	return k
}

func (k *contest) names() []string {
	return append([]string{"hora"}, configurations(k.Combination, k.Peers)...)
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
			turn := k.Combination
			turn.Sizes = slices.DeleteFunc(slices.Clone(wanted), func(n int) bool { return !slices.Contains(k.able[name], n) })
			var res results
			if len(turn.Sizes) > 0 {
				var err error
				if res, err = r.turn(ctx, turn, name); err != nil {
					k.able[name] = slices.DeleteFunc(k.able[name], func(n int) bool { return slices.Contains(turn.Sizes, n) && res[n] == 0 })
					r.failed(ctx, name, err, k.failures)
				}
			}
			k.turns[name] = append(k.turns[name], res)
		}
	}
}

// again measures the rows that cfg.Again names with further rounds, beside those that they
// have: a machine that others use too is slow for minutes, and the first rounds of a
// combination all fall into the same one. No round is left out of the median for that.
func (r *runner) again(ctx context.Context, contests []*contest) {
	for _, k := range contests {
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
		r.cfg.Say("again, %d more rounds: %s over %s, %d ranks, %s", more, k.Op, k.Link, k.NP, strings.Join(names, ", "))
		r.rounds(ctx, k, sizes, more)
	}
}

func (r *runner) rows(k *contest) []Row {
	var rows []Row
	for _, peer := range k.Peers {
		for _, size := range k.Sizes {
			rows = append(rows, r.row(k, peer, size))
		}
	}
	return rows
}

func (k *contest) failuresAt(size int) map[string]error {
	failed := map[string]error{}
	for name, err := range k.failures {
		if !slices.Contains(k.able[name], size) {
			failed[name] = err
		}
	}
	return failed
}

// row forms the ratios of one size, round by round, and says who failed at it: without
// hora, or without any of the peer's configurations, there is no ratio.
func (r *runner) row(k *contest, peer string, size int) Row {
	c, rounds := k.Combination, k.turns
	failures := k.failuresAt(size)
	row := Row{Op: c.Op, Link: c.Link, NP: c.NP, Bytes: size, DType: "float32", Peer: peer, Sched: "other"}
	if r.realtime {
		row.Sched = "rr"
	}
	var ours, theirs, ratios []float64
	for i, mine := range rounds["hora"] {
		us := mine[size]
		best := 0.0
		for _, configuration := range configurations(c, []string{peer}) {
			if i >= len(rounds[configuration]) {
				continue
			}
			if t := rounds[configuration][i][size]; t > 0 && (best == 0 || t < best) {
				best = t
			}
		}
		if us > 0 {
			ours = append(ours, us)
		}
		if us > 0 && best > 0 {
			theirs, ratios = append(theirs, best), append(ratios, best/us)
		}
	}
	row.HoraUS, row.PeerUS, row.Failure = median(ours), median(theirs), failureOf(failures, peer, configurations(c, []string{peer}))
	if len(ratios) == 0 && row.Failure == "" {
		row.Failure = "interrupted"
	}
	if len(ratios) > 0 && failures["hora"] == nil {
		row.RatioMin, row.Ratio, row.RatioMax = slices.Min(ratios), median(ratios), slices.Max(ratios)
	}
	if len(ratios) > r.cfg.Rounds {
		row.Rounds = len(ratios)
	}
	return row
}

// failureOf is the first failure of hora or of a peer's configurations.
func failureOf(failures map[string]error, peer string, configurations []string) string {
	for _, name := range append([]string{"hora"}, configurations...) {
		err := failures[name]
		if err == nil {
			continue
		}
		var no *MissingPeer
		if errors.As(err, &no) {
			text := "is missing: it takes the packages " + no.Packages
			if !strings.HasPrefix(peer, no.Peer) { // one of those that the best is chosen from
				text = no.Peer + " " + text
			}
			return text
		}
		return fmt.Sprintf("%s: %v", name, err)
	}
	return ""
}
