package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"
)

// flagRow is one flag of `hora run` and of horovodrun. This table is the only place that knows spellings.
type flagRow struct {
	spellings string // as typed, the canonical one first: "--num-proc -np --np"
	arg       string // what follows it, for the help; "" for a switch; two words take two values
	def       string // the default, for the help and the tests
	help      string
	group     string // under which heading the help has it
	void      string // why it has no effect, where it has none
	elastic   bool   // horovodrun's, and makes the job elastic as horovodrun means it
	set       func(o *options, v string) error
}

func (r *flagRow) name() string {
	n, _, _ := strings.Cut(r.spellings, " ")
	return strings.TrimPrefix(n, "--")
}

func (r *flagRow) values() int { return len(strings.Fields(r.arg)) }

// findFlag looks a spelling up.
func findFlag(table []flagRow, spelling string) *flagRow {
	for i := range table {
		if slices.Contains(strings.Fields(table[i].spellings), spelling) {
			return &table[i]
		}
	}
	return nil
}

// abbreviated looks up a flag by the beginning of its name, where no other begins so.
func abbreviated(table []flagRow, name string) *flagRow {
	var found *flagRow
	for i := range table {
		for s := range strings.FieldsSeq(table[i].spellings) {
			if strings.HasPrefix(name, "--") && strings.HasPrefix(s, name) && found != &table[i] {
				if found != nil {
					return nil
				}
				found = &table[i]
			}
		}
	}
	return found
}

// normalise rewrites argv so that every known flag has its canonical spelling and its value in one word; it stops at
// the command, which it leaves alone. horovodrun lets names be abbreviated.
func normalise(table []flagRow, argv []string, abbreviate bool) ([]string, error) {
	var out []string
	for i := 0; i < len(argv); i++ {
		a := argv[i]
		if a == "--" || a == "-" || !strings.HasPrefix(a, "-") {
			if a != "--" {
				out = append(out, "--")
			}
			return append(out, argv[i:]...), nil
		}
		name, value, joined := strings.Cut(a, "=")
		row := findFlag(table, name)
		if row == nil && len(a) > 2 && a[1] != '-' { // -p2222, -Hh1:2
			if r := findFlag(table, a[:2]); r != nil && r.values() == 1 {
				row, value, joined = r, strings.TrimPrefix(a[2:], "="), true
			}
		}
		if row == nil && abbreviate && name != "--help" {
			row = abbreviated(table, name)
		}
		switch {
		case row == nil && (name == "--help" || name == "-h"):
			out = append(out, "--help")
		case row == nil:
			if g := guess(table, a); g != "" {
				return nil, fmt.Errorf("unknown flag: %s: did you mean %s?", name, g)
			}
			return nil, fmt.Errorf("unknown flag: %s", name)
		case row.name() == moduleFlag: // the command begins
			if !joined {
				if i++; i >= len(argv) {
					return nil, fmt.Errorf("flag %s needs %s", name, row.arg)
				}
				value = argv[i]
			}
			return append(append(out, "--", python(), "-m", value), argv[i+1:]...), nil
		case row.values() == 0 && joined:
			out = append(out, "--"+row.name()+"="+value)
		case row.values() == 0:
			out = append(out, "--"+row.name())
		default:
			vs := []string{value}
			if !joined {
				vs = vs[:0]
			}
			for len(vs) < row.values() {
				if i++; i >= len(argv) {
					return nil, fmt.Errorf("flag %s needs %s", name, row.arg)
				}
				vs = append(vs, argv[i])
			}
			out = append(out, "--"+row.name()+"="+strings.Join(vs, " "))
		}
	}
	return out, nil
}

// moduleFlag begins the command: python -m MODULE and its arguments.
const moduleFlag = "module"

// python is the interpreter beside this program, as in a virtual environment, or the one on PATH.
func python() string {
	if self, err := os.Executable(); err == nil {
		for _, name := range []string{"python3", "python"} {
			if path, err := exec.LookPath(filepath.Join(filepath.Dir(self), name)); err == nil {
				return path
			}
		}
	}
	if _, err := exec.LookPath("python"); err != nil {
		return "python3"
	}
	return "python"
}

