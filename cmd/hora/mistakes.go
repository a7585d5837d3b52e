package main

import (
	"fmt"
	"os/exec"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"hora/cmd/console"
	"hora/job"
)

// mistakes words what is wrong with a command line. What is no subcommand may be a program that somebody wants started.
var mistakes = console.Mistakes{
	Usage: func(err error) error { return usageError{err} },
	Hint: func(word string) string {
		if _, err := exec.LookPath(word); err != nil {
			return ""
		}
		return fmt.Sprintf(": to start it on several processes, write hora run -np 2 %s", word)
	},
}

// misplaced finds what stands in the place of a subcommand and is none: a flag of `hora run`, or another word.
func misplaced(root *cobra.Command, args []string) error {
	if len(args) == 0 || !strings.HasPrefix(args[0], "-") {
		return mistakes.Misplaced(root, args)
	}
	name, _, _ := strings.Cut(args[0], "=")
	row := job.Find(job.Fields(), name)
	if row == nil || row.Name() == "version" {
		return nil
	}
	rest := slices.DeleteFunc(slices.Clone(args), func(a string) bool { return a == "run" })
	return usageError{fmt.Errorf("%s is a flag of hora run: did you mean hora run %s?", name, quote(rest))}
}

// bare takes the marks out of the flags' texts that the help reads, and completions do not.
func bare(cmd *cobra.Command) {
	cmd.Flags().VisitAll(func(f *pflag.Flag) { f.Usage = strings.ReplaceAll(f.Usage, "`", "") })
	for _, c := range cmd.Commands() {
		bare(c)
	}
}
