package main

import (
	"bytes"
	"context"
	"strings"
	"testing"
)

// TestAWrongCommandLine ends with 2, and what else goes wrong with 1.
func TestAWrongCommandLine(t *testing.T) {
	for args, want := range map[string]int{
		"backup": 2, "restore a": 2, "check a b": 2, "serve a": 2, "serve --port x": 2, "serve --nothing": 2, "serv": 2, "serve": 2,
		"": 0, "check --help": 0, "check /does/not/exist": 1,
	} {
		var out, errs bytes.Buffer
		code := run(context.Background(), strings.Fields(args), &out, &errs)
		if code != want || (code != 0) != (errs.Len() > 0) {
			t.Errorf("horad %s ends with %d and says %q, want %d", args, code, errs.String(), want)
		}
	}
	for args, want := range map[string]string{ // in hora's words, not the flag library's
		"bakup":              "horad: there is no subcommand \"bakup\": did you mean horad backup?: see horad --help\n",
		"backup":             "horad: horad backup takes DIR and TO: see horad backup --help\n",
		"serve x":            "horad: horad serve takes no arguments, and was given \"x\": see horad serve --help\n",
		"serve --patience x": "horad: --patience \"x\" is not a time, as 90s, 20m or 4h: see horad serve --help\n",
		"serve --prot 1":     "horad: unknown flag: --prot: did you mean --port?: see horad serve --help\n",
		"help nope":          "horad: there is no subcommand \"nope\": see horad --help\n",
	} {
		var out, errs bytes.Buffer
		run(context.Background(), strings.Fields(args), &out, &errs)
		if errs.String() != want {
			t.Errorf("horad %s says %q, want %q", args, errs.String(), want)
		}
	}
}
