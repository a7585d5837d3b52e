package bench

import (
	"strings"
	"testing"
)

// TestTurnsAreComparedAtOnePace: a round in which hora's cores lay far apart and a peer's near counts for nothing,
// rounds at each pace are told by themselves, and without any such pair all rounds count as they did.
func TestTurnsAreComparedAtOnePace(t *testing.T) {
	c := Combination{Op: "allreduce", Link: "shm", NP: 2, Sizes: []int{4}, Peers: []string{"best"}}
	turns := func(us ...float64) (all []results) {
		for _, u := range us {
			all = append(all, results{4: u})
		}
		return all
	}
	nearby, apart, moved := trips{56, 60}, trips{262, 250}, trips{56, 262}
	k := &contest{
		op: "allreduce", link: "shm", np: 2, links: []Combination{c},
		turns: map[string][]results{
			"hora/shm": turns(1, 4, 1, 1, 4),
			"openmpi":  turns(2, 5, 9, 2, 5),
			"impi":     turns(3, 1, 2.5, 1.5, 6),
		},
		trips: map[string][]trips{
			"hora/shm": {nearby, apart, nearby, moved, apart},
			"openmpi":  {nearby, apart, apart, nearby, apart},
			"impi":     {nearby, nearby, nearby, nearby, apart},
		},
	}
	r := &runner{leastTrip: 56}
	all := r.samples(k, "hora/shm", []string{"openmpi", "impi"}, 4)
	want := []sample{{1, 2, "openmpi", near}, {4, 5, "openmpi", far}, {1, 2.5, "impi", near}, {4, 5, "openmpi", far}}
	if len(all) != len(want) {
		t.Fatalf("%d samples: %+v", len(all), all)
	}
	for i := range want {
		if all[i] != want[i] {
			t.Errorf("sample %d is %+v, want %+v", i, all[i], want[i])
		}
	}
	told := byPace(all)
	if len(told) != 2 || told[0].Pace != "near" || told[0].Ratio != 2.25 || told[0].Rounds != 2 || told[0].HoraUS != 1 ||
		told[1].Pace != "far" || told[1].Ratio != 1.25 || told[1].Rounds != 2 {
		t.Errorf("by pace: %+v", told)
	}
	for _, name := range []string{"openmpi", "impi"} {
		k.trips[name] = []trips{apart, nearby, apart, nearby, nearby}
	}
	if all = r.samples(k, "hora/shm", []string{"openmpi", "impi"}, 4); len(all) != 5 || all[1].peer != 1 {
		t.Errorf("without a pair at one pace: %+v", all)
	}
	if byPace(r.samples(k, "hora/shm", nil, 4)) != nil {
		t.Error("rounds without a peer are told")
	}
	row := Row{Op: "allreduce", Link: "shm", NP: 2, Bytes: 4, Peer: "best", HoraUS: 1, PeerUS: 2, Ratio: 2, Paces: told}
	var page, table strings.Builder
	if err := WriteTable(&table, []Row{row}); err != nil || !strings.Contains(table.String(), "near 2.25") {
		t.Errorf("%v\n%s", err, table.String())
	}
	if err := (Targets{}).WritePage(&page, []Row{row}); err != nil || !strings.Contains(page.String(), "far 1.25") {
		t.Errorf("%v\n%s", err, page.String())
	}
}

// TestATripIsMeasured: on two cores it is some nanoseconds, or nothing where a core is held by somebody else.
func TestATripIsMeasured(t *testing.T) {
	if took := trip([2]int{0, 1}); took < 0 || took > 100e6 {
		t.Errorf("a line takes %v ns", took)
	}
	if took := trip([2]int{0, 1 << 9}); took != 0 {
		t.Errorf("to a core that is not there a line takes %v ns", took)
	}
}
