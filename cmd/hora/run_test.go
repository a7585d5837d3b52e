package main

import (
	"bytes"
	"context"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"hora/job"
)

// The test binary is the program itself when HORA_TEST_PROGRAM is set, and an agent of it.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && (os.Args[1] == agentCommand || os.Args[1] == guardCommand) || os.Getenv("HORA_TEST_PROGRAM") != "" {
		main()
	}
	if os.Getenv("HORA_TEST_WORKER") != "" {
		os.Exit(worker())
	}
	heedSignals()
	os.Exit(m.Run())
}

// heedSignals has what the tests start heed signals that whoever started the tests had
// them ignore: nohup does so with SIGHUP, a shell with SIGINT and SIGQUIT of what it runs
// in the background. A signal that a program handles is an ordinary one for its children.
func heedSignals() {
	for _, s := range []os.Signal{syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM} {
		if signal.Ignored(s) {
			signal.Notify(make(chan os.Signal, 1), s)
		}
	}
}

type result struct {
	code     int
	out, err string
}

// last is the last line on standard error.
func (r result) last() string {
	lines := strings.Split(strings.TrimSpace(r.err), "\n")
	return lines[len(lines)-1]
}

// command runs the program as name with args, in dir.
func command(t *testing.T, dir, name string, args ...string) result {
	t.Helper()
	return commandEnv(t, dir, nil, name, args...)
}

func commandEnv(t *testing.T, dir string, extra []string, name string, args ...string) result {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute) // the machine may be busy with other tests
	defer cancel()
	cmd := exec.CommandContext(ctx, self, args...)
	cmd.Args[0] = name
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "HORA_TEST_PROGRAM=1")
	cmd.Env = append(cmd.Env, extra...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	_ = cmd.Run() // its exit code tells
	if ctx.Err() != nil {
		t.Fatalf("%s %v hangs; it said %q", name, args, errs.String())
	}
	return result{cmd.ProcessState.ExitCode(), out.String(), errs.String()}
}

func horaCommand(t *testing.T, args ...string) result {
	t.Helper()
	return command(t, t.TempDir(), "hora", args...)
}

func TestRunAndHorovodrunAreOneProgram(t *testing.T) {
	for _, argv := range [][]string{
		{"hora", "run", "-np", "2", "sh", "-c", "echo $RANK"},
		{"hora", "run", "-np=2", "--", "sh", "-c", "echo $RANK"},
		{"hora", "horovodrun", "-np", "2", "sh", "-c", "echo $RANK"},
		{"/usr/bin/horovodrun", "--num-proc", "2", "--gloo", "--disable-cache", "sh", "-c", "echo $RANK"},
	} {
		r := command(t, t.TempDir(), argv[0], argv[1:]...)
		if r.code != 0 || !strings.Contains(r.out, "[0]<stdout>:0\n") || !strings.Contains(r.out, "[1]<stdout>:1\n") {
			t.Errorf("%v: %+v", argv, r)
		}
	}
}

func TestArgumentsReachTheCommandUntouched(t *testing.T) {
	r := horaCommand(t, "run", "-np", "1", "--no-tag", "printf", `%s|`, "-np", "a b", "--env", "*", "-cb", "")
	if r.code != 0 || r.out != "-np|a b|--env|*|-cb||" {
		t.Errorf("%+v", r)
	}
}

func TestLastLineAndExitCodeNameTheFirstFailure(t *testing.T) {
	host, _ := os.Hostname()
	r := horaCommand(t, "run", "-np", "2", "sh", "-c", `[ $RANK = 0 ] && exec sleep 100; echo "ValueError: no" >&2; exit 9`)
	if r.code != 9 || r.last() != "hora: rank 1 on "+host+": exit code 9: ValueError: no" {
		t.Errorf("%+v", r)
	}
}

