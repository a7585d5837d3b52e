package bench

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// A competitor's configuration is named PEER or PEER-SETTING, hora's own are hora/LINK and
// ordered/LINK. A peer's figure is the best of its configurations, anew in each round.

// setting is one way to start Open MPI's program.
type setting struct {
	name string
	args []string // of mpirun
	env  []string // beside the run's
	only string   // the link it makes a difference on, "memory" or "tcp"; "": both
	sums bool     // it changes allreduce alone
}

var (
	noReads = []string{"--mca", "btl_vader_single_copy_mechanism", "none"}
	larger  = []string{"--mca", "btl_vader_eager_limit", "65536", "--mca", "btl_vader_max_send_size", "131072"}
	ring    = dynamic("5", "--mca", "coll_tuned_allreduce_algorithm_segmentsize", "524288")
	halves  = dynamic("6")
	ucx     = []string{"--mca", "pml", "ucx", "--mca", "pml_ucx_tls", "any", "--mca", "pml_ucx_devices", "any"}
)

// mpiSettings are those of which openmpi_tuned is the best: the defaults; without cross-memory
// reads (which are slow in some virtual machines), with fragments as they are and larger;
// a segmented ring of 512 KiB with and without those reads; Rabenseifner's algorithm
// likewise; UCX in place of Open MPI's own way to move bytes.
var mpiSettings = []setting{
	{name: "openmpi"},
	{name: "openmpi-noreads", args: noReads, only: "memory"},
	{name: "openmpi-noreads-larger", args: slices.Concat(noReads, larger), only: "memory"},
	{name: "openmpi-ring", args: ring, sums: true},
	{name: "openmpi-ring-noreads", args: slices.Concat(ring, noReads), only: "memory", sums: true},
	{name: "openmpi-ring-noreads-larger", args: slices.Concat(ring, noReads, larger), only: "memory", sums: true},
	{name: "openmpi-rabenseifner", args: halves, sums: true},
	{name: "openmpi-rabenseifner-noreads-larger", args: slices.Concat(halves, noReads, larger), only: "memory", sums: true},
	{name: "openmpi-ucx", args: ucx, only: "memory"},
	{name: "openmpi-ucx-tcp", args: ucx, env: []string{"UCX_TLS=tcp,self", "UCX_NET_DEVICES=lo"}, only: "tcp"},
}

func dynamic(algorithm string, more ...string) []string {
	return append([]string{"--mca", "coll_tuned_use_dynamic_rules", "1", "--mca", "coll_tuned_allreduce_algorithm", algorithm}, more...)
}

func settingOf(name string) setting {
	i := slices.IndexFunc(mpiSettings, func(s setting) bool { return s.name == name })
	return mpiSettings[max(i, 0)]
}

// tuned are the configurations of Open MPI that differ for an operation over a link.
func tuned(op, link string) []string {
	kind := "memory"
	if link == "tcp" {
		kind = "tcp"
	}
	var names []string
	for _, s := range mpiSettings {
		if (s.only == "" || s.only == kind) && (!s.sums || op == "allreduce") {
			names = append(names, s.name)
		}
	}
	return names
}

// configurations lists what has to be run so that the peers' figures can be formed.
func configurations(op, link string, peers []string) []string {
	var all []string
	add := func(names ...string) {
		for _, n := range names {
			if !slices.Contains(all, n) {
				all = append(all, n)
			}
		}
	}
	gloo := func(mode string, algorithms ...string) {
		if op != "allreduce" && op != "waiting" && op != "memory" {
			algorithms = []string{"default"}
		}
		for _, a := range algorithms {
			add(mode + "-" + a)
		}
	}
	for _, p := range peers {
		switch p {
		case "gloo":
			gloo("gloo", "ring", "bcube", "halving")
		case "gloo_spin":
			gloo("gloo_spin", "ring", "chunked", "bcube", "halving")
		case "openmpi", "impi", "roofline":
			add(p)
		case "openmpi_tuned":
			add(tuned(op, link)...)
		case "best":
			add(tuned(op, link)...)
			add("impi")
			gloo("gloo", "ring", "bcube", "halving")
			gloo("gloo_spin", "ring", "chunked", "bcube", "halving")
		case "ordered":
			add("ordered/" + link)
		}
	}
	return all
}

// programOf names the program under peers/ that a configuration runs; "": hora's own.
func programOf(configuration string) string {
	name, _, _ := strings.Cut(configuration, "-")
	switch name {
	case "gloo_spin":
		return "gloo"
	case "openmpi", "impi", "gloo", "roofline":
		return name
	}
	return ""
}

// lacking says that a competitor has not got what is asked: it is named where it is asked
// for by itself, and missed by nobody where the best of many is.
type lacking struct{ error }

// mostSpun is the largest array that gloo's synchronous mode is asked for: a rank there
// sends all of it before it receives, so that two ranks that fill the sockets between
// them wait for ever.
const mostSpun = 4 << 20

// lacks says what a competitor has not got; nothing is put in its place.
func lacks(name, op string, np, cores, bytes int) error {
	path := op == "named" || op == "plan" // that an allreduce takes
	spin := strings.HasPrefix(name, "gloo_spin")
	var err error
	switch {
	case name == "roofline" && (op != "allreduce" || np != 2):
		err = errors.New("it is that of an allreduce of two ranks; measure it with --ops allreduce --np 2")
	case strings.HasPrefix(name, "ordered") && op != "allreduce" && !path:
		err = fmt.Errorf("it is an allreduce and has no %s; measure it with --ops named,plan", op)
	case path && programOf(name) != "" && name != "roofline":
		err = fmt.Errorf("it has no operation %s; measure that with --peers ordered", op)
	case spin && (op == "alltoall" || op == "reduce"):
		err = fmt.Errorf("gloo's synchronous mode has no %s", op)
	case spin && np > cores:
		err = errors.New("it polls without a pause, which takes a core for each rank")
	case spin && bytes > mostSpun:
		err = fmt.Errorf("its ranks wait for each other for ever above %s, both sending", FormatSize(mostSpun))
	default:
		return nil
	}
	return lacking{err}
}
