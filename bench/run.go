package bench

import (
	"context"
	"net"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"hora"
)

// Config is what a run needs of its surroundings.
type Config struct {
	Plan
	Self    []string // argv that makes this program a rank; op, link and sizes follow
	Environ []string
	Cores   []int          // that this process may run on
	Cache   string         // where built peers are kept
	Impi    string         // folder with Intel MPI's bin, include and lib; "": it is missing
	Memory  uint64         // bytes that may be used; sizes that do not fit are left out
	Chrt    bool           // try SCHED_RR
	Limit   time.Duration  // of one measurement of one competitor, which hangs beyond; 0 means 3 minutes
	Sweep   func()         // ends what a measurement that failed has left running; nil: nothing does
	Again   func(Row) bool // rows that are measured once more at the end; nil: none
	Say     func(format string, args ...any)
}

// Row is one size of one operation against one peer.
type Row struct {
	Op     string  `json:"op"`
	Link   string  `json:"link"`
	NP     int     `json:"np"`
	Bytes  int     `json:"bytes"`
	DType  string  `json:"dtype"`
	Sched  string  `json:"sched"`
	HoraUS float64 `json:"hora_us"`
	Peer   string  `json:"peer"`
	PeerUS float64 `json:"peer_us"`
	// Of the rounds: least, lower quartile, median, upper quartile and most.
	RatioMin  float64 `json:"ratio_min"`
	RatioLow  float64 `json:"ratio_low"`
	Ratio     float64 `json:"ratio"`
	RatioHigh float64 `json:"ratio_high"`
	RatioMax  float64 `json:"ratio_max"`
	ExtraHigh float64 `json:"-"`                 // upper quartile of what hora takes more
	Failure   string  `json:"failure,omitempty"` // beside a ratio: of a round, or of one of the peer's ways
	Rounds    int     `json:"rounds,omitempty"`  // how many count, where these are more than was asked for
	Unit      string  `json:"unit,omitempty"`    // of what hora and the peer took; "": microseconds

	Paces []AtPace `json:"paces,omitempty"` // where the cores lay near in some rounds and far apart in others: each by itself

	Best    []string `json:"best,omitempty"`    // the peer's configurations that were the best one, and in how many rounds
	Dropped []string `json:"dropped,omitempty"` // those that dropped out after two rounds, with the row's best over their time
}

// AlgBW is the algorithm's bandwidth in GB/s: total bytes by time, as nccl-tests count.
func (r Row) AlgBW() float64 {
	if r.HoraUS == 0 {
		return 0
	}
	return float64(r.Bytes) / r.HoraUS / 1e3
}

// BusBW scales AlgBW to what each link has to carry, so that operations and numbers of
// ranks can be compared.
func (r Row) BusBW() float64 {
	n := float64(r.NP)
	switch r.Op {
	case "allreduce", "named", "plan":
		return r.AlgBW() * 2 * (n - 1) / n
	case "reducescatter", "allgather", "alltoall":
		return r.AlgBW() * (n - 1) / n
	}
	return r.AlgBW()
}

// Combination is what one process start measures.
type Combination struct {
	Op, Link string
	NP       int
	Sizes    []int
	Peers    []string // as rows name them
}

