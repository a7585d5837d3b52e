package hora_test

import (
	"go/ast"
	"go/token"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"hora"
)

// launched is what each launcher sets, and what FromEnv makes of it.
var launched = []struct {
	name   string
	env    string
	source string
	check  func(c hora.Config) bool
}{
	{"nothing", "", "alone", func(c hora.Config) bool { return c.Size == 1 && !c.Serve }},
	{
		"hora wins", "HORA_RANK=1 HORA_SIZE=4 HORA_LOCAL_RANK=1 HORA_LOCAL_SIZE=2 HORA_CROSS_RANK=0 HORA_CROSS_SIZE=2 HORA_ADDR=h:1 HORA_SERVE=0 HORA_EPOCH=3 HOROVOD_RANK=3 HOROVOD_SIZE=9 RANK=2 WORLD_SIZE=3 LOCAL_RANK=0",
		"hora", func(c hora.Config) bool {
			return c.Rank == 1 && c.Size == 4 && c.LocalSize == 2 && c.CrossSize == 2 && c.Addr == "h:1" && c.Epoch == 3 &&
				!c.Serve
		},
	},
	{
		"horovod", "HOROVOD_RANK=1 HOROVOD_SIZE=2 HOROVOD_LOCAL_RANK=1 HOROVOD_LOCAL_SIZE=2 HOROVOD_CROSS_RANK=0 HOROVOD_CROSS_SIZE=1 HOROVOD_HOSTNAME=box HOROVOD_GLOO_RENDEZVOUS_PORT=77",
		"horovod", func(c hora.Config) bool { return c.Serve && c.Host == "box" && strings.Contains(c.RunKey, "77") },
	},
	{
		"torchrun", "RANK=3 WORLD_SIZE=4 LOCAL_RANK=1 LOCAL_WORLD_SIZE=2 GROUP_RANK=1 MASTER_ADDR=node0 MASTER_PORT=29500 TORCHELASTIC_RUN_ID=x",
		"torchrun", func(c hora.Config) bool { return c.Rank == 3 && c.Addr == "node0:29501" && c.Serve },
	},
	{"torchrun with a port", "RANK=0 WORLD_SIZE=1 LOCAL_RANK=0 MASTER_ADDR=::1 HORA_PORT=9", "torchrun", func(c hora.Config) bool { return c.Addr == "[::1]:9" }},
	{"half of torchrun", "RANK=3 WORLD_SIZE=4", "alone", func(c hora.Config) bool { return c.Rank == 0 }},
	{
		"openmpi", "OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_LOCAL_RANK=1 OMPI_COMM_WORLD_LOCAL_SIZE=2 PMIX_NAMESPACE=a/1",
		"openmpi", func(c hora.Config) bool { return c.RunKey == "openmpi-a_1" },
	},
	{"pmi", "PMI_RANK=1 PMI_SIZE=2 MPI_LOCALRANKID=1 MPI_LOCALNRANKS=2 PMI_PORT=h:5", "pmi", func(c hora.Config) bool { return c.LocalSize == 2 }},
	{
		"slurm", "SLURM_PROCID=5 SLURM_STEP_NUM_TASKS=8 SLURM_LOCALID=1 SLURM_STEP_ID=0 SLURM_JOB_ID=1234 SLURM_STEP_NUM_NODES=4 SLURM_STEP_NODELIST=gpu[07-09,12] SLURMD_NODENAME=gpu09",
		"slurm", func(c hora.Config) bool {
			return c.Size == 8 && strings.HasPrefix(c.Addr, "gpu07:") && c.Host == "gpu09" && c.LocalSize == 0
		},
	},
	{
		"older slurm", "SLURM_PROCID=1 SLURM_NTASKS=2 SLURM_NNODES=1 SLURM_STEPID=3 SLURM_JOBID=9 SLURM_JOB_NODELIST=one,two",
		"slurm", func(c hora.Config) bool { return c.LocalSize == 2 && strings.HasPrefix(c.Addr, "one:") },
	},
	{"older openmpi", "OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=2 OMPI_MCA_ess_base_jobid=8", "openmpi", func(c hora.Config) bool { return c.RunKey == "openmpi-8" }},
	{"older pmi", "PMI_RANK=0 PMI_SIZE=2 PMI_ID=8", "pmi", func(c hora.Config) bool { return c.RunKey == "pmi-8" }},
	{"mpiexec.hydra", "PMI_RANK=0 PMI_SIZE=2 PMI_FD=6 MPI_LOCALRANKID=0 MPI_LOCALNRANKS=2 HYDI_CONTROL_FD=7 SLURM_PROCID=0 SLURM_STEP_ID=0", "pmi", func(c hora.Config) bool { return c.LocalSize == 2 }},
	{
		"srun --mpi=pmi2", "PMI_RANK=1 PMI_SIZE=4 PMI_FD=14 PMI_JOBID=7.0 SLURM_PROCID=1 SLURM_STEP_NUM_TASKS=4 SLURM_LOCALID=1 SLURM_STEP_ID=0 SLURM_JOB_ID=7 SLURM_STEP_NUM_NODES=2 SLURM_STEP_NODELIST=a,b",
		"slurm", func(c hora.Config) bool { return c.Size == 4 && c.LocalRank == 1 && strings.HasPrefix(c.Addr, "a:") },
	},
	{"slurm batch script", "SLURM_PROCID=0 SLURM_NTASKS=8 SLURM_JOB_ID=1234", "alone", func(c hora.Config) bool { return c.Size == 1 }},
	{"kubernetes", "JOB_COMPLETION_INDEX=2 HORA_SIZE=3 HORA_ADDR=first:7", "index", func(c hora.Config) bool { return c.Rank == 2 && c.Serve && c.Addr == "first:7" }},
	{"by hand", "HORA_RANK=1 HORA_SIZE=2 HORA_JOB=a/b", "hora", func(c hora.Config) bool { return c.Serve && c.RunKey == "hand-a_b-2" }},
	{"a timeline", "HORA_TIMELINE=/t/a HOROVOD_TIMELINE=b HOROVOD_TIMELINE_MARK_CYCLES=1", "alone", func(c hora.Config) bool { return c.Timeline == "/t/a" && c.TimelineMarks }},
	{"a timeline of the program's", "HOROVOD_TIMELINE=DYNAMIC", "alone", func(c hora.Config) bool { return c.Timeline == "" && !c.TimelineMarks }},
	{"peers", "HORA_RANK=1 HORA_SIZE=2 HORA_PEERS=a:1,b:2", "hora", func(c hora.Config) bool { return len(c.Peers) == 2 }},
	{"times", "HORA_PEER_TIMEOUT=0.5 HORA_OP_TIMEOUT=2m HORA_STALL_WARN=0 HORA_STALL_END=5", "alone", func(c hora.Config) bool {
		return c.PeerTimeout == time.Second/2 && c.OpTimeout == 2*time.Minute && c.StallWarn < 0 &&
			c.StallEnd == 5*time.Second
	}},
	{"horovod's stalls", "HOROVOD_STALL_CHECK_TIME_SECONDS=30 HOROVOD_STALL_SHUTDOWN_TIME_SECONDS=10", "alone", func(c hora.Config) bool {
		return c.StallWarn == 30*time.Second && c.StallEnd == 0
	}},
	{"horovod's stalls off", "HOROVOD_STALL_CHECK_DISABLE=1", "alone", func(c hora.Config) bool { return c.StallWarn < 0 }},
	{"tuning", "HOROVOD_FUSION_THRESHOLD=0 HOROVOD_CACHE_CAPACITY=7 HORA_TUNE=yes HORA_TLS=1 HORA_LINKS=tcp HORA_LANES=2", "alone", func(c hora.Config) bool {
		return c.FusionBytes < 0 && c.Names == 7 && c.Tune && c.TLS && c.Links == "tcp" && c.Lanes == 2
	}},
}

