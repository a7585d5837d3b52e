package job

import "time"

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
)

func basicFields() []Field {
	return []Field{
		{
			Key: "np", Flags: "--num-proc -np --np", Arg: "N",
			Help:  "number of processes; without it the slots of -H or --hostfile, else 1",
			Torch: "PET_NPROC_PER_NODE", set: setInt(func(s *Spec) *int { return &s.NP }, 1, 1<<20),
		},
		{Flags: "--module -m", Arg: "MODULE", Help: "start python -m MODULE; what follows are its arguments"},
		{Flags: "--version -v", Help: "print the version"},
		{Flags: "--check-build -cb", Help: "print what this build can do"},
		{Flags: "--verbose", Help: "tell what the launcher does"},
		{Flags: "--dry-run", Help: "print the plan (host, rank, cores, command) and start nothing"},
		{
			Flags: "--print-spec", Ours: true,
			Help: "print the job that the flags describe as YAML, for --file, and start nothing",
		},
		{Flags: "--schema", Help: "print the JSON Schema of a job's file", Ours: true},
		{
			Flags: "--config-file", Arg: "FILE",
			Help: "read flags from a YAML file; what follows on the command line wins",
		},
		{
			Flags: "--file", Arg: "FILE", Ours: true,
			Help: "start the job that a YAML or JSON file describes; what follows on the command line wins",
		},
		{
			Key: "start_timeout", Flags: "--start-timeout", Arg: "SECONDS", Default: "30",
			Help: "until every host has answered; where it is given also until all ranks have joined, else 30 " +
				"minutes",
			Vars: "HOROVOD_START_TIMEOUT HORA_START_TIMEOUT",
			set:  setTime(func(s *Spec) *time.Duration { return &s.StartTimeout }),
		},
		{
			Key: "peer_timeout", Flags: "--peer-timeout", Arg: "SECONDS", Default: "10",
			Help: "a rank or host that is silent for so long counts as lost", Vars: "HORA_PEER_TIMEOUT",
			set: setTime(func(s *Spec) *time.Duration { return &s.PeerTimeout }),
		},
		{
			Flags: "--stdin", Arg: "RANK",
			Help: "the rank on this machine that reads this terminal, file or pipe, for breakpoint() and " +
				"input(); without it rank 0, and a terminal only where -np is 1",
		},
		{
			Key: "env", Flags: "--env", Arg: "NAME=VALUE", Help: "set a variable for the workers; repeatable",
			set: setEnvironment,
		},
		{
			Key: "dir", Flags: "--dir", Arg: "DIR", Ours: true,
			Help: "start the workers in this folder and not in the present one",
			set:  setText(func(s *Spec) *string { return &s.Dir }),
		},
		{
			Key: "bind", Flags: "--bind", Arg: "core|none", Default: "core",
			Help: "give each worker cores of its own",
			set:  oneOf(func(s *Spec) *Bind { return &s.Bind }, BindCore, BindNone),
		},
		{
			Key: "gpus_per_rank", Flags: "--gpus-per-rank", Arg: "N",
			Help: "give each rank N devices through CUDA_VISIBLE_DEVICES",
			set:  setInt(func(s *Spec) *int { return &s.GPUsPerRank }, 1, 1024),
		},
		{Flags: "--secret-file", Arg: "FILE", Help: "use this secret (mode 0600) instead of a new one"},
		{
			Key: "tls", Flags: "--tls", Help: "encrypt what workers on different hosts say to each other",
			Vars: "HORA_TLS", set: setBool(func(s *Spec) *bool { return &s.TLS }),
		},
		{
			Key: "legacy", Flags: "--legacy", Arg: "tf1",
			Help: "give today's TensorFlow and Keras the names of TensorFlow 1 and Keras 2 that they lack",
			Vars: "HORA_LEGACY", set: setLegacy,
		},
		{
			Key: "name", Flags: "--job --name", Arg: "NAME", Help: "the job's name in messages",
			set: setString(func(s *Spec) *string { return &s.Name }),
		},
		{Flags: "--disable-cache", Default: "false", Help: "check hosts anew", Void: noSearch, set: setNone},
	}
}

