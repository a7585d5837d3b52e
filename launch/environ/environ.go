// Package environ works on the environments of processes, as lists of NAME=VALUE: what workers inherit of their
// launcher's, and what is set over it. It reads no process's own.
package environ

import (
	"slices"
	"strings"
)

// VisibleDevices is the variable that says which accelerators a process may use.
const VisibleDevices = "CUDA_VISIBLE_DEVICES"

// SharedDevices names the folder in which agents of several jobs claim devices. Workers do not see it: theirs are
// dealt.
const SharedDevices = "HORA_DEVICES"

// Lookup finds a variable; the last one of a name counts.
func Lookup(env []string, name string) string {
	for _, kv := range slices.Backward(env) {
		if k, v, ok := strings.Cut(kv, "="); ok && k == name {
			return v
		}
	}
	return ""
}

// Merge puts over's variables over env's; neither slice is changed.
func Merge(env, over []string) []string {
	names := make(map[string]bool, len(over))
	for _, kv := range over {
		k, _, _ := strings.Cut(kv, "=")
		names[k] = true
	}
	out := make([]string, 0, len(env)+len(over))
	for _, kv := range env {
		if k, _, _ := strings.Cut(kv, "="); !names[k] {
			out = append(out, kv)
		}
	}
	return append(out, over...)
}

// Default adds a variable that is not there, or is empty.
func Default(env []string, name, value string) []string {
	if Lookup(env, name) != "" {
		return env
	}
	return Merge(env, []string{name + "=" + value})
}

// Inherited returns the part of the launcher's environment that workers get: all but shell functions, what names
// another directory or another launcher's store, secrets, and, on other hosts, which devices are visible here.
func Inherited(environ []string, local bool) []string {
	out := make([]string, 0, len(environ))
	for _, kv := range environ {
		name, _, _ := strings.Cut(kv, "=")
		switch {
		case strings.HasPrefix(name, "BASH_FUNC_"), name == "OLDPWD", name == "TORCHELASTIC_USE_AGENT_STORE",
			name == "_HOROVOD_SECRET_KEY", name == "HORA_SECRET_FILE", name == "HORA_SECRET", name == "HORA_HOST_ID" && !local:
		case !local && strings.HasSuffix(name, VisibleDevices):
		default:
			out = append(out, kv)
		}
	}
	return out
}

// Devices returns those that a process with this environment may use, as a scheduler has allotted them; nil where
// nobody says.
func Devices(environ []string) []string {
	var ids []string
	for id := range strings.SplitSeq(Lookup(environ, VisibleDevices), ",") {
		if id = strings.TrimSpace(id); id != "" {
			ids = append(ids, id)
		}
	}
	return ids
}
