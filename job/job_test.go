package job_test

import (
	"encoding/json"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"hora/job"
)

// samples have a value for each field: as a flag takes it, and as a file has it where that differs.
var samples = map[string][2]string{
	"name": {"night"}, "np": {"8"}, "min_np": {"2"}, "max_np": {"16"}, "restarts": {"3"}, "reset_limit": {"4"}, "on_loss": {"continue"},
	"env": {"LR=0.1", "{LR: 0.1}"}, "dir": {"/data"}, "bind": {"none"}, "gpus_per_rank": {"1"}, "tls": {"true"}, "legacy": {"tf1"},
	"start_timeout": {"90"}, "peer_timeout": {"2m"}, "hosts": {"a:4,b:4", `"a:4,b:4"`}, "hostfile": {"hosts.txt"},
	"discover": {"./hosts.sh"}, "slots_per_host": {"2"}, "ssh_port": {"2222"}, "ssh_identity_file": {"key"},
	"remote_hora": {"/opt/hora"}, "port": {"9000"}, "network_interfaces": {"eth0,eth1", "[eth0, eth1]"},
	"elastic_timeout": {"600"}, "blacklist": {"slot"}, "blacklist_cooldown_range": {"10 100", "[10, 100s]"},
	"drain_on": {"sh:test -e x", `"sh:test -e x"`}, "coordinator_state": {"state"}, "log_dir": {"logs"},
	"tag_output": {"false"}, "prefix_output_with_timestamp": {"true"}, "events": {"e.json"}, "report": {"r.json"},
	"timeline": {"t.json"}, "timeline_mark_cycles": {"true"}, "fusion_threshold_mb": {"0.5"}, "cache_capacity": {"0"},
	"stall_check": {"false"}, "stall_check_warning_time_seconds": {"0"}, "stall_check_shutdown_time_seconds": {"1500ms"},
	"gloo_timeout_seconds": {"40"},
}

// set gives a field its sample as a flag does.
func set(t *testing.T, f *job.Field) *job.Spec {
	t.Helper()
	s := &job.Spec{}
	if err := f.Set(s, samples[f.Key][0]); err != nil || reflect.DeepEqual(s, &job.Spec{}) {
		t.Errorf("%s: %v, %+v", f.Key, err, s)
	}
	return s
}

// TestEachSettingIsOnce: a field of Spec is a row of the table, and means the same as a flag, in YAML, in JSON and
// written again.
func TestEachSettingIsOnce(t *testing.T) {
	rows := map[string]*job.Field{}
	table := job.Fields()
	for i := range table {
		f := &table[i]
		if f.Help == "" || !strings.HasPrefix(f.Flags, "--") || f.Key != "" && f.Own() {
			t.Errorf("%+v is incomplete", f)
		}
		if f.Key == "" {
			continue
		}
		if rows[f.Key] != nil {
			t.Errorf("two flags have the key %s", f.Key)
		}
		rows[f.Key] = f
		if !slices.Contains(strings.Fields(f.Flags), "--"+strings.ReplaceAll(f.Key, "_", "-")) {
			t.Errorf("%s: none of %s is called so: a key is a flag's spelling", f.Key, f.Flags)
		}
	}
	spec := reflect.TypeFor[job.Spec]()
	for i := range spec.NumField() {
		key, _, _ := strings.Cut(spec.Field(i).Tag.Get("json"), ",")
		if key == "command" {
			continue
		}
		f := rows[key]
		if f == nil {
			t.Errorf("%s has no flag", key)
			continue
		}
		delete(rows, key)
		want, file := set(t, f), samples[key][1]
		if file == "" {
			file = samples[key][0]
		}
		if got, err := job.Parse("j", []byte(key+": "+file+"\n")); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %s: %v, %+v, want %+v", key, file, err, got, want)
		}
		if got, err := job.Parse("j", want.YAML()); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: written as %q: %v, %+v", key, want.YAML(), err, got)
		}
		text, err := json.Marshal(want)
		got := &job.Spec{}
		if err == nil {
			err = json.Unmarshal(text, got)
		}
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: as JSON %s: %v, %+v", key, text, err, got)
		}
		want.Command = []string{"true"}
		if err := want.Check(); err != nil && key != "drain_on" && key != "on_loss" {
			t.Errorf("%s: %v", key, err)
		}
	}
	for key := range rows {
		t.Errorf("%s is no field of Spec", key)
	}
}

