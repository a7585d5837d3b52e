package demo

import (
	"fmt"
	"strings"
)

// Point is the state of a training after one epoch, of all ranks together.
type Point struct {
	Epoch    int
	Loss     float64
	Accuracy float64
	Seconds  float64 // since training began, of the slowest rank
	Rate     float64 // samples per second of all ranks
	Talk     float64 // share of a step spent in communication, 0..1
	Wait     float64 // share of a step spent waiting for the later rank, 0..1
}

// Progress collects the workers' reports. It is fed by one goroutine.
type Progress struct {
	Size, Epochs int
	Links        string
	Notes        []string
	Points       []Point
	PerRank      [][]Report // epochs reported by each rank
	Done         []Report   // by rank; Kind is empty until it has come
}

// NewProgress expects reports of size ranks.
func NewProgress(size int) *Progress {
	return &Progress{Size: size, PerRank: make([][]Report, size), Done: make([]Report, size)}
}

// Add takes in a report and says whether it completed an epoch.
func (p *Progress) Add(r Report) (epochComplete bool) {
	if r.Rank < 0 || r.Rank >= p.Size {
		return false
	}
	switch r.Kind {
	case "start":
		p.Epochs = r.Epochs
		if r.Note != "" {
			p.Notes = append(p.Notes, fmt.Sprintf("rank %d: %s", r.Rank, r.Note))
		}
	case "epoch":
		if r.Epoch <= len(p.PerRank[r.Rank]) {
			return false // done again after a loss
		}
		p.PerRank[r.Rank] = append(p.PerRank[r.Rank], r)
		n := len(p.Points)
		for _, reports := range p.PerRank {
			if len(reports) <= n {
				return false
			}
		}
		p.Points = append(p.Points, p.point(n))
		return true
	case "done":
		p.Done[r.Rank], p.Links = r, r.Links
	}
	return false
}

func (p *Progress) point(n int) Point {
	var pt Point
	var samples int
	var talk, wait, all float64
	for _, reports := range p.PerRank {
		r := reports[n]
		pt.Epoch, pt.Loss, pt.Accuracy = r.Epoch, r.Loss, r.Accuracy
		pt.Seconds = max(pt.Seconds, r.Seconds)
		samples += r.Samples
		talk, wait, all = talk+r.Talk, wait+r.Wait, all+r.Busy+r.Talk+r.Wait
	}
	if pt.Seconds > 0 {
		pt.Rate = float64(samples) / pt.Seconds
	}
	if all > 0 {
		pt.Talk, pt.Wait = talk/all, wait/all
	}
	return pt
}

// Complete reports whether every rank has said that it is done.
func (p *Progress) Complete() bool {
	for _, r := range p.Done {
		if r.Kind == "" {
			return false
		}
	}
	return true
}

// Agree reports whether every rank found all digests equal, and the front end does too.
func (p *Progress) Agree() bool {
	for _, r := range p.Done {
		if !r.Agree || r.Digest != p.Done[0].Digest {
			return false
		}
	}
	return true
}

// Line is a point in words, at most width columns wide (0: as long as it is).
func (p *Progress) Line(pt Point, width int) string {
	full := []string{
		fmt.Sprintf("epoch %2d/%d", pt.Epoch, p.Epochs),
		fmt.Sprintf("loss %.4f", pt.Loss),
		fmt.Sprintf("test %5.2f %%", pt.Accuracy*100),
		thousands(pt.Rate) + " samples/s",
		fmt.Sprintf("communication %.1f %%", pt.Talk*100),
		fmt.Sprintf("waiting %.1f %%", pt.Wait*100),
	}
	return fit(full, width)
}

// RankLines has one line per rank for its last epoch.
func (p *Progress) RankLines(width int) []string {
	var lines []string
	for rank, reports := range p.PerRank {
		if len(reports) == 0 {
			lines = append(lines, fit([]string{fmt.Sprintf("  rank %d", rank), "starting"}, width))
			continue
		}
		r := reports[len(reports)-1]
		all := max(r.Busy+r.Talk+r.Wait, 1e-9)
		lines = append(lines, fit([]string{
			fmt.Sprintf("  rank %d", rank),
			fmt.Sprintf("%s samples/s", thousands(float64(r.Samples)/max(r.Seconds, 1e-9))),
			fmt.Sprintf("computing %.1f %%", r.Busy/all*100),
			fmt.Sprintf("communication %.1f %%", r.Talk/all*100),
			fmt.Sprintf("waiting %.1f %%", r.Wait/all*100),
		}, width))
	}
	return lines
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
func thousands(v float64) string {
	s := fmt.Sprintf("%.0f", v)
	for at := len(s) - 3; at > 0; at -= 3 {
		s = s[:at] + "," + s[at:]
	}
	return strings.TrimPrefix(s, ",")
}

// Summary is the last screen.
func (p *Progress) Summary(started float64) []string {
	if len(p.Points) == 0 || !p.Complete() {
		return []string{"the training did not finish"}
	}
	last := p.Points[len(p.Points)-1]
	agree := "all ranks agree bit for bit (digest " + p.Done[0].Digest + ")"
	if p.Size == 1 {
		agree = "one process needs no communication"
	} else if !p.Agree() {
		agree = "THE RANKS DISAGREE: this is a bug of hora"
	}
	lines := []string{
		fmt.Sprintf("%d %s trained %d %s in %.1f s (%.1f s with starting and testing), links: %s",
			p.Size, plural(p.Size, "process", "processes"), p.Epochs, plural(p.Epochs, "epoch", "epochs"), last.Seconds, started, p.Links),
		fmt.Sprintf("  test accuracy  %.2f %% of 360 images", p.Done[0].Accuracy*100),
		"  replicas       " + agree,
		fmt.Sprintf("  throughput     %s samples/s together, %s per rank", thousands(last.Rate), thousands(last.Rate/float64(p.Size))),
	}
	if p.Size > 1 {
		lines = append(lines, fmt.Sprintf("  communication  %.1f %% of a step, waiting for the later rank %.1f %%", last.Talk*100, last.Wait*100))
	}
	return lines
}

func plural(n int, one, many string) string {
	if n == 1 {
		return one
	}
	return many
}
