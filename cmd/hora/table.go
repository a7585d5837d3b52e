package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"hora/launch"
)

// Reasons why flags of horovodrun have nothing to tune here.
const (
	noCycle    = "there is no cycle timer: nothing runs when nothing is pending"
	noMPI      = "no MPI library is used"
	noLayers   = "the algorithm follows from size, hosts and ranks per host"
	noTuning   = "the defaults come from a fixed table, so that results are equal from run to run"
	noSearch   = "interfaces are tested pairwise at each start, which takes milliseconds"
	oneNCCL    = "NCCL chooses its own channels"
	alwaysHora = "there is one controller: hora's own"
	onlyWarns  = "the library writes warnings and nothing below"
	mpiUnused  = "--mpi: MPI is not used; the workers start and meet over hora's own transport, so leave the flag out"
)

// flagTable holds all flags of `hora run` and horovodrun.
func flagTable() []flagRow {
	var t []flagRow
	for _, g := range []struct {
		heading string
		flags   []flagRow
	}{
		{"processes", basicFlags()},
		{"hosts", hostFlags()},
		{"output", outputFlags()},
		{"when workers come and go", elasticFlags()},
		{"tuning", append(tuningFlags(), libraryFlags()...)},
	} {
		for i := range g.flags {
			g.flags[i].group = g.heading
		}
		t = append(t, g.flags...)
	}
	return t
}

func basicFlags() []flagRow {
	return []flagRow{
		{spellings: "--num-proc -np --np", arg: "N", help: "number of processes; without it the slots of -H or --hostfile, else 1", set: setInt(func(o *options) *int { return &o.np }, 1, 1<<20)},
		{spellings: "--" + moduleFlag + " -m", arg: "MODULE", help: "start python -m MODULE; what follows are its arguments", set: func(*options, string) error {
			return errors.New("it begins the command: give it last, on the command line")
		}},
		{spellings: "--version -v", help: "print the version", set: setBool(func(o *options) *bool { return &o.version })},
		{spellings: "--check-build -cb", help: "print what this build can do", set: setBool(func(o *options) *bool { return &o.checkBuild })},
		{spellings: "--verbose", help: "tell what the launcher does", set: setBool(func(o *options) *bool { return &o.verbose })},
		{spellings: "--dry-run", help: "print the plan (host, rank, cores, command) and start nothing", set: setBool(func(o *options) *bool { return &o.dryRun })},
		{spellings: "--" + configFlag, arg: "FILE", help: "read flags from a YAML file; what follows on the command line wins", set: func(o *options, v string) error { return o.readConfig(v) }},
		{spellings: "--start-timeout", arg: "SECONDS", def: "30", help: "until every host has answered; where it is given also until all ranks have joined, else 30 minutes", set: setSeconds(func(o *options) *time.Duration { return &o.start }, "HOROVOD_START_TIMEOUT")},
		{spellings: "--peer-timeout", arg: "SECONDS", def: "10", help: "a rank or host that is silent for so long counts as lost", set: func(o *options, v string) error {
			d, err := parseTime(v)
			if err != nil || d <= 0 {
				return fmt.Errorf("%q is not %s", v, aTime)
			}
			o.extra = append(o.extra, "HORA_PEER_TIMEOUT="+seconds(v, d))
			return nil
		}},
		{spellings: "--stdin", arg: "RANK", help: "the rank on this machine that reads this terminal, file or pipe, for breakpoint() and input(); without it rank 0, and a terminal only where -np is 1", set: setInt(func(o *options) *int { return &o.stdin }, 0, 1<<20)},
		{spellings: "--env", arg: "NAME=VALUE", help: "set a variable for the workers; repeatable", set: func(o *options, v string) error {
			name, _, ok := strings.Cut(v, "=")
			if !ok || name == "" {
				return fmt.Errorf("%q is not NAME=VALUE", v)
			}
			o.env = append(o.env, v)
			return nil
		}},
		{spellings: "--bind", arg: "core|none", def: "core", help: "give each worker cores of its own", set: func(o *options, v string) error {
			switch v {
			case "core":
				o.bind = launch.BindCore
			case "none":
				o.bind = launch.BindNone
			default:
				return fmt.Errorf("%q is neither core nor none", v)
			}
			return nil
		}},
		{spellings: "--gpus-per-rank", arg: "N", help: "give each rank N devices through CUDA_VISIBLE_DEVICES", set: setInt(func(o *options) *int { return &o.gpus }, 1, 1024)},
		{spellings: "--secret-file", arg: "FILE", help: "use this secret (mode 0600) instead of a new one", set: setText(func(o *options) *string { return &o.secretFile })},
		{spellings: "--tls", help: "encrypt what workers on different hosts say to each other", set: switchEnv("HORA_TLS", "1")},
		{spellings: "--job", arg: "NAME", help: "the job's name in messages", set: setString(func(o *options) *string { return &o.job })},
		{spellings: "--disable-cache", help: "check hosts anew", def: "false", void: noSearch, set: setNone},
	}
}

