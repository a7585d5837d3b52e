package bench

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
)

// WriteTable prints rows for people.
func WriteTable(w io.Writer, rows []Row) error {
	var err error
	line := func(format string, args ...any) {
		if err == nil {
			_, err = fmt.Fprintf(w, format+"\n", args...)
		}
	}
	line("%-14s %-11s %3s %7s %6s %11s %-14s %11s %23s %9s %9s", "operation", "link", "np", "bytes", "sched", "hora µs", "peer", "peer µs",
		"ratio min/median/max", "algbw", "busbw")
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
		if r.Failure != "" {
			aside += "  " + r.Failure
		}
		line("%-14s %-11s %3d %7s %6s %11.2f %-14s %11.2f %7.2f/%7.2f/%7.2f %9.2f %9.2f%s", r.Op, r.Link, r.NP, FormatSize(r.Bytes), r.Sched,
			r.HoraUS, r.Peer, r.PeerUS, r.RatioMin, r.Ratio, r.RatioMax, r.AlgBW(), r.BusBW(), aside)
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
	_ = out.Write([]string{"op", "link", "np", "bytes", "dtype", "sched", "hora_us", "peer", "peer_us", "ratio_min", "ratio", "ratio_max", "failure", "rounds"})
	for _, r := range rows {
		rounds := ""
		if r.Rounds > 0 {
			rounds = strconv.Itoa(r.Rounds)
		}
		_ = out.Write([]string{
			r.Op, r.Link, strconv.Itoa(r.NP), strconv.Itoa(r.Bytes), r.DType, r.Sched, number(r.HoraUS), r.Peer, number(r.PeerUS),
			number(r.RatioMin), number(r.Ratio), number(r.RatioMax), r.Failure, rounds,
		})
	}
	out.Flush()
	return out.Error()
}

// WriteVerdicts prints reached or short for each row that a goal concerns, and returns
// how many are short without a known reason.
func WriteVerdicts(w io.Writer, all []Verdict) (short int, err error) {
	known := 0
	for _, v := range all {
		word := "reached"
		if !v.Reached {
			word = "short"
			if v.Known != "" {
				word = "known short"
				known++
			} else {
				short++
			}
		}
		r := v.Row
		got := fmt.Sprintf("ratio %.2f (%.2f to %.2f)", r.Ratio, r.RatioMin, r.RatioMax)
		switch {
		case r.Ratio == 0:
			got = r.Failure
		case r.Peer == "ordered":
			got = fmt.Sprintf("%+.3f µs (ratio %.2f)", r.HoraUS-r.PeerUS, 1/r.Ratio)
		}
		if r.Rounds > 0 {
			got += fmt.Sprintf(" in %d rounds", r.Rounds)
		}
		if r.Ratio > 0 && r.Failure != "" { // the best of fewer than there should be
			got += "; " + r.Failure
		}
		_, err = fmt.Fprintf(w, "%-11s %s over %s, %d ranks, %s vs %s: %s, goal %s\n", word, r.Op, r.Link, r.NP, FormatSize(r.Bytes), r.Peer, got, v.Wanted)
		if err == nil && v.Known != "" && !v.Reached {
			_, err = fmt.Fprintf(w, "            %s\n", v.Known)
		}
		if err != nil {
			return short, err
		}
	}
	aside := ""
	if slices.ContainsFunc(all, func(v Verdict) bool { return v.Row.Sched == "other" }) {
		aside = "; measured without SCHED_RR, which proves no figure"
	}
	_, err = fmt.Fprintf(w, "%d goals: %d reached, %d known short, %d short%s\n", len(all), len(all)-known-short, known, short, aside)
	return short, err
}
