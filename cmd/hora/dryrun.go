package main

import (
	"fmt"
	"strings"
	"text/tabwriter"

	"hora/job"
	"hora/launch"
)

// dryRun prints what would be started where.
func (p *program) dryRun(s *job.Spec, place *launch.Place) error {
	rows, err := launch.Preview(*s, *place)
	if err != nil {
		return err
	}
	w := tabwriter.NewWriter(p.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "rank\thost\tlocal\tcores\tcommand")
	for _, r := range rows {
		fmt.Fprintf(w, "%d\t%s\t%d of %d\t%s\t%s\n", r.Rank, r.Host, r.LocalRank, r.LocalSize, r.Cores, quote(s.Command))
	}
	return w.Flush()
}

// quote writes a command as a shell would read it.
func quote(argv []string) string {
	out := make([]string, len(argv))
	for i, a := range argv {
		if a == "" || strings.ContainsAny(a, " \t\n'\"\\$`*?[]{}();&|<>#~!") {
			a = "'" + strings.ReplaceAll(a, "'", `'\''`) + "'"
		}
		out[i] = a
	}
	return strings.Join(out, " ")
}
