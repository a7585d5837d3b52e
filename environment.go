package hora

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// FromEnv reads a Config from the environment that lookup gives, usually os.Getenv. The
// first convention that names a rank wins: HORA_*, HOROVOD_*, torchrun's RANK,
// WORLD_SIZE and LOCAL_RANK, Open MPI's, PMI's, a Slurm step's, JOB_COMPLETION_INDEX;
// else it is a world of one. docs/environment.md is the table of all variables. All
// faults are reported at once.
func FromEnv(lookup func(string) string) (Config, error) {
	e := &environment{lookup: lookup}
	var c Config
	for _, place := range []func(*environment, *Config) bool{
		fromHora, fromHorovod, fromTorchrun, fromOpenMPI, fromPMI, fromSlurm, fromIndex,
	} {
		if place(e, &c) {
			break
		}
	}
	if c.Source == "" {
		c.Source, c.Size, c.LocalSize, c.CrossSize = "alone", 1, 1, 1
	}
	e.common(&c)
	if len(e.faults) == 0 {
		e.check(&c)
	}
	if len(e.faults) > 0 {
		return Config{}, fmt.Errorf("read environment: %w", errors.Join(e.faults...))
	}
	return c, nil
}

// environment reads values and collects faults.
type environment struct {
	lookup func(string) string
	faults []error
}

func (e *environment) fault(format string, args ...any) {
	e.faults = append(e.faults, fmt.Errorf(format, args...))
}

// first returns the first of the names that is set.
func (e *environment) first(names ...string) (name, value string) {
	for _, n := range names {
		if v := strings.TrimSpace(e.lookup(n)); v != "" {
			return n, v
		}
	}
	return names[0], ""
}

func (e *environment) text(names ...string) string {
	_, v := e.first(names...)
	return v
}

// number returns a whole number ≥ 0, or absent when none of the names is set.
func (e *environment) number(absent int, names ...string) int {
	name, v := e.first(names...)
	if v == "" {
		return absent
	}
	n, err := strconv.Atoi(v)
	if err != nil || n < 0 {
		e.fault("%s=%q is not a whole number", name, v)
		return absent
	}
	return n
}

func (e *environment) flag(names ...string) bool {
	name, v := e.first(names...)
	switch strings.ToLower(v) {
	case "", "0", "false", "no", "off":
		return false
	case "1", "true", "yes", "on":
		return true
	}
	e.fault("%s=%q is neither 0 nor 1", name, v)
	return false
}

// span returns a duration: seconds, or a number with a unit.
func (e *environment) span(absent time.Duration, names ...string) time.Duration {
	name, v := e.first(names...)
	if v == "" {
		return absent
	}
	if s, err := strconv.ParseFloat(v, 64); err == nil && s >= 0 && s < 1e9 {
		return time.Duration(s * float64(time.Second))
	}
	d, err := time.ParseDuration(v)
	if err != nil || d < 0 {
		e.fault("%s=%q is not a time: write seconds, or 500ms, 2m", name, v)
		return absent
	}
	return d
}

// byHand begins the RunKey of ranks that nobody but HORA_RANK tells apart: those of one
// host need not say more.
const byHand = "hand"

func fromHora(e *environment, c *Config) bool {
	if e.text("HORA_RANK") == "" {
		return false
	}
	c.Source, c.Serve = "hora", true // without `hora run`, which says HORA_SERVE=0
	c.Rank, c.Size = e.number(0, "HORA_RANK"), e.number(0, "HORA_SIZE")
	c.LocalRank, c.LocalSize = e.number(0, "HORA_LOCAL_RANK"), e.number(0, "HORA_LOCAL_SIZE")
	c.CrossRank, c.CrossSize = e.number(0, "HORA_CROSS_RANK"), e.number(0, "HORA_CROSS_SIZE")
	c.Process = e.text("HORA_PROCESS")
	c.RunKey = runKey(byHand, e.text("HORA_JOB"), strconv.Itoa(c.Size))
	if c.Size == 0 {
		e.fault("HORA_RANK is set and HORA_SIZE is not")
	}
	return true
}

