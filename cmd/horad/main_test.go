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
}
