// Package doctor looks at a machine with the eyes of a distributed training job and
// says what it found, and what to do about what is not as it should be.
//
// It owns the list of checks and their words. It changes nothing on the machine, and
// reads files under a root that tests replace. Examine runs the checks one after
// another; checks that start programs wait for them, bounded by its context. Only Pythons are asked all at once.
package doctor

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"sync"

	"hora/event"
	"hora/probe"
)

// State is how a finding bears on a job.
type State string

// The states, from good to bad.
const (
	Good    State = "ok"
	Note    State = "note"    // works, could be better
	Problem State = "problem" // something a user will meet
)

// Finding is one line of the page.
type Finding struct {
	Host  string `json:"host,omitempty"`
	Topic string `json:"topic"`
	State State  `json:"state"`
	Text  string `json:"text"`
	Do    string `json:"do,omitempty"` // the next step, empty for Good
}

// Machine is where the checks look.
type Machine struct {
	Root   string                   // "" is the real file system
	Lookup func(name string) string // environment
	// Command runs a program and returns what it printed; several goroutines call it at once. Tests replace it.
	Command func(ctx context.Context, name string, args ...string) (string, error)
	Version string // of hora

	ask   sync.Once // fills found
	found []python
}

type check struct {
	topic string
	run   func(*Machine, context.Context) []Finding
}

var checks = []check{
	{"hora", (*Machine).checkHora},
	{"kernel", (*Machine).checkKernel},
	{"cores", (*Machine).checkCores},
	{"memory", (*Machine).checkMemory},
	{"limits", (*Machine).checkLimits},
	{"shared memory", (*Machine).checkSharedMemory},
	{"rights", (*Machine).checkRights},
	{"network", (*Machine).checkNetwork},
	{"ssh", (*Machine).checkSSH},
	{"python", (*Machine).checkPython},
	{"gpu", (*Machine).checkGPU},
}

// Examine runs every check.
func Examine(ctx context.Context, m *Machine) []Finding {
	var all []Finding
	for _, c := range checks {
		for _, f := range c.run(m, ctx) {
			f.Topic = c.topic
			all = append(all, f)
		}
		if ctx.Err() != nil {
			break
		}
	}
	return all
}

// Worst is the gravest state among findings.
func Worst(all []Finding) State {
	worst := Good
	for _, f := range all {
		if f.State == Problem {
			return Problem
		}
		if f.State == Note {
			worst = Note
		}
	}
	return worst
}

// WritePage prints findings for people: problems are marked, each with its next step.
func WritePage(w io.Writer, all []Finding) error {
	host := ""
	for _, f := range all {
		if f.Host != host {
			host = f.Host
			if _, err := fmt.Fprintf(w, "%s\n", host); err != nil {
				return err
			}
		}
		mark := map[State]string{Good: " ", Note: "-", Problem: "!"}[f.State]
		if _, err := fmt.Fprintf(w, "%s %-14s %s\n", mark, f.Topic, event.Visible(f.Text)); err != nil {
			return err
		}
		if f.Do != "" {
			if _, err := fmt.Fprintf(w, "  %-14s → %s\n", "", event.Visible(f.Do)); err != nil {
				return err
			}
		}
	}
	problems := 0
	for _, f := range all {
		if f.State == Problem {
			problems++
		}
	}
	end := "nothing stands in the way of a job"
	if problems > 0 {
		end = fmt.Sprintf("%d problems (marked !), each with its next step above", problems)
	}
	_, err := fmt.Fprintln(w, strings.ReplaceAll(end, "1 problems", "1 problem"))
	return err
}

// WriteJSON prints findings for machines, and the figures between hosts if there are any.
func WriteJSON(w io.Writer, all []Finding, net *probe.Net) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	page := map[string]any{"findings": all, "worst": Worst(all)}
	if net != nil {
		page["net"] = net
	}
	return enc.Encode(page)
}

func good(format string, a ...any) []Finding {
	return []Finding{{State: Good, Text: fmt.Sprintf(format, a...)}}
}

func note(do, format string, a ...any) Finding {
	return Finding{State: Note, Text: fmt.Sprintf(format, a...), Do: do}
}

func problem(do, format string, a ...any) Finding {
	return Finding{State: Problem, Text: fmt.Sprintf(format, a...), Do: do}
}
