package fleet

import (
	"fmt"
	"slices"
	"strings"

	"hora/server/node"
)

// Each node deals its own devices, and knows of no other node. Two on one machine that have the same ones would give
// one device to two ranks: nobody is stopped, since whoever started them may want that, and both are told.

// Shared is what is to be said of a node some of whose devices another node of its machine has too; "" for nothing.
func (f *Fleet) Shared(name string) string {
	here := node.Hello{}
	if l := f.cfg.Here; len(l.Nodes) > 0 && l.GPUs > 0 {
		here = node.Hello{Name: l.Nodes[0].Name, Machine: node.Machine(), Devices: l.Devices()}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	mine := &here
	if m := f.members[name]; m != nil {
		mine = &m.hello
	}
	if mine.Name != name || mine.Machine == "" || len(mine.Devices) == 0 {
		return ""
	}
	both := map[string]bool{}
	var others []string
	look := func(h *node.Hello) {
		if h.Machine != mine.Machine || h.Name == name {
			return
		}
		found := false
		for _, d := range h.Devices {
			if slices.Contains(mine.Devices, d) {
				both[d], found = true, true
			}
		}
		if found {
			others = append(others, h.Name)
		}
	}
	look(&here)
	for _, m := range f.members {
		look(&m.hello)
	}
	if len(others) == 0 {
		return ""
	}
	slices.Sort(others)
	shared := slices.DeleteFunc(slices.Clone(mine.Devices), func(d string) bool { return !both[d] })
	return fmt.Sprintf("node %s has %s of its machine, which node %s has too: a job of each may be given the same one; "+
		"name each its own with CUDA_VISIBLE_DEVICES, or give one of them --gpus 0",
		name, counted("GPU", shared), strings.Join(others, " and node "))
}

func counted(what string, all []string) string {
	if len(all) > 1 {
		what += "s"
	}
	return what + " " + strings.Join(all, ", ")
}
