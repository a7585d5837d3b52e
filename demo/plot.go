package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"strings"
)

// picture is the file of --plot; nil when none is wanted.
type picture struct{ file *os.File }

// openPlot opens the file before anything is trained, so that a wrong name costs no
// training. What is in it stays until draw.
func (o *Options) openPlot() (*picture, error) {
	if o.Plot == "" {
		return nil, nil
	}
	f, err := os.OpenFile(o.Plot, os.O_WRONLY|os.O_CREATE, 0o644)
	if err != nil {
		return nil, fmt.Errorf("write the picture: %w; name a file in a folder that you may write to", err)
	}
	return &picture{f}, nil
}

// drop leaves the file as it was: one that openPlot made goes.
func (p *picture) drop() error {
	if p == nil {
		return nil
	}
	info, err := p.file.Stat()
	if err == nil && info.Mode().IsRegular() && info.Size() == 0 {
		err = os.Remove(p.file.Name())
	}
	return errors.Join(err, p.file.Close())
}

// draw trains once more with one process, as the reference, and writes the curves.
func (o *Options) draw(ctx context.Context, s *screen, p *picture, res *Result) error {
	if p == nil {
		return nil
	}
	curves := res.Progress.Curves()
	if o.NP > 1 {
		alone, err := o.train(ctx, s, round{np: 1, aside: true})
		if err != nil || !alone.finished() {
			res.Outcome = alone.Outcome
			return errors.Join(err, p.drop())
		}
		one := alone.Progress.Curves()[0]
		one.Name, one.Dashed = "one process", true
		curves = append(curves, one)
	}
	title := fmt.Sprintf("hora demo: %s, %s", plural(o.NP, "process", "processes"), shape(o.Widths, "-"))
	if err := errors.Join(p.file.Truncate(0), WritePlot(p.file, title, curves), p.file.Close()); err != nil {
		return fmt.Errorf("write the picture: %w", err)
	}
	s.say("  picture        %s", o.Plot)
	return nil
}

// Curve is one line of the picture.
type Curve struct {
	Name   string
	Dashed bool
	Points []Point
}

// Curves are the epochs as each rank saw them.
func (p *Progress) Curves() []Curve {
	var all []Curve
	for rank, reports := range p.PerRank {
		c := Curve{Name: fmt.Sprintf("rank %d", rank)}
		for _, r := range reports {
			c.Points = append(c.Points, Point{Epoch: r.Epoch, Loss: r.Loss, Accuracy: r.Accuracy, Seconds: r.Seconds})
		}
		all = append(all, c)
	}
	return all
}

var plotColours = []string{"#1f77b4", "#d62728", "#2ca02c", "#9467bd", "#ff7f0e", "#17becf", "#8c564b", "#e377c2"}

const (
	plotWidth, plotHeight = 380, 260
	plotMargin            = 46
)

// WritePlot draws loss and accuracy over time, one curve per entry.
func WritePlot(w io.Writer, title string, curves []Curve) error {
	var s strings.Builder
	fmt.Fprintf(&s, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" font-family="sans-serif" font-size="11">`+"\n",
		2*plotWidth+3*plotMargin, plotHeight+2*plotMargin+16*((len(curves)+5)/6))
	fmt.Fprintf(&s, `<rect width="100%%" height="100%%" fill="white"/><text x="%d" y="22" font-size="14">%s</text>`+"\n", plotMargin, escape(title))
	var seconds, loss float64
	worst := 1.0
	for _, c := range curves {
		for _, p := range c.Points {
			seconds, loss, worst = max(seconds, p.Seconds), max(loss, p.Loss), min(worst, p.Accuracy)
		}
	}
	if seconds == 0 || loss == 0 {
		return fmt.Errorf("draw %s: no epoch has been finished", title)
	}
	panel(&s, plotMargin, "loss", seconds, 0, loss*1.05, curves, func(p Point) float64 { return p.Loss })
	panel(&s, plotWidth+2*plotMargin, "test accuracy, %", seconds, math.Floor(worst*10)*10, 100, curves,
		func(p Point) float64 { return p.Accuracy * 100 })
	for i, c := range curves {
		x, y := plotMargin+(i%6)*130, plotHeight+2*plotMargin+(i/6)*16
		fmt.Fprintf(&s, `<path d="M%d %dh24" stroke="%s" stroke-width="2"%s/><text x="%d" y="%d">%s</text>`+"\n",
			x, y-4, colour(i), dash(c), x+30, y, escape(c.Name))
	}
	s.WriteString("</svg>\n")
	_, err := io.WriteString(w, s.String())
	return err
}

func colour(i int) string { return plotColours[i%len(plotColours)] }

func dash(c Curve) string {
	if c.Dashed {
		return ` stroke-dasharray="5 4"`
	}
	return ""
}

// panel draws one of the two pictures: value over seconds, between low and high.
func panel(s *strings.Builder, left int, name string, seconds, low, high float64, curves []Curve,
	value func(Point) float64,
) {
	top := plotMargin
	x := func(t float64) float64 { return float64(left) + t/seconds*plotWidth }
	y := func(v float64) float64 { return float64(top+plotHeight) - (v-low)/(high-low)*plotHeight }
	fmt.Fprintf(s, `<rect x="%d" y="%d" width="%d" height="%d" fill="none" stroke="#999"/><text x="%d" y="%d">%s</text>`+"\n",
		left, top, plotWidth, plotHeight, left, top-6, escape(name))
	for _, v := range ticks(low, high) {
		fmt.Fprintf(s, `<text x="%d" y="%.0f" text-anchor="end" fill="#555">%.4g</text>`+"\n", left-4, y(v)+4, v)
	}
	for _, t := range ticks(0, seconds) {
		fmt.Fprintf(s, `<text x="%.0f" y="%d" text-anchor="middle" fill="#555">%.4g s</text>`+"\n", x(t), top+plotHeight+14, t)
	}
	for i, c := range curves {
		var path strings.Builder
		for j, p := range c.Points {
			verb := "L"
			if j == 0 {
				verb = "M"
			}
			fmt.Fprintf(&path, "%s%.1f %.1f", verb, x(p.Seconds), y(value(p)))
		}
		// Curves that agree lie on top of each other: the first is drawn widest.
		fmt.Fprintf(s, `<path d="%s" fill="none" stroke="%s" stroke-width="%.1f"%s/>`+"\n", path.String(), colour(i), 1.5+2.5/float64(i+1), dash(c))
	}
}

// ticks are round values between low and high, about five.
func ticks(low, high float64) []float64 {
	step := math.Pow(10, math.Floor(math.Log10((high-low)/4)))
	for _, by := range []float64{5, 2} {
		if by*step <= (high-low)/4 {
			step *= by
			break
		}
	}
	var at []float64
	for i := int(math.Ceil(low/step - 1e-9)); float64(i)*step <= high*(1+1e-9); i++ {
		at = append(at, float64(i)*step)
	}
	return at
}

func escape(s string) string {
	return strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", `"`, "&quot;").Replace(s)
}
