package main

import (
	"fmt"

	"hora/doctor"
)

// checkBuild answers in Horovod's form. Frameworks are bound at run time, so each is there; of controllers and
// operations those are marked whose work this program does itself, and NCCL where its library is found.
func (p *program) checkBuild() {
	nccl := (&doctor.Machine{Lookup: p.getenv, Command: doctor.RunCommand}).HasNCCL(p.ctx)
	fmt.Fprintf(p.out, "Horovod v%s (hora):\n", version())
	groups := []struct {
		title string
		rows  []struct {
			on   bool
			name string
		}
	}{
		{"Available Frameworks", []struct {
			on   bool
			name string
		}{{true, "TensorFlow"}, {true, "PyTorch"}, {false, "MXNet"}}},
		{"Available Controllers", []struct {
			on   bool
			name string
		}{{false, "MPI"}, {true, "Gloo"}}},
		{"Available Tensor Operations", []struct {
			on   bool
			name string
		}{{nccl, "NCCL"}, {false, "DDL"}, {false, "CCL"}, {false, "MPI"}, {true, "Gloo"}}},
	}
	for _, g := range groups {
		fmt.Fprintf(p.out, "\n%s:\n", g.title)
		for _, r := range g.rows {
			mark := " "
			if r.on {
				mark = "X"
			}
			fmt.Fprintf(p.out, "    [%s] %s\n", mark, r.name)
		}
	}
}