func fromHorovod(e *environment, c *Config) bool {
	if e.text("HOROVOD_RANK") == "" {
		return false
	}
	c.Source, c.Serve = "horovod", true
	c.Rank, c.Size = e.number(0, "HOROVOD_RANK"), e.number(0, "HOROVOD_SIZE")
	c.LocalRank, c.LocalSize = e.number(0, "HOROVOD_LOCAL_RANK"), e.number(0, "HOROVOD_LOCAL_SIZE")
	c.CrossRank, c.CrossSize = e.number(0, "HOROVOD_CROSS_RANK"), e.number(0, "HOROVOD_CROSS_SIZE")
	c.Host = e.text("HOROVOD_HOSTNAME")
	c.RunKey = runKey("horovod", e.text("HOROVOD_GLOO_RENDEZVOUS_PORT"))
	if c.Size == 0 {
		e.fault("HOROVOD_RANK is set and HOROVOD_SIZE is not")
	}
	return true
}

func fromTorchrun(e *environment, c *Config) bool {
	if e.text("RANK") == "" || e.text("WORLD_SIZE") == "" || e.text("LOCAL_RANK") == "" {
		return false
	}
	c.Source, c.Serve = "torchrun", true
	c.Rank, c.Size = e.number(0, "RANK"), e.number(0, "WORLD_SIZE")
	c.LocalRank, c.LocalSize = e.number(0, "LOCAL_RANK"), e.number(0, "LOCAL_WORLD_SIZE")
	c.CrossRank = e.number(0, "GROUP_RANK")
	c.RunKey = runKey("torchrun", e.text("TORCHELASTIC_RUN_ID"), e.text("MASTER_PORT"), e.text("TORCHELASTIC_RESTART_COUNT"))
	return true
}

func fromOpenMPI(e *environment, c *Config) bool {
	if e.text("OMPI_COMM_WORLD_RANK") == "" || e.text("OMPI_COMM_WORLD_SIZE") == "" {
		return false
	}
	c.Source, c.Serve = "openmpi", true
	c.Rank, c.Size = e.number(0, "OMPI_COMM_WORLD_RANK"), e.number(0, "OMPI_COMM_WORLD_SIZE")
	c.LocalRank, c.LocalSize = e.number(0, "OMPI_COMM_WORLD_LOCAL_RANK"), e.number(0, "OMPI_COMM_WORLD_LOCAL_SIZE")
	c.RunKey = runKey("openmpi", e.text("PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"))
	return true
}

// anyPMI is the RunKey of a run that no variable of MPICH's tells from others.
const anyPMI = "pmi"

func fromPMI(e *environment, c *Config) bool {
	rank := e.text("PMI_RANK")
	switch {
	case rank == "" && e.text("PMI_PORT") != "" && e.text("PMI_ID") != "":
		e.fault("PMI_PORT is set and PMI_RANK is not: start mpiexec without -pmi-port")
		return false
	case rank == "" || e.text("PMI_SIZE") == "":
		return false
	case e.text("MPI_LOCALRANKID") == "" && e.text("SLURM_PROCID") == rank:
		return false // srun --mpi=pmi2, whose own variables say more
	}
	c.Source, c.Serve = "pmi", true
	c.Rank, c.Size = e.number(0, "PMI_RANK"), e.number(0, "PMI_SIZE")
	c.LocalRank, c.LocalSize = e.number(0, "MPI_LOCALRANKID"), e.number(0, "MPI_LOCALNRANKS")
	c.RunKey = anyPMI
	if id := e.text("PMI_PORT", "PMI_ID", "PMIX_NAMESPACE"); id != "" {
		c.RunKey = runKey("pmi", id)
	}
	return true
}