// flagValue lets the flag library call a row's set.
type flagValue struct {
	row *flagRow
	o   *options
}

func (v flagValue) String() string {
	if v.row == nil {
		return ""
	}
	return v.row.def
}

func (v flagValue) Type() string { return v.row.arg }

func (v flagValue) Set(s string) error {
	v.o.given[v.row.name()] = true
	if v.row.void != "" {
		v.o.voids = append(v.o.voids, v.row)
	}
	return v.row.set(v.o, s)
}

// flagFault says what is wrong with a flag's value in our words alone, the flag library's left out.
func flagFault(table []flagRow, err error) error {
	var bad *pflag.InvalidValueError
	if !errors.As(err, &bad) {
		return err
	}
	row := findFlag(table, "--"+bad.GetFlag().Name)
	if row == nil || row.name() == configFlag {
		return bad.Unwrap() // it names a file
	}
	return fmt.Errorf("%s: %w", row.names(), bad.Unwrap())
}

// define makes the table's flags known to the flag library.
func define(fs *pflag.FlagSet, table []flagRow, o *options) {
	fs.SetInterspersed(false)
	fs.SortFlags = false
	for i := range table {
		row := &table[i]
		f := &pflag.Flag{Name: row.name(), Usage: row.usage(), Value: flagValue{row, o}, DefValue: row.def}
		if row.values() == 0 {
			f.NoOptDefVal = "true"
		}
		fs.AddFlag(f)
	}
}

func (r *flagRow) usage() string {
	text := r.help
	if others := strings.Fields(r.spellings)[1:]; len(others) > 0 {
		text += " (also " + strings.Join(others, ", ") + ")"
	}
	if r.void != "" {
		text += "; no effect: " + r.void
	}
	return text
}

// Setters of the common shapes.

func setInt(field func(*options) *int, lo, hi int) func(*options, string) error {
	return func(o *options, v string) error {
		n, err := strconv.Atoi(v)
		if err != nil || n < lo || n > hi {
			return fmt.Errorf("%q is not a whole number from %d to %d", v, lo, hi)
		}
		*field(o) = n
		return nil
	}
}

// setText keeps a text that cannot be empty: that is a shell variable without a value.
func setText(field func(*options) *string) func(*options, string) error {
	return func(o *options, v string) error {
		if v == "" {
			return errors.New("it is empty: look whether a variable in it is")
		}
		*field(o) = v
		return nil
	}
}

func setString(field func(*options) *string) func(*options, string) error {
	return func(o *options, v string) error { *field(o) = v; return nil }
}

func setBool(field func(*options) *bool) func(*options, string) error {
	return func(o *options, v string) error {
		b, err := strconv.ParseBool(v)
		if err != nil {
			return fmt.Errorf("%q is neither true nor false", v)
		}
		*field(o) = b
		return nil
	}
}

// setNone checks nothing and keeps nothing.
func setNone(*options, string) error { return nil }

// toEnv hands a value to the workers as a variable.
func toEnv(name string) func(*options, string) error {
	return func(o *options, v string) error { o.workerEnv(name, v); return nil }
}

// numberToEnv checks a number in a range and hands it on, times factor.
func numberToEnv(name string, lo, hi, factor float64) func(*options, string) error {
	return func(o *options, v string) error {
		f, err := strconv.ParseFloat(v, 64)
		if err != nil || f < lo || f > hi {
			return fmt.Errorf("%q is not a number from %g to %g", v, lo, hi)
		}
		o.workerEnv(name, strconv.FormatFloat(f*factor, 'f', -1, 64))
		return nil
	}
}

// switchEnv hands on 1, or 0 for the negative spelling.
func switchEnv(name, value string) func(*options, string) error {
	return func(o *options, v string) error {
		b, err := strconv.ParseBool(v)
		if err != nil {
			return fmt.Errorf("%q is neither true nor false", v)
		}
		if b {
			o.workerEnv(name, value)
		}
		return nil
	}
}
