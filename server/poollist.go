package server

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"hora/server/client"
)

// Pools are everybody's to see. The commands that make and end nodes are not, nor what these say where they fail: there
// may be keys in both.

// CommandFault is a command of a pool's that has failed.
type CommandFault struct {
	Command string // create, delete or list
	Err     error
	Said    string // the last line that it wrote
	Late    bool   // it took too long, so that nobody knows what it has done
}

func (f *CommandFault) Error() string {
	text := fmt.Sprintf("the command %s failed: %v", f.Command, f.Err)
	if f.Said != "" {
		text += ": " + f.Said
	}
	return text
}

// Unwrap is for errors.Is.
func (f *CommandFault) Unwrap() error { return f.Err }

// seesCommands says whether somebody may know a pool's commands: who may change them.
func (w *who) seesCommands() bool { return w.all >= admin }

// without tells of an error, and nothing of what a command said.
func without(err error) string {
	f := (*CommandFault)(nil)
	if !errors.As(err, &f) || f.Said == "" {
		return err.Error()
	}
	return strings.TrimSuffix(err.Error(), f.Said) + "administrators of all projects see what it said"
}

// Pools lists the pools as a caller may see them, the server's own first.
func (s *Server) Pools(ctx context.Context) ([]client.Pool, error) {
	sees, told := caller(ctx).seesCommands(), error.Error
	if !sees {
		told = without
	}
	all := []client.Pool{{Name: nameOfDefault, Provider: "static"}}
	err := s.do(func() {
		for _, p := range s.pools {
			x := p.Pool
			x.Starting = len(p.starting)
			x.Warning = s.odd(p, told)
			if !sees {
				x.Create, x.Delete, x.List = "", "", ""
			}
			all = append(all, x)
		}
		at := map[string]int{}
		for i := range all {
			at[all[i].Name] = i
		}
		for _, n := range s.capacity() {
			if i, ours := at[n.Pool]; ours && !n.Closed {
				all[i].Ready++
			}
		}
	})
	slices.SortFunc(all[1:], func(a, b client.Pool) int { return strings.Compare(a.Name, b.Name) })
	return all, err
}

// odd is what its user should know of a pool, with errors as they may be told; in the loop.
func (s *Server) odd(p *pool, told func(error) string) string {
	var all []string
	if p.failed != nil {
		all = append(all, "the last node was not made: "+told(p.failed))
	}
	if err := p.unended(); err != nil {
		all = append(all, told(err))
	}
	if err := s.strangers(p); err != nil {
		all = append(all, told(err))
	}
	if len(all) > 0 {
		return strings.Join(all, "; ")
	}
	if p.Provider != "local" {
		return ""
	}
	for _, n := range s.capacity() {
		if n.Pool == nameOfDefault {
			switch asks := p.Max * p.Node.Cores; {
			case asks > n.Slots:
				return fmt.Sprintf("its nodes may have %d cores in all, and this machine gives jobs %d: they share them", asks, n.Slots)
			case n.Memory > 0 && int64(p.Max)*p.Node.Memory > n.Memory:
				return fmt.Sprintf("its nodes may have %d MiB in all, and this machine has %d: they share it", int64(p.Max)*p.Node.Memory>>20, n.Memory>>20)
			}
		}
	}
	return ""
}
