package main

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"hora/job"
)

// Widths of the help: what it is set for when its reader is no terminal, and the most that is pleasant to read.
const (
	plainWidth  = 100
	widestHelp  = 120
	narrowest   = 60
	flagColumn  = 34 // where explanations begin
	helpMargin  = "  "
	wontMatter  = "accepted from Horovod's command lines, without effect (with --verbose the launcher says why)"
	columnSpace = 2
)

// writeHelp writes the flags in groups, each as `-short, --long ARG  explanation`, wrapped to width columns.
func writeHelp(w io.Writer, table []job.Field, width int) {
	width = min(max(width, narrowest), widestHelp)
	group := ""
	var void []string
	for i := range table {
		r := &table[i]
		if r.Void != "" {
			void = append(void, "--"+r.Name())
			continue
		}
		if r.Group != group {
			group = r.Group
			fmt.Fprintf(w, "\n%s:\n", group)
		}
		head := helpMargin + heading(r)
		text := r.Help
		if r.Default != "" {
			text += " (default " + r.Default + ")"
		}
		lines := wrap(text, width-flagColumn)
		if utf8.RuneCountInString(head) > flagColumn-columnSpace {
			fmt.Fprintln(w, head)
			head = ""
		}
		for _, line := range lines {
			fmt.Fprintf(w, "%-*s%s\n", flagColumn, head, line)
			head = ""
		}
	}
	if len(void) == 0 {
		return
	}
	fmt.Fprintf(w, "\n%s:\n", wontMatter)
	for _, line := range wrap(strings.Join(void, " "), width-len(helpMargin)) {
		fmt.Fprintln(w, helpMargin+line)
	}
}

// heading is how a flag is written: its names, and what follows.
func heading(r *job.Field) string {
	if r.Arg == "" {
		return flagNames(r)
	}
	return flagNames(r) + " " + r.Arg
}

// flagNames are a flag's shortest spelling and its own.
func flagNames(r *job.Field) string {
	all := strings.Fields(r.Flags)
	short := ""
	for _, s := range all {
		if !strings.HasPrefix(s, "--") && len(s) <= len("-np") && (short == "" || len(s) < len(short)) {
			short = s
		}
	}
	if short == "" { // our own name, beside Horovod's
		for _, s := range all[1:] {
			if strings.HasPrefix(s, "--") && len(s) < len(all[0]) {
				short = s
			}
		}
	}
	if short != "" {
		return short + ", " + all[0]
	}
	return all[0]
}

// wrap breaks text between words.
func wrap(text string, width int) []string {
	var lines []string
	line := ""
	for word := range strings.FieldsSeq(text) {
		switch {
		case line == "":
			line = word
		case utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) > width:
			lines = append(lines, line)
			line = word
		default:
			line += " " + word
		}
	}
	return append(lines, line)
}

// elsewhere is what flags of mpirun, srun and torchrun are called here.
var elsewhere = map[string]string{
	"n": "-np", "ntasks": "-np", "nproc-per-node": "-np", "x": "--env", "host": "--hosts", "w": "--hosts", "nodelist": "--hosts",
	"machinefile": "--hostfile", "max-restarts": "--restarts", "bind-to": "--bind", "output": "--log-dir",
}

// guess finds what a flag that nobody knows may have meant: the only one that it begins, or the nearest by a slip.
func guess(table []job.Field, flag string) string {
	name, _, _ := strings.Cut(flag, "=")
	bare := strings.TrimLeft(name, "-")
	if known := elsewhere[strings.ReplaceAll(bare, "_", "-")]; known != "" {
		return known
	}
	best, begun := "", 0
	least := len(bare)/3 + 1
	for i := range table {
		for s := range strings.FieldsSeq(table[i].Flags) {
			long := strings.TrimLeft(s, "-")
			if len(bare) > 2 && strings.HasPrefix(long, bare) && s == "--"+long {
				best, begun = s, begun+1
			} else if d := job.Slips(bare, long); begun == 0 && len(bare) > 2 && d < least {
				best, least = s, d
			}
		}
	}
	if begun > 1 {
		return ""
	}
	return best
}
