package bench

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
)

// WritePlot draws time over size on logarithmic axes: a panel for each operation and
// number of ranks, a line for each of hora's links and each peer.
func WritePlot(w io.Writer, rows []Row) error {
	type panel struct {
		title string
		lines map[string]map[int]float64
	}
	var panels []*panel
	find := func(title string) *panel {
		for _, p := range panels {
			if p.title == title {
				return p
			}
		}
		p := &panel{title, map[string]map[int]float64{}}
		panels = append(panels, p)
		return p
	}
	for _, r := range rows {
		if r.Ratio == 0 || r.Peer == "ordered" || r.Op == "waiting" || r.Op == "memory" {
			continue
		}
		p := find(fmt.Sprintf("%s, %d ranks", r.Op, r.NP))
		peer := r.Peer
		switch {
		case strings.HasPrefix(peer, "gloo"): // over whichever link of ours
			peer += ", loopback TCP"
		case r.Link == "tcp":
			peer += " tcp"
		}
		for name, us := range map[string]float64{"hora " + r.Link: r.HoraUS, peer: r.PeerUS} {
			if p.lines[name] == nil {
				p.lines[name] = map[int]float64{}
			}
			p.lines[name][r.Bytes] = us
		}
	}
	if len(panels) == 0 {
		return fmt.Errorf("draw the picture: there is no result to draw")
	}
	var s strings.Builder
	columns := min(len(panels), 2)
	height := (len(panels) + columns - 1) / columns * panelHeight
	fmt.Fprintf(&s, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" font-family="sans-serif" font-size="11"><rect width="100%%" height="100%%" fill="white"/>`+"\n",
		columns*panelWidth, height)
	for i, p := range panels {
		drawPanel(&s, (i%columns)*panelWidth, i/columns*panelHeight, p.title, p.lines)
	}
	s.WriteString("</svg>\n")
	_, err := io.WriteString(w, s.String())
	return err
}

const panelWidth, panelHeight = 520, 360

func drawPanel(s *strings.Builder, left, top int, title string, lines map[string]map[int]float64) {
	const x0, y0, width, height = 60, 34, 310, 280
	lowX, highX, lowY, highY := math.Inf(1), math.Inf(-1), math.Inf(1), math.Inf(-1)
	var names []string
	for name, points := range lines {
		names = append(names, name)
		for size, us := range points {
			lowX, highX = min(lowX, math.Log2(float64(size))), max(highX, math.Log2(float64(size)))
			lowY, highY = min(lowY, math.Floor(math.Log10(us))), max(highY, math.Ceil(math.Log10(us)))
		}
	}
	slices.Sort(names)
	x := func(size int) float64 {
		return float64(left+x0) + (math.Log2(float64(size))-lowX)/max(highX-lowX, 1)*width
	}
	y := func(us float64) float64 {
		return float64(top+y0+height) - (math.Log10(us)-lowY)/max(highY-lowY, 1)*height
	}
	fmt.Fprintf(s, `<text x="%d" y="%d" font-size="13">%s: µs over bytes</text><rect x="%d" y="%d" width="%d" height="%d" fill="none" stroke="#999"/>`+"\n",
		left+x0, top+22, title, left+x0, top+y0, width, height)
	for e := lowY; e <= highY; e++ {
		us := math.Pow(10, e)
		fmt.Fprintf(s, `<path d="M%d %.1fh%d" stroke="#ddd"/><text x="%d" y="%.1f" text-anchor="end" fill="#555">%g</text>`+"\n",
			left+x0, y(us), width, left+x0-5, y(us)+4, us)
	}
	for e := math.Ceil(lowX); e <= highX; e += 4 {
		size := 1 << int(e)
		fmt.Fprintf(s, `<text x="%.1f" y="%d" text-anchor="middle" fill="#555">%s</text>`+"\n", x(size), top+y0+height+15, FormatSize(size))
	}
	colours := []string{"#1f77b4", "#d62728", "#2ca02c", "#9467bd", "#ff7f0e", "#17becf", "#8c564b", "#7f7f7f"}
	for i, name := range names {
		var sizes []int
		for size := range lines[name] {
			sizes = append(sizes, size)
		}
		slices.Sort(sizes)
		var path strings.Builder
		for j, size := range sizes {
			fmt.Fprintf(&path, "%c%.1f %.1f", "ML"[min(j, 1)], x(size), y(lines[name][size]))
		}
		dash, stroke := "", 1.5
		if strings.HasPrefix(name, "hora") {
			stroke = 2.5
		} else {
			dash = ` stroke-dasharray="5 3"`
		}
		c := colours[i%len(colours)]
		fmt.Fprintf(s, `<path d="%s" fill="none" stroke="%s" stroke-width="%.1f"%s/><text x="%d" y="%d" fill="%s">%s</text>`+"\n",
			path.String(), c, stroke, dash, left+x0+width+10, top+y0+14+16*i, c, name)
	}
}
