package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"hora"
	"hora/bench"
	"hora/launch/machine"
)

const benchRankCommand = "bench-rank"

func (p *program) benchCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "bench", Short: "measure hora beside gloo and Open MPI, or the network between hosts"}
	cmd.AddCommand(p.benchCollectives(), p.benchNet())
	return cmd
}

// benchFlags are the command line of bench collectives.
type benchFlags struct {
	np                []int
	ops, links, peers []string
	sizes, format     string
	rounds            int
	check, plot, impi string
	slack             float64
}

func (p *program) benchCollectives() *cobra.Command {
	var f benchFlags
	cmd := &cobra.Command{
		Use:   "collectives",
		Short: "time collectives side by side, in rounds, with verified results",
		Long: "Times hora's collectives and the same ones of gloo, Open MPI and Intel MPI in turn, in rounds, on this machine. Without flags\n" +
			"it runs all that the project's goals name. The peers' programs are built from sources inside this program, with\n" +
			"Debian's openmpi-bin, libopenmpi-dev and libgloo-dev, and the Python wheels impi-rt and impi-devel (make peers); a peer\n" +
			"that is missing is named and left out. gloo runs over loopback TCP: it has no shared memory. openmpi is Open MPI at its\n" +
			"defaults, openmpi_tuned the best of its settings in each round; gloo_spin is gloo polling its sockets, impi Intel MPI, best\n" +
			"the best of all. A setting at less than half of a row's best after two rounds drops out of that row, which says so.\n\n" +
			"With --check, rows that miss their goal for no known reason, or hold it by less than a tenth, are measured once more at the\n" +
			"end, with twice the rounds; the medians of those rows are of all rounds, and the rows say of how many.",
		Args: noArguments("bench collectives"),
		RunE: func(cmd *cobra.Command, _ []string) error { return p.collectives(cmd, &f) },
	}
	fl := cmd.Flags()
	fl.IntSliceVar(&f.np, "np", nil, "numbers of ranks, as 2,4")
	fl.StringSliceVar(&f.ops, "ops", nil, "operations: "+strings.Join(bench.AllOps, ","))
	fl.StringSliceVar(&f.links, "links", nil, "links: "+strings.Join(bench.AllLinks, ","))
	fl.StringSliceVar(&f.peers, "peers", nil, "peers: "+strings.Join(bench.AllPeers, ",")+", or all beside those that the goals name")
	fl.StringVar(&f.impi, "impi", "", "`folder` with Intel MPI's bin, include and lib, as the wheels impi-rt and impi-devel install them (default: I_MPI_ROOT, or what make peers has installed)")
	fl.StringVar(&f.sizes, "sizes", "4..64Mi", "a range of the usual sizes, or a list as 4,64Ki,1Mi")
	fl.StringVar(&f.format, "format", "table", "table, jsonl, csv or page (Markdown)")
	fl.IntVar(&f.rounds, "rounds", 5, "how often everybody takes a turn")
	fl.StringVar(&f.check, "check", "", "hold the results against the goals in this `file` (\"goals\": the built-in ones); exit 1 if short")
	fl.Float64Var(&f.slack, "slack", 1, "multiply the goals by this before checking; below 1 the medians decide, not the slower quartiles")
	fl.StringVar(&f.plot, "plot", "", "write a picture to this SVG `file`")
	return cmd
}

func (p *program) collectives(cmd *cobra.Command, f *benchFlags) error {
	sizes, err := bench.ParseSizes(f.sizes)
	if err != nil {
		return usageError{err}
	}
	if !(f.slack > 0) || math.IsInf(f.slack, 1) { // NaN is no factor either
		return usageError{fmt.Errorf("--slack %g: want a factor above 0", f.slack)}
	}
	path := f.check
	if path == "goals" {
		path = ""
	}
	goals, err := bench.ReadTargets(path)
	if err != nil {
		return usageError{err}
	}
	write, ok := map[string]func(io.Writer, []bench.Row) error{
		"table": bench.WriteTable, "jsonl": bench.WriteJSONL, "csv": bench.WriteCSV, "page": goals.WritePage,
	}[f.format]
	if !ok {
		return usageError{fmt.Errorf("--format %s: want table, jsonl, csv or page", f.format)}
	}
	plan := bench.Plan{NP: f.np, Ops: f.ops, Links: f.links, Sizes: sizes, Peers: f.peers, Rounds: f.rounds}
	if err := plan.Validate(); err != nil {
		return usageError{err}
	}
	combos := goals.Combinations(plan)
	if len(f.ops) > 0 && len(f.links) > 0 && len(f.np) > 0 && len(f.peers) > 0 && f.check == "" {
		combos = plan.Combinations()
	}
	combos = slices.DeleteFunc(combos, func(c bench.Combination) bool { return len(c.Sizes) == 0 })
	if len(combos) == 0 {
		return usageError{fmt.Errorf("no goal names such a combination: give all of --np, --ops, --links and --peers to measure it without one")}
	}
	ctx, release := p.untilStopped()
	defer release()
	machine.Adopt()
	defer machine.Sweep()
	if err := mayWrite(f.plot); err != nil {
		return err
	}
	cfg, err := p.benchConfig(plan, f.impi)
	if err != nil {
		return err
	}
	if f.check != "" {
		cfg.Again = func(row bench.Row) bool { return goals.Doubtful(row, f.slack) }
	}
	rows, runErr := bench.Run(ctx, cfg, combos)
	if len(rows) == 0 && runErr == nil {
		return fmt.Errorf("nothing was measured: no size of %s fits the memory", f.sizes)
	}
	if err := write(p.out, rows); err != nil {
		return fmt.Errorf("write results: %w", err)
	}
	if f.plot != "" {
		if err := writePlot(f.plot, rows); err != nil {
			return err
		}
	}
	if err := p.stopped(ctx, ": the table above is what was measured until then"); err != nil {
		return err
	}
	if runErr != nil {
		return runErr
	}
	if f.check == "" {
		return nil
	}
	return p.verdicts(goals.Check(rows, f.slack))
}

