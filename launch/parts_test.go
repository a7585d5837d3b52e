package launch

import (
	"bytes"
	"cmp"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"hora/launch/environ"
)

func TestLinesAreWholeAndTagged(t *testing.T) {
	now := time.Unix(1000, 0)
	for _, c := range []struct{ name, in, want string }{
		{"plain", "a\nb\n", "T:a\nT:b\n"},
		{"no end", "a\nb", "T:a\nT:b\n"},
		{"dos", "a\r\nb\r\n", "T:a\nT:b\n"},
		{"progress", "10%\r20%\r30%\r100%\n", "T:10%\nT:100%\n"},
		{"progress before the line", "\r10%\r20%\r30%", "T:10%\nT:30%\n"},
		{"character", "hé\xe2\x82\xacllo\n", "T:hé€llo\n"},
		{"broken", "a\xff\n", "T:a\uFFFD\n"},
	} {
		for _, step := range []int{1, 2, 1000} {
			var out bytes.Buffer
			l := lineWriter{w: &out, mu: &sync.Mutex{}, tag: "T:", now: func() time.Time { return now }}
			for in := []byte(c.in); len(in) > 0; {
				n := min(step, len(in))
				l.write(in[:n])
				in = in[n:]
			}
			l.end()
			if out.String() != c.want {
				t.Errorf("%s by %d: %q, want %q", c.name, step, out.String(), c.want)
			}
		}
	}
}

func TestLongLinesBreakBetweenCharacters(t *testing.T) {
	var out bytes.Buffer
	l := lineWriter{w: &out, mu: &sync.Mutex{}, now: time.Now}
	l.write([]byte("x" + strings.Repeat("é", maxLine/2) + "\n"))
	lines := strings.Split(out.String(), "\n")
	if len(lines) != 3 || len(lines[0]) != maxLine-1 || lines[1] != "é" || strings.Contains(out.String(), "\uFFFD") {
		t.Errorf("%d lines, the first of %d bytes", len(lines)-1, len(lines[0]))
	}
}

func TestLastException(t *testing.T) {
	for in, want := range map[string]string{
		"":                   "",
		"just this\n":        "just this",
		"a\nfinal words\n\n": "final words",
		"Traceback (most recent call last):\n  File \"a\", line 1\n    x\nValueError: no\nterminating\n":                                                                 "ValueError: no",
		"out of patience\n2026/11/22 18:40:28 WARN refused a connection at the port of rank 1 on a: no\n2026/11/22 18:40:29 WARN refused 9 more connections, the last\n": "out of patience",
		"panic: boom\n\ngoroutine 1 [running]:\nmain.main()\n\t/x.go:3 +0x1d\nexit status 2\n":                                                                           "panic: boom",
		"Traceback (most recent call last):\n  x\nKeyError: 1\n\nDuring handling:\n\nTraceback (most recent call last):\n  y\nRuntimeError: two\n":                       "RuntimeError: two",
		"SIGSEGV: segmentation violation\nPC=0x40 m=0 sigcode=0\n\ngoroutine 1 [running]:\nmain.main()\n\nrax    0x0\nfs     0x0\ngs     0x0\n":                          "SIGSEGV: segmentation violation",

		"SIGABRT: abort\nPC=0x40 m=0 sigcode=0\n\ngs     0x0\n": "SIGABRT: abort",

		"panic: runtime error: invalid memory address or nil pointer dereference\n[signal SIGSEGV: segmentation violation code=0x1]\n\ngoroutine 1 [running]:\nexit status 2\n": "panic: runtime error: invalid memory address or nil pointer dereference",
		"Fatal Python error: Segmentation fault\n\nCurrent thread 0x7f (most recent call first):\n  File \"x\", line 1\n\nExtension modules: numpy (total: 13)\n":               "Fatal Python error: Segmentation fault",
		"SIGNS: all is well\nbad luck\n": "bad luck",
		"Traceback (most recent call last):\n  x\ntf.InvalidArgumentError: Graph execution error:\n\nDetected at node HoraEach defined at (most recent call last):\n  File x\n\nranks differ\n\t [[{{node HoraEach}}]] [Op:__inference_f_1]\nlater\n":                         "tf.InvalidArgumentError: ranks differ",
		"Traceback (most recent call last):\n  x\ntf.AbortedError: Graph execution error:\n\n2 root error(s) found.\n  (0) ABORTED:  rank 1 is gone\n\t [[{{node HoraEach}}]]\n\t [[y/_1]]\n  (1) ABORTED:  other\n\t [[{{node HoraEach}}]]\n0 successful operations.\n":      "tf.AbortedError: rank 1 is gone",
		"Traceback (most recent call last):\n  x\nhora.errors.ForkedError: Caught ForkedError in DataLoader worker process 0.\nOriginal Traceback (most recent call last):\n  y\nhora.errors.ForkedError: use hora in process 7: it is a forked child; start it with spawn\n": "hora.errors.ForkedError: use hora in process 7: it is a forked child; start it with spawn",
		"\x1b]0;mine\x07\x1b[31mValueError: \u202eno\x1b[0m\n": `\x1b]0;mine\x07\x1b[31mValueError: \u202eno\x1b[0m`,
	} {
		why, line := lastException([]byte(in))
		if got := cmp.Or(why, line); got != want {
			t.Errorf("lastException(%q) = %q, want %q", in, got, want)
		}
	}
}