func hostFlags() []flagRow {
	return []flagRow{
		{spellings: "--hosts -H", arg: "h1:4,h2:4", help: "hosts and their slots, filled in order", set: setText(func(o *options) *string { return &o.hosts })},
		{spellings: "--hostfile -hostfile", arg: "FILE", help: "hosts from a file with lines \"name slots=N\"", set: setText(func(o *options) *string { return &o.hostfile })},
		{spellings: "--ssh-port -p", arg: "PORT", help: "ssh port of the other hosts", set: setInt(func(o *options) *int { return &o.sshPort }, 1, 65535)},
		{spellings: "--ssh-identity-file -i", arg: "FILE", help: "ssh key for the other hosts", set: setText(func(o *options) *string { return &o.sshIdentity })},
		{spellings: "--remote-hora", arg: "PATH", help: "hora's place on the other hosts; without it this one is copied there", set: setText(func(o *options) *string { return &o.remoteHora })},
		{spellings: "--port", arg: "PORT", def: "a free one", help: "where the workers meet: for networks that let few ports through", set: setInt(func(o *options) *int { return &o.port }, 1, 65535)},
		{spellings: "--network-interfaces --network-interface", arg: "NAME[,NAME]", help: "use addresses of these interfaces only; repeatable", set: func(o *options, v string) error {
			for n := range strings.SplitSeq(v, ",") {
				if n = strings.TrimSpace(n); n != "" {
					o.interfaces = append(o.interfaces, n)
				}
			}
			return nil
		}},
	}
}