func hostFields() []Field {
	return []Field{
		{
			Key: "hosts", Flags: "--hosts -H", Arg: "h1:4,h2:4", Help: "hosts and their slots, filled in order",
			set: setText(func(s *Spec) *string { return &s.Hosts }),
		},
		{
			Key: "hostfile", Flags: "--hostfile -hostfile", Arg: "FILE",
			Help: "hosts from a file with lines \"name slots=N\"",
			set:  setText(func(s *Spec) *string { return &s.Hostfile }),
		},
		{
			Key: "ssh_port", Flags: "--ssh-port -p", Arg: "PORT", Help: "ssh port of the other hosts",
			set: setInt(func(s *Spec) *int { return &s.SSHPort }, 1, 65535),
		},
		{
			Key: "ssh_identity_file", Flags: "--ssh-identity-file -i", Arg: "FILE",
			Help: "ssh key for the other hosts",
			set:  setText(func(s *Spec) *string { return &s.SSHIdentityFile }),
		},
		{
			Key: "remote_hora", Flags: "--remote-hora", Arg: "PATH",
			Help: "hora's place on the other hosts; without it this one is copied there",
			set:  setText(func(s *Spec) *string { return &s.RemoteHora }),
		},
		{
			Key: "port", Flags: "--port", Arg: "PORT", Default: "a free one",
			Help: "where the workers meet: for networks that let few ports through",
			set:  setInt(func(s *Spec) *int { return &s.Port }, 1, 65535),
		},
		{
			Key: "network_interfaces", Flags: "--network-interfaces --network-interface", Arg: "NAME[,NAME]",
			Help: "use addresses of these interfaces only; repeatable", set: setInterfaces,
		},
	}
}

func outputFields() []Field {
	return []Field{
		{
			Key: "log_dir", Flags: "--output-filename --log-dir", Arg: "DIR",
			Help: "also write DIR/rank.N/stdout and stderr",
			set:  setText(func(s *Spec) *string { return &s.LogDir }),
		},
		{
			Key: "tag_output", Flags: "--tag-output", Default: "true",
			Help: "begin each line with [rank]<stream>:",
			set:  setChoice(func(s *Spec) **bool { return &s.TagOutput }),
		},
		{
			Flags: "--no-tag", Help: "pass output on as it is",
			set: setOpposite(func(s *Spec) **bool { return &s.TagOutput }),
		},
		{
			Key: "prefix_output_with_timestamp", Flags: "--prefix-output-with-timestamp -prefix-timestamp",
			Help: "begin each tagged line with the time",
			set:  setBool(func(s *Spec) *bool { return &s.Timestamps }),
		},
		{
			Flags: "--call", Arg: "FILE", Ours: true,
			Help: "hand this file to every worker, on whatever host: HORA_CALL names its copy",
		},
		{
			Flags: "--results", Arg: "DIR", Ours: true,
			Help: "what a worker writes to the file that HORA_RESULT names arrives as DIR/rank.N",
		},
		{
			Flags: "--until-stdin-ends", Ours: true,
			Help: "the end of standard input ends the job, or leaves one with --coordinator-state to whoever adopts it: " +
				"of the program that started it, in whatever way",
		},
		{
			Key: "events", Flags: "--events", Arg: "FILE",
			Help: "write what happens to the job as lines of JSON, while it happens",
			set:  setText(func(s *Spec) *string { return &s.Events }),
		},
		{
			Key: "timeline", Flags: "--timeline-filename --timeline", Arg: "FILE",
			Help: "write a timeline of all operations", Horovod: "timeline.filename",
			Vars: "HOROVOD_TIMELINE HORA_TIMELINE", set: setTimeline,
		},
		{
			Key: "timeline_mark_cycles", Flags: "--timeline-mark-cycles",
			Help: "mark agreements in the timeline", Horovod: "timeline.mark-cycles",
			Vars: "HOROVOD_TIMELINE_MARK_CYCLES HORA_TIMELINE_MARK_CYCLES",
			set:  setChoice(func(s *Spec) **bool { return &s.TimelineMarkCycles }),
		},
		{
			Flags: "--no-timeline-mark-cycles", Help: "do not",
			set: setOpposite(func(s *Spec) **bool { return &s.TimelineMarkCycles }),
		},
		{
			Flags: "--log-level", Arg: "LEVEL", Default: "WARNING",
			Help: "what the workers' library logs: TRACE, DEBUG, INFO, WARNING, ERROR or FATAL", Void: onlyWarns,
			Horovod: "logging.level", set: setLogLevel,
		},
		{
			Flags: "--log-without-timestamp --log-hide-timestamp",
			Help:  "leave the time out of the library's log", Void: onlyWarns,
			Horovod: "!logging.with-timestamp logging.without-timestamp",
			set:     switchEnv("HOROVOD_LOG_HIDE_TIME", "1"),
		},
		{
			Flags: "--log-with-timestamp", Help: "put the time into the library's log", Void: onlyWarns,
			set: switchEnv("HOROVOD_LOG_HIDE_TIME", "0"),
		},
	}
}

