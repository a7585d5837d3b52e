package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestAJobFromAFile runs as its flags would, and what follows on the command line wins.
func TestAJobFromAFile(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	file("job.yaml", "np: 2\ncommand: sh -c 'echo $RANK of $WORLD_SIZE'\n")
	file("job.json", `{"command": ["sh", "-c", "echo $RANK of $WORLD_SIZE $A $(basename $PWD) $HORA_FUSION_BYTES"], "tag_output": false,
	"env": {"A": 1}, "dir": "`+dir+`", "fusion_threshold_mb": 1}`)
	file("bad.yaml", "command: echo\nnp: 2\nmin_nps: 1\n")
	file("odd.yaml", "np: 2\nmin_np: 3\ncommand: echo\n")
	file("there", "")
	file("drain.yaml", "restarts: 1\ncommand: echo\ndrain_on: there\n")
	for _, c := range []struct {
		args []string
		code int
		out  string
		err  string
	}{
		{[]string{"--file", "job.json"}, 0, "0 of 1 1 " + filepath.Base(dir) + " 1048576\n", ""},
		{[]string{"--file", "job.json", "--env", "A=2", "--fusion-threshold-mb", "2"}, 0, "0 of 1 2 " + filepath.Base(dir) + " 2097152\n", ""},
		{[]string{"--file", "job.yaml", "-np", "1"}, 0, "[0]<stdout>:0 of 1\n", ""},
		{[]string{"--file", "job.yaml", "-np", "1", "--no-tag", "echo", "x"}, 0, "x\n", ""},
		{[]string{"--file", "bad.yaml"}, 2, "", "hora: bad.yaml:3: there is no field \"min_nps\": did you mean min_np?: see hora run --help\n"},
		{[]string{"--file", "odd.yaml"}, 2, "", "hora: --min-np 3 is above -np 2: lower it, or raise -np\n"},
		{[]string{"--file", "drain.yaml"}, 2, "", "hora: there is there already: remove it, or name a file that appears when a host is about to go: see hora run --help\n"},
		{[]string{"--file", "none.yaml"}, 2, "", "hora: read --file \"none.yaml\": no such file or directory: name a file with lines such as \"np: 2\", as hora run --print-spec writes it: see hora run --help\n"},
		{[]string{"--dir", "none", "true"}, 2, "", "hora: --dir none: there is no such folder: name one, or make it\n"},
	} {
		if r := command(t, dir, "hora", append([]string{"run"}, c.args...)...); r.code != c.code || r.out != c.out ||
			r.err != c.err {
			t.Errorf("%q: %+v, want %+v", c.args, r, c)
		}
	}
	if r := command(t, dir, "hora", "horovodrun", "-np", "1", "--file", "job.yaml"); r.code != 2 || !strings.Contains(r.err, "unknown flag: --file") {
		t.Errorf("horovodrun takes --file: %+v", r)
	}
}

// TestTheJobThatFlagsDescribe is printed as a file that means the same.
func TestTheJobThatFlagsDescribe(t *testing.T) {
	dir := t.TempDir()
	for _, c := range []struct{ flags, want string }{
		{"-np 2 --no-tag --timeline t.json -H localhost:2 echo a", "command: [echo, a]\nnp: 2\nhosts: localhost:2\ntag_output: false\ntimeline: t.json\n"},
		{"--min-np 1 -np 2 --env A=1 --cycle-time-ms 3 true", "command: [\"true\"]\nenv:\n    A: \"1\"\n    HOROVOD_CYCLE_TIME: \"3\"\nnp: 2\nmin_np: 1\n"},
		{
			"-np 2 --reset-limit 3 --start-timeout 90 --blacklist-cooldown-range 10 100 true",
			"command: [\"true\"]\nnp: 2\nstart_timeout: 90s\nreset_limit: 3\non_loss: continue\nblacklist: host\nblacklist_cooldown_range: [10s, 100s]\n",
		},
	} {
		r := command(t, dir, "hora", append([]string{"run", "--print-spec"}, strings.Fields(c.flags)...)...)
		if r.code != 0 || r.out != c.want {
			t.Errorf("%s: %+v\nwant %s", c.flags, r, c.want)
		}
		if err := os.WriteFile(filepath.Join(dir, "again.yaml"), []byte(r.out), 0o644); err != nil {
			t.Fatal(err)
		}
		if again := command(t, dir, "hora", "run", "--file", "again.yaml", "--print-spec"); again != r {
			t.Errorf("%s: again %+v", c.flags, again)
		}
	}
	if r := horaCommand(t, "run", "--schema"); r.code != 0 || !strings.Contains(r.out, `"min_np": {`) {
		t.Errorf("%+v", r)
	}
}
