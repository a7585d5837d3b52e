package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"hora/job"
)

// TestDefaultsAreHorovodruns: what the help names as the default is what horovodrun documents.
func TestDefaultsAreHorovodruns(t *testing.T) {
	table := job.Fields()
	for flag, want := range map[string]string{
		"--disable-cache": "false", "--start-timeout": "30", "--fusion-threshold-mb": "128", "--cycle-time-ms": "1", "--cache-capacity": "1024",
		"--autotune-warmup-samples": "3", "--autotune-steps-per-sample": "10", "--autotune-bayes-opt-max-samples": "20", "--autotune-gaussian-process-noise": "0.8",
		"--min-np": "-np", "--max-np": "", "--slots-per-host": "", "--elastic-timeout": "600", "--reset-limit": "", "--blacklist-cooldown-range": "",
		"--stall-check-warning-time-seconds": "60", "--stall-check-shutdown-time-seconds": "0", "--num-nccl-streams": "1", "--gloo-timeout-seconds": "30",
		"--log-level": "WARNING", "--mpi-args": "", "--binding-args": "", "--thread-affinity": "", "--autotune": "", "--timeline-filename": "",
	} {
		if row := job.Find(table, flag); row == nil || row.Default != want {
			t.Errorf("%s: %+v, want the default %q", flag, row, want)
		}
	}
}

// TestSectionsOfTheConfigurationFile that only flags without an effect here have.
func TestSectionsOfTheConfigurationFile(t *testing.T) {
	dir := t.TempDir()
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, "c.yaml"), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write(`
controller: gloo
autotune:
  enabled: true
  log_file: /tmp/tune.csv
  warmup_samples: 4
  steps_per_sample: 11
  bayes_opt_max_samples: 21
  gaussian_process_noise: 0.5
library_options:
  mpi_threads_disable: true
  num_nccl_streams: 2
  thread_affinity: 5
  gloo_timeout_seconds: 31
`)
	show := `echo $HOROVOD_AUTOTUNE $HOROVOD_AUTOTUNE_LOG $HOROVOD_AUTOTUNE_WARMUP_SAMPLES $HOROVOD_AUTOTUNE_STEPS_PER_SAMPLE ` +
		`$HOROVOD_AUTOTUNE_BAYES_OPT_MAX_SAMPLES $HOROVOD_AUTOTUNE_GAUSSIAN_PROCESS_NOISE ` +
		`$HOROVOD_MPI_THREADS_DISABLE $HOROVOD_NUM_NCCL_STREAMS $HOROVOD_THREAD_AFFINITY $HOROVOD_GLOO_TIMEOUT_SECONDS`
	r := command(t, dir, "hora", "run", "--config-file", "c.yaml", "--no-tag", "sh", "-c", show)
	if want := "1 /tmp/tune.csv 4 11 21 0.5 1 2 5 31\n"; r.code != 0 || r.out != want {
		t.Errorf("%+v, want %q", r, want)
	}
	write("controller: slurm\n")
	if r := command(t, dir, "hora", "run", "--config-file", "c.yaml", "true"); r.code != 2 || !strings.Contains(r.err, "c.yaml:1: controller: there is no such setting") {
		t.Errorf("%+v", r)
	}
	write("autotune:\n  warmup_samples: many\n")
	if r := command(t, dir, "hora", "run", "--config-file", "c.yaml", "true"); r.code != 2 || !strings.Contains(r.err, "c.yaml:2: warmup_samples: ") {
		t.Errorf("%+v", r)
	}
}

// TestCheckBuildOfRun: both commands answer the same.
func TestCheckBuildOfRun(t *testing.T) {
	want := horaCommand(t, "horovodrun", "--check-build")
	for _, flag := range []string{"-cb", "--check-build"} {
		if r := horaCommand(t, "run", flag); r != want || r.code != 0 || !strings.HasPrefix(r.out, "Horovod v") {
			t.Errorf("hora run %s: %+v, want %+v", flag, r, want)
		}
	}
}

// TestAReportThatCannotBeWritten is an error before anything starts, and a look at the file leaves none.
func TestAReportThatCannotBeWritten(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "file"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ file, want string }{
		{"file/story", "hora: write the job's report: open file/story: not a directory: name a file in a folder that you may write to\n"},
		{".", "hora: write the job's report: open .: is a directory: name a file in a folder that you may write to\n"},
	} {
		if r := command(t, dir, "hora", "run", "--report", c.file, "echo", "started"); r.code != 73 || r.err != c.want || r.out != "" {
			t.Errorf("%s: %+v, want %q", c.file, r, c.want)
		}
	}
	if r := command(t, dir, "hora", "run", "--report", "story", "-H", "no-such-host.invalid:1", "true"); r.code != 68 {
		t.Errorf("%+v", r)
	}
	if _, err := os.Stat(filepath.Join(dir, "story")); err == nil {
		t.Error("an empty report is left")
	}
}

// TestAFlagWinsOverWhatIsExported: also over the variable of ours that means the same as Horovod's.
func TestAFlagWinsOverWhatIsExported(t *testing.T) {
	for _, f := range job.Fields() {
		for name := range strings.FieldsSeq(f.Vars) {
			if f.Key != "peer_timeout" && f.Key != "tls" && f.Key != "legacy" && strings.HasPrefix(name, "HORA_") {
				t.Setenv(name, "99")
			}
		}
	}
	show := `echo $HORA_TIMELINE $HORA_STALL_WARN $HORA_STALL_END $HORA_NAMES $HORA_FUSION_BYTES $HORA_START_TIMEOUT $HORA_TIMELINE_MARK_CYCLES`
	r := horaCommand(t, "run", "--timeline", "/dev/null", "--stall-check-warning-time-seconds", "7", "--cache-capacity", "5",
		"--fusion-threshold-mb", "1", "--start-timeout", "20", "--timeline-mark-cycles", "--no-tag", "sh", "-c", show)
	if want := "/dev/null 7 99 5 1048576 20 1\n"; r.code != 0 || r.out != want {
		t.Errorf("%+v, want %q", r, want)
	}
}
