package main

import (
	"fmt"
	"slices"
	"strings"
)

// tally is what one run of a test program came to.
type tally struct {
	passed   int
	failed   []failure
	packages []string // Go packages that failed, for whatever reason
}

type failure struct{ where, test string }

// byPackage groups failed Go tests; a sub-test is run again with its parent.
func (t *tally) byPackage() map[string][]string {
	all := map[string][]string{}
	for _, f := range t.failed {
		top, _, _ := strings.Cut(f.test, "/")
		if !slices.Contains(all[f.where], top) {
			all[f.where] = append(all[f.where], top)
		}
	}
	return all
}

// add counts what passed. Packages that failed without a failed test (they did not
// build, or ran out of time) have failed for good.
func (s *suite) add(t *tally) {
	s.passed += t.passed
	for _, p := range t.packages {
		if !slices.ContainsFunc(t.failed, func(f failure) bool { return f.where == p }) {
			s.failed++
			s.failures = append(s.failures, p+" did not build or did not end")
		}
	}
}

// mostSecondRuns is how many failed tests are put down to the machine at most.
const mostSecondRuns = 4

// secondRun gives failed tests one more run, alone: tests with real processes and
// bounds on waiting share their machine with others. What passes then is counted as
// passed and named as unsteady at the end of the run; more than a few are failures.
func (s *suite) secondRun(where string, tests []string, failures int, run func(*tally) error) {
	name := where + " " + strings.Join(tests, ", ")
	if failures > mostSecondRuns {
		s.failed += len(tests)
		s.failures = append(s.failures, name)
		return
	}
	fmt.Printf("second run, alone: %s\n", name)
	var second tally
	if err := run(&second); err != nil || len(second.failed) > 0 {
		s.failed += len(tests)
		s.failures = append(s.failures, name+" (twice)")
		return
	}
	s.passed += second.passed
	s.unsteady = append(s.unsteady, name)
}
