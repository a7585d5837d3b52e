package doctor

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"hora/probe"
)

// box is a root with these files, and programs that answer so; a program that is not named is not installed.
func box(t *testing.T, files, programs map[string]string) *Machine {
	t.Helper()
	root := t.TempDir()
	for name, text := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return &Machine{
		Root: root, Version: "1.2.3", Lookup: func(string) string { return "" },
		Command: func(_ context.Context, name string, args ...string) (string, error) {
			for key, out := range programs {
				words := strings.Fields(key)
				if words[0] != name || len(words) > 1 && !strings.Contains(strings.Join(args, " "), words[1]) {
					continue
				}
				if why, bad := strings.CutPrefix(out, "fails: "); bad {
					return "", errors.New(why)
				}
				return out, nil
			}
			return "", exec.ErrNotFound
		},
	}
}

const wellLimited = "Max open files            65536                65536                files\nMax locked memory         unlimited            unlimited            bytes\n" +
	"Max address space         unlimited            unlimited            bytes\n"

func limited(what, to string) string {
	return regexp.MustCompile(what+` +unlimited`).ReplaceAllString(wellLimited, what+" "+to)
}

// findings are what is found on machines with some files and programs.
var findings = []struct {
	name            string
	topic           string
	state           State
	text, do        string // what they contain
	files, programs map[string]string
}{
	{name: "version", topic: "hora", state: Good, text: "version 1.2.3"},
	{name: "no Linux", topic: "kernel", state: Note, text: "no /proc", do: "TCP"},
	{name: "odd kernel", topic: "kernel", state: Note, text: "release strange", files: map[string]string{"proc/sys/kernel/osrelease": "strange\n"}},
	{name: "old kernel", topic: "kernel", state: Problem, text: "release 4.18.0-el8 is old", do: "5.3", files: map[string]string{"proc/sys/kernel/osrelease": "4.18.0-el8\n"}},
	{name: "5.2", topic: "kernel", state: Problem, text: "5.2.1", do: "pidfd", files: map[string]string{"proc/sys/kernel/osrelease": "5.2.1\n"}},
	{name: "kernel", topic: "kernel", state: Good, text: "Linux 6.1.0-12", files: map[string]string{"proc/sys/kernel/osrelease": "6.1.0-12\n"}},
	{name: "cores", topic: "cores", state: Good, text: "2 NUMA nodes, Fast CPU (avx2 avx512f)", files: map[string]string{
		"proc/cpuinfo": "model name\t: Fast CPU\nflags\t\t: sse2 avx2 avx512f\n", "sys/devices/system/node/node0/x": "", "sys/devices/system/node/node1/x": "",
	}},
	{name: "throttled", topic: "cores", state: Note, text: "may use 0.5 of", do: "at most 1 ranks", files: map[string]string{"sys/fs/cgroup/cpu.max": "50000 100000\n"}},
	{name: "throttled in a group of its own", topic: "cores", state: Note, text: "(/sys/fs/cgroup/slurm/job7) may use 0.5 of", do: "at most 1 ranks", files: map[string]string{
		"proc/self/cgroup": "0::/slurm/job7/step\n", "sys/fs/cgroup/slurm/job7/cpu.max": "50000 100000\n", "sys/fs/cgroup/slurm/job7/step/cpu.max": "max 100000\n", "sys/fs/cgroup/slurm/cpu.max": "90000 100000\n",
	}},
	{name: "throttled by the first version", topic: "cores", state: Note, text: "(/sys/fs/cgroup/cpu/docker/x) may use 0.2 of", files: map[string]string{
		"proc/self/cgroup": "3:cpu,cpuacct:/docker/x\n0::/\n", "sys/fs/cgroup/cpu/docker/x/cpu.cfs_quota_us": "20000\n", "sys/fs/cgroup/cpu/docker/x/cpu.cfs_period_us": "100000\n", "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1\n",
	}},
	{name: "memory unknown", topic: "memory", state: Note, text: "size unknown"},
	{name: "memory", topic: "memory", state: Good, text: "8.0 GiB, 4.0 GiB available", files: map[string]string{"proc/meminfo": "MemTotal: 8388608 kB\nMemAvailable: 4194304 kB\n"}},
	{name: "container's memory", topic: "memory", state: Note, text: "may use 1.0 GiB", files: map[string]string{
		"proc/meminfo": "MemTotal: 8388608 kB\nMemAvailable: 4194304 kB\n", "sys/fs/cgroup/memory.max": "1073741824\n",
	}},
	{name: "a group's memory", topic: "memory", state: Note, text: "(/sys/fs/cgroup/user.slice/job) may use 2.0 GiB", do: "fit in that", files: map[string]string{
		"proc/meminfo": "MemTotal: 8388608 kB\nMemAvailable: 4194304 kB\n", "proc/self/cgroup": "0::/user.slice/job\n",
		"sys/fs/cgroup/user.slice/job/memory.max": "2147483648\n", "sys/fs/cgroup/user.slice/memory.max": "4294967296\n", "sys/fs/cgroup/memory.max": "max\n",
	}},
	{name: "a group's memory by the first version", topic: "memory", state: Note, text: "(/sys/fs/cgroup/memory/m) may use 2.0 GiB", files: map[string]string{
		"proc/meminfo": "MemTotal: 8388608 kB\nMemAvailable: 4194304 kB\n", "proc/self/cgroup": "3:memory:/m\n",
		"sys/fs/cgroup/memory/m/memory.limit_in_bytes": "2147483648\n", "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
	}},
	{name: "no memory", topic: "memory", state: Problem, text: "1.0 % of the memory", do: "end what is not needed", files: map[string]string{"proc/meminfo": "MemTotal: 10000000 kB\nMemAvailable: 100000 kB\n"}},
	{name: "limits", topic: "limits", state: Good, text: "ample", files: map[string]string{"proc/self/limits": wellLimited}},
	{
		name: "files", topic: "limits", state: Note, text: "1024 open files", do: "ulimit -n",
		files: map[string]string{"proc/self/limits": strings.Replace(wellLimited, "65536", "1024", 1)},
	},
	{name: "locked", topic: "limits", state: Note, text: "64 KiB may be locked", do: "ulimit -l", files: map[string]string{"proc/self/limits": limited("Max locked memory", "65536")}},
	{name: "address space", topic: "limits", state: Note, text: "32.0 GiB of address space", do: "ulimit -v unlimited", files: map[string]string{"proc/self/limits": limited("Max address space", "34359738368")}},
	{name: "little address space", topic: "limits", state: Problem, text: "2.0 GiB of address space", do: "ulimit -v unlimited", files: map[string]string{"proc/self/limits": limited("Max address space", "2147483648")}},
	{name: "no shm", topic: "shared memory", state: Note, text: "/dev/shm is missing", do: "memfd"},
	{name: "rights", topic: "rights", state: Good, text: "no filter"},
	{name: "seccomp", topic: "rights", state: Note, text: "seccomp filter", do: "memfd_create", files: map[string]string{"proc/self/status": "Name:\thora\nSeccomp:\t2\n"}},
	{name: "ptrace", topic: "rights", state: Note, text: "scope 3", do: "hora does not need it", files: map[string]string{"proc/sys/kernel/yama/ptrace_scope": "3\n"}},
	{name: "no ssh", topic: "ssh", state: Note, text: "ssh was not found", do: "openssh-client"},
	{name: "ssh", topic: "ssh", state: Good, text: "OpenSSH_9.2", programs: map[string]string{"ssh": "OpenSSH_9.2\nmore\n"}},
	{name: "no python", topic: "python", state: Note, text: "python3 was not found", do: "3.10"},
	{name: "python", topic: "python", state: Good, text: "python 3.11.7 /usr/bin/python3, hora 0.1.0, torch 2.15.0", programs: map[string]string{"python3": "python 3.11.7 /usr/bin/python3\nhora 0.1.0\ntorch 2.15.0\n"}},
	{name: "no package", topic: "python", state: Note, text: "hora is not installed", do: "pip install --no-index --find-links dist hora", programs: map[string]string{"python3": "python 3.11.7 /usr/bin/python3\n"}},
	{name: "two horovods", topic: "python", state: Problem, text: "horovod 0.28.1 is installed over hora-compat", do: "pip uninstall -y horovod", programs: map[string]string{"python3": "python 3.11.7 x\nhora 0.1.0\nhora-compat 0.1.0\nhorovod 0.28.1\n"}},
	{name: "another python", topic: "python", state: Good, text: "python 3.12.1 /opt/bin/python, torch 2.15.0", programs: map[string]string{"python3": "python 3.11.7 /usr/bin/python3\n", "python": "python 3.12.1 /opt/bin/python\ntorch 2.15.0\n"}},
	{name: "another python's package", topic: "python", state: Note, text: "hora is not installed for this python", do: "python -m pip install", programs: map[string]string{"python3": "python 3.11.7 /usr/bin/python3\nhora 0.1.0\n", "python": "python 3.12.1 /opt/bin/python\n"}},
	{name: "nccl of a package", topic: "gpu", state: Good, text: "/v/nvidia/nccl/lib/libnccl.so.2 (for python3.12)", programs: map[string]string{
		"python3": "python 3.11.7 /usr/bin/python3\n", "python3.12": "python 3.12.1 /v/bin/python3.12\ntorch 2.15.0\nnccl /v/nvidia/nccl/lib/libnccl.so.2\n", "nvidia-smi --query-gpu": "0, H200, 143771 MiB, 900 MiB\n",
	}},
	{name: "no gpu", topic: "gpu", state: Good, text: "no NVIDIA driver"},
	{name: "driver broken", topic: "gpu", state: Problem, text: "nvidia-smi failed: driver mismatch", do: "nvidia-smi", programs: map[string]string{"nvidia-smi": "fails: driver mismatch"}},
	{name: "held gpu", topic: "gpu", state: Note, text: "process 77, python3, 900 MiB", do: "end it", programs: map[string]string{
		"nvidia-smi --query-gpu": "0, H200, 143771 MiB, 900 MiB\n", "nvidia-smi --query-compute-apps": "77, python3, 900 MiB\n",
	}},
	{name: "no nccl", topic: "gpu", state: Note, text: "no libnccl", do: "libnccl2", programs: map[string]string{"nvidia-smi --query-gpu": "0, H200, 143771 MiB, 900 MiB\n"}},
	{
		name: "nccl", topic: "gpu", state: Good, text: "libnccl.so.2",
		files:    map[string]string{"usr/lib/x86_64-linux-gnu/libnccl.so.2": ""},
		programs: map[string]string{"nvidia-smi --query-gpu": "0, H200, 143771 MiB, 900 MiB\n"},
	},
}

