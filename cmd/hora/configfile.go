package main

import (
	"errors"
	"fmt"
	"os"

	"hora/job"
)

const (
	configFlag = "config-file"
	fileFlag   = "file"
)

// readConfig applies horovodrun's YAML file as if its flags stood on the command line in its place.
func (o *options) readConfig(path string) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("read --%s %q: %w: name a YAML file with lines such as \"verbose: true\"", configFlag, path, cause(err))
	}
	err = job.ReadHorovod(path, b, o.table, o.set)
	o.tags = nil // what follows on the command line contradicts nothing here: it wins
	return err
}

// readSpec reads a job's file in the place of its flags.
func (o *options) readSpec(path string) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("read --%s %q: %w: name a file with lines such as \"np: 2\", as hora run --print-spec writes it",
			fileFlag, path, cause(err))
	}
	keys, err := o.spec.Read(path, b)
	if err != nil {
		return err
	}
	for i := range o.table {
		for _, k := range keys {
			if f := &o.table[i]; f.Key == k {
				o.given[f.Name()] = true
				if k == "drain_on" {
					err = errors.Join(err, o.notice())
				}
			}
		}
	}
	return err
}

// cause is why a file could not be read, without its name.
func cause(err error) error {
	var pe *os.PathError
	if errors.As(err, &pe) {
		return pe.Err
	}
	return err
}