func TestAJobsFile(t *testing.T) {
	want := &job.Spec{
		Command: []string{"python", "train.py", "--lr", "0.1", "a b"}, NP: 4,
		Env: map[string]string{"A": "1", "B": "", "C": "x y"},
	}
	for name, text := range map[string]string{
		"words":  "command: python train.py --lr 0.1 'a b'\nnp: 4\nenv:\n  A: 1\n  B:\n  C: x y\n",
		"list":   "# a job\ncommand: [python, train.py, --lr, 0.1, a b]\nnp: \"4\"\nenv: {A: 1, B: null, C: \"x y\"}\n",
		"JSON":   "{\n\t\"command\": [\"python\", \"train.py\", \"--lr\", \"0.1\", \"a b\"],\n\t\"np\": 4, \"env\": {\"A\": 1, \"B\": null, \"C\": \"x y\"}\n}\n",
		"anchor": "env: &e {A: 1, B: '', C: x y}\nnp: 4\ncommand: python train.py --lr 0.1 \"a b\"\n",
	} {
		if got, err := job.Parse(name, []byte(text)); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %v, %+v", name, err, got)
		}
	}
	if got, err := job.Parse("j", []byte("{\"name\": \"\\ud83d\\ude80\"}")); err != nil || got.Name != "🚀" {
		t.Errorf("%v, %+v", err, got)
	}
	if got, err := job.Parse("j", nil); err != nil || !reflect.DeepEqual(got, &job.Spec{}) {
		t.Errorf("%v, %+v", err, got)
	}
}

func TestFaultsInAJobsFile(t *testing.T) {
	for text, want := range map[string]string{
		"np: 2\nmin_nps: 1\n":                  `j:2: there is no field "min_nps": did you mean min_np?`,
		"num_proc: 2\n":                        `j:1: there is no field "num_proc": did you mean np?`,
		"log-dir: x\n":                         `j:1: there is no field "log-dir": did you mean log_dir?`,
		"restarts: 1\nrestart: 2\n":            `j:2: there is no field "restart": did you mean restarts?`,
		"colour: blue\n":                       `j:1: there is no field "colour": docs/job-file.md has them all, and so has hora run --schema`,
		"np: 2\nname: x\nnp: 3\n":              `j:3: np stands in line 1 already: leave one of them out`,
		"{\"np\": 2,\n\"np\": 3}":              `j:2: np stands in line 1 already: leave one of them out`,
		"\n\nnp: many\n":                       `j:3: np: "many" is not a whole number from 1 to 1048576`,
		"{\n\t\"np\": 1.5\n}":                  `j:2: np: "1.5" is not a whole number from 1 to 1048576`,
		"np:\n":                                `j:1: np: it has no value: write one, or leave the line out`,
		"np: [1]\n":                            `j:1: np: it takes one value: write it as "np: 2"`,
		"tls: maybe\n":                         `j:1: tls: "maybe" is neither true nor false`,
		"tls: {a: 1}\n":                        `j:1: tls: it takes one value: write it as "tls: true"`,
		"on_loss: stop\n":                      `j:1: on_loss: "stop" is neither continue nor replace`,
		"start_timeout: soon\n":                `j:1: start_timeout: "soon" is not a time above 0: write seconds, or 500ms, 10s, 2m`,
		"env: [A=1]\n":                         `j:1: env: it is lines NAME: VALUE, further in than its own`,
		"env:\n  A: [1]\n":                     `j:1: env: line 2: A takes one value`,
		"env:\n  A=: 1\n":                      `j:1: env: line 2: "A=" is no variable's name`,
		"command: {a: b}\n":                    `j:1: command: it is a list of words: write [python, train.py]`,
		"command: [a, [b]]\n":                  `j:1: command: line 1: it is a list of words`,
		"command: train > log\n":               `j:1: command: "train > log" has a '>', which only a shell understands: write [sh, -c, '…']`,
		"command: echo \"$HOME\"\n":            `j:1: command: "echo \"$HOME\"" has a '$', which only a shell understands: write [sh, -c, '…']`,
		"command: echo 'x\n":                   `j:1: command: "echo 'x" ends inside a quote: close it`,
		"blacklist_cooldown_range: [9]\n":      `j:1: blacklist_cooldown_range: "9" is not two times with 1 <= MIN <= MAX <= 3600 seconds, such as 10 100`,
		"- np\n":                               `j:1: a job is lines such as "np: 2"`,
		"np: @\n":                              `j: it is no YAML (found character that cannot start any token): write lines such as "command: [python, train.py]"`,
		"a: &a [*a]\nnetwork_interfaces: *a\n": `j:1: there is no field "a": docs/job-file.md has them all, and so has hora run --schema`,
	} {
		if _, err := job.Parse("j", []byte(text)); err == nil || err.Error() != want {
			t.Errorf("%q: %v\nwant %s", text, err, want)
		}
	}
}

