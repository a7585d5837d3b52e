package bench

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
)

// WriteTable prints rows for people.
func WriteTable(w io.Writer, rows []Row) error {
	var err error
	line := func(format string, args ...any) {
		if err == nil {
			_, err = fmt.Fprintf(w, format+"\n", args...)
		}
	}
	line("%-14s %-11s %3s %7s %6s %11s %-14s %11s %39s %9s %9s", "operation", "link", "np", "bytes", "sched", "hora µs", "peer", "peer µs",
		"ratio least/quartiles/most", "algbw", "busbw")
	for _, r := range rows {
		if r.Ratio == 0 {
			ours := "-"
			if r.HoraUS > 0 { // it is the peer that failed
				ours = fmt.Sprintf("%.2f", r.HoraUS)
			}
			line("%-14s %-11s %3d %7s %6s %11s %-14s %s", r.Op, r.Link, r.NP, FormatSize(r.Bytes), r.Sched, ours, r.Peer, r.Failure)
			continue
		}
		aside := ""
		if r.Rounds > 0 {
			aside = fmt.Sprintf("  %d rounds", r.Rounds)
		}
		if r.Unit != "" {
			aside += "  in " + r.Unit
		}
		for _, p := range r.Paces {
			aside += fmt.Sprintf("  %s %.2f (%.2f–%.2f) in %d", p.Pace, p.Ratio, p.Low, p.High, p.Rounds)
		}
		if len(r.Best) > 0 {
			aside += "  best: " + strings.Join(r.Best, ", ")
		}
		if r.Failure != "" {
			aside += "  " + r.Failure
		}
		line("%-14s %-11s %3d %7s %6s %11.2f %-14s %11.2f %7.2f/%7.2f/%7.2f/%7.2f/%7.2f %9.2f %9.2f%s", r.Op, r.Link, r.NP, FormatSize(r.Bytes), r.Sched,
			r.HoraUS, r.Peer, r.PeerUS, r.RatioMin, r.RatioLow, r.Ratio, r.RatioHigh, r.RatioMax, r.AlgBW(),
			r.BusBW(), aside)
	}
	return err
}

// WriteJSONL prints one object a row.
func WriteJSONL(w io.Writer, rows []Row) error {
	enc := json.NewEncoder(w)
	for _, r := range rows {
		if err := enc.Encode(r); err != nil {
			return err
		}
	}
	return nil
}

// WriteCSV prints rows for spreadsheets.
func WriteCSV(w io.Writer, rows []Row) error {
	out := csv.NewWriter(w)
	number := func(x float64) string { return strconv.FormatFloat(x, 'g', 6, 64) }
	_ = out.Write([]string{
		"op", "link", "np", "bytes", "dtype", "sched", "hora_us", "peer", "peer_us", "ratio_min", "ratio", "ratio_max", "failure", "rounds",
		"ratio_low", "ratio_high", "unit", "best", "dropped",
	})
	for _, r := range rows {
		rounds := ""
		if r.Rounds > 0 {
			rounds = strconv.Itoa(r.Rounds)
		}
		_ = out.Write([]string{
			r.Op, r.Link, strconv.Itoa(r.NP), strconv.Itoa(r.Bytes), r.DType, r.Sched, number(r.HoraUS), r.Peer,
			number(r.PeerUS),
			number(r.RatioMin), number(r.Ratio), number(r.RatioMax), r.Failure, rounds,
			number(r.RatioLow), number(r.RatioHigh), r.Unit, strings.Join(r.Best, ", "), strings.Join(r.Dropped, ", "),
		})
	}
	out.Flush()
	return out.Error()
}

// WriteVerdicts prints reached or short for each row that a goal concerns, and returns
// how many are short without a known reason.
func WriteVerdicts(w io.Writer, all []Verdict) (short int, err error) {
	known, stale, absent := 0, 0, 0
	for _, v := range all {
		word := "reached"
		switch {
		case v.Reached && v.Known != "":
			stale++
		case v.Reached:
		case v.Known != "":
			word = "known short"
			known++
		case v.Missing:
			word = "missing"
			absent++
		default:
			word = "short"
			short++
		}
		r, what := v.Row, FormatSize(v.Row.Bytes)
		if v.Sizes > 0 {
			what = fmt.Sprintf("the geometric mean of %d sizes", v.Sizes)
		}
		_, err = fmt.Fprintf(w, "%-11s %s over %s, %d ranks, %s vs %s: %s, goal %s\n", word, r.Op, r.Link, r.NP, what, r.Peer, got(r), v.Wanted)
		if err == nil && v.Known != "" {
			reason := v.Known
			if v.Reached {
				reason = "it was known to be short and is not: its entry can leave known_short"
			}
			_, err = fmt.Fprintf(w, "            %s\n", reason)
		}
		if err != nil {
			return short, err
		}
	}
	aside, without := "", ""
	if absent > 0 {
		without = fmt.Sprintf(", %d against a peer that is missing here", absent)
	}
	if stale > 0 {
		aside = fmt.Sprintf(" (%d that were known to be short)", stale)
	}
	other := ""
	if slices.ContainsFunc(all, func(v Verdict) bool { return v.Row.Sched == "other" }) {
		other = "; measured without SCHED_RR, which proves no figure"
	}
	_, err = fmt.Fprintf(w, "%d goals: %d reached%s, %d known short, %d short%s%s\n", len(all), len(all)-known-short-absent, aside, known, short, without, other)
	return short, err
}

// got is what a row has reached, with its quartiles.
func got(r Row) string {
	text := fmt.Sprintf("ratio %.2f (%.2f to %.2f)", r.Ratio, r.RatioLow, r.RatioHigh)
	switch {
	case r.Ratio == 0:
		text = r.Failure
	case r.Peer == "ordered":
		text = fmt.Sprintf("%+.3f µs (ratio %.2f; quartiles %+.3f µs, %.2f)", r.HoraUS-r.PeerUS, 1/r.Ratio, r.ExtraHigh, 1/r.RatioLow)
	}
	if r.Rounds > 0 {
		text += fmt.Sprintf(" in %d rounds", r.Rounds)
	}
	if r.Ratio > 0 && r.Failure != "" { // the best of fewer than there should be
		text += "; " + r.Failure
	}
	return text
}
