package job

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// EndLine is what a job's discovery prints, and its limits have, when the job is to end at its next commit. No host has
// such a name.
const EndLine = "!end"

// ATime is what every setting of a time takes.
const ATime = "a time above 0: write seconds, or 500ms, 10s, 2m"

const longestTime = 1e9 * time.Second

// ParseTime reads a time as settings and variables have it: seconds, or a number with a unit.
func ParseTime(text string) (time.Duration, error) {
	d, err := time.ParseDuration(text)
	if f, bad := strconv.ParseFloat(text, 64); bad == nil && f > -1e9 && f <= 1e9 {
		d, err = time.Duration(f*float64(time.Second)), nil
	}
	if err != nil || d > longestTime {
		return 0, fmt.Errorf("%q is not %s", text, ATime)
	}
	return d, nil
}

// seconds writes a time as the workers' variables have it.
func seconds(d time.Duration) string { return strconv.FormatFloat(d.Seconds(), 'f', -1, 64) }

// Setters of the common shapes.

type setter = func(*Spec, string) error

func setInt(field func(*Spec) *int, lo, hi int) setter {
	return func(s *Spec, v string) error {
		n, err := strconv.Atoi(v)
		if err != nil || n < lo || n > hi {
			return fmt.Errorf("%q is not a whole number from %d to %d", v, lo, hi)
		}
		*field(s) = n
		return nil
	}
}

// setText keeps a text that cannot be empty: that is a shell variable without a value.
func setText(field func(*Spec) *string) setter {
	return func(s *Spec, v string) error {
		if v == "" {
			return errors.New("it is empty: look whether a variable in it is")
		}
		*field(s) = v
		return nil
	}
}

func setString(field func(*Spec) *string) setter {
	return func(s *Spec, v string) error { *field(s) = v; return nil }
}

func parseBool(v string) (bool, error) {
	b, err := strconv.ParseBool(v)
	if err != nil {
		return false, fmt.Errorf("%q is neither true nor false", v)
	}
	return b, nil
}

func setBool(field func(*Spec) *bool) setter {
	return func(s *Spec, v string) error {
		b, err := parseBool(v)
		if err == nil {
			*field(s) = b
		}
		return err
	}
}

// setChoice keeps what is yes, no or left open.
func setChoice(field func(*Spec) **bool) setter {
	return func(s *Spec, v string) error {
		b, err := parseBool(v)
		if err == nil {
			*field(s) = &b
		}
		return err
	}
}

// setOpposite is the flag that says no to a choice.
func setOpposite(field func(*Spec) **bool) setter {
	return func(s *Spec, v string) error {
		b, err := parseBool(v)
		if b = !b; err == nil {
			*field(s) = &b
		}
		return err
	}
}

// setTime keeps a time above 0.
func setTime(field func(*Spec) *time.Duration) setter {
	return func(s *Spec, v string) error {
		d, err := ParseTime(v)
		if err != nil || d <= 0 {
			return fmt.Errorf("%q is not %s", v, ATime)
		}
		*field(s) = d
		return nil
	}
}

// setTimeFrom keeps a time of at least so much.
func setTimeFrom(least time.Duration, keep func(*Spec, time.Duration)) setter {
	return func(s *Spec, v string) error {
		d, err := ParseTime(v)
		if err != nil || d < least {
			return fmt.Errorf("%q is not a time from %v: write seconds, or 90s, 2m", v, least)
		}
		keep(s, d)
		return nil
	}
}

func number(v string, lo, hi float64) (float64, error) {
	f, err := strconv.ParseFloat(v, 64)
	if err != nil || !(f >= lo && f <= hi) {
		return 0, fmt.Errorf("%q is not a number from %g to %g", v, lo, hi)
	}
	return f, nil
}

// Setters of flags that Horovod has and that have no effect here: what scripts may look at is set all the same.

func (s *Spec) setEnv(name, value string) {
	if s.Env == nil {
		s.Env = map[string]string{}
	}
	s.Env[name] = value
}