// fromSlurm reads a step's place; a batch script itself is no step.
func fromSlurm(e *environment, c *Config) bool {
	const batchStep = "4294967291"
	step := e.text("SLURM_STEP_ID", "SLURM_STEPID")
	if step == "" || step == batchStep || e.text("SLURM_PROCID") == "" {
		return false
	}
	c.Source, c.Serve = "slurm", true
	c.Rank, c.Size = e.number(0, "SLURM_PROCID"), e.number(0, "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS")
	c.LocalRank = e.number(0, "SLURM_LOCALID")
	if e.number(0, "SLURM_STEP_NUM_NODES", "SLURM_NNODES") == 1 {
		c.LocalSize = c.Size
	}
	c.Host = e.text("SLURMD_NODENAME")
	c.RunKey = runKey("slurm", e.text("SLURM_JOB_ID", "SLURM_JOBID"), step)
	if c.Size == 0 {
		e.fault("SLURM_PROCID is set and SLURM_STEP_NUM_TASKS is not")
	}
	return true
}

// fromIndex reads the place of a pod in an indexed Kubernetes job.
func fromIndex(e *environment, c *Config) bool {
	if e.text("JOB_COMPLETION_INDEX") == "" {
		return false
	}
	c.Source, c.Serve = "index", true
	c.Rank, c.Size = e.number(0, "JOB_COMPLETION_INDEX"), e.number(0, "HORA_SIZE", "WORLD_SIZE")
	if c.Size == 0 {
		e.fault("JOB_COMPLETION_INDEX is set and HORA_SIZE is not; set it to the job's completions")
	}
	return true
}

// runKey tells this run's files from those of others.
func runKey(parts ...string) string {
	return strings.Map(func(r rune) rune {
		if r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r == '-' || r == '.' {
			return r
		}
		return '_'
	}, strings.Join(parts, "-"))
}

// common reads what does not depend on the launcher.
func (e *environment) common(c *Config) {
	if h := e.text("HORA_HOST"); h != "" {
		c.Host = h
	}
	c.HostID = e.text("HORA_HOST_ID")
	c.Job = e.text("HORA_JOB")
	c.Epoch = uint64(e.number(0, "HORA_EPOCH"))
	c.SecretFile = e.text("HORA_SECRET_FILE")
	c.Listen = e.text("HORA_LISTEN")
	if p := e.text("HORA_PEERS"); p != "" {
		c.Peers = strings.Split(p, ",")
		c.Serve = false
	}
	e.address(c)
	if e.text("HORA_SERVE") != "" {
		c.Serve = e.flag("HORA_SERVE")
	}
	c.RunDir = e.text("HORA_RUN_DIR", "XDG_RUNTIME_DIR")

	c.StartTimeout = e.span(0, "HORA_START_TIMEOUT", "HOROVOD_START_TIMEOUT", "HOROVOD_GLOO_TIMEOUT_SECONDS")
	c.JoinTimeout = e.span(0, "HORA_JOIN_TIMEOUT")
	c.PeerTimeout = e.span(0, "HORA_PEER_TIMEOUT")
	c.ElasticTimeout = e.span(0, "HORA_ELASTIC_TIMEOUT", "HOROVOD_ELASTIC_TIMEOUT")
	c.OpTimeout = e.span(0, "HORA_OP_TIMEOUT")
	c.StallWarn = e.span(0, "HORA_STALL_WARN", "HOROVOD_STALL_CHECK_TIME_SECONDS")
	if c.DeadlockTimeout = e.span(0, "HORA_DEADLOCK_TIMEOUT"); c.DeadlockTimeout == 0 && e.text("HORA_DEADLOCK_TIMEOUT") != "" {
		c.DeadlockTimeout = -1
	}
	c.CheckCalls = e.flag("HORA_CHECK_CALLS")
	c.StallEnd = e.span(0, "HORA_STALL_END", "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS")
	if e.text("HORA_STALL_WARN", "HOROVOD_STALL_CHECK_TIME_SECONDS") != "" && c.StallWarn == 0 {
		c.StallWarn = -1
	}
	if e.text("HORA_STALL_END") == "" && c.StallWarn > 0 && c.StallEnd < c.StallWarn {
		c.StallEnd = 0 // as Horovod does
	}
	if e.text("HORA_STALL_WARN") == "" && e.flag("HOROVOD_STALL_CHECK_DISABLE") {
		c.StallWarn, c.StallEnd = -1, 0
	}
	c.FusionBytes = e.orNever("HORA_FUSION_BYTES", "HOROVOD_FUSION_THRESHOLD")
	c.Names = e.orNever("HORA_NAMES", "HOROVOD_CACHE_CAPACITY")
	c.Algorithms = e.text("HORA_ALGORITHMS")
	c.Tune = e.flag("HORA_TUNE")
	c.Links = e.text("HORA_LINKS")
	c.Lanes = e.number(0, "HORA_LANES")
	c.TLS = e.flag("HORA_TLS")
	c.Progress = e.flag("HORA_PROGRESS")
	if c.Timeline = e.text("HORA_TIMELINE", "HOROVOD_TIMELINE"); c.Timeline == "DYNAMIC" {
		c.Timeline = "" // the program begins it
	}
	c.TimelineMarks, _ = strconv.ParseBool(e.text("HORA_TIMELINE_MARK_CYCLES", "HOROVOD_TIMELINE_MARK_CYCLES"))
}