func (p *program) verdicts(all []bench.Verdict) error {
	short, err := bench.WriteVerdicts(p.out, all)
	if err != nil {
		return err
	}
	if short == 1 {
		return errors.New("1 goal is not reached")
	}
	if short > 1 {
		return fmt.Errorf("%d goals are not reached", short)
	}
	return nil
}

// mayWrite looks whether path can be written before hours go into what would be.
func mayWrite(path string) error {
	if path == "" {
		return nil
	}
	_, before := os.Stat(path)
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE, 0o644)
	if err != nil {
		return fmt.Errorf("write the picture: %w; name a file in a folder that you may write to", err)
	}
	file.Close()
	if os.IsNotExist(before) {
		return os.Remove(path)
	}
	return nil
}

func writePlot(path string, rows []bench.Row) error {
	var picture bytes.Buffer
	if err := bench.WritePlot(&picture, rows); err != nil {
		return err
	}
	if err := os.WriteFile(path, picture.Bytes(), 0o644); err != nil {
		if file, told := os.Lstat(path); told == nil && file.Mode().IsRegular() {
			os.Remove(path) // half a picture is none
		}
		return fmt.Errorf("write the picture: %w; name a file in a folder that you may write to", err)
	}
	return nil
}

// intelMPI is where Intel MPI may lie: the first of these folders that has it, or the first
// that is named, so that the peer's absence tells of it.
func (p *program) intelMPI(named string) string {
	if named != "" {
		return named
	}
	cache, _ := os.UserCacheDir()
	installed, _ := filepath.Glob(filepath.Join(cache, "hora", "impi-*"))
	for _, folder := range append([]string{p.getenv("I_MPI_ROOT")}, installed...) {
		if _, err := os.Stat(filepath.Join(folder, "include", "mpi.h")); folder != "" && err == nil {
			return folder
		}
	}
	return p.getenv("I_MPI_ROOT")
}

func (p *program) benchConfig(plan bench.Plan, impi string) (bench.Config, error) {
	self, err := os.Executable()
	if err != nil {
		return bench.Config{}, fmt.Errorf("find this program: %w", err)
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		cache = os.TempDir()
	}
	cfg := bench.Config{
		Plan: plan, Self: []string{self, benchRankCommand}, Environ: os.Environ(),
		Cache: filepath.Join(cache, "hora", "peers"), Chrt: true,
		Say: func(format string, args ...any) { fmt.Fprintf(p.err, format+"\n", args...) },
	}
	cfg.Impi = p.intelMPI(impi)
	cfg.Cores, cfg.Memory, cfg.Sweep = usableCores(), freeMemory(), machine.Sweep
	return cfg, nil
}

// benchRank is one of hora's processes in a benchmark: OP LINK SIZES.
func (p *program) benchRank() *cobra.Command {
	return &cobra.Command{
		Use: benchRankCommand + " OP LINK SIZES", Hidden: true, Short: "a rank of hora bench", Args: cobra.ExactArgs(3),
		RunE: func(_ *cobra.Command, args []string) error {
			cfg, err := hora.FromEnv(p.getenv)
			if err != nil {
				return err
			}
			cfg.Timeline = "" // of somebody's training
			job := bench.RankJob{Op: args[0], Link: args[1]}
			for _, text := range strings.Split(args[2], ",") {
				n, err := strconv.Atoi(text)
				if err != nil {
					return usageError{fmt.Errorf("read size %q: %w", text, err)}
				}
				job.Sizes = append(job.Sizes, n)
			}
			ctx, stop := context.WithCancel(p.ctx)
			defer stop()
			return bench.MeasureRank(ctx, cfg, job, p.out)
		},
	}
}