func TestFindings(t *testing.T) {
	for _, c := range findings {
		t.Run(c.name, func(t *testing.T) {
			for _, f := range Examine(t.Context(), box(t, c.files, c.programs)) {
				if f.Topic == c.topic && f.State == c.state && strings.Contains(f.Text, c.text) &&
					strings.Contains(f.Do, c.do) {
					if f.State == Problem && f.Do == "" {
						t.Errorf("a problem without a next step: %+v", f)
					}
					return
				}
			}
			t.Errorf("no such finding among %+v", Examine(t.Context(), box(t, c.files, c.programs)))
		})
	}
}

// A Python with several names is told of once.
func TestAPythonWithTwoNames(t *testing.T) {
	told := 0
	const place = "place /usr/bin/python3.11 /usr\nhora 1\n"
	m := box(t, nil, map[string]string{"python3": "python 3.11.7 /usr/bin/python3\n" + place, "python": "python 3.11.7 /usr/bin/python\n" + place, "python3.11": "python 3.11.7 /usr/bin/python3.11\n" + place})
	for _, f := range Examine(t.Context(), m) {
		if f.Topic == "python" {
			told++
		}
	}
	if told != 1 {
		t.Errorf("it is told of %d times", told)
	}
}

// What a Python's packages hold is found by that Python, wherever it looks for them.
func TestTheLibraryInAPythonsPackages(t *testing.T) {
	packages := t.TempDir()
	lib := filepath.Join(packages, "nvidia/nccl/lib")
	if err := os.MkdirAll(lib, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(lib, "libnccl.so.2"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PYTHONPATH", packages)
	m := &Machine{Root: t.TempDir(), Command: RunCommand, Lookup: func(string) string { return "" }}
	for _, f := range m.listNCCL(t.Context()) {
		if strings.Contains(f.Text, filepath.Join(lib, "libnccl.so.2")+" (for python3)") {
			return
		}
	}
	t.Errorf("%+v", m.listNCCL(t.Context()))
}

// The findings of a process with little address space, and of what it starts, say so.
func TestLittleAddressSpace(t *testing.T) {
	out, err := exec.Command("sh", "-c", "ulimit -v 2097152; cat /proc/self/limits").Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range box(t, map[string]string{"proc/self/limits": string(out)}, nil).checkLimits(t.Context()) {
		if f.State == Problem && strings.Contains(f.Text, "2.0 GiB of address space") {
			return
		}
	}
	t.Errorf("nothing about the address space among %s", out)
}

func TestThisMachine(t *testing.T) {
	all := Examine(t.Context(), &Machine{Command: RunCommand, Lookup: os.Getenv, Version: "1"})
	seen := map[string]bool{}
	for _, f := range all {
		seen[f.Topic] = true
		if f.Text == "" || f.State == Problem && f.Do == "" {
			t.Errorf("%+v", f)
		}
	}
	for _, c := range checks {
		if !seen[c.topic] {
			t.Errorf("nothing about %s", c.topic)
		}
	}
}

func TestPageMarksProblemsAndCountsThem(t *testing.T) {
	all := []Finding{
		{Topic: "a", State: Good, Text: "fine"},
		{Topic: "b", State: Note, Text: "so so", Do: "wait"},
		{Host: "h2", Topic: "c", State: Problem, Text: "bad", Do: "mend it"},
	}
	var page bytes.Buffer
	if err := WritePage(&page, all); err != nil {
		t.Fatal(err)
	}
	want := "  a              fine\n- b              so so\n                 → wait\nh2\n! c              bad\n                 → mend it\n1 problem (marked !), each with its next step above\n"
	if page.String() != want {
		t.Errorf("got\n%swant\n%s", page.String(), want)
	}
	if Worst(all) != Problem || Worst(all[:2]) != Note || Worst(all[:1]) != Good {
		t.Error("wrong worst")
	}
	page.Reset()
	if err := WriteJSON(&page, all, nil); err != nil {
		t.Fatal(err)
	}
	var back struct {
		Findings []Finding
		Worst    State
	}
	if err := json.Unmarshal(page.Bytes(), &back); err != nil || len(back.Findings) != 3 ||
		back.Findings[2] != all[2] || back.Worst != Problem {
		t.Errorf("%v %s", err, page.String())
	}
}

func TestHosts(t *testing.T) {
	net := &probe.Net{
		Hosts: []string{"a", "b", "c"},
		Pairs: []probe.Pair{
			{From: "a", To: "b", Latency: 20, Rate: 10},
			{From: "b", To: "a", Latency: 20, Rate: 10},
			{From: "a", To: "c", Latency: 3000, Rate: 9},
			{From: "c", To: "a", Latency: 30, Rate: 1},
			{From: "b", To: "c", Latency: 30, Rate: 10},
		},
		Clocks:    []probe.Clock{{Host: "a"}, {Host: "b", Offset: 1, Bound: 0.1}, {Host: "c", Offset: -90, Bound: 2}},
		Allreduce: []probe.Predicted{{Bytes: 16 << 20, Predicted: 10, Measured: 12}},
		Advice:    "Do this.",
	}
	asked := 0
	found, got := ExamineHosts(t.Context(), []string{"a", "b", "c", "gone", "garbled"}, Hosts{
		Page: func(_ context.Context, host string) (string, error) {
			switch host {
			case "gone":
				return "", errors.New("ssh ended")
			case "garbled":
				return "welcome", nil
			}
			return "motd\n" + `{"findings":[{"topic":"hora","state":"ok","text":"version 1"},{"topic":"kernel","state":"ok","text":"6"}]}`, nil
		},
		Net: func(_ context.Context, up []string) (*probe.Net, error) {
			asked++
			if strings.Join(up, " ") != "a b c garbled" { // it answers, so the network to it can be measured
				t.Errorf("measured between %v", up)
			}
			return net, nil
		},
	})
	if asked != 1 || got != net {
		t.Errorf("asked %d times", asked)
	}
	has := func(host, topic string, state State, text string) {
		t.Helper()
		for _, f := range found {
			if f.Host == host && f.Topic == topic && f.State == state && strings.Contains(f.Text, text) &&
				(state == Good || f.Do != "") {
				return
			}
		}
		t.Errorf("no %s %s %s %q in %+v", host, topic, state, text, found)
	}
	has("a", "hora", Good, "version 1")
	has("gone", "ssh", Problem, "ssh ended")
	has("garbled", "hora", Problem, "cannot be read")
	has(between, "network", Good, "a → b: 20 µs, 10.00 Gbit/s")
	has(between, "network", Note, "a → c: 3000 µs")
	has(between, "network", Problem, "c → a: 30 µs, 1.00 Gbit/s, where the others have 10.00")
	has(between, "clocks", Good, "b is +1.0 ms beside a")
	has(between, "clocks", Note, "c is -90.0 ms beside a")
	has(between, "allreduce", Good, "16 MiB: 12 µs")
	has(between, "advice", Good, "Do this.")
}

func TestANetworkThatCannotBeMeasuredIsAProblem(t *testing.T) {
	page := func(context.Context, string) (string, error) {
		return `{"findings":[{"topic":"hora","state":"ok","text":"version 1"}]}`, nil
	}
	lost := func(context.Context, []string) (*probe.Net, error) { return nil, errors.New("lost rank 1") }
	found, net := ExamineHosts(t.Context(), []string{"a", "b"}, Hosts{Page: page, Net: lost})
	last := found[len(found)-1]
	if net != nil || last.State != Problem || last.Text != "lost rank 1" || !strings.Contains(last.Do, "--network-interface") {
		t.Errorf("%+v", found)
	}
	found, net = ExamineHosts(t.Context(), []string{"a"}, Hosts{Page: page})
	if net != nil || len(found) != 1 {
		t.Errorf("one host: %+v", found)
	}
}

// Two names of one machine have no network between them to say anything of.
func TestTwoNamesOfOneMachine(t *testing.T) {
	net := &probe.Net{Hosts: []string{"a", "b"}, Pairs: []probe.Pair{
		{From: "a", To: "b", Latency: 5, Rate: 90}, {From: "b", To: "a", Latency: 5, Rate: 90},
	}}
	net.Same, net.Advice = [][2]string{{"a", "b"}}, "none"
	net.Allreduce = []probe.Predicted{{Bytes: 4, Predicted: 1, Measured: 1}}
	said := 0
	for _, f := range judge(net) {
		if f.Topic == "advice" || f.Topic == "allreduce" {
			t.Errorf("%+v", f)
		}
		if f.Text == "a and b are two names of one machine: what is between them is no network" && f.Do != "" && f.State == Note {
			said++
		}
	}
	if said != 1 {
		t.Errorf("it is said %d times", said)
	}
}

// A number of threads that two ranks have no cores for is told.
func TestThreadsWithoutCores(t *testing.T) {
	for threads, told := range map[string]bool{
		"": false, "1": false, "many": false, strconv.Itoa(runtime.NumCPU()/2 + 1): runtime.NumCPU() > 1,
	} {
		m := box(t, nil, nil)
		m.Lookup = func(name string) string { return map[string]string{"OMP_NUM_THREADS": threads}[name] }
		got := false
		for _, f := range m.checkCores(t.Context()) {
			got = got || f.State == Note && strings.Contains(f.Text, "OMP_NUM_THREADS="+threads+" on ")
		}
		if got != told {
			t.Errorf("OMP_NUM_THREADS=%q: told %v, want %v", threads, got, told)
		}
	}
}