func TestBadInputIsOneSentence(t *testing.T) {
	dir := t.TempDir()
	put := func(name, text string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	hostfile := put("hosts", "server1 slots=2\nserver2 slots=two\n", 0o644)
	twice := put("twice", "localhost:2:3\n", 0o644)
	plain := put("train.sh", "#!/bin/sh\n", 0o644)
	open := put("secret", strings.Repeat("ab", 32), 0o644)
	config := put("config.yaml", "params:\n  fusion-threshold-mb: large\n", 0o644)
	unknown := put("unknown.yaml", "parms:\n  x: 1\n", 0o644)
	broken := put("broken.yaml", "verbose: true\nparams:\n\t- x: [\n", 0o644)
	file := put("file", "", 0o644)
	for _, c := range []complaint{
		{"run", 2, "there is no command to start"},
		{"run -np 2", 2, "there is no command to start"},
		{"run -np two true", 2, `hora: -np, --num-proc: "two" is not a whole number from 1 to 1048576: see hora run --help`},
		{"run --verbose=perhaps true", 2, `hora: --verbose: "perhaps" is neither true nor false: see`},
		{"run --ssh-port ssh true", 2, `hora: -p, --ssh-port: "ssh" is not a whole number from 1 to 65535: see`},
		{"run --log-dir= true", 2, `hora: --log-dir, --output-filename: it is empty: look whether a variable in it is: see`},
		{"run -H= true", 2, `hora: -H, --hosts: it is empty`},
		{"run --no-tag --tag-output true", 2, "hora: --tag-output and --no-tag contradict each other: give one of them"},
		{"run --tag-output=false --no-tag=false true", 2, "hora: --tag-output and --no-tag contradict each other"},
		{"run -np 0 true", 2, `"0" is not a whole number from 1`},
		{"run -np", 2, "flag -np needs N"},
		{"run --nonsense true", 2, "unknown flag: --nonsense: see hora run --help"},
		{"run -n 2 true", 2, "unknown flag: -n: did you mean -np?: see"},
		{"run --nproc_per_node=2 true", 2, "unknown flag: --nproc_per_node: did you mean -np?"},
		{"run --verbos true", 2, "unknown flag: --verbos: did you mean --verbose?"},
		{"run --hostfil x true", 2, "unknown flag: --hostfil: did you mean --hostfile?"},
		{"run --on-lss continue true", 2, "unknown flag: --on-lss: did you mean --on-loss?"},
		{"horovodrun --timeline-f x true", 2, "-np is missing"},
		{"horovodrun --no true", 2, "unknown flag: --no"},
		{"run -H a:1 --hostfile x true", 2, "-H, --hostfile and --discover each say where to run: give one of them"},
		{"run -np 5 -H localhost:2 true", 2, "-np 5 needs 5 slots, and localhost:2 has 2: add hosts or slots, or lower -np"},
		{"run -H localhost:x true", 2, `write it as localhost:4`},
		{"run -H localhost:2:3 true", 2, `-H localhost:2:3: "localhost:2" is no host name: write hosts as server1:4,server2:4`},
		{"run --hostfile " + twice + " true", 2, twice + `:1: "localhost:2:3" is no host name: write lines such as`},
		{"bench net -H localhost:2:3,a", 2, `"localhost:2" is no host name`},
		{"run --hostfile " + hostfile + " true", 2, hostfile + `:2: "slots=two" is no number of slots`},
		{"run --hostfile /no/file true", 2, "read hostfile /no/file: no such file or directory"},
		{"run -np 2 --min-np 3 --max-np 2 true", 2, "--min-np 3 is above --max-np 2"},
		{"run --gloo --mpi true", 2, "--gloo and --mpi contradict each other"},
		{"horovodrun true", 2, "-np is missing"},
		{"run --config-file /no/file true", 2, `hora: read --config-file "/no/file": no such file or directory: name a YAML file with lines such as`},
		{"run --config-file " + dir + " true", 2, `hora: read --config-file "` + dir + `": is a directory: name a YAML file`},
		{"run --config-file " + broken + " true", 2, "hora: " + broken + ":3: it is no YAML (found character that cannot start any token): write lines such as"},
		{"run --secret-file /no/file true", 2, "hora: --secret-file /no/file: no such file or directory: name the file that holds the job's secret, or leave the flag out"},
		{"run --config-file " + config + " true", 2, config + `:2: fusion-threshold-mb: "large" is not a number`},
		{"run --config-file " + unknown + " true", 2, unknown + `:1: there is no section "parms"`},
		{"run --secret-file " + open + " true", 2, "chmod 600"},
		{"run --env NAME true", 2, `"NAME" is not NAME=VALUE`},
		{"run -np 2 -i /no/key true", 2, "--ssh-identity-file /no/key cannot be read"},
		{"run -np 2 --network-interface nosuch0 true", 2, "use network interface nosuch0: this host has none of that name: name one of "},
		{"run --bind socket true", 2, `"socket" is neither core nor none`},
		{"run --blacklist-cooldown-range 9 3 true", 2, "1 <= MIN <= MAX <= 3600"},
		{"run --discover /no/hosts.sh true", 2, "ask /no/hosts.sh for hosts: exit status 127"},
		{"run --discover x --on-loss replace --restarts 1 true", 2, "--discover and --on-loss replace contradict each other"},
		{"run --blacklist rack true", 2, `"rack" is neither host nor slot`},
		{"run no-such-command", 127, "start no-such-command on"},
		{"run " + plain, 126, "it is not executable: run chmod +x"},
		{"run --log-dir " + file + "/logs true", 73, "choose another --log-dir"},
		{"run -H no-such-host.invalid:1 true", 68, "no-such-host.invalid"},
		{"nonsense", 2, `hora: there is no subcommand "nonsense": see hora --help`},
	} {
		c.check(t)
	}
}

// complaint is a command line, and the one sentence that it gets.
type complaint struct {
	args string
	code int
	want string
}

func (c complaint) check(t *testing.T) {
	t.Helper()
	r := horaCommand(t, strings.Fields(c.args)...)
	if r.code != c.code || !strings.Contains(r.err, c.want) || strings.Contains(r.err, "invalid argument") ||
		strings.Count(strings.TrimSpace(r.err), "\n") != 0 || r.out != "" {
		t.Errorf("hora %s: exit code %d, want %d with %q; it said\n%s%s", c.args, r.code, c.code, c.want, r.out, r.err)
	}
}

// Flags that are each other's opposite may agree, and a file's are taken back on the command line.
func TestTagsAndTheirOpposite(t *testing.T) {
	if testing.Short() {
		t.Skip("takes long under the race detector")
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "c.yaml"), []byte("no-tag: true\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for flags, want := range map[string]string{
		"":                                  "[0]<stdout>:x\n",
		"--no-tag":                          "x\n",
		"--tag-output":                      "[0]<stdout>:x\n",
		"--tag-output=false --no-tag":       "x\n",
		"--config-file c.yaml":              "x\n",
		"--config-file c.yaml --tag-output": "[0]<stdout>:x\n",
	} {
		if r := command(t, dir, "hora", append(append([]string{"run"}, strings.Fields(flags)...), "echo", "x")...); r.code != 0 ||
			r.out != want {
			t.Errorf("%s: %+v, want %q", flags, r, want)
		}
	}
}

func TestAnEmptyCommandIsNamed(t *testing.T) {
	if r := horaCommand(t, "run", "-np", "2", ""); r.code != 2 || !strings.Contains(r.err, "the command to start is empty") {
		t.Errorf("%+v", r)
	}
}

// A reader that has enough, such as head, ends the job and everything in it.
func TestAClosedPipeEndsTheJob(t *testing.T) {
	mark := "HORA_TEST_MARK=pipe-" + strconv.Itoa(os.Getpid())
	cmd := exec.Command("sh", "-c", `"$0" run -np 2 yes | head -1`, self(t))
	cmd.Env = append(os.Environ(), "HORA_TEST_PROGRAM=1", mark)
	out, err := cmd.Output()
	if err != nil || !strings.HasSuffix(string(out), "<stdout>:y\n") {
		t.Errorf("%v: %q", err, out)
	}
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(15 * time.Second); ; <-tick.C {
		left, _ := exec.Command("sh", "-c", `grep -l `+mark+` /proc/[0-9]*/environ 2>/dev/null`).Output()
		if len(left) == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("left: %s", left)
		}
	}
}

