package main

import (
	"fmt"
	"path/filepath"
)

// speed guards nine of the project's speed goals with slack: allreduce of two ranks
// over each link against gloo, alone on the machine but for what others do to it.
func (s *suite) speed() error {
	if s.command("chrt", "-r", "5", "true").Run() != nil {
		s.skip("speed against gloo", "needs SCHED_RR: chrt -r 5 true is refused, and without it ratios prove nothing")
		return nil
	}
	program := filepath.Join(s.root, "bin", "hora")
	if err := s.check("make build", s.command("make", "--no-print-directory", "build")); err != nil {
		return err
	}
	const what = "nine speed goals against gloo"
	run := func() error {
		return s.check(what, s.command(program, "bench", "collectives", "-np", "2", "--ops", "allreduce", "--links", "shm,registered,tcp",
			"--sizes", "4,64Ki,1Mi", "--peers", "gloo", "--rounds", "3", "--check", "bench/targets.json", "--slack", "0.7"))
	}
	if err := run(); err != nil {
		fmt.Println(err)
		if err := run(); err != nil {
			return err
		}
		s.unsteady = append(s.unsteady, what)
	}
	return nil
}
