package demo

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestTicksAreRound(t *testing.T) {
	for _, c := range []struct {
		low, high float64
		want      string
	}{
		{0, 1, "[0 0.2 0.4 0.6 0.8 1]"},
		{80, 100, "[80 85 90 95 100]"},
		{0, 0.37, "[0 0.05 0.1 0.15 0.2 0.25 0.3 0.35]"},
		{0, 1.21, "[0 0.2 0.4 0.6 0.8 1 1.2]"},
		{0, 900, "[0 200 400 600 800]"},
	} {
		var words []string
		for _, v := range ticks(c.low, c.high) {
			words = append(words, fmt.Sprintf("%.4g", v))
		}
		if got := fmt.Sprint(words); got != c.want {
			t.Errorf("ticks(%v, %v) = %s, want %s", c.low, c.high, got, c.want)
		}
	}
}

// TestPicture holds every point of every curve inside its panel.
func TestPicture(t *testing.T) {
	p := NewProgress(9)
	epochs(p, 4, func() {})
	var b bytes.Buffer
	if err := WritePlot(&b, "a & b", p.Curves()); err != nil {
		t.Fatal(err)
	}
	var width, height float64
	paths := 0
	d := xml.NewDecoder(&b)
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		e, ok := token.(xml.StartElement)
		if !ok {
			continue
		}
		at := map[string]string{}
		for _, a := range e.Attr {
			at[a.Name.Local] = a.Value
		}
		switch {
		case e.Name.Local == "svg":
			fmt.Sscan(at["width"], &width)
			fmt.Sscan(at["height"], &height)
		case e.Name.Local == "text":
			var y float64
			if fmt.Sscan(at["y"], &y); y <= 0 || y > height {
				t.Errorf("a text at %v of %v", y, height)
			}
		case e.Name.Local == "path" && strings.Contains(at["d"], "L"):
			paths++
			for _, point := range strings.FieldsFunc(at["d"], func(r rune) bool { return r == 'M' || r == 'L' }) {
				var x, y float64
				if _, err := fmt.Sscan(point, &x, &y); err != nil || x < plotMargin || x > width-plotMargin ||
					y < plotMargin || y > plotMargin+plotHeight {
					t.Errorf("point %q lies outside: %v", point, err)
				}
			}
		}
	}
	if paths != 2*9 {
		t.Errorf("%d curves, want loss and accuracy of 9 ranks", paths)
	}
	if err := WritePlot(io.Discard, "", NewProgress(2).Curves()); err == nil {
		t.Error("a training without epochs is drawn")
	}
}

// TestPictureThatIsNotDrawn: a file that was there stays as it was, one that was not is
// not there either.
func TestPictureThatIsNotDrawn(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"old.svg": "<svg/>", "new.svg": ""} {
		file := filepath.Join(dir, name)
		if text != "" {
			if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		o := Options{Plot: file}
		p, err := o.openPlot()
		if err != nil {
			t.Fatal(err)
		}
		if err := p.drop(); err != nil {
			t.Fatal(err)
		}
		if b, err := os.ReadFile(file); string(b) != text || (err == nil) != (text != "") {
			t.Errorf("%s holds %q afterwards: %v", name, b, err)
		}
	}
}