func lookup(env string, seen map[string]bool) func(string) string {
	values := map[string]string{}
	for _, pair := range strings.Fields(env) {
		k, v, _ := strings.Cut(pair, "=")
		values[k] = v
	}
	return func(name string) string {
		if seen != nil {
			seen[name] = true
		}
		return values[name]
	}
}

func TestFromEnv(t *testing.T) {
	for _, l := range launched {
		t.Run(l.name, func(t *testing.T) {
			c, err := hora.FromEnv(lookup(l.env, nil))
			if err != nil {
				t.Fatal(err)
			}
			if c.Source != l.source || !l.check(c) {
				t.Errorf("%s: %+v", c.Source, c)
			}
		})
	}
}

func TestFromEnvNamesEveryFault(t *testing.T) {
	_, err := hora.FromEnv(lookup("HORA_RANK=x HORA_SIZE=-1 HORA_TLS=maybe HORA_PEER_TIMEOUT=soon", nil))
	if err == nil {
		t.Fatal("nothing was wrong")
	}
	for _, want := range []string{`HORA_RANK="x"`, `HORA_SIZE="-1"`, `HORA_TLS="maybe"`, `HORA_PEER_TIMEOUT="soon"`} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%v\ndoes not name %s", err, want)
		}
	}
	for env, want := range map[string]string{
		"HORA_RANK=3 HORA_SIZE=2":              "rank 3 is not in a world of 2",
		"HORA_RANK=0":                          "HORA_SIZE is not",
		"JOB_COMPLETION_INDEX=0":               "HORA_SIZE is not",
		"HORA_RANK=0 HORA_SIZE=2 HORA_LINKS=x": "use auto, tcp or shm",
		"PMI_PORT=h:5 PMI_ID=1":                "without -pmi-port",
	} {
		if _, err := hora.FromEnv(lookup(env, nil)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v does not say %q", env, err, want)
		}
	}
}