func elasticFields() []Field {
	return []Field{
		{
			Key: "min_np", Flags: "--min-num-proc --min-np -min-np", Arg: "N", Default: "-np", Elastic: true,
			Help: "go on with no fewer processes", set: setInt(func(s *Spec) *int { return &s.MinNP }, 1, 1<<20),
		},
		{
			Key: "max_np", Flags: "--max-num-proc --max-np -max-np", Arg: "N", Elastic: true,
			Help: "never run more processes", set: setInt(func(s *Spec) *int { return &s.MaxNP }, 1, 1<<20),
		},
		{
			Key: "slots_per_host", Flags: "--slots-per-host --slots", Arg: "N", Elastic: true,
			Help: "slots of discovered hosts that name none",
			set:  setInt(func(s *Spec) *int { return &s.SlotsPerHost }, 1, 1<<16),
		},
		{
			Key: "elastic_timeout", Flags: "--elastic-timeout", Arg: "SECONDS", Default: "600", Elastic: true,
			Help: "how long to wait for enough processes after a change", Vars: "HOROVOD_ELASTIC_TIMEOUT",
			set: setTime(func(s *Spec) *time.Duration { return &s.ElasticTimeout }),
		},
		{
			Key: "restarts", Flags: "--restarts", Arg: "N", Default: "0",
			Help: "how many losses the job survives", Torch: "PET_MAX_RESTARTS",
			set: setInt(func(s *Spec) *int { return &s.Restarts }, 0, 1<<30),
		},
		{
			Key: "reset_limit", Flags: "--reset-limit", Arg: "N", Elastic: true,
			Help: "how often the job may begin anew, since workers come or are lost; the others do not wait for those",
			set:  setInt(func(s *Spec) *int { return &s.ResetLimit }, 0, 1<<30),
		},
		{
			Key: "blacklist_cooldown_range", Flags: "--blacklist-cooldown-range", Arg: "MIN MAX", Elastic: true,
			Help: "seconds after which a host that was lost, or failed, is tried again; without it never",
			set:  setCooldown,
		},
		{
			Key: "blacklist", Flags: "--blacklist", Arg: "host|slot",
			Help: "what a failed worker takes away; host when the program is horovodrun or one of its elastic " +
				"flags is used, else slot",
			set: oneOf(func(s *Spec) *Blacklist { return &s.Blacklist }, ByHost, BySlot),
		},
		{
			Key: "on_loss", Flags: "--on-loss", Arg: "continue|replace",
			Help: "survivors go on as fewer, or wait for a replacement",
			set:  oneOf(func(s *Spec) *OnLoss { return &s.OnLoss }, Continue, Replace),
		},
		{
			Key: "drain_on", Flags: "--drain-on", Arg: "FILE|sh:COMMAND",
			Help: "a host on which this file appears, or this command succeeds, is about to go: its workers " +
				"commit and leave",
			set: setDrain,
		},
		{
			Key: "coordinator_state", Flags: "--coordinator-state", Arg: "DIR",
			Help: "run the coordinator as a process of its own that keeps its state here, and start it again " +
				"when it is killed; --adopt then takes the job over when hora run itself is killed",
			set: setString(func(s *Spec) *string { return &s.CoordinatorState }),
		},
		{
			Flags: "--adopt", Arg: "DIR", Ours: true,
			Help: "take over the running job whose --coordinator-state is DIR and whose launcher was killed",
		},
		{
			Key: "report", Flags: "--report", Arg: "FILE",
			Help: "write the job's story as JSON: epochs, who left and why, what it cost",
			set:  setString(func(s *Spec) *string { return &s.Report }),
		},
		{
			Key: "discover", Flags: "--discover", Arg: "SCRIPT",
			Help: "a program that prints the hosts at hand as host:slots lines",
			set:  setString(func(s *Spec) *string { return &s.Discover }),
		},
		{
			Flags: "--host-discovery-script", Arg: "SCRIPT", Elastic: true,
			Help: "the same as horovodrun means it: see --blacklist",
			set:  setString(func(s *Spec) *string { return &s.Discover }),
		},
	}
}

