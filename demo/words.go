package demo

import (
	"fmt"
	"strings"
	"time"

	"hora/demo/digits"
)

// Line is a point in words, at most width columns wide (0: as long as it is).
func (p *Progress) Line(pt Point, width int) string {
	return fit([]string{
		fmt.Sprintf("epoch %2d/%d", pt.Epoch, p.Epochs),
		fmt.Sprintf("loss %.4f", pt.Loss),
		fmt.Sprintf("test %5.2f %%", pt.Accuracy*100),
		thousands(pt.Rate) + " samples/s",
		fmt.Sprintf("communication %.1f %%", pt.Talk*100),
		fmt.Sprintf("waiting %.1f %%", pt.Wait*100),
	}, width)
}

// RankLines has one line per rank for its last epoch.
func (p *Progress) RankLines(width int) []string {
	var all []string
	for rank, reports := range p.PerRank {
		parts := []string{fmt.Sprintf("  rank %d", rank), "starting"}
		if len(reports) > 0 {
			r := reports[len(reports)-1]
			step := max(r.Busy+r.Talk+r.Wait, 1e-9)
			parts = []string{
				parts[0],
				fmt.Sprintf("%s samples/s", thousands(float64(r.Samples)/max(r.Seconds, 1e-9))),
				fmt.Sprintf("computing %.1f %%", r.Busy/step*100),
				fmt.Sprintf("communication %.1f %%", r.Talk/step*100),
				fmt.Sprintf("waiting %.1f %%", r.Wait/step*100),
			}
		}
		all = append(all, fit(parts, width))
	}
	return all
}

// Summary is the last screen of a training that took so long.
func (p *Progress) Summary(took time.Duration) []string {
	last := p.Last()
	agree := "all ranks agree bit for bit (digest " + p.Done[0].Digest + ")"
	if p.Size == 1 {
		agree = "one process needs no communication"
	} else if !p.Agree() {
		agree = "THE RANKS DISAGREE: this is a bug of hora"
	}
	rows := []string{
		fmt.Sprintf("%s trained %s in %.1f s (%.1f s with starting and testing)",
			plural(p.Size, "process", "processes"), plural(p.Epochs, "epoch", "epochs"), last.Seconds, took.Seconds()),
		fmt.Sprintf("  test accuracy  %.2f %% of %d images", last.Accuracy*100, digits.Tests),
		"  replicas       " + agree,
		fmt.Sprintf("  throughput     %s samples/s together, %s per rank", thousands(last.Rate), thousands(last.Rate/float64(p.Size))),
	}
	if p.Size > 1 {
		rows = append(rows,
			fmt.Sprintf("  communication  %.1f %% of a step, waiting for the later rank %.1f %%", last.Talk*100, last.Wait*100),
			"  links          "+strings.Join(p.Links, " and "))
	}
	if busy := p.Busy(); busy != "" {
		rows = append(rows, "  cores          "+busy)
	}
	return rows
}

// Busy says that other programs kept the processes from computing, or nothing.
func (p *Progress) Busy() string {
	var stalled float64
	for _, r := range p.Done {
		stalled += r.Stalled / float64(p.Size)
	}
	if stalled < 0.1 {
		return ""
	}
	return fmt.Sprintf("busy: computing stood still for %.0f %% of its time", stalled*100)
}

// fit joins as many parts as width has room for.
func fit(parts []string, width int) string {
	line := parts[0]
	for _, part := range parts[1:] {
		if width > 0 && len(line)+2+len(part) > width {
			break
		}
		line += "  " + part
	}
	if width > 0 && len(line) > width {
		line = line[:width]
	}
	return line
}

// thousands writes a whole number with commas.
func thousands[T int | float64](v T) string {
	s := fmt.Sprintf("%.0f", float64(v))
	for at := len(s) - 3; at > 0; at -= 3 {
		s = s[:at] + "," + s[at:]
	}
	return s
}

// plural is a number and what it counts.
func plural(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return thousands(n) + " " + many
}
