package bench

// A virtual machine's cores lie near each other or far apart, as the host moves them: here a cache line takes 56 ns to
// the other core, or 262, for seconds or for minutes. A competitor whose turn falls into the one is not to be compared
// with one whose turn falls into the other, so the trip is measured before and after each turn.

// trips are nanoseconds that a cache line took to the other core before and after a turn; 0: not known.
type trips [2]float64

// pace is how the cores lay during a turn.
type pace uint8

const (
	unknown pace = iota // one core, or nobody could tell
	near
	far
	changing
)

// paces is what a turn is named by.
var paces = map[pace]string{near: "near", far: "far"}

// farther is from how many times the least trip on cores lie far apart.
const farther = 2

// told is the pace of a turn, where least is the least trip of the whole run.
func (t trips) told(least float64) pace {
	if t[0] == 0 || t[1] == 0 || least == 0 {
		return unknown
	}
	before, after := t[0] >= farther*least, t[1] >= farther*least
	switch {
	case before != after:
		return changing
	case before:
		return far
	}
	return near
}

// AtPace is what the rounds at one pace say of a row.
type AtPace struct {
	Pace   string  `json:"pace"`
	Low    float64 `json:"low"`
	Ratio  float64 `json:"ratio"`
	High   float64 `json:"high"`
	Rounds int     `json:"rounds"`
	HoraUS float64 `json:"hora_us"`
}

// sample is one round of a row.
type sample struct {
	us, peer float64
	by       string
	pace     pace
}

// trip is one of the first two cores that ranks are bound to, where they are bound to two.
func (r *runner) trip() float64 {
	if len(r.cfg.Cores) < 2 {
		return 0
	}
	t := trip([2]int{r.cfg.Cores[0], r.cfg.Cores[1]})
	if t > 0 && (r.leastTrip == 0 || t < r.leastTrip) {
		r.leastTrip = t
	}
	return t
}

// byPace is what samples say at each pace, near first; nothing where there is but one.
func byPace(all []sample) []AtPace {
	var told []AtPace
	for _, p := range []pace{near, far} {
		var ratios, ours []float64
		for _, s := range all {
			if s.pace == p && s.peer > 0 {
				ratios, ours = append(ratios, s.peer/s.us), append(ours, s.us)
			}
		}
		if len(ratios) > 0 {
			told = append(told, AtPace{
				paces[p], quantile(ratios, 0.25), median(ratios), quantile(ratios, 0.75), len(ratios), median(ours),
			})
		}
	}
	if len(told) == 1 && told[0].Pace == paces[near] {
		return nil
	}
	return told
}
