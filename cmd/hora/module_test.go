package main

import (
	"os"
	"path/filepath"
	"testing"
)

// -m begins the command, as torchrun's does.
func TestAModule(t *testing.T) {
	folder := t.TempDir()
	python := filepath.Join(folder, "python")
	if err := os.WriteFile(python, []byte("#!/bin/sh\necho \"$@\"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	path := "PATH=" + folder + ":" + os.Getenv("PATH")
	for _, c := range []struct {
		args []string
		code int
		out  string
		err  string
	}{
		{[]string{"run", "-np", "1", "-m", "train.main", "--lr", "3", "-np", "4"}, 0, "[0]<stdout>:-m train.main --lr 3 -np 4\n", ""},
		{[]string{"run", "--no-tag", "--module", "train", "--", "-x"}, 0, "-m train -- -x\n", ""},
		{[]string{"run", "--no-tag", "--module=train", "a b"}, 0, "-m train a b\n", ""},
		{[]string{"horovodrun", "-np", "1", "-m", "train"}, 0, "[0]<stdout>:-m train\n", ""},
		{[]string{"run", "-np", "1", "-m"}, 2, "", "hora: flag -m needs MODULE: see hora run --help\n"},
	} {
		if r := commandEnv(t, folder, []string{path}, "hora", c.args...); r.code != c.code || r.out != c.out ||
			r.err != c.err {
			t.Errorf("%q: %+v", c.args, r)
		}
	}
	config := filepath.Join(folder, "c.yaml")
	if err := os.WriteFile(config, []byte("module: train\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if r := commandEnv(t, folder, []string{path}, "hora", "run", "--config-file", config, "true"); r.code != 2 {
		t.Errorf("%+v", r)
	}
}
