package main

import (
	"regexp"
	"strings"
	"testing"

	"hora/job"
)

// TestSubmitSaysWhatAJobGets: slots, environment, place in the queue, expected start and the number.
func TestSubmitSaysWhatAJobGets(t *testing.T) {
	s := newSite(t, 2)
	for i, c := range []struct {
		args []string
		want string
	}{
		{
			[]string{"-np", "2", "--time-limit", "10m", "sleep", "600"},
			`^hora: job 1: 2 slots of pool default; environment: the pool's own\nhora: job 1: (runs with 2 slots on \S+|starts at once)\n`,
		},
		{
			[]string{"--pip", "x>=1", "--pip", "y", "true"},
			`^hora: job 2: 1 slot of pool default; environment: x>=1, y beside the pool's own\n` +
				`hora: job 2: waits: first in pool default: .*; it is expected to start in (10m0s|9m5\ds), at \d\d:\d\d:\d\d\n`,
		},
		{
			[]string{"-np", "2", "--min-np", "1", "true"},
			`^hora: job 3: 1 to 2 slots of pool default; environment: the pool's own\n` +
				`hora: job 3: waits: second in pool default: .*; it is expected to start in (10m0s|9m5\ds), at `,
		},
		{
			[]string{"-np", "2", "true"},
			`\nhora: job 4: waits: third in pool default: .*; when it starts is not known: jobs before it have no --time-limit`,
		},
	} {
		r := s.hora(append([]string{"submit", "--no-code"}, c.args...)...)
		if r.code != 0 || !regexp.MustCompile(c.want).MatchString(r.errs) || strings.TrimSpace(r.out) == "" {
			t.Errorf("hora submit %q: %d, %q, and on standard error %q; want %s", c.args, r.code, r.out, r.errs, c.want)
		}
		if i == 0 {
			s.until(1, in(job.Running))
		}
	}
	if r := s.hora("job", "2"); !strings.Contains(r.out, "it is expected to start in ") {
		t.Errorf("hora job: %+v", r)
	}
}