func outputFlags() []flagRow {
	return []flagRow{
		{spellings: "--output-filename --log-dir", arg: "DIR", help: "also write DIR/rank.N/stdout and stderr", set: setText(func(o *options) *string { return &o.logDir })},
		{spellings: "--tag-output", def: "true", help: "begin each line with [rank]<stream>:", set: func(o *options, v string) error {
			return o.tag(v, "--tag-output", "--no-tag")
		}},
		{spellings: "--no-tag", help: "pass output on as it is", set: func(o *options, v string) error {
			return o.tag(v, "--no-tag", "--tag-output")
		}},
		{spellings: "--prefix-output-with-timestamp -prefix-timestamp", help: "begin each tagged line with the time", set: setBool(func(o *options) *bool { return &o.timestamps })},
		{spellings: "--events", arg: "FILE", help: "write what happens to the job as lines of JSON, while it happens", set: setText(func(o *options) *string { return &o.events })},
		{spellings: "--timeline-filename --timeline", arg: "FILE", help: "write a timeline of all operations", set: func(o *options, v string) error {
			o.timeline = v
			o.workerEnv("HOROVOD_TIMELINE", v)
			return nil
		}},
		{spellings: "--timeline-mark-cycles", help: "mark agreements in the timeline", set: switchEnv("HOROVOD_TIMELINE_MARK_CYCLES", "1")},
		{spellings: "--no-timeline-mark-cycles", help: "do not", set: switchEnv("HOROVOD_TIMELINE_MARK_CYCLES", "0")},
		{spellings: "--log-level", arg: "LEVEL", def: "WARNING", help: "what the workers' library logs: TRACE, DEBUG, INFO, WARNING, ERROR or FATAL", void: onlyWarns, set: func(o *options, v string) error {
			switch strings.ToUpper(v) {
			case "TRACE", "DEBUG", "INFO", "WARNING", "ERROR", "FATAL":
				o.workerEnv("HOROVOD_LOG_LEVEL", v)
				return nil
			}
			return fmt.Errorf("%q is none of TRACE, DEBUG, INFO, WARNING, ERROR, FATAL", v)
		}},
		{spellings: "--log-without-timestamp --log-hide-timestamp", help: "leave the time out of the library's log", void: onlyWarns, set: switchEnv("HOROVOD_LOG_HIDE_TIME", "1")},
		{spellings: "--log-with-timestamp", help: "put the time into the library's log", void: onlyWarns, set: switchEnv("HOROVOD_LOG_HIDE_TIME", "0")},
	}
}

// tag keeps which of two flags that are each other's opposite is meant.
func (o *options) tag(v, is, opposite string) error {
	b, err := strconv.ParseBool(v)
	if err != nil {
		return fmt.Errorf("%q is neither true nor false", v)
	}
	if !b {
		is = opposite
	}
	o.tags, o.untagged = append(o.tags, is), is == "--no-tag"
	return nil
}

func elasticFlags() []flagRow {
	return []flagRow{
		{spellings: "--min-num-proc --min-np -min-np", arg: "N", def: "-np", elastic: true, help: "go on with no fewer processes", set: setInt(func(o *options) *int { return &o.min }, 1, 1<<20)},
		{spellings: "--max-num-proc --max-np -max-np", arg: "N", elastic: true, help: "never run more processes", set: setInt(func(o *options) *int { return &o.max }, 1, 1<<20)},
		{spellings: "--slots-per-host --slots", arg: "N", elastic: true, help: "slots of discovered hosts that name none", set: setInt(func(o *options) *int { return &o.slots }, 1, 1<<16)},
		{spellings: "--elastic-timeout", arg: "SECONDS", def: "600", elastic: true, help: "how long to wait for enough processes after a change", set: setSeconds(func(o *options) *time.Duration { return &o.elasticTimeout }, "HOROVOD_ELASTIC_TIMEOUT")},
		{spellings: "--restarts", arg: "N", def: "0", help: "how many losses the job survives", set: setInt(func(o *options) *int { return &o.restarts }, 0, 1<<30)},
		{spellings: "--reset-limit", arg: "N", elastic: true, help: "the same as horovodrun means it: the others do not wait for a lost worker", set: setInt(func(o *options) *int { return &o.restarts }, 0, 1<<30)},
		{spellings: "--blacklist-cooldown-range", arg: "MIN MAX", elastic: true, help: "seconds after which a host that was lost, or failed, is tried again; without it never", set: setCooldown},
		{spellings: "--blacklist", arg: "host|slot", help: "what a failed worker takes away; host when the program is horovodrun or one of its elastic flags is used, else slot", set: func(o *options, v string) error {
			if v != "host" && v != "slot" {
				return fmt.Errorf("%q is neither host nor slot", v)
			}
			o.blacklist = v
			return nil
		}},
		{spellings: "--on-loss", arg: "continue|replace", help: "survivors go on as fewer, or wait for a replacement", set: func(o *options, v string) error {
			if v != "continue" && v != "replace" {
				return fmt.Errorf("%q is neither continue nor replace", v)
			}
			o.onLoss = v
			return nil
		}},
		{spellings: "--drain-on", arg: "FILE|sh:COMMAND", help: "a host on which this file appears, or this command succeeds, is about to go: its workers commit and leave", set: setNotice},
		{spellings: "--coordinator-state", arg: "DIR", help: "run the coordinator as a process of its own that keeps its state here, and start it again when it is killed", set: setString(func(o *options) *string { return &o.stateDir })},
		{spellings: "--report", arg: "FILE", help: "write the job's story as JSON: epochs, who left and why, what it cost", set: setString(func(o *options) *string { return &o.report })},
		{spellings: "--discover", arg: "SCRIPT", help: "a program that prints the hosts at hand as host:slots lines", set: setString(func(o *options) *string { return &o.discover })},
		{spellings: "--host-discovery-script", arg: "SCRIPT", elastic: true, help: "the same as horovodrun means it: see --blacklist", set: setString(func(o *options) *string { return &o.discover })},
	}
}

