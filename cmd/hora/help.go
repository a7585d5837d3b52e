package main

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
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
func writeHelp(w io.Writer, table []flagRow, width int) {
	width = min(max(width, narrowest), widestHelp)
	group := ""
	var void []string
	for i := range table {
		r := &table[i]
		if r.void != "" {
			void = append(void, "--"+r.name())
			continue
		}
		if r.group != group {
			group = r.group
			fmt.Fprintf(w, "\n%s:\n", group)
		}
		head := helpMargin + r.heading()
		text := r.help
		if r.def != "" {
			text += " (default " + r.def + ")"
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
	fmt.Fprintf(w, "\n%s:\n", wontMatter)
	for _, line := range wrap(strings.Join(void, " "), width-len(helpMargin)) {
		fmt.Fprintln(w, helpMargin+line)
	}
}

// heading is how a flag is written: its names, and what follows.
func (r *flagRow) heading() string {
	if r.arg == "" {
		return r.names()
	}
	return r.names() + " " + r.arg
}

// names are a flag's shortest spelling and its own.
func (r *flagRow) names() string {
	all := strings.Fields(r.spellings)
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
func guess(table []flagRow, flag string) string {
	name, _, _ := strings.Cut(flag, "=")
	bare := strings.TrimLeft(name, "-")
	if known := elsewhere[strings.ReplaceAll(bare, "_", "-")]; known != "" {
		return known
	}
	best, begun := "", 0
	least := len(bare)/3 + 1
	for i := range table {
		for s := range strings.FieldsSeq(table[i].spellings) {
			long := strings.TrimLeft(s, "-")
			if len(bare) > 2 && strings.HasPrefix(long, bare) && s == "--"+long {
				best, begun = s, begun+1
			} else if d := slips(bare, long); begun == 0 && len(bare) > 2 && d < least {
				best, least = s, d
			}
		}
	}
	if begun > 1 {
		return ""
	}
	return best
}

// slips is how many letters must be put in, left out or changed to make b of a; two that change places are one slip.
func slips(a, b string) int {
	rows := make([][]int, len(a)+1)
	for i := range rows {
		rows[i] = make([]int, len(b)+1)
		rows[i][0] = i
	}
	for j := range rows[0] {
		rows[0][j] = j
	}
	for i := range len(a) {
		for j := range len(b) {
			d := rows[i][j]
			if a[i] != b[j] {
				d++
			}
			d = min(d, rows[i][j+1]+1, rows[i+1][j]+1)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				d = min(d, rows[i-1][j-1]+1)
			}
			rows[i+1][j+1] = d
		}
	}
	return rows[len(a)][len(b)]
}