func setNone(*Spec, string) error { return nil }

func toEnv(name string) setter {
	return func(s *Spec, v string) error { s.setEnv(name, v); return nil }
}

func numberToEnv(name string, lo, hi float64) setter {
	return func(s *Spec, v string) error {
		f, err := number(v, lo, hi)
		if err == nil {
			s.setEnv(name, strconv.FormatFloat(f, 'f', -1, 64))
		}
		return err
	}
}

func switchEnv(name, value string) setter {
	return func(s *Spec, v string) error {
		b, err := parseBool(v)
		if err == nil && b {
			s.setEnv(name, value)
		}
		return err
	}
}

// Setters of single fields.

func setEnvironment(s *Spec, v string) error {
	name, value, ok := strings.Cut(v, "=")
	if !ok || name == "" {
		return fmt.Errorf("%q is not NAME=VALUE", v)
	}
	s.setEnv(name, value)
	return nil
}

func setInterfaces(s *Spec, v string) error {
	for n := range strings.SplitSeq(v, ",") {
		if n = strings.TrimSpace(n); n != "" {
			s.Interfaces = append(s.Interfaces, n)
		}
	}
	return nil
}

// oneOf keeps one of two words.
func oneOf[T ~string](field func(*Spec) *T, a, b T) setter {
	return func(s *Spec, v string) error {
		if T(v) != a && T(v) != b {
			return fmt.Errorf("%q is neither %s nor %s", v, a, b)
		}
		*field(s) = T(v)
		return nil
	}
}

// setLegacy keeps the one set of old names there is.
func setLegacy(s *Spec, v string) error {
	if Legacy(v) != TF1 {
		return fmt.Errorf("%q is no set of old names: the one there is is %s", v, TF1)
	}
	s.Legacy = TF1
	return nil
}

// setTimeline keeps the timeline's file; an empty one turns off what is exported.
func setTimeline(s *Spec, v string) error {
	if s.Timeline = v; v == "" {
		s.setEnv("HOROVOD_TIMELINE", "")
		s.setEnv("HORA_TIMELINE", "")
	}
	return nil
}

func setLogLevel(s *Spec, v string) error {
	switch strings.ToUpper(v) {
	case "TRACE", "DEBUG", "INFO", "WARNING", "ERROR", "FATAL":
		s.setEnv("HOROVOD_LOG_LEVEL", v)
		return nil
	}
	return fmt.Errorf("%q is none of TRACE, DEBUG, INFO, WARNING, ERROR, FATAL", v)
}

// setCooldown keeps the pauses after which a lost host is tried again.
func setCooldown(s *Spec, v string) error {
	f := strings.Fields(v)
	var pause [2]time.Duration
	for i := range pause {
		var err error
		if len(f) == len(pause) {
			pause[i], err = ParseTime(f[i])
		}
		if err != nil || pause[i] < time.Second || pause[i] > time.Hour || pause[i] < pause[0] {
			return fmt.Errorf("%q is not two times with 1 <= MIN <= MAX <= 3600 seconds, such as 10 100", v)
		}
	}
	s.BlacklistCooldown = Cooldown{pause[0], pause[1]}
	return nil
}

func setDrain(s *Spec, v string) error {
	if command, ok := strings.CutPrefix(v, "sh:"); ok && strings.TrimSpace(command) == "" {
		return fmt.Errorf("%q has no command after the colon", v)
	}
	if v == "" {
		return errors.New("it is empty: name a file, or a command as sh:COMMAND")
	}
	s.DrainOn = v
	return nil
}

func setFusion(s *Spec, v string) error {
	f, err := number(v, 0, 1<<20)
	if err == nil {
		s.FusionThresholdMB = &f
	}
	return err
}

func setCache(s *Spec, v string) error {
	f, err := number(v, 0, 1<<30)
	if err == nil {
		n := int(f)
		s.CacheCapacity = &n
	}
	return err
}
