package main

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"hora/job"
	"hora/server/client"
)

// TestOutputThatIsNoText: every byte comes back as it was written, from one node and from another, but for the ends of
// lines; who shows text gets what is none replaced.
func TestOutputThatIsNoText(t *testing.T) {
	t.Parallel() // it waits, most of the time
	s := newSite(t, 1)
	if r := s.hora("pool", "add", "two", "--provider", "local", "--max", "2", "--node", "cores=1"); r.code != 0 {
		t.Fatalf("%+v", r)
	}
	var all, script strings.Builder
	for b := range 256 {
		if b != '\n' && b != '\r' {
			all.WriteByte(byte(b))
			fmt.Fprintf(&script, `\%03o`, b)
		}
	}
	want := []string{all.String(), "caf\xe9", "café", "\xff\xfe", "end\xc3"}
	d := shell(0, fmt.Sprintf(`printf '%s\n'; printf 'caf\351\ncafé\n\377\376\nend\303'`, script.String()))
	d.Pool, d.Nodes, d.PerNode = "two", 2, 1
	id := s.submit(d).ID
	if j := s.until(id, ended); j.State != job.Finished {
		t.Fatalf("%+v", j)
	}
	for rank := range 2 {
		var got []string
		err := s.client.Lines(context.Background(), id, client.Following{Rank: rank}, func(l client.Line) {
			got = append(got, string(l.Written()))
			if !utf8.ValidString(l.Text) || utf8.Valid(l.Written()) != (l.Bytes == nil) {
				t.Errorf("rank %d: %+v", rank, l)
			}
			if n := len(got); n == 2 && l.Text != "caf\ufffd" {
				t.Errorf("rank %d: the text is %q", rank, l.Text)
			}
		})
		if err != nil || strings.Join(got, "\n") != strings.Join(want, "\n") {
			t.Errorf("rank %d wrote %q, %v", rank, got, err)
		}
		tag := fmt.Sprintf("[%d]<stdout>:", rank)
		shown := s.hora("logs", "--rank", fmt.Sprint(rank), fmt.Sprint(id)).out
		if shown != tag+strings.Join(want, "\n"+tag)+"\n" {
			t.Errorf("hora logs shows %q", shown)
		}
	}
}