func TestCheckBuildInHorovodsForm(t *testing.T) {
	for _, flag := range []string{"-cb", "--check-build"} {
		r := command(t, t.TempDir(), "horovodrun", flag)
		form := regexp.MustCompile(`^Horovod v\S+.*:\n\nAvailable Frameworks:\n    \[X\] TensorFlow\n    \[X\] PyTorch\n    \[X\] MXNet\n\nAvailable Controllers:\n    \[ \] MPI\n    \[X\] Gloo\n\nAvailable Tensor Operations:\n    \[ \] NCCL\n    \[ \] DDL\n    \[ \] CCL\n    \[ \] MPI\n    \[X\] Gloo\n$`)
		if r.code != 0 || !form.MatchString(r.out) {
			t.Errorf("%s: exit code %d\n%s", flag, r.code, r.out)
		}
	}
}

// hvd.nccl_built() is 0 with the library there, too.
func TestCheckBuildClaimsNoNCCL(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "libnccl.so.2"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	r := commandEnv(t, dir, []string{"LD_LIBRARY_PATH=" + dir}, "horovodrun", "-cb")
	if !strings.Contains(r.out, "    [ ] NCCL\n") {
		t.Error(r.out)
	}
}

func TestAPortInUse(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	port := strconv.Itoa(ln.Addr().(*net.TCPAddr).Port)
	r := horaCommand(t, "run", "--port", port, "true")
	if r.code != 71 || r.err != "hora: listen for workers on port "+port+": it is in use: choose another --port, or none\n" {
		t.Errorf("%+v", r)
	}
}