func TestCheck(t *testing.T) {
	run := []string{"true"}
	for want, s := range map[string]job.Spec{
		"there is no command to start: write it after the flags, as in hora run -np 2 python train.py": {},
		`np: "-1" is not a whole number from 1 to 1048576`:                                             {Command: run, NP: -1},
		`bind: "all" is neither core nor none`:                                                         {Command: run, Bind: "all"},
		`env: "=x" is not NAME=VALUE`: {
			Command: run,
			Env:     map[string]string{"": "x"},
		},
		"--min-np 3 is above -np 2: lower it, or raise -np":                     {Command: run, NP: 2, MinNP: 3},
		"-H, --hostfile and --discover each say where to run: give one of them": {Command: run, Hosts: "a", Discover: "b"},
	} {
		if err := s.Check(); err == nil || err.Error() != want {
			t.Errorf("%+v: %v, want %s", s, err, want)
		}
	}
}

func TestWhatWorkersHear(t *testing.T) {
	s, err := job.Parse("j", []byte("start_timeout: 1m30s\nfusion_threshold_mb: 0.5\nstall_check: false\ntls: true\nenv: {B: 2, A: 1}\n"))
	want := []string{
		"HORA_TLS=1", "HOROVOD_START_TIMEOUT=90", "HORA_START_TIMEOUT=90", "HOROVOD_FUSION_THRESHOLD=524288",
		"HORA_FUSION_BYTES=524288", "HOROVOD_STALL_CHECK_DISABLE=1", "A=1", "B=2",
	}
	if got := s.WorkerEnv(); err != nil || !slices.Equal(got, want) {
		t.Errorf("%v, %q", err, got)
	}
	if got := (&job.Spec{}).WorkerEnv(); len(got) > 0 {
		t.Errorf("%q", got)
	}
}

// TestSchema is valid JSON, has every field, and refuses others.
func TestSchema(t *testing.T) {
	var schema struct {
		AdditionalProperties *bool
		Properties           map[string]struct {
			Type        any
			Description string
			Enum        []string
		}
	}
	if err := json.Unmarshal(job.Schema(), &schema); err != nil || schema.AdditionalProperties == nil ||
		*schema.AdditionalProperties {
		t.Fatalf("%v\n%s", err, job.Schema())
	}
	for key := range samples {
		if p := schema.Properties[key]; p.Type == nil || p.Description == "" {
			t.Errorf("%s: %+v", key, p)
		}
	}
	if len(schema.Properties) != len(samples)+1 || !slices.Equal(schema.Properties["on_loss"].Enum, []string{"continue", "replace"}) {
		t.Errorf("%+v", schema.Properties)
	}
}

func TestStates(t *testing.T) {
	for _, s := range job.States() {
		if s.Ended() == s.Next(job.Cancelled) {
			t.Errorf("%s: ended %v, and may be cancelled %v", s, s.Ended(), s.Next(job.Cancelled))
		}
		for _, to := range job.States() {
			if s.Ended() && s.Next(to) {
				t.Errorf("%s goes on to %s", s, to)
			}
		}
	}
	if job.Queued.Next(job.Finished) || !job.Running.Next(job.Queued) || job.State("").Next(job.Failed) {
		t.Error("queued → finished, running → queued or \"\" → failed")
	}
}

const again = "run HORA_WRITE=1 go test ./job and look at the difference"

