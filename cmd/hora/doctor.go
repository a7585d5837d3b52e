package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"hora"
	"hora/doctor"
)

func (p *program) doctorCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "look at this machine with the eyes of a distributed job",
		Long:  "doctor prints one page of what it found on this machine, and what to do about what is not as it should be.\nIt exits with 1 when something stands in the way of a job.",
		Args:  noArguments("doctor"),
		RunE: func(*cobra.Command, []string) error {
			m := &doctor.Machine{Lookup: p.getenv, Command: doctor.RunCommand, Version: hora.Version()}
			found := doctor.Examine(p.ctx, m)
			write := doctor.WritePage
			if asJSON {
				write = doctor.WriteJSON
			}
			if err := write(p.out, found); err != nil {
				return fmt.Errorf("write the page: %w", err)
			}
			if doctor.Worst(found) == doctor.Problem {
				p.code = 1
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "findings as JSON, for machines")
	return cmd
}