func TestConfigurationFileAndLaterFlagsWin(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "c.yaml")
	os.WriteFile(path, []byte(`
verbose: false
num-proc: 1
env: [A=1, B=2]
params:
  fusion_threshold_mb: 32
  cycle-time-ms: 5
timeline:
  filename: /tmp/t.json
  mark-cycles: true
stall_check:
  enabled: false
logging:
  level: INFO
  with-timestamp: false
`), 0o644)
	show := `echo $A $B $HOROVOD_FUSION_THRESHOLD $HOROVOD_CYCLE_TIME $HOROVOD_TIMELINE $HOROVOD_TIMELINE_MARK_CYCLES $HOROVOD_STALL_CHECK_DISABLE $HOROVOD_LOG_LEVEL $HOROVOD_LOG_HIDE_TIME`
	r := horaCommand(t, "run", "--fusion-threshold-mb", "1", "--config-file", path, "--cycle-time-ms", "7", "--env", "B=3", "--no-tag", "sh", "-c", show)
	if want := "1 3 33554432 7 /tmp/t.json 1 1 INFO 1\n"; r.code != 0 || r.out != want {
		t.Errorf("%+v, want %q", r, want)
	}
}

func TestVerboseSaysWhyAFlagHasNoEffect(t *testing.T) {
	r := horaCommand(t, "run", "--verbose", "--cycle-time-ms", "3", "--mpi-args=-x Y", "true")
	if r.code != 0 || !strings.Contains(r.err, "--cycle-time-ms has no effect: there is no cycle timer: nothing runs when nothing is pending") || !strings.Contains(r.err, "--mpi-args has no effect: no MPI library is used") {
		t.Errorf("%+v", r)
	}
}

// horovodFlags are horovodrun's, as docs of version 0.28.1 list them.
const horovodFlags = `-v --version -np --num-proc -cb --check-build --disable-cache --start-timeout --network-interfaces
--network-interface --output-filename --verbose --config-file -p --ssh-port -i --ssh-identity-file --fusion-threshold-mb
--cycle-time-ms --cache-capacity --hierarchical-allreduce --no-hierarchical-allreduce --hierarchical-allgather
--no-hierarchical-allgather --torus-allreduce --no-torus-allreduce --autotune --no-autotune --autotune-log-file --autotune-warmup-samples
--autotune-steps-per-sample --autotune-bayes-opt-max-samples --autotune-gaussian-process-noise --min-np --min-num-proc
--max-np --max-num-proc --slots-per-host --elastic-timeout --reset-limit --blacklist-cooldown-range --timeline-filename
--timeline-mark-cycles --no-timeline-mark-cycles --no-stall-check --stall-check --stall-check-warning-time-seconds --stall-check-shutdown-time-seconds
--mpi-threads-disable --no-mpi-threads-disable --mpi-args --tcp --binding-args --num-nccl-streams --thread-affinity --gloo-timeout-seconds
--log-level --log-without-timestamp --log-with-timestamp -prefix-timestamp --prefix-output-with-timestamp -H --hosts -hostfile --hostfile
--host-discovery-script --gloo --mpi --jsrun`