func tuningFields() []Field {
	return []Field{
		{
			Key: "fusion_threshold_mb", Flags: "--fusion-threshold-mb", Arg: "MB", Default: "128",
			Help: "pack small tensors up to this size", Horovod: "params.fusion-threshold-mb",
			Vars: "HOROVOD_FUSION_THRESHOLD HORA_FUSION_BYTES", set: setFusion,
		},
		{
			Flags: "--cycle-time-ms", Arg: "MS", Default: "1", Help: "Horovod's cycle", Void: noCycle,
			Horovod: "params.cycle-time-ms", set: numberToEnv("HOROVOD_CYCLE_TIME", 0, 1e9),
		},
		{
			Key: "cache_capacity", Flags: "--cache-capacity", Arg: "N", Default: "1024",
			Help:    "how many names have standing plans; 0 agrees on each operation anew",
			Horovod: "params.cache-capacity", Vars: "HOROVOD_CACHE_CAPACITY HORA_NAMES", set: setCache,
		},
	}
}

func ignoredFields() []Field {
	return []Field{
		{
			Flags: "--hierarchical-allreduce", Help: "Horovod's layered allreduce", Void: noLayers,
			Horovod: "params.hierarchical-allreduce", set: switchEnv("HOROVOD_HIERARCHICAL_ALLREDUCE", "1"),
		},
		{
			Flags: "--no-hierarchical-allreduce", Help: "not that", Void: noLayers,
			set: switchEnv("HOROVOD_HIERARCHICAL_ALLREDUCE", "0"),
		},
		{
			Flags: "--hierarchical-allgather", Help: "Horovod's layered allgather", Void: noLayers,
			Horovod: "params.hierarchical-allgather", set: switchEnv("HOROVOD_HIERARCHICAL_ALLGATHER", "1"),
		},
		{
			Flags: "--no-hierarchical-allgather", Help: "not that", Void: noLayers,
			set: switchEnv("HOROVOD_HIERARCHICAL_ALLGATHER", "0"),
		},
		{
			Flags: "--torus-allreduce", Help: "Horovod's torus allreduce", Void: noLayers,
			Horovod: "params.torus-allreduce", set: switchEnv("HOROVOD_TORUS_ALLREDUCE", "1"),
		},
		{
			Flags: "--no-torus-allreduce", Help: "not that", Void: noLayers,
			set: switchEnv("HOROVOD_TORUS_ALLREDUCE", "0"),
		},
		{
			Flags: "--autotune", Help: "Horovod's search for settings", Void: noTuning,
			Horovod: "autotune.enabled", set: switchEnv("HOROVOD_AUTOTUNE", "1"),
		},
		{Flags: "--no-autotune", Help: "not that", Void: noTuning, set: switchEnv("HOROVOD_AUTOTUNE", "0")},
		{
			Flags: "--autotune-log-file", Arg: "FILE", Help: "its log", Void: noTuning,
			Horovod: "autotune.log-file", set: toEnv("HOROVOD_AUTOTUNE_LOG"),
		},
		{
			Flags: "--autotune-warmup-samples", Arg: "N", Default: "3", Help: "its samples to throw away",
			Void: noTuning, Horovod: "autotune.warmup-samples",
			set: numberToEnv("HOROVOD_AUTOTUNE_WARMUP_SAMPLES", 0, 1<<30),
		},
		{
			Flags: "--autotune-steps-per-sample", Arg: "N", Default: "10", Help: "its steps per sample",
			Void: noTuning, Horovod: "autotune.steps-per-sample",
			set: numberToEnv("HOROVOD_AUTOTUNE_STEPS_PER_SAMPLE", 1, 1<<30),
		},
		{
			Flags: "--autotune-bayes-opt-max-samples", Arg: "N", Default: "20",
			Help: "its largest number of samples", Void: noTuning, Horovod: "autotune.bayes-opt-max-samples",
			set: numberToEnv("HOROVOD_AUTOTUNE_BAYES_OPT_MAX_SAMPLES", 1, 1<<30),
		},
		{
			Flags: "--autotune-gaussian-process-noise", Arg: "F", Default: "0.8", Help: "its noise",
			Void: noTuning, Horovod: "autotune.gaussian-process-noise",
			set: numberToEnv("HOROVOD_AUTOTUNE_GAUSSIAN_PROCESS_NOISE", 0, 1),
		},
	}
}

