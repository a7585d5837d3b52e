// Package console is what the command lines of hora and horad share: the sentences for a command line that is wrong, in
// place of the flag library's, and what shows that something takes its time.
//
// A Progress has one goroutine, which Done waits for.
package console

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"hora/job"
)

// Mistakes words what is wrong with a program's command line.
type Mistakes struct {
	// Usage marks an error as one of the command line. What it returns has a method Usage, by which it is known.
	Usage func(error) error
	// Hint, when set, says what may be meant by a word that is none of the program's subcommands, nor near to one.
	Hint func(word string) string
}

// marked reports whether an error was marked as one of the command line.
func marked(err error) bool {
	var is interface {
		error
		Usage()
	}
	return errors.As(err, &is)
}

// Flag says what is wrong with a flag of the flag library's, and which one was meant.
func (m Mistakes) Flag(cmd *cobra.Command, err error) error {
	err = Plainly(err)
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
	return m.Usage(fmt.Errorf("%w: see %s --help", err, cmd.CommandPath()))
}

// Plainly says what a flag wants, where the flag library says what strconv thought.
func Plainly(err error) error {
	var bad *pflag.InvalidValueError
	if !errors.As(err, &bad) {
		return err
	}
	wants := map[string]string{
		"int": "a whole number", "uint64": "a whole number from 0", "time": job.ATime, "duration": "a time, as 90s, 20m or 4h",
		"bool": "true or false", "float64": "a number", "intSlice": "numbers as 2,4",
	}[bad.GetFlag().Value.Type()]
	if wants == "" {
		return err
	}
	return fmt.Errorf("--%s %q is not %s", bad.GetFlag().Name, bad.GetValue(), wants)
}

// Subcommands are the names of those that a user may call.
func Subcommands(of *cobra.Command) []string {
	var names []string
	for _, c := range of.Commands() {
		if !c.Hidden {
			names = append(names, c.Name())
		}
	}
	return names
}

// NoSubcommand is the error for a word that is none of cmd's subcommands.
func (m Mistakes) NoSubcommand(cmd *cobra.Command, word string) error {
	path := cmd.CommandPath()
	if !cmd.HasSubCommands() {
		return m.Usage(fmt.Errorf("%s has no subcommand %q: see %s --help", path, word, path))
	}
	hint := ""
	if g := job.Nearest(word, Subcommands(cmd)); g != "" {
		hint = fmt.Sprintf(": did you mean %s %s?", path, g)
	} else if m.Hint != nil && !cmd.HasParent() {
		hint = m.Hint(word)
	}
	return m.Usage(fmt.Errorf("there is no subcommand %q%s: see %s --help", word, hint, path))
}

// Misplaced finds a word in the place of a subcommand that is none.
func (m Mistakes) Misplaced(root *cobra.Command, args []string) error {
	if len(args) == 0 || strings.HasPrefix(args[0], "-") {
		return nil
	}
	first := args[0]
	// The flag library makes its completions' hidden subcommands when it is asked for them.
	known := slices.ContainsFunc(root.Commands(), func(c *cobra.Command) bool { return c.Name() == first })
	if known || first == cobra.ShellCompRequestCmd || first == cobra.ShellCompNoDescRequestCmd {
		return nil
	}
	return m.NoSubcommand(root, first)
}

// Help is the subcommand help.
func (m Mistakes) Help() *cobra.Command {
	return &cobra.Command{
		Use: "help [subcommand]", Short: "what a subcommand does, and its flags",
		ValidArgsFunction: func(c *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			if len(args) > 0 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return Subcommands(c.Root()), cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(c *cobra.Command, args []string) error {
			of, rest, err := c.Root().Find(args)
			if err != nil {
				return m.NoSubcommand(c.Root(), args[0])
			}
			if len(rest) > 0 {
				return m.NoSubcommand(of, rest[0])
			}
			of.InitDefaultHelpFlag()
			return of.Help()
		},
	}
}

// Strict has every wrong command line end as one: the flag library's own complaints about arguments, too, and its help
// where a subcommand is misspelt.
func (m Mistakes) Strict(cmd *cobra.Command) {
	for _, c := range cmd.Commands() {
		m.Strict(c)
	}
	if !cmd.HasParent() {
		return
	}
	if cmd.HasSubCommands() && !cmd.Runnable() {
		cmd.Args = cobra.ArbitraryArgs
		cmd.RunE = func(c *cobra.Command, args []string) error {
			if len(args) > 0 {
				return m.NoSubcommand(c, args[0])
			}
			return c.Help()
		}
	}
	if check := cmd.Args; check != nil {
		cmd.Args = func(c *cobra.Command, args []string) error {
			err := check(c, args)
			if err == nil || marked(err) {
				return err
			}
			return m.Usage(fmt.Errorf("%w: see %s --help", err, c.CommandPath()))
		}
	}
}

// Takes wants the arguments that a subcommand's line of use names, and no others.
func Takes(cmd *cobra.Command, args []string) error {
	words := strings.Fields(cmd.Use)[1:]
	switch {
	case len(args) == len(words):
		return nil
	case len(words) == 0:
		return fmt.Errorf("%s takes no arguments, and was given %q", cmd.CommandPath(), args[0])
	}
	return fmt.Errorf("%s takes %s", cmd.CommandPath(), strings.Join(words, " and "))
}
