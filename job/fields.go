package job

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Field is one setting: of a job where it has a Key, else of the program's command line alone.
type Field struct {
	Key     string // in a job's file and among Python's keyword arguments
	Flags   string // as typed, the canonical one first: "--num-proc -np --np"
	Arg     string // what follows the flag; "" for a switch; two words take two values
	Default string // for the help
	Help    string
	Group   string // the heading under which the help has it
	Void    string // why it has no effect, where it has none
	Elastic bool   // horovodrun's, and makes the job elastic as horovodrun means it
	Ours    bool   // horovodrun does not take it
	Horovod string // its places in Horovod's configuration file, as section.key; "!" turns the sense around
	Torch   string // the variable of torchrun's that is its default
	Vars    string // variables by which workers hear of it; "!" turns the sense around

	set func(*Spec, string) error // nil: the program's own
}

// Fields returns all settings, in the order of the help.
func Fields() []Field {
	var t []Field
	for _, g := range []struct {
		heading string
		fields  []Field
	}{
		{"processes", basicFields()},
		{"hosts", hostFields()},
		{"output", outputFields()},
		{"when workers come and go", elasticFields()},
		{"tuning", slices.Concat(tuningFields(), ignoredFields(), stallFields(), libraryFields())},
	} {
		for i := range g.fields {
			g.fields[i].Group = g.heading
		}
		t = append(t, g.fields...)
	}
	return t
}

// Name returns the flag's canonical spelling without its dashes.
func (f *Field) Name() string {
	n, _, _ := strings.Cut(f.Flags, " ")
	return strings.TrimPrefix(n, "--")
}

// Values returns how many words follow the flag.
func (f *Field) Values() int { return len(strings.Fields(f.Arg)) }

// Find looks a flag up by one of its spellings; nil without one.
func Find(table []Field, spelling string) *Field {
	for i := range table {
		if slices.Contains(strings.Fields(table[i].Flags), spelling) {
			return &table[i]
		}
	}
	return nil
}

// Own reports whether the setting is the program's own and no job's, so that Set cannot keep it.
func (f *Field) Own() bool { return f.set == nil }

// Set reads the setting's value as a flag has it and keeps it in s.
func (f *Field) Set(s *Spec, text string) error { return f.set(s, text) }

// keyed are the settings that a job's file may have, in the order of Spec. Nobody changes them. They are made once: a
// server reads and writes jobs thousands of times a second.
var keyed = func() (out []Field) {
	of := map[string]Field{"command": {Key: "command", Help: commandHelp}}
	for _, f := range Fields() {
		if f.Key != "" {
			of[f.Key] = f
		}
	}
	for i := range reflect.TypeFor[Spec]().NumField() {
		out = append(out, of[keyOf(i)])
	}
	return out
}()

// places are the fields of Spec by their keys.
var places = func() map[string]int {
	out := map[string]int{}
	for i := range reflect.TypeFor[Spec]().NumField() {
		out[keyOf(i)] = i
	}
	return out
}()

const commandHelp = "what each process runs: a list of words, or one line with quotes as a shell has them"

func keyOf(i int) string {
	key, _, _ := strings.Cut(reflect.TypeFor[Spec]().Field(i).Tag.Get("json"), ",")
	return key
}

// value returns the field of s with the key.
func (s *Spec) value(key string) reflect.Value {
	i, there := places[key]
	if !there {
		panic("job: no field " + key)
	}
	return reflect.ValueOf(s).Elem().Field(i)
}

// Merge copies the fields of from with these keys.
func (s *Spec) Merge(from *Spec, keys ...string) {
	for _, k := range keys {
		s.value(k).Set(from.value(k))
	}
}

// plain returns a field's value as JSON and YAML have it: nil where it is not set.
func plain(v reflect.Value) any {
	if v.IsZero() || v.Kind() == reflect.Map && v.Len() == 0 || v.Kind() == reflect.Slice && v.Len() == 0 {
		return nil
	}
	if v.Kind() == reflect.Pointer {
		v = v.Elem()
	}
	switch x := v.Interface().(type) {
	case time.Duration:
		return timeText(x)
	case Cooldown:
		return []string{timeText(x.Min), timeText(x.Max)}
	case []string:
		return x
	case map[string]string:
		return x
	}
	switch v.Kind() {
	case reflect.Bool:
		return v.Bool()
	case reflect.Int:
		return v.Int()
	case reflect.Float64:
		return v.Float()
	}
	return v.String()
}