// rankEnvironment lets ranks on this machine find each other without a launcher.
func rankEnvironment(dir string, np int) ([]string, error) {
	path := filepath.Join(dir, "secret")
	if err := hora.NewSecret().WriteFile(path); err != nil {
		return nil, err
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	addr := ln.Addr().String()
	if err := ln.Close(); err != nil {
		return nil, err
	}
	return []string{
		"HORA_SIZE=" + strconv.Itoa(np), "HORA_LOCAL_SIZE=" + strconv.Itoa(np), "HORA_ADDR=" + addr, "HORA_SERVE=1",
		"HORA_SECRET_FILE=" + path, "HORA_JOB=bench", "HORA_EPOCH=0", "HORA_HOST=localhost",
		"HORA_HOST_ID=", "HORA_PEERS=", "HORA_LISTEN=", "HORA_CROSS_RANK=", "HORA_CROSS_SIZE=", // of the job around us
	}, nil
}

// changes are the variables of environ that change how our ranks work: a run with them is
// none of the defaults.
func changes(environ []string) []string {
	var set []string
	for _, v := range environ {
		name, value, _ := strings.Cut(v, "=")
		switch name {
		case "HORA_ALGORITHMS", "HORA_TUNE", "HORA_LANES", "HORA_TLS", "HORA_NAMES", "HORA_PROGRESS":
			if value != "" {
				set = append(set, v)
			}
		}
	}
	return set
}

// Run measures every combination of the plan, then once more what cfg.Again asks for, and
// returns what it has when ctx ends.
func Run(ctx context.Context, cfg Config, combos []Combination) ([]Row, error) {
	r := &runner{cfg: cfg, programs: map[string]string{}}
	r.realtime = cfg.Chrt && r.command(ctx, -1, "true").Run() == nil && r.mayRaise(ctx)
	if !r.realtime {
		cfg.Say("SCHED_RR is not allowed here: on a busy machine these figures prove nothing")
	}
	if set := changes(cfg.Environ); len(set) > 0 {
		cfg.Say("hora is measured with %s, as your environment says", strings.Join(set, " "))
	}
	for i := range combos {
		combos[i].Sizes = r.fitting(combos[i])
	}
	combos = slices.DeleteFunc(combos, func(c Combination) bool { return len(c.Sizes) == 0 })
	all := contests(combos, len(cfg.Cores), r.build(ctx, combos))
	for i, k := range all {
		cfg.Say("[%d/%d] %s over %s, %d ranks, against %s", i+1, len(all), k.op, k.over(), k.np, strings.Join(k.peers(), ", "))
		r.rounds(ctx, k, k.sizes(), cfg.Rounds)
		if ctx.Err() != nil {
			all = all[:i+1]
			break
		}
	}
	if cfg.Again != nil {
		r.remeasure(ctx, all)
	}
	var rows []Row
	for _, k := range all {
		rows = append(rows, r.rows(k)...)
	}
	return rows, ctx.Err()
}

func (r *runner) mayRaise(ctx context.Context) bool {
	r.realtime = true
	return r.command(ctx, -1, "true").Run() == nil
}

// build compiles the peers that combos name; what fails is missing, with the reason.
func (r *runner) build(ctx context.Context, combos []Combination) map[string]error {
	missing := map[string]error{}
	for _, c := range combos {
		for _, configuration := range configurations(c.Op, c.Link, c.Peers) {
			program := programOf(configuration)
			if program == "" || r.programs[program] != "" || missing[program] != nil {
				continue
			}
			path, err := buildPeer(ctx, program, r.cfg)
			if ctx.Err() != nil { // which says nothing about the peer
				return missing
			}
			if err != nil {
				missing[program] = err
				r.cfg.Say("%v", err)
				continue
			}
			r.programs[program] = path
		}
	}
	return missing
}

// fitting leaves out sizes whose arrays, two per rank and as much again for slots, do
// not fit the memory.
func (r *runner) fitting(c Combination) []int {
	var sizes []int
	for _, n := range c.Sizes {
		if need := uint64(n) * uint64(c.NP) * 4; r.cfg.Memory > 0 && need > r.cfg.Memory {
			r.cfg.Say("%s over %s with %d ranks: %s needs %d MB and does not fit the memory; left out", c.Op, c.Link, c.NP, FormatSize(n), need>>20)
			continue
		}
		sizes = append(sizes, n)
	}
	return sizes
}

// failed notes why a configuration did not come to its end, unless the whole run was
// stopped, and sees to it that nothing of it disturbs those that follow.
func (r *runner) failed(ctx context.Context, name string, err error, failures map[string]error) {
	if r.cfg.Sweep != nil {
		r.cfg.Sweep()
	}
	if ctx.Err() != nil {
		return
	}
	whole := name
	name, _, _ = strings.Cut(name, "/")
	r.cfg.Say("%s: %v", name, err)
	if failures[whole] == nil {
		failures[whole] = err
	}
}

func (r *runner) turn(ctx context.Context, k *contest, name string, sizes []int) (results, error) {
	who, link, ours := strings.Cut(name, "/")
	switch {
	case ours && who == "ordered":
		return r.hora(ctx, who, link, k.np, sizes)
	case ours:
		return r.hora(ctx, k.op, link, k.np, sizes)
	}
	return r.peer(ctx, name, k.op, k.link, k.np, sizes)
}

// Combinations are the plan's, or, for an empty plan, all that the goals name.
func (ts Targets) Combinations(p Plan) []Combination {
	type key struct {
		op, link string
		np       int
	}
	byKey := map[key]*Combination{}
	var order []key
	wide := p.Widen()
	for _, t := range ts.Targets {
		if named := p; wide {
			named.Peers = nil
			if !wants(named, t) {
				continue
			}
		} else if !wants(p, t) {
			continue
		}
		k := key{t.Op, t.Link, t.NP}
		c := byKey[k]
		if c == nil {
			c = &Combination{Op: t.Op, Link: t.Link, NP: t.NP}
			byKey[k], order = c, append(order, k)
		}
		if !slices.Contains(c.Peers, t.Peer) {
			c.Peers = append(c.Peers, t.Peer)
		}
		for _, n := range p.Sizes {
			if t.Concerns(n) && !slices.Contains(c.Sizes, n) {
				c.Sizes = append(c.Sizes, n)
			}
		}
	}
	var all []Combination
	for _, k := range order {
		c := byKey[k]
		slices.Sort(c.Sizes)
		for _, peer := range p.Peers {
			if wide && k.op != "named" && k.op != "plan" && !slices.Contains(c.Peers, peer) {
				c.Peers = append(c.Peers, peer)
			}
		}
		all = append(all, *byKey[k])
	}
	return all
}

func wants(p Plan, t Target) bool {
	return (len(p.NP) == 0 || slices.Contains(p.NP, t.NP)) && (len(p.Ops) == 0 || slices.Contains(p.Ops, t.Op)) &&
		(len(p.Links) == 0 || slices.Contains(p.Links, t.Link)) &&
		(len(p.Peers) == 0 || slices.Contains(p.Peers, t.Peer))
}

// Combinations of a plan that names its own operations, links and peers.
func (p Plan) Combinations() []Combination {
	p.Widen()
	var all []Combination
	for _, op := range p.Ops {
		for _, link := range p.Links {
			for _, np := range p.NP {
				all = append(all, Combination{op, link, np, p.Sizes, p.Peers})
			}
		}
	}
	return all
}
