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
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			_, err := fmt.Fprintf(p.out, "hora %s %s/%s\n", version(), runtime.GOOS, runtime.GOARCH)
			return err
		},
	}
}

func version() string { return hora.Version() }