func stallFields() []Field {
	return []Field{
		{
			Flags: "--no-stall-check", Help: "do not warn of ranks that wait",
			set: setOpposite(func(s *Spec) **bool { return &s.StallCheck }),
		},
		{
			Key: "stall_check", Flags: "--stall-check", Help: "warn of ranks that wait (the default)",
			Horovod: "stall-check.enabled", Vars: "!HOROVOD_STALL_CHECK_DISABLE",
			set: setChoice(func(s *Spec) **bool { return &s.StallCheck }),
		},
		{
			Key: "stall_check_warning_time_seconds", Flags: "--stall-check-warning-time-seconds", Arg: "S", Default: "60",
			Help: "warn after this time", Horovod: "stall-check.warning-time-seconds",
			Vars: "HOROVOD_STALL_CHECK_TIME_SECONDS HORA_STALL_WARN",
			set:  setTimeFrom(0, func(s *Spec, d time.Duration) { s.StallWarning = &d }),
		},
		{
			Key: "stall_check_shutdown_time_seconds", Flags: "--stall-check-shutdown-time-seconds", Arg: "S", Default: "0",
			Help: "end the job after this time; 0 is never", Horovod: "stall-check.shutdown-time-seconds",
			Vars: "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS HORA_STALL_END",
			set:  setTimeFrom(0, func(s *Spec, d time.Duration) { s.StallShutdown = &d }),
		},
	}
}

func libraryFields() []Field {
	return []Field{
		{
			Flags: "--mpi-threads-disable", Help: "MPI without threads", Void: noMPI,
			Horovod: "library-options.mpi-threads-disable", set: switchEnv("HOROVOD_MPI_THREADS_DISABLE", "1"),
		},
		{
			Flags: "--no-mpi-threads-disable", Help: "MPI with threads", Void: noMPI,
			set: switchEnv("HOROVOD_MPI_THREADS_DISABLE", "0"),
		},
		{
			Flags: "--mpi-args", Arg: "ARGS", Help: "further arguments of mpirun", Void: noMPI,
			Horovod: "library-options.mpi-args", set: setNone,
		},
		{Flags: "--tcp", Help: "TCP for MPI", Void: noMPI, Horovod: "library-options.tcp", set: setNone},
		{
			Flags: "--binding-args", Arg: "ARGS", Help: "how mpirun binds processes; see --bind", Void: noMPI,
			Horovod: "library-options.binding-args", set: setNone,
		},
		{
			Flags: "--num-nccl-streams", Arg: "N", Default: "1", Help: "NCCL streams", Void: oneNCCL,
			Horovod: "library-options.num-nccl-streams", set: numberToEnv("HOROVOD_NUM_NCCL_STREAMS", 1, 1024),
		},
		{
			Flags: "--thread-affinity", Arg: "CPU", Help: "where Horovod's thread runs",
			Void: "operations run on the caller's thread", Horovod: "library-options.thread-affinity",
			set: toEnv("HOROVOD_THREAD_AFFINITY"),
		},
		{
			Key: "gloo_timeout_seconds", Flags: "--gloo-timeout-seconds", Arg: "S", Default: "30",
			Help:    "how long workers wait for each other at the start",
			Horovod: "library-options.gloo-timeout-seconds", Vars: "HOROVOD_GLOO_TIMEOUT_SECONDS",
			set: setTimeFrom(time.Second, func(s *Spec, d time.Duration) { s.GlooTimeout = d }),
		},
		{Flags: "--gloo", Help: "Horovod's Gloo controller", Void: alwaysHora},
		{Flags: "--mpi", Help: "Horovod's MPI controller", Void: alwaysHora},
		{Flags: "--jsrun", Help: "Horovod's jsrun launcher", Void: alwaysHora},
	}
}
