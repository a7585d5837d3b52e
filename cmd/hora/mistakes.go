package main

import (
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"hora/job"
)

// flagError says what is wrong with a flag of the flag library's, and which one was meant.
func flagError(cmd *cobra.Command, err error) error {
	err = plainly(err)
	var none *pflag.NotExistError
	if errors.As(err, &none) {
		var names []string
		cmd.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
		flag, word := "--"+none.GetSpecifiedName(), none.GetSpecifiedName()
		if letters := none.GetSpecifiedShortnames(); letters != "" {
			flag, word = "-"+letters, letters
		}
		err = fmt.Errorf("unknown flag: %s", flag)
		if g := job.Nearest(word, names); g != "" {
			err = fmt.Errorf("%w: did you mean --%s?", err, g)
		}
	}
	return usageError{fmt.Errorf("%w: see %s --help", err, cmd.CommandPath())}
}

// subcommands are the names of those that a user may call.
func subcommands(of *cobra.Command) []string {
	var names []string
	for _, c := range of.Commands() {
		if !c.Hidden {
			names = append(names, c.Name())
		}
	}
	return names
}

// noSubcommand is the error for a word that is none of cmd's subcommands.
func noSubcommand(cmd *cobra.Command, word string) error {
	path := cmd.CommandPath()
	if !cmd.HasSubCommands() {
		return usageError{fmt.Errorf("%s has no subcommand %q: see %s --help", path, word, path)}
	}
	hint := ""
	if g := job.Nearest(word, subcommands(cmd)); g != "" {
		hint = fmt.Sprintf(": did you mean %s %s?", path, g)
	} else if _, err := exec.LookPath(word); err == nil && !cmd.HasParent() {
		hint = fmt.Sprintf(": to start it on several processes, write hora run -np 2 %s", word)
	}
	return usageError{fmt.Errorf("there is no subcommand %q%s: see %s --help", word, hint, path)}
}

// misplaced finds what stands in the place of a subcommand and is none: a flag of `hora run`, or another word.
func misplaced(root *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	first := args[0]
	if !strings.HasPrefix(first, "-") {
		// The flag library makes its completions' hidden subcommands when it is asked for them.
		known := slices.ContainsFunc(root.Commands(), func(c *cobra.Command) bool { return c.Name() == first })
		if known || first == cobra.ShellCompRequestCmd || first == cobra.ShellCompNoDescRequestCmd {
			return nil
		}
		return noSubcommand(root, first)
	}
	name, _, _ := strings.Cut(first, "=")
	row := job.Find(job.Fields(), name)
	if row == nil || row.Name() == "version" {
		return nil
	}
	rest := slices.DeleteFunc(slices.Clone(args), func(a string) bool { return a == "run" })
	return usageError{fmt.Errorf("%s is a flag of hora run: did you mean hora run %s?", name, quote(rest))}
}

// helpCommand is `hora help`.
func (p *program) helpCommand() *cobra.Command {
	return &cobra.Command{
		Use: "help [subcommand]", Short: "what a subcommand does, and its flags",
		ValidArgsFunction: func(c *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			if len(args) > 0 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return subcommands(c.Root()), cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(c *cobra.Command, args []string) error {
			of, rest, err := c.Root().Find(args)
			if err != nil {
				return noSubcommand(c.Root(), args[0])
			}
			if len(rest) > 0 {
				return noSubcommand(of, rest[0])
			}
			of.InitDefaultHelpFlag()
			return of.Help()
		},
	}
}

// strict has every wrong command line end as one: the flag library's own complaints about arguments, too, and its help
// where a subcommand is misspelt.
func strict(cmd *cobra.Command) {
	for _, c := range cmd.Commands() {
		strict(c)
	}
	if !cmd.HasParent() {
		return
	}
	if cmd.HasSubCommands() && !cmd.Runnable() {
		cmd.Args = cobra.ArbitraryArgs
		cmd.RunE = func(c *cobra.Command, args []string) error {
			if len(args) > 0 {
				return noSubcommand(c, args[0])
			}
			return c.Help()
		}
	}
	if check := cmd.Args; check != nil {
		cmd.Args = func(c *cobra.Command, args []string) error {
			err := check(c, args)
			var usage usageError
			if err == nil || errors.As(err, &usage) {
				return err
			}
			return usageError{fmt.Errorf("%w: see %s --help", err, c.CommandPath())}
		}
	}
}

// bare takes the marks out of the flags' texts that the help reads, and completions do not.
func bare(cmd *cobra.Command) {
	cmd.Flags().VisitAll(func(f *pflag.Flag) { f.Usage = strings.ReplaceAll(f.Usage, "`", "") })
	for _, c := range cmd.Commands() {
		bare(c)
	}
}
