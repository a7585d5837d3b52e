package bench

import (
	"fmt"
	"io"
	"slices"
	"strings"
)

// WritePage prints what a page of results takes: the ratios with their quartiles and goals,
// who was the best of many and who dropped out, and all rows.
func (ts Targets) WritePage(w io.Writer, rows []Row) error {
	var b strings.Builder
	b.WriteString("Peer's time over hora's: the median of the rounds, its quartiles, the goal in brackets; bold is short of it, which is a lower quartile below 95 % of it.\n" +
		"gloo runs over loopback TCP: it has no shared memory. " + howBest + "\n" + howPaces + "\n\n")
	ts.headline(&b, rows)
	list := func(title string, of func(Row) []string) {
		var lines []string
		for _, r := range rows {
			if names := of(r); len(names) > 0 {
				lines = append(lines, fmt.Sprintf("- %s, %s: %s", rowName(r), FormatSize(r.Bytes), strings.Join(names, ", ")))
			}
		}
		if len(lines) > 0 {
			fmt.Fprintf(&b, "\n<details><summary>%s</summary>\n\n%s\n\n</details>\n", title, strings.Join(lines, "\n"))
		}
	}
	list("Who was the best of a peer's settings, and in how many rounds", func(r Row) []string { return r.Best })
	list("Settings that dropped out after two rounds, with the row's best over their time", func(r Row) []string { return r.Dropped })
	list("Rounds in which the cores lay near each other, and far apart", func(r Row) []string {
		var all []string
		for _, p := range r.Paces {
			all = append(all, fmt.Sprintf("%s %s %s–%s in %d rounds (hora %.2f µs)", p.Pace, short(p.Ratio), short(p.Low), short(p.High), p.Rounds, p.HoraUS))
		}
		return all
	})
	list("Who was missing, or failed", func(r Row) []string {
		if r.Failure == "" {
			return nil
		}
		return []string{r.Failure}
	})
	b.WriteString("\n<details><summary>Rows</summary>\n\n```\n")
	if err := WriteTable(&b, rows); err != nil {
		return err
	}
	b.WriteString("```\n\n</details>\n")
	_, err := io.WriteString(w, b.String())
	return err
}

const howBest = "openmpi is Open MPI at its defaults, openmpi_tuned the best of its settings in each round,\n" +
	"best the best of those, gloo in both modes (gloo_spin: polling its sockets) and Intel MPI (impi)."

const howPaces = "Turns are compared where the cores lay as near to each other in both: a cache line's trip is measured before and after each."

func rowName(r Row) string { return fmt.Sprintf("%s %s, %d ranks vs %s", r.Op, r.Link, r.NP, r.Peer) }

func (ts Targets) headline(b *strings.Builder, rows []Row) {
	var sizes []int
	var names []string
	cells := map[string]map[int]string{}
	for _, r := range rows {
		if r.Peer == "ordered" || r.Ratio == 0 {
			continue
		}
		name := rowName(r)
		if cells[name] == nil {
			cells[name], names = map[int]string{}, append(names, name)
		}
		if !slices.Contains(sizes, r.Bytes) {
			sizes = append(sizes, r.Bytes)
		}
		cells[name][r.Bytes] = ts.cell(r)
	}
	slices.Sort(sizes)
	b.WriteString("| |")
	for _, n := range sizes {
		fmt.Fprintf(b, " %s |", FormatSize(n))
	}
	b.WriteString("\n|---|" + strings.Repeat("---|", len(sizes)) + "\n")
	for _, name := range names {
		fmt.Fprintf(b, "| %s |", name)
		for _, n := range sizes {
			fmt.Fprintf(b, " %s |", cells[name][n])
		}
		b.WriteString("\n")
	}
}

func (ts Targets) cell(r Row) string {
	text, goal := short(r.Ratio), ""
	for _, v := range ts.Check([]Row{r}, 1) {
		if !v.Reached {
			text = "**" + text + "**"
		}
		wanted, _, _ := strings.Cut(strings.TrimPrefix(v.Wanted, "≥ "), ",")
		goal = " (" + wanted + ")"
	}
	return fmt.Sprintf("%s %s–%s%s", text, short(r.RatioLow), short(r.RatioHigh), goal)
}

func short(x float64) string {
	if x >= 10 {
		return fmt.Sprintf("%.0f", x)
	}
	return fmt.Sprintf("%.2f", x)
}
