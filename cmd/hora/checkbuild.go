package main

import "fmt"

// checkBuild answers in Horovod's form, as the package horovod does: of frameworks those are marked whose module it
// has, of controllers and operations those whose work this program does itself. NCCL is not, wherever its library may
// be: scripts take that mark, and hvd.nccl_built(), for Horovod's own ways, such as an Adasum that adds inside a host.
func (p *program) checkBuild() {
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
		}{{true, "TensorFlow"}, {true, "PyTorch"}, {true, "MXNet"}}},
		{"Available Controllers", []struct {
			on   bool
			name string
		}{{false, "MPI"}, {true, "Gloo"}}},
		{"Available Tensor Operations", []struct {
			on   bool
			name string
		}{{false, "NCCL"}, {false, "DDL"}, {false, "CCL"}, {false, "MPI"}, {true, "Gloo"}}},
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
