package hora_test

import (
	"path"
	"regexp"
	"strings"
	"testing"
)

// A clock that is set while a job runs changes nothing: every wait, timeout and age is
// measured by readings that carry the monotonic clock. Only a file named here may turn a
// moment into a number of the wall clock, for the reason given.
var wallClock = map[string]string{
	"engine/ready.go":                   "a moment that another host reads, for the timeline",
	"elastic/rendezvous/journal.go":     "a record's moment, which decides nothing",
	"storage/local.go":                  "a file's moment of change, which tells its versions apart",
	"dataset/remember.go":               "files' moments of change, of which the oldest is dropped",
	"storage/token.go":                  "a claim that another's server reads holds moments of the wall clock",
	"dataset/condition.go":              "a moment in the data, which a filter compares",
	"job/schedule/schedule.go":          "a moment later than all others",
	"server/environment/environment.go": "when an interpreter's packages changed, which tells them apart",
	"server/records.go":                 "a metric's moment, for who reads it",
	"server/points.go":                  "a metric's moment, likewise",
	"server/metrics.go":                 "when the server started, for who reads it",
	"server/store/jobs.go":              "moments of jobs, which outlive the server and its clock's readings",
	"server/store/artifacts.go":         "moments of files, likewise",
	"server/store/lines.go":             "moments of lines, likewise",
	"server/store/retention.go":         "how long ago jobs ended, which outlives the server and is counted in days",
	"server/store/webhooks.go":          "when a delivery is due, which outlives the server",
	"server/webhooks.go":                "a delivery's moment, which who gets it compares with its own clock",
}

var onTheWall = regexp.MustCompile(`\.(UnixNano|UnixMicro|UnixMilli|Unix)\(\)|time\.Unix|\.Round\(0\)|CLOCK_REALTIME|TIME_UTC|gettimeofday`)

func TestNoWaitIsMeasuredByTheWallClock(t *testing.T) {
	used, scanned := map[string]bool{}, 0
	for _, f := range goFiles(t) {
		top, _, _ := strings.Cut(f.dir, "/")
		switch {
		case f.test, top == "cmd" && path.Base(f.dir) == "hora", top == "demo", top == "bench", top == "probe", top == "examples", top == "doctor",
			top == "timeline", f.dir == "internal/simtest", f.dir == "internal/hosttest", f.dir == "internal/jobtest":
			continue // they show moments, and decide nothing about a job's members
		}
		scanned++
		if !onTheWall.Match(f.src) {
			continue
		}
		for i, line := range strings.Split(string(f.src), "\n") {
			code, _, _ := strings.Cut(line, "//")
			if !onTheWall.MatchString(code) {
				continue
			}
			if wallClock[f.path] == "" {
				t.Errorf("%s:%d uses the wall clock: %s", f.path, i+1, strings.TrimSpace(line))
			}
			used[f.path] = true
		}
	}
	for p := range wallClock {
		if !used[p] {
			t.Errorf("%s does not use the wall clock any more: take it off the list", p)
		}
	}
	t.Logf("%d files looked at", scanned)
}
