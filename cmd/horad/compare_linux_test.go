package main

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
)

// compared looks at a job that reported losses beside one that failed.
func (s *site) compared(one, failed int64) {
	s.t.Helper()
	r := s.hora("compare", fmt.Sprint(one), fmt.Sprint(failed))
	if r.code != 0 {
		s.t.Fatalf("%+v", r)
	}
	for _, line := range []string{
		`state +finished +failed`, `np +2 +1`, `tag try +- +2`, `loss +0\.001 \(0\.001 to 1\) +-`, `bad +NaN +-`, `command +\["sh".*…  +\["sh","-c","exit 3"\]`,
	} {
		if !regexp.MustCompile(`(?m)^` + line + `$`).MatchString(r.out) {
			s.t.Errorf("no line %q in\n%s", line, r.out)
		}
	}
	if strings.Contains(r.out, "\npriority") {
		s.t.Errorf("what is the same is shown:\n%s", r.out)
	}
	r = s.hora("compare", "--json", fmt.Sprint(one), fmt.Sprint(failed))
	var v struct {
		Jobs    []int64
		Metrics map[string][]*struct{ Last *float64 }
	}
	if err := json.Unmarshal([]byte(r.out), &v); err != nil || len(v.Jobs) != 2 || v.Metrics["loss"][1] != nil ||
		*v.Metrics["loss"][0].Last != 0.001 || v.Metrics["bad"][0].Last != nil {
		s.t.Errorf("%v: %+v", err, r)
	}
	if r := s.hora("compare", fmt.Sprint(one)); r.code != 2 || !strings.Contains(r.errs, "two jobs or more") {
		s.t.Errorf("%+v", r)
	}
	if r := s.hora("compare", fmt.Sprint(one), "999"); r.code != 1 || !strings.Contains(r.errs, "there is no job 999") {
		s.t.Errorf("%+v", r)
	}
}
