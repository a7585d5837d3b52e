package launch

import "context"

// PlannedRank is one line of a plan.
type PlannedRank struct {
	Seat
	Host  string
	Cores string // "0-3"; "all" without binding; "chosen there" on other hosts
}

// Preview is the plan of a job that Run would start.
func Preview(spec Spec) ([]PlannedRank, error) {
	spec.defaults()
	if d := spec.Discovery; d != nil {
		hosts, err := d.Find(context.Background())
		if err != nil {
			return nil, err
		}
		if spec.Hosts = hosts; Slots(hosts) >= spec.NP {
			spec.NP = Slots(hosts)
			if spec.Max > 0 {
				spec.NP = min(spec.NP, spec.Max)
			}
		}
	}
	seats, err := Place(spec.Hosts, spec.NP)
	if err != nil {
		return nil, err
	}
	j := &job{spec: &spec}
	local := make([]bool, len(spec.Hosts))
	here := 0
	for i, h := range spec.Hosts {
		local[i] = j.isLocal(h.Name)
	}
	for _, s := range seats {
		if local[s.Host] {
			here++
		}
	}
	var shares []Share
	if here > 0 {
		shares, _ = Shares(Cores("/sys", allowedCPUs()), here, spec.Bind)
	}
	out := make([]PlannedRank, 0, len(seats))
	n := 0
	for _, s := range seats {
		r := PlannedRank{Seat: s, Host: spec.Hosts[s.Host].Name, Cores: "chosen there"}
		if local[s.Host] {
			r.Cores = "all"
			if cpus := shares[n].CPUs; cpus != nil {
				r.Cores = formatList(cpus)
			}
			n++
		}
		out = append(out, r)
	}
	return out, nil
}
