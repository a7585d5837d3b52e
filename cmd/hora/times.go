package main

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// aTime is what every flag of a time takes, as variables do: seconds, or a number with a unit.
const aTime = "a time above 0: write seconds, or 500ms, 10s, 2m"

const longestTime = 1e9 * time.Second

// parseTime reads such a time.
func parseTime(text string) (time.Duration, error) {
	d, err := time.ParseDuration(text)
	if f, bad := strconv.ParseFloat(text, 64); bad == nil && f > -1e9 && f <= 1e9 {
		d, err = time.Duration(f*float64(time.Second)), nil
	}
	if err != nil || d > longestTime {
		return 0, fmt.Errorf("%q is not %s", text, aTime)
	}
	return d, nil
}

// seconds writes a time as Horovod's variables have it; a plain number stays as it was written.
func seconds(text string, d time.Duration) string {
	if _, err := strconv.ParseFloat(text, 64); err == nil {
		return text
	}
	return strconv.FormatFloat(d.Seconds(), 'f', -1, 64)
}

// setSeconds keeps a time, and hands it to the workers.
func setSeconds(field func(*options) *time.Duration, env string) func(*options, string) error {
	return func(o *options, v string) error {
		d, err := parseTime(v)
		if err != nil || d <= 0 {
			return fmt.Errorf("%q is not %s", v, aTime)
		}
		*field(o) = d
		o.workerEnv(env, seconds(v, d))
		return nil
	}
}

// secondsToEnv checks a time and hands it to the workers.
func secondsToEnv(name string, least time.Duration) func(*options, string) error {
	return func(o *options, v string) error {
		d, err := parseTime(v)
		if err != nil || d < least {
			return fmt.Errorf("%q is not a time from %v: write seconds, or 90s, 2m", v, least)
		}
		o.workerEnv(name, seconds(v, d))
		return nil
	}
}

// setCooldown keeps the pauses after which a lost host is tried again.
func setCooldown(o *options, v string) error {
	f := strings.Fields(v)
	for i := range o.cooldown {
		var err error
		if len(f) == len(o.cooldown) {
			o.cooldown[i], err = parseTime(f[i])
		}
		if err != nil || o.cooldown[i] < time.Second || o.cooldown[i] > time.Hour || o.cooldown[i] < o.cooldown[0] {
			return fmt.Errorf("%q is not two times with 1 <= MIN <= MAX <= 3600 seconds, such as 10 100", v)
		}
	}
	return nil
}

// timeFlag is a time among the flags of the flag library.
type timeFlag struct{ d *time.Duration }

func (t timeFlag) Set(text string) error {
	d, err := parseTime(text)
	if err == nil && d <= 0 {
		err = fmt.Errorf("%q is not %s", text, aTime)
	}
	if err == nil {
		*t.d = d
	}
	return err
}

func (t timeFlag) String() string { return t.d.String() }

func (t timeFlag) Type() string { return "time" }
