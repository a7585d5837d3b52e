package main

import (
	"fmt"
	"time"

	"hora/job"
)

// timeFlag is a time among the flags of the flag library.
type timeFlag struct{ d *time.Duration }

func (t timeFlag) Set(text string) error {
	d, err := job.ParseTime(text)
	if err == nil && d <= 0 {
		err = fmt.Errorf("%q is not %s", text, job.ATime)
	}
	if err == nil {
		*t.d = d
	}
	return err
}

func (t timeFlag) String() string { return t.d.String() }

func (t timeFlag) Type() string { return "time" }