func tuningFlags() []flagRow {
	return []flagRow{
		{spellings: "--fusion-threshold-mb", arg: "MB", def: "128", help: "pack small tensors up to this size", set: numberToEnv("HOROVOD_FUSION_THRESHOLD", 0, 1<<20, 1<<20)},
		{spellings: "--cycle-time-ms", arg: "MS", def: "1", help: "Horovod's cycle", void: noCycle, set: numberToEnv("HOROVOD_CYCLE_TIME", 0, 1e9, 1)},
		{spellings: "--cache-capacity", arg: "N", def: "1024", help: "how many names have standing plans; 0 agrees on each operation anew", set: numberToEnv("HOROVOD_CACHE_CAPACITY", 0, 1<<30, 1)},
		{spellings: "--hierarchical-allreduce", help: "Horovod's layered allreduce", void: noLayers, set: switchEnv("HOROVOD_HIERARCHICAL_ALLREDUCE", "1")},
		{spellings: "--no-hierarchical-allreduce", help: "not that", void: noLayers, set: switchEnv("HOROVOD_HIERARCHICAL_ALLREDUCE", "0")},
		{spellings: "--hierarchical-allgather", help: "Horovod's layered allgather", void: noLayers, set: switchEnv("HOROVOD_HIERARCHICAL_ALLGATHER", "1")},
		{spellings: "--no-hierarchical-allgather", help: "not that", void: noLayers, set: switchEnv("HOROVOD_HIERARCHICAL_ALLGATHER", "0")},
		{spellings: "--torus-allreduce", help: "Horovod's torus allreduce", void: noLayers, set: switchEnv("HOROVOD_TORUS_ALLREDUCE", "1")},
		{spellings: "--no-torus-allreduce", help: "not that", void: noLayers, set: switchEnv("HOROVOD_TORUS_ALLREDUCE", "0")},
		{spellings: "--autotune", help: "Horovod's search for settings", void: noTuning, set: switchEnv("HOROVOD_AUTOTUNE", "1")},
		{spellings: "--no-autotune", help: "not that", void: noTuning, set: switchEnv("HOROVOD_AUTOTUNE", "0")},
		{spellings: "--autotune-log-file", arg: "FILE", help: "its log", void: noTuning, set: toEnv("HOROVOD_AUTOTUNE_LOG")},
		{spellings: "--autotune-warmup-samples", arg: "N", def: "3", help: "its samples to throw away", void: noTuning, set: numberToEnv("HOROVOD_AUTOTUNE_WARMUP_SAMPLES", 0, 1<<30, 1)},
		{spellings: "--autotune-steps-per-sample", arg: "N", def: "10", help: "its steps per sample", void: noTuning, set: numberToEnv("HOROVOD_AUTOTUNE_STEPS_PER_SAMPLE", 1, 1<<30, 1)},
		{spellings: "--autotune-bayes-opt-max-samples", arg: "N", def: "20", help: "its largest number of samples", void: noTuning, set: numberToEnv("HOROVOD_AUTOTUNE_BAYES_OPT_MAX_SAMPLES", 1, 1<<30, 1)},
		{spellings: "--autotune-gaussian-process-noise", arg: "F", def: "0.8", help: "its noise", void: noTuning, set: numberToEnv("HOROVOD_AUTOTUNE_GAUSSIAN_PROCESS_NOISE", 0, 1, 1)},
		{spellings: "--no-stall-check", help: "do not warn of ranks that wait", set: switchEnv("HOROVOD_STALL_CHECK_DISABLE", "1")},
		{spellings: "--stall-check", help: "warn of ranks that wait (the default)", set: switchEnv("HOROVOD_STALL_CHECK_DISABLE", "0")},
		{spellings: "--stall-check-warning-time-seconds", arg: "S", def: "60", help: "warn after this time", set: secondsToEnv("HOROVOD_STALL_CHECK_TIME_SECONDS", 0)},
		{spellings: "--stall-check-shutdown-time-seconds", arg: "S", def: "0", help: "end the job after this time; 0 is never", set: secondsToEnv("HOROVOD_STALL_SHUTDOWN_TIME_SECONDS", 0)},
	}
}