// TestEnvironmentTable holds docs/environment.md to the code.
func TestEnvironmentTable(t *testing.T) {
	page, err := os.ReadFile("docs/environment.md")
	if err != nil {
		t.Fatal(err)
	}
	name := regexp.MustCompile("`([A-Z][A-Z0-9_a-z]*_[A-Za-z0-9_]+|RANK)`")
	read, listed := map[string]bool{}, map[string]bool{}
	for i, part := range strings.Split(string(page), "\n## ") {
		for _, line := range strings.Split(part, "\n") {
			cell := line
			if strings.HasPrefix(line, "| ") {
				cell = strings.Split(line, "|")[1]
			} else if i <= 3 {
				continue
			}
			for _, m := range name.FindAllStringSubmatch(cell, -1) {
				listed[m[1]] = true
				if i >= 1 && i <= 3 {
					read[m[1]] = true
				}
			}
		}
	}
	seen := map[string]bool{}
	for _, l := range launched {
		if _, err := hora.FromEnv(lookup(l.env, seen)); err != nil {
			t.Fatal(err)
		}
	}
	for n := range seen {
		if !read[n] {
			t.Errorf("FromEnv reads %s, which docs/environment.md does not list among what workers read", n)
		}
	}
	for n := range read {
		if !seen[n] {
			t.Errorf("docs/environment.md lists %s, which FromEnv does not read", n)
		}
	}
	ours := regexp.MustCompile(`^(HORA|HOROVOD)_[A-Z0-9_]*[A-Z0-9]$`)
	for _, f := range goFiles(t) {
		if f.test || strings.Contains(f.path, "internal/simtest") {
			continue
		}
		ast.Inspect(f.tree, func(n ast.Node) bool {
			lit, ok := n.(*ast.BasicLit)
			if !ok || lit.Kind != token.STRING {
				return true
			}
			s, _ := strconv.Unquote(lit.Value)
			if ours.MatchString(s) && !listed[s] && !slices.Contains([]string{"HORA_OK"}, s) {
				t.Errorf("%s names %s, which docs/environment.md does not list", f.path, s)
			}
			return true
		})
	}
}