// held compares a part of a file that is made from the table with the table, or writes it.
func held(t *testing.T, path, from, to, want string) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(text), from)
	got, after, ok2 := strings.Cut(rest, to)
	if !ok || !ok2 {
		t.Fatalf("%s lacks %q or %q", path, from, to)
	}
	if got == want {
		return
	}
	if os.Getenv("HORA_WRITE") == "" {
		t.Errorf("%s is not what the table of settings says: %s; it should be\n%s", path, again, want)
	} else if err := os.WriteFile(path, []byte(before+from+want+to+after), 0o644); err != nil {
		t.Error(err)
	}
}

// TestPage holds docs/job-file.md to the table.
func TestPage(t *testing.T) {
	var b strings.Builder
	for _, f := range job.Fields() {
		if f.Key == "" {
			continue
		}
		note := strings.ReplaceAll(f.Help, "|", `\|`)
		if f.Default != "" {
			note += " (default " + f.Default + ")"
		}
		if f.Torch != "" {
			note += "; `" + f.Torch + "` of torchrun's is its default"
		}
		value := samples[f.Key][1]
		if value == "" {
			value = samples[f.Key][0]
		}
		flag := "--" + strings.ReplaceAll(f.Key, "_", "-")
		b.WriteString("| `" + f.Key + ": " + value + "` | `" + flag + "` | " + note + " |\n")
	}
	held(t, "../docs/job-file.md", "| --- | --- | --- |\n", "\n## Horovod", b.String())
}

// TestPython holds the keyword arguments of Python's hora.run to the table.
func TestPython(t *testing.T) {
	explicit := []string{"np", "min_np", "max_np", "hosts", "hostfile", "env"} // arguments of run itself
	types := map[string]string{
		"int": "int", "*int": "int", "*float64": "float", "bool": "bool", "*bool": "bool", "[]string": "str | Sequence[str]",
		"time.Duration": "float | str", "*time.Duration": "float | str", "job.Cooldown": "Sequence[float | str]",
	}
	of := map[string]string{}
	spec := reflect.TypeFor[job.Spec]()
	for i := range spec.NumField() {
		key, _, _ := strings.Cut(spec.Field(i).Tag.Get("json"), ",")
		if of[key] = types[spec.Field(i).Type.String()]; of[key] == "" {
			of[key] = "str"
		}
	}
	var class, flags strings.Builder
	for _, f := range job.Fields() {
		if f.Key == "" || slices.Contains(explicit, f.Key) {
			continue
		}
		class.WriteString("    " + f.Key + ": " + of[f.Key] + "\n")
		flags.WriteString("    \"" + f.Key + "\": \"--" + f.Name() + "\",\n")
	}
	const path = "../python/hora/_settings.py"
	held(t, path, "total=False):\n", "\n\nFLAGS", class.String())
	held(t, path, "FLAGS = {\n", "}\n", flags.String())
}

// TestAJobIsWrittenFromOneTable: a server reads and writes jobs thousands of times a second, so that the table of
// settings, with its hundreds of strings, is not to be made anew for each.
func TestAJobIsWrittenFromOneTable(t *testing.T) {
	s := &job.Spec{Command: []string{"python", "train.py"}, NP: 2}
	if n := testing.AllocsPerRun(20, func() { _, _ = s.MarshalJSON() }); n > 100 {
		t.Errorf("a job of two settings is written with %v allocations", n)
	}
	text, _ := s.MarshalJSON()
	if n := testing.AllocsPerRun(20, func() { _ = new(job.Spec).UnmarshalJSON(text) }); n > 300 {
		t.Errorf("a job of two settings is read with %v allocations", n)
	}
}

// TestAJobThatIsNoFile: what is wrong with one that came as an object is told without a line of a file.
func TestAJobThatIsNoFile(t *testing.T) {
	for text, says := range map[string]string{
		`{"command": ["true"], "np": "two"}`: "np: ",
		`{"nq": 2}`:                          `there is no field "nq"`,
		`{"np": 2, "np": 3}`:                 "np is there twice",
		`["true"]`:                           "a job is an object such as {",
	} {
		err := json.Unmarshal([]byte(text), new(job.Spec))
		if err == nil || !strings.HasPrefix(err.Error(), says) {
			t.Errorf("%s: %v, and not %s", text, err, says)
		}
	}
}