// address finds where the coordinator is.
func (e *environment) address(c *Config) {
	c.Addr = e.text("HORA_ADDR")
	if c.Addr != "" || c.Source == "hora" || c.Source == "alone" || len(c.Peers) > 0 {
		return
	}
	host := e.text("MASTER_ADDR")
	if host == "" && c.Source == "slurm" {
		host = firstNode(e.text("SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST"))
	}
	if host == "" {
		return
	}
	port := e.number(0, "HORA_PORT")
	if port == 0 {
		if port = e.number(0, "MASTER_PORT"); port > 0 {
			port++
		} else if id := e.number(0, "SLURM_JOB_ID", "SLURM_JOBID"); c.Source == "slurm" {
			port = 20000 + (id*7+e.number(0, "SLURM_STEP_ID", "SLURM_STEPID"))%10000
		}
	}
	if port > 0 {
		c.Addr = joinHostPort(host, port)
	}
}

// orNever returns a limit of which 0 means "off".
func (e *environment) orNever(names ...string) int {
	n := e.number(-2, names...)
	switch n {
	case -2:
		return 0
	case 0:
		return -1
	}
	return n
}

func (e *environment) check(c *Config) {
	if err := c.valid(); err != nil {
		e.faults = append(e.faults, err)
	}
}

// firstNode returns the first host of a Slurm list such as "gpu[07-09,12],login1".
func firstNode(list string) string {
	name, rest, bracket := strings.Cut(list, "[")
	if i := strings.IndexByte(name, ','); i >= 0 {
		return name[:i]
	}
	if !bracket {
		return name
	}
	numbers, tail, _ := strings.Cut(rest, "]")
	number := strings.FieldsFunc(numbers, func(r rune) bool { return r == ',' || r == '-' })
	if len(number) == 0 {
		return name
	}
	if i := strings.IndexByte(tail, ','); i >= 0 {
		tail = tail[:i]
	}
	return name + number[0] + tail
}

func joinHostPort(host string, port int) string {
	if strings.Contains(host, ":") && !strings.HasPrefix(host, "[") {
		host = "[" + host + "]"
	}
	return host + ":" + strconv.Itoa(port)
}

// valid reports all faults of a Config at once.
func (c *Config) valid() error {
	var faults []error
	say := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	size := max(c.Size, 1)
	if c.Rank < 0 || c.Rank >= size {
		say("rank %d is not in a world of %d", c.Rank, size)
	}
	if c.LocalSize > 0 && (c.LocalRank < 0 || c.LocalRank >= c.LocalSize) {
		say("local rank %d is not among %d on its host", c.LocalRank, c.LocalSize)
	}
	if c.LocalSize > size {
		say("%d ranks on this host are more than the world's %d", c.LocalSize, size)
	}
	if len(c.Peers) > 0 && len(c.Peers) != size {
		say("%d peers for a world of %d; name every rank's host:port", len(c.Peers), size)
	}
	switch c.Links {
	case "", "auto", "tcp", "shm":
	default:
		say("links %q are not known; use auto, tcp or shm", c.Links)
	}
	return errors.Join(faults...)
}
