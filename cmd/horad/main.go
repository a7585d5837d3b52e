// Command horad is hora's server: the database, the HTTP interface and the pages. `hora up` starts it.
//
// It owns the flags, signals and exit codes of that program; everything else is in the packages it wires together. Its
// goroutines are those of server and of net/http, and the runtime's for signals.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"hora/cmd/console"
)

func main() {
	os.Exit(run(context.Background(), os.Args[1:], os.Stdout, os.Stderr))
}

// run is the whole program.
func run(ctx context.Context, args []string, out, errs io.Writer) int {
	root := &cobra.Command{
		Use: "horad", Short: "hora's server; start it with hora up",
		SilenceUsage: true, SilenceErrors: true,
	}
	root.SetOut(out)
	root.SetErr(errs)
	root.SetArgs(args)
	began := false // what is wrong before that is the command line
	root.PersistentPreRun = func(*cobra.Command, []string) { began = true }
	root.SetFlagErrorFunc(mistakes.Flag)
	root.SetHelpCommand(mistakes.Help())
	root.CompletionOptions.DisableDefaultCmd = true
	root.AddCommand(serveCommand(out, errs), backupCommand(out, errs), restoreCommand(out, errs), checkCommand(out))
	root.InitDefaultHelpCmd()
	mistakes.Strict(root)
	err := mistakes.Misplaced(root, args)
	if err == nil {
		err = root.ExecuteContext(ctx)
	}
	if err != nil {
		fmt.Fprintln(errs, "horad:", err)
		var usage usageError
		if !began || errors.As(err, &usage) {
			return 2
		}
		return 1
	}
	return 0
}

// usageError is a wrong command line.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

// Usage marks it for console.
func (usageError) Usage() {}

// mistakes words what is wrong with a command line.
var mistakes = console.Mistakes{Usage: func(err error) error { return usageError{err} }}
