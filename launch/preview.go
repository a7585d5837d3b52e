package launch

import (
	"context"

	jobs "hora/job"
)

// PlannedRank is one line of a plan.
type PlannedRank struct {
	Seat
	Host  string
	Cores string // "0-3"; "all" without binding; "chosen there" on other hosts
}

// Preview returns the plan of a job that Run would start.
func Preview(spec jobs.Spec, place Place) ([]PlannedRank, error) {
	s, err := resolve(&spec, &place)
	if err != nil {
		return nil, err
	}
	return preview(*s)
}

func preview(spec settings) ([]PlannedRank, error) {
	spec.defaults()
	if d := spec.Discovery; d != nil {
		hosts, err := d.Find(context.Background())
		if err != nil {
			return nil, err
		}
		if spec.Hosts = hosts; Slots(hosts) >= spec.NP {
			spec.NP = Slots(hosts)
			if spec.MaxNP > 0 {
				spec.NP = min(spec.NP, spec.MaxNP)
			}
		}
	}
	seats, err := placeRanks(spec.Hosts, spec.NP)
	if err != nil {
		return nil, err
	}
	names := make([]string, len(seats))
	for i, s := range seats {
		names[i] = spec.Hosts[s.Host].Name
	}
	cores := spec.Reach.Cores(names, spec.Bind)
	out := make([]PlannedRank, len(seats))
	for i, s := range seats {
		out[i] = PlannedRank{Seat: s, Host: spec.Reach.Called(names[i]), Cores: cores[i]}
	}
	return out, nil
}
