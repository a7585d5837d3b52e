// Command hora starts and inspects distributed training jobs.
//
// It owns the command line: flags, environment, standard streams and exit codes; everything else is in the packages it
// wires together. Each subcommand is a file of its own with one function that returns its *cobra.Command, listed in
// root. Goroutines: those of the packages it calls, and the runtime's for signals.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"hora/event"
	"hora/launch"
	"hora/server/client"
	"hora/server/node"
)

func main() {
	if len(os.Args) > 1 && os.Args[1] == agentCommand {
		os.Exit(hostAgent(os.Args[2:]))
	}
	if len(os.Args) > 1 && os.Args[1] == coordinatorCommand {
		os.Exit(coordinator())
	}
	if len(os.Args) > 1 && os.Args[1] == node.KeepCommand {
		os.Exit(keepJob(os.Args[2:]))
	}
	if len(os.Args) > 1 && os.Args[1] == node.EnvironmentCommand {
		os.Exit(makeEnvironment(os.Args[2:]))
	}
	if len(os.Args) > 2 && os.Args[1] == guardCommand {
		os.Exit(guard(os.Args[2:]))
	}
	os.Exit(run(context.Background(), os.Args, os.Getenv, stdio{os.Stdin, os.Stdout, os.Stderr}))
}

// stdio is what a subcommand reads from and writes to.
type stdio struct {
	in       *os.File
	out, err io.Writer
}

// program is what subcommands share.
type program struct {
	ctx    context.Context
	getenv func(string) string
	stdio
	code   int           // what the program exits with when its subcommand returns no error
	notice time.Duration // how long workers have after a signal that asks for the end; 0 is the launcher's grace
}

// usageError is a wrong command line: its exit code is launch.ExitUsage.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

// Usage marks it for console.
func (usageError) Usage() {}

// run is the whole program. args[0] is the name it was called by; called horovodrun it is that program.
func run(ctx context.Context, args []string, getenv func(string) string, io stdio) int {
	return (&program{ctx: ctx, getenv: getenv, stdio: io}).main(args)
}

func (p *program) main(args []string) int {
	rest := args[1:]
	if filepath.Base(args[0]) == horovodrunCommand {
		rest = append([]string{horovodrunCommand}, rest...)
	}
	if len(rest) > 0 && (rest[0] == "demo" || rest[0] == "bench") {
		rest = longNP(rest)
	}
	root := p.root()
	root.SetArgs(rest)
	err := misplaced(root, rest)
	if err == nil {
		if len(rest) > 0 && (rest[0] == cobra.ShellCompRequestCmd || rest[0] == cobra.ShellCompNoDescRequestCmd) {
			bare(root)
		}
		err = root.ExecuteContext(p.ctx)
	}
	if err == nil {
		return p.code
	}
	fmt.Fprintln(p.err, "hora:", event.Visible(err.Error()))
	var known *launch.Error
	var usage usageError
	var away *client.NoServer
	switch {
	case errors.As(err, &known):
		return known.Code
	case errors.As(err, &away):
		return launch.ExitHost
	case errors.As(err, &usage):
		return launch.ExitUsage
	case p.code != 0:
		return p.code
	}
	return 1
}

// root is the tree of subcommands: one line and one file each.
func (p *program) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "hora",
		Short: "train one model on many processes and machines",
		Long: "hora starts a training script on many processes and machines and connects them, whatever framework it is written in.\n\n" +
			"  hora run -np 2 python train.py     two processes on this machine\n" +
			"  hora run -np 8 -H a:4,b:4 CMD      four on each of two hosts, over ssh",
		SilenceUsage: true, SilenceErrors: true,
		Version: version(),
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetOut(p.out)
	root.SetErr(p.err)
	root.SetFlagErrorFunc(mistakes.Flag)
	root.SetVersionTemplate(versionLine())
	root.SetHelpCommand(mistakes.Help())
	root.AddCommand(
		p.runCommand(),
		p.horovodrunCommand(),
		p.hubCommand(),
		p.agentCommand(),
		p.demoCommand(),
		p.demoWorker(),
		p.doctorCommand(),
		p.dataCommand(),
		p.benchCommand(),
		p.benchRank(),
		p.benchNetRank(),
		p.versionCommand(),
		p.upCommand(),
		p.downCommand(),
		p.loginCommand(),
		p.submitCommand(),
		p.jobsCommand(),
		p.jobCommand(),
		p.logsCommand(),
		p.waitCommand(),
		p.cancelCommand(),
		p.pauseCommand(),
		p.resumeCommand(),
		p.priorityCommand(),
		p.metricsCommand(),
		p.compareCommand(),
		p.artifactsCommand(),
		p.codeCommand(),
		p.projectsCommand(),
		p.quotaCommand(),
		p.retentionCommand(),
		p.webhookCommand(),
		p.userCommand(),
		p.tokenCommand(),
		p.secretCommand(),
		p.whoamiCommand(),
		p.auditCommand(),
		p.poolCommand(),
		p.nodesCommand(),
		p.nodeCommand(),
	)
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	mistakes.Strict(root)
	return root
}
