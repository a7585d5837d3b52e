package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"hora/job"
)

// abbreviated looks up a flag by the beginning of its name, where no other begins so.
func abbreviated(table []job.Field, name string) *job.Field {
	var found *job.Field
	for i := range table {
		for s := range strings.FieldsSeq(table[i].Flags) {
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
func normalise(table []job.Field, argv []string, abbreviate bool) ([]string, error) {
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
		row := job.Find(table, name)
		if row == nil && len(a) > 2 && a[1] != '-' { // -p2222, -Hh1:2
			if r := job.Find(table, a[:2]); r != nil && r.Values() == 1 {
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
		case row.Name() == moduleFlag: // the command begins
			if !joined {
				if i++; i >= len(argv) {
					return nil, fmt.Errorf("flag %s needs %s", name, row.Arg)
				}
				value = argv[i]
			}
			return append(append(out, "--", python(), "-m", value), argv[i+1:]...), nil
		case row.Values() == 0 && joined:
			out = append(out, "--"+row.Name()+"="+value)
		case row.Values() == 0:
			out = append(out, "--"+row.Name())
		default:
			vs := []string{value}
			if !joined {
				vs = vs[:0]
			}
			for len(vs) < row.Values() {
				if i++; i >= len(argv) {
					return nil, fmt.Errorf("flag %s needs %s", name, row.Arg)
				}
				vs = append(vs, argv[i])
			}
			out = append(out, "--"+row.Name()+"="+strings.Join(vs, " "))
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
	row *job.Field
	o   *options
}

func (v flagValue) String() string {
	if v.row == nil {
		return ""
	}
	return v.row.Default
}

func (v flagValue) Type() string { return v.row.Arg }

func (v flagValue) Set(s string) error {
	return v.o.set(v.row, s)
}

// set keeps a flag's value: in the job, or among what is this program's own.
func (o *options) set(f *job.Field, v string) error {
	o.given[f.Name()] = true
	if f.Void != "" {
		o.voids = append(o.voids, f)
	}
	if f.Own() {
		return o.own(f.Name(), v)
	}
	if err := f.Set(&o.spec, v); err != nil {
		return err
	}
	switch f.Name() {
	case "drain-on":
		return o.notice()
	case "tag-output", "no-tag":
		o.tags = append(o.tags, map[bool]string{true: "--tag-output", false: "--no-tag"}[*o.spec.TagOutput])
	}
	return nil
}

// own keeps a flag that says nothing of the job.
func (o *options) own(name, v string) error {
	if o.hub != nil {
		if known, err := o.hub.set(name, v); known {
			return err
		}
	}
	switch name {
	case moduleFlag:
		return errors.New("it begins the command: give it last, on the command line")
	case configFlag:
		return o.readConfig(v)
	case fileFlag:
		return o.readSpec(v)
	case "stdin":
		n, err := strconv.Atoi(v)
		if err != nil || n < 0 || n > 1<<20 {
			return fmt.Errorf("%q is not a whole number from 0 to %d", v, 1<<20)
		}
		o.stdin = n
		return nil
	case "call", "results":
		if v == "" {
			return errors.New("it is empty: look whether a variable in it is")
		}
		if name == "call" {
			o.call = v
		} else {
			o.results = v
		}
		return nil
	case "adopt":
		if o.adopt = v; v == "" {
			return errors.New("it is empty: look whether a variable in it is")
		}
		return nil
	case "secret-file":
		if o.secretFile = v; v == "" {
			return errors.New("it is empty: look whether a variable in it is")
		}
		return nil
	}
	b, err := strconv.ParseBool(v)
	if err != nil {
		return fmt.Errorf("%q is neither true nor false", v)
	}
	switch name {
	case "version":
		o.version = b
	case "check-build":
		o.checkBuild = b
	case "verbose":
		o.verbose = b
	case "until-stdin-ends":
		o.untilStdinEnds = b
	case "dry-run":
		o.dryRun = b
	case "print-spec":
		o.printSpec = b
	case "schema":
		o.schema = b
	default: // horovodrun's controllers
		if b {
			o.controllers = append(o.controllers, name)
		}
	}
	return nil
}

// notice looks at what tells that a host is about to go, and makes its name one that all folders share.
func (o *options) notice() error {
	v := o.spec.DrainOn
	if strings.HasPrefix(v, "sh:") {
		return nil
	}
	if _, err := os.Stat(v); err == nil {
		return fmt.Errorf("%s is there already: remove it, or name a file that appears when a host is about to go", v)
	}
	var err error
	o.spec.DrainOn, err = filepath.Abs(v)
	return err
}

// flagFault says what is wrong with a flag's value in our words alone, the flag library's left out.
func flagFault(table []job.Field, err error) error {
	var bad *pflag.InvalidValueError
	if !errors.As(err, &bad) {
		return err
	}
	row := job.Find(table, "--"+bad.GetFlag().Name)
	if row == nil || row.Name() == configFlag || row.Name() == fileFlag {
		return bad.Unwrap() // it names a file
	}
	return fmt.Errorf("%s: %w", flagNames(row), bad.Unwrap())
}

// define makes the table's flags known to the flag library.
func define(fs *pflag.FlagSet, table []job.Field, o *options) {
	fs.SetInterspersed(false)
	fs.SortFlags = false
	for i := range table {
		row := &table[i]
		f := &pflag.Flag{Name: row.Name(), Usage: usage(row), Value: flagValue{row, o}, DefValue: row.Default}
		if row.Values() == 0 {
			f.NoOptDefVal = "true"
		}
		fs.AddFlag(f)
	}
}

func usage(r *job.Field) string {
	text := r.Help
	if others := strings.Fields(r.Flags)[1:]; len(others) > 0 {
		text += " (also " + strings.Join(others, ", ") + ")"
	}
	if r.Void != "" {
		text += "; no effect: " + r.Void
	}
	return text
}
