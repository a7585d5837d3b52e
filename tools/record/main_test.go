package main

import (
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestRecord records a program of two lines and reads the picture as a viewer would.
func TestRecord(t *testing.T) {
	out := filepath.Join(t.TempDir(), "x.svg")
	if err := record(out, "a <b>", 8, 2, []string{"sh", "-c", "echo one; echo '  two & more'"}); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	var rows []string
	d := xml.NewDecoder(strings.NewReader(string(b)))
	inText := false
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		switch x := token.(type) {
		case xml.StartElement:
			inText = x.Name.Local == "text"
		case xml.CharData:
			if inText {
				rows = append(rows, string(x))
				inText = false
			}
		}
	}
	if got := strings.Join(rows, "|"); got != "$ a <b>    # shown 8 times slower than it ran|one|  two & more" {
		t.Errorf("the picture shows %s", got)
	}
	if style, _, _ := strings.Cut(string(b), "@keyframes"); strings.Contains(style, "opacity:0") {
		t.Error("a viewer without animations shows nothing")
	}
	if err := record(out, "", 1, 2, []string{"false"}); err == nil {
		t.Error("a program that fails is recorded all the same")
	}
	if err := record(out, "", 0, 2, []string{"true"}); err == nil {
		t.Error("time can be stopped")
	}
}