func TestEveryHorovodrunFlagIsAccepted(t *testing.T) {
	table := job.Fields()
	for _, spelling := range strings.Fields(horovodFlags) {
		row := job.Find(table, spelling)
		if row == nil {
			t.Errorf("no %s", spelling)
			continue
		}
		o := &options{given: map[string]bool{}, table: table}
		sample := map[string]string{"--blacklist-cooldown-range": "2 5", "--log-level": "DEBUG", "--autotune-gaussian-process-noise": "0.5"}["--"+row.Name()]
		if sample == "" {
			sample = "3"
		}
		argv := append(append([]string{spelling}, strings.Fields(sample)[:row.Values()]...), "command")
		if row.Name() == "config-file" {
			continue
		}
		args, err := normalise(table, argv, false)
		if err != nil {
			t.Errorf("%v: %v", argv, err)
			continue
		}
		fs := pflag.NewFlagSet("x", pflag.ContinueOnError)
		define(fs, table, o)
		if err := fs.Parse(args); err != nil || !o.given[row.Name()] || fs.NArg() != 1 {
			t.Errorf("%v became %v: %v", argv, args, err)
		}
	}
}

func TestFlagTableIsSound(t *testing.T) {
	seen := map[string]bool{}
	for _, r := range job.Fields() {
		if r.Help == "" || !strings.HasPrefix(r.Flags, "--") {
			t.Errorf("row %q is incomplete", r.Flags)
		}
		for _, s := range strings.Fields(r.Flags) {
			if seen[s] {
				t.Errorf("%s is there twice", s)
			}
			seen[s] = true
		}
	}
}

func TestSecretIsInNoArgumentAndNotLeftBehind(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	r := horaCommand(t, "run", "-np", "1", "--no-tag", "sh", "-c", `stat -c %a "$HORA_SECRET_FILE" "$(dirname "$HORA_SECRET_FILE")"; cat /proc/*/cmdline /proc/$PPID/environ | tr '\0' '\n' | grep -c -f "$HORA_SECRET_FILE"`)
	if !strings.HasPrefix(r.out, "600\n700\n0\n") {
		t.Errorf("%+v", r)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "hora-*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestHelpAndCompletion(t *testing.T) {
	r := horaCommand(t, "run", "--help")
	for _, want := range []string{"usage: hora run [flags] [--] COMMAND...", "  -np, --num-proc N ", "\nhosts:\n", "  --log-dir, --output-filename DIR", wontMatter + ":\n"} {
		if r.code != 0 || !strings.Contains(r.out, want) {
			t.Errorf("help lacks %q: %+v", want, r)
		}
	}
	const fallback = "number of processes; without it"
	if theirs := command(t, t.TempDir(), "horovodrun", "--help"); !strings.Contains(theirs.out, "number of processes; required") ||
		strings.Contains(theirs.out, fallback) || !strings.Contains(r.out, fallback) {
		t.Errorf("help says of -np: %s", theirs.out)
	}
	if r := horaCommand(t, "__complete", "run", "--log-d"); !strings.Contains(r.out, "--log-dir") {
		t.Errorf("completion: %+v", r)
	}
	for _, args := range []string{"completion bash", "help", "version", "help run"} {
		if r := horaCommand(t, strings.Fields(args)...); r.code != 0 || r.out == "" {
			t.Errorf("hora %s: %+v", args, r)
		}
	}
}

func TestTorchrunsVariablesAreDefaults(t *testing.T) {
	env := []string{"PET_NPROC_PER_NODE=3"}
	if r := commandEnv(t, t.TempDir(), env, "hora", "run", "--no-tag", "sh", "-c", "echo $WORLD_SIZE"); r.out != "3\n3\n3\n" {
		t.Errorf("%+v", r)
	}
	if r := commandEnv(t, t.TempDir(), env, "hora", "run", "-np", "1", "--no-tag", "sh", "-c", "echo $WORLD_SIZE"); r.out != "1\n" {
		t.Errorf("%+v", r)
	}
	if r := commandEnv(t, t.TempDir(), []string{"PET_NPROC_PER_NODE=gpu"}, "hora", "run", "true"); r.code != 2 || !strings.Contains(r.err, "PET_NPROC_PER_NODE") {
		t.Errorf("%+v", r)
	}
}