func libraryFlags() []flagRow {
	return []flagRow{
		{spellings: "--mpi-threads-disable", help: "MPI without threads", void: noMPI, set: switchEnv("HOROVOD_MPI_THREADS_DISABLE", "1")},
		{spellings: "--no-mpi-threads-disable", help: "MPI with threads", void: noMPI, set: switchEnv("HOROVOD_MPI_THREADS_DISABLE", "0")},
		{spellings: "--mpi-args", arg: "ARGS", help: "further arguments of mpirun", void: noMPI, set: setNone},
		{spellings: "--tcp", help: "TCP for MPI", void: noMPI, set: setNone},
		{spellings: "--binding-args", arg: "ARGS", help: "how mpirun binds processes; see --bind", void: noMPI, set: setNone},
		{spellings: "--num-nccl-streams", arg: "N", def: "1", help: "NCCL streams", void: oneNCCL, set: numberToEnv("HOROVOD_NUM_NCCL_STREAMS", 1, 1024, 1)},
		{spellings: "--thread-affinity", arg: "CPU", help: "where Horovod's thread runs", void: "operations run on the caller's thread", set: toEnv("HOROVOD_THREAD_AFFINITY")},
		{spellings: "--gloo-timeout-seconds", arg: "S", def: "30", help: "how long workers wait for each other at the start", set: secondsToEnv("HOROVOD_GLOO_TIMEOUT_SECONDS", time.Second)},
		{spellings: "--gloo", help: "Horovod's Gloo controller", void: alwaysHora, set: setController("gloo")},
		{spellings: "--mpi", help: "Horovod's MPI controller", void: alwaysHora, set: setController("mpi")},
		{spellings: "--jsrun", help: "Horovod's jsrun launcher", void: alwaysHora, set: setController("jsrun")},
	}
}

// setNotice keeps what tells that a host is about to go.
func setNotice(o *options, v string) error {
	o.drainOn = v
	if command, ok := strings.CutPrefix(v, "sh:"); ok {
		if strings.TrimSpace(command) == "" {
			return fmt.Errorf("%q has no command after the colon", v)
		}
		return nil
	}
	if v == "" {
		return errors.New("it is empty: name a file, or a command as sh:COMMAND")
	}
	if _, err := os.Stat(v); err == nil {
		return fmt.Errorf("%s is there already: remove it, or name a file that appears when a host is about to go", v)
	}
	var err error
	o.drainOn, err = filepath.Abs(v)
	return err
}

func setController(name string) func(*options, string) error {
	return func(o *options, v string) error {
		if v == "true" {
			o.controllers = append(o.controllers, name)
		}
		return nil
	}
}