// timeText writes a time as people do: "90s", "500ms".
func timeText(d time.Duration) string {
	if d%time.Second == 0 {
		return strconv.FormatInt(int64(d/time.Second), 10) + "s"
	}
	return d.String()
}

// text returns a value of plain as flags have it.
func text(p any) []string {
	switch x := p.(type) {
	case nil:
		return nil
	case []string:
		return []string{strings.Join(x, " ")}
	case map[string]string:
		var out []string
		for k, v := range x {
			out = append(out, k+"="+v)
		}
		slices.Sort(out)
		return out
	case float64:
		return []string{strconv.FormatFloat(x, 'f', -1, 64)}
	}
	return []string{fmt.Sprint(p)}
}

// Check finds values that no flag would take, and settings that contradict each other.
func (s *Spec) Check() error {
	for _, f := range keyed {
		if f.set == nil || f.Key == "network_interfaces" {
			continue
		}
		for _, t := range text(plain(s.value(f.Key))) {
			if err := f.set(&Spec{}, t); err != nil {
				return fmt.Errorf("%s: %w", f.Key, err)
			}
		}
	}
	sources := 0
	for _, from := range []string{s.Hosts, s.Hostfile, s.Discover} {
		if from != "" {
			sources++
		}
	}
	switch {
	case len(s.Command) == 0:
		return fmt.Errorf("there is no command to start: write it after the flags, as in hora run -np 2 python train.py")
	case s.Command[0] == "":
		return fmt.Errorf("the command to start is empty: look whether a variable in it is")
	case sources > 1:
		return fmt.Errorf("-H, --hostfile and --discover each say where to run: give one of them")
	case s.Discover != "" && s.OnLoss == Replace:
		return fmt.Errorf("--discover and --on-loss replace contradict each other: " +
			"with a discovery the job goes on with the workers there are and grows again")
	case s.DrainOn != "" && s.AfterLoss() == "" && s.Discover == "":
		return fmt.Errorf("--drain-on without another elastic flag would end the job: " +
			"add --restarts N, --on-loss continue or --discover")
	case s.OnLoss == Replace && s.Restarts == 0 && s.ResetLimit == 0:
		return fmt.Errorf("--on-loss replace without --restarts has nothing to replace with: add --restarts N")
	case s.MinNP > 0 && s.MaxNP > 0 && s.MinNP > s.MaxNP:
		return fmt.Errorf("--min-np %d is above --max-np %d: swap them", s.MinNP, s.MaxNP)
	case s.NP > 0 && s.MinNP > s.NP:
		return fmt.Errorf("--min-np %d is above -np %d: lower it, or raise -np", s.MinNP, s.NP)
	case s.NP > 0 && s.MaxNP > 0 && s.MaxNP < s.NP:
		return fmt.Errorf("--max-np %d is below -np %d: raise it, or lower -np", s.MaxNP, s.NP)
	}
	return nil
}

// WorkerEnv returns the variables by which workers hear of settings, then those of Env.
func (s *Spec) WorkerEnv() []string {
	var out []string
	for _, f := range keyed {
		if f.Vars == "" {
			continue
		}
		for _, t := range variable(s, f.Key) {
			for name := range strings.FieldsSeq(f.Vars) {
				if n, turned := strings.CutPrefix(name, "!"); turned {
					name = n
					t = map[string]string{"1": "0", "0": "1"}[t]
				}
				out = append(out, name+"="+t)
			}
		}
	}
	return append(out, text(plain(s.value("env")))...)
}

// variable returns a setting as a worker's variable has it: times in seconds, sizes in bytes, 1 and 0; none where it is
// not set.
func variable(s *Spec, key string) []string {
	v := s.value(key)
	if v.IsZero() {
		return nil
	}
	if v.Kind() == reflect.Pointer {
		v = v.Elem()
	}
	switch x := v.Interface().(type) {
	case time.Duration:
		return []string{seconds(x)}
	case bool:
		if x {
			return []string{"1"}
		}
		return []string{"0"}
	case float64: // the fusion threshold, in MB
		return []string{strconv.FormatFloat(x*(1<<20), 'f', -1, 64)}
	}
	return []string{fmt.Sprint(v.Interface())}
}
