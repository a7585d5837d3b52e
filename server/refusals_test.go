package server

import (
	"fmt"
	"testing"

	"hora/server/client"
)

// TestRefusalsAreBounded: however many are refused, from wherever and for whatever, few records are made of it, and
// they say how many there were; those of who has a token have room beside those of strangers.
func TestRefusalsAreBounded(t *testing.T) {
	c := newCallSite(t, nil)
	var f refusals
	const times = 10_000
	for i := range times {
		n := fmt.Sprint(i)
		f.note(c.s, client.Deed{Who: nobody, Address: "10.0.0." + n, What: "M" + n, Target: "/" + n, Status: 401})
	}
	for i := range times {
		f.note(c.s, client.Deed{Who: "max", Address: "10.0.0.1", What: "job", Target: fmt.Sprint("/jobs/", i%10), Status: 403})
	}
	c.s.Close() // what is counted is written at the end
	all, err := c.st.Deeds(t.Context(), 0, 1000)
	if err != nil {
		t.Fatal(err)
	}
	count, records := map[string]int{}, map[string]int{}
	for _, d := range all {
		n := 1
		_, _ = fmt.Sscanf(d.Text, "the last of %d", &n)
		count[d.Who] += n
		records[d.Who]++
	}
	if count[nobody] != times || count["max"] != times {
		t.Errorf("of %d refusals each the records tell of %v", times, count)
	}
	if records[nobody] > 2*(kindsStranger+1) || records["max"] != 20 {
		t.Errorf("there are %v records", records)
	}
}