func TestPlaceFillsAHostBeforeTheNext(t *testing.T) {
	seats, err := placeRanks([]Host{{Name: "a", Slots: 2}, {Name: "b", Slots: 4}, {Name: "c", Slots: 1}}, 6)
	if err != nil {
		t.Fatal(err)
	}
	got := ""
	for _, s := range seats {
		got += fmt.Sprintf("%d:h%d l%d/%d c%d/%d\n", s.Rank, s.Host, s.LocalRank, s.LocalSize, s.CrossRank, s.CrossSize)
	}
	want := "0:h0 l0/2 c0/2\n1:h0 l1/2 c0/2\n2:h1 l0/4 c1/2\n3:h1 l1/4 c1/2\n4:h1 l2/4 c0/1\n5:h1 l3/4 c0/1\n"
	if got != want {
		t.Errorf("seats\n%swant\n%s", got, want)
	}
	if _, err := placeRanks([]Host{{Name: "a", Slots: 2}}, 3); err == nil || err.Error() != "-np 3 needs 3 slots, and a:2 has 2: add hosts or slots, or lower -np" {
		t.Errorf("too many ranks: %v", err)
	}
}

func TestHostListsAndFiles(t *testing.T) {
	hosts, err := ParseHosts("server1:4, server2")
	if err != nil || fmt.Sprint(hosts) != "[{server1 4} {server2 1}]" {
		t.Errorf("%v, %v", hosts, err)
	}
	hosts, err = ParseHostfile("f", "# cluster\nserver1 slots=4 # big\n\nserver2:3\nserver3\n")
	if err != nil || fmt.Sprint(hosts) != "[{server1 4} {server2 3} {server3 1}]" {
		t.Errorf("%v, %v", hosts, err)
	}
	for in, want := range map[string]string{
		"a:0":       `"a:0" has no number of slots above 0`,
		"a:x":       "write it as a:4",
		"a:1,a:2":   "host a is there twice",
		"a:1,,b:1":  "a host has no name",
		"-oProxy:1": "is no host name",
	} {
		if _, err := ParseHosts(in); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("-H %s: %v", in, err)
		}
	}
	for in, want := range map[string]string{
		"a slots=4\nb slots=x\n": `hosts:2: "slots=x" is no number`,
		"a slot=4\n":             `hosts:1: "slot=4" is not slots=N`,
		"a\n\na\n":               "hosts:3: host a is there twice",
		"# nothing\n":            "hosts:1: there is no host",
	} {
		if _, err := ParseHostfile("hosts", in); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("hostfile %q: %v", in, err)
		}
	}
}

func TestDevicesAreDealtFromThoseAllotted(t *testing.T) {
	allotted := environ.Devices([]string{"CUDA_VISIBLE_DEVICES=3, 5,GPU-7,1"})
	for _, c := range []struct {
		visible  []string
		local, n int
		want     string
	}{
		{nil, 0, 1, "0"},
		{nil, 2, 2, "4,5"},
		{allotted, 0, 2, "3,5"},
		{allotted, 1, 2, "GPU-7,1"},
		{allotted, 1, 3, "1"},
		{allotted, 9, 1, ""},
	} {
		if got := devices(c.visible, c.local, c.n); got != c.want {
			t.Errorf("rank %d of %d each from %v: %q, want %q", c.local, c.n, c.visible, got, c.want)
		}
	}
}
