package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestWhichCommandsArePythonScripts(t *testing.T) {
	folder := t.TempDir()
	tool := filepath.Join(folder, "accelerate")
	if err := os.WriteFile(tool, []byte("#!/usr/bin/env python3\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	for command, want := range map[string]string{
		"python train.py --lr 1":                "train.py",
		"/opt/venv/bin/python3.12 -u a/b.py":    "b.py",
		"python -X dev -W error -O t.py":        "t.py",
		"python -m train.main -m x":             "train.main",
		"python -mtrain":                        "train",
		"numactl -N 0 python train.py":          "train.py",
		"env A=1 pypy3 train.py":                "train.py",
		"./train.py":                            "train.py",
		tool + " launch x":                      "accelerate",
		"python -c pass":                        "",
		"python -V":                             "",
		"python --version":                      "",
		"python -":                              "",
		"python":                                "",
		"python -m hora._task /tmp/x 0":         "",
		"python -m hora":                        "",
		"hostname":                              "",
		"sh -c true":                            "",
		"cat train.py":                          "",
		"nosuchprogram":                         "",
		filepath.Join(folder, "none") + " a.py": "",
	} {
		if got := pythonScript(strings.Fields(command)); got != want {
			t.Errorf("%s: %q, want %q", command, got, want)
		}
	}
}

// What runs side by side without meeting does the same work several times, and saves the same file.
func TestAScriptThatDoesNotJoinIsNamed(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(folder, name), []byte("#!/bin/sh\n"+text+"\n"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	write("train.py", "true")
	write("worker.py", "exec "+self(t))
	write("bad.py", "exit 3")
	write("train", "true")
	const note = "hora: warning: train.py has not joined the job: it ran on each rank for itself, as if alone: call hora.init()"
	for _, c := range []struct {
		args string
		say  bool
	}{
		{"-np 2 ./train.py", true},
		{"-np 3 --on-loss continue ./train.py", true},
		{"-np 1 ./train.py", false},
		{"-np 2 ./train", false},
		{"-np 2 ./bad.py", false},
		{"-np 2 --timeline t.json ./train.py", false}, // the sentence about the timeline says so
		{"-np 2 --env HORA_TEST_PROGRAM= --env HORA_TEST_WORKER=1 ./worker.py", false},
	} {
		r := command(t, folder, "hora", append([]string{"run"}, strings.Fields(c.args)...)...)
		if said := strings.HasPrefix(r.last(), note); said != c.say || strings.Contains(r.err, "as if alone") != c.say {
			t.Errorf("%s: exit code %d, it said\n%s", c.args, r.code, r.err)
		}
	}
}
