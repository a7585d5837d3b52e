package main

import (
	"fmt"
	"runtime"

	"github.com/spf13/cobra"

	"hora"
)

func (p *program) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "print the version",
		Args:  noArguments("version"),
		RunE: func(*cobra.Command, []string) error {
			_, err := fmt.Fprint(p.out, versionLine())
			return err
		},
	}
}

func versionLine() string {
	return fmt.Sprintf("hora %s %s/%s\n", version(), runtime.GOOS, runtime.GOARCH)
}

func version() string { return hora.Version() }
