package main

import (
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"hora/internal/hosttest"
)

// What takes longer than two seconds says what it waits for: a slow copy, a host that does not answer, workers that do
// not want to end, and hosts that have not been found.
func TestLongWaitsSayForWhat(t *testing.T) {
	if testing.Short() {
		t.Skip("takes long under the race detector")
	}
	n := hosttest.Up(t, "server1", "server2", "server3")
	program := n.Hosts[0].Install(build(t), "hora")
	n.Hosts[1].Rate(30) // the program takes about four seconds
	n.Hosts[2].Cable(false)
	var all sync.WaitGroup
	for want, args := range map[string]string{
		`hora: copying hora to server2 \(\d+\.\d of \d+\.\d MB\); 2s of 30s are over\n`:                                 "-np 2 -H server1:1,server2:1 true",
		`hora: no answer yet from server3; 2s of 3s are over\n(?s:.*)hora: reach host server3: `:                        "-np 2 --start-timeout 3 -H server1:1,server3:1 true",
		`hora: waiting for rank 1 to end; who has not 5s after being asked is killed\n`:                                 "-np 2 sh -c trap\x00''\x00TERM;[\x00$RANK\x00=\x000\x00]&&exit\x003;while\x00:;do\x00sleep\x00.1;done",
		`hora: waiting for hosts: there are 1 of 2 slots; 2s of 4s are over\n(?s:.*)hora: wait for hosts: 1 slots were`: "-np 2 --elastic-timeout 4 --discover echo\x00localhost:1 true",
	} {
		all.Go(func() {
			argv := strings.Fields(args)
			for i := range argv {
				argv[i] = strings.ReplaceAll(argv[i], "\x00", " ")
			}
			_, _, errs := n.Hosts[0].Output(40*time.Second, append([]string{program, "run"}, argv...)...)
			if !regexp.MustCompile(want).MatchString(errs) {
				t.Errorf("hora run %s: no %q in\n%s", args, want, errs)
			}
		})
	}
	all.Wait()
}
