package main

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"sync"
	"time"
)

func (s *suite) wheel() error {
	return s.check("make wheels", s.command("make", "--no-print-directory", "wheels"))
}

// lane is one run of pytest. The lanes run beside each other, since most of what their
// tests do is wait for processes; who fails has his second run when all lanes are through.
type lane struct {
	name   string
	python string
	args   []string // what is tested
	env    []string // beside the environment's own
	tally  tally
	skips  []testCase
	output output
	err    error
}

// output keeps what a lane prints until it is through, but for how far it has come. The buffer is not embedded: its
// ReadFrom would be taken in place of Write.
type output struct {
	kept bytes.Buffer
	name string
}

var comeSoFar = regexp.MustCompile(`\[ *[0-9]+%\]`)

func (o *output) Write(p []byte) (int, error) {
	if far := comeSoFar.FindAll(p, -1); far != nil {
		fmt.Printf("%-10s %s\n", o.name, far[len(far)-1])
	}
	return o.kept.Write(p)
}

// fatal is how what ends a whole pytest begins: Python's own words with the stack of each thread, which name the test
// that ran, those of Go's runtime in the library, and of what C++ and TensorFlow check.
var fatal = regexp.MustCompile(`(?m)^.*(Fatal Python error|fatal error: |panic: |terminate called|Check failed).*$`)

// lastWords is what a pytest that has died said of it: a screenful from the first line that is fatal, or its last one.
func (o *output) lastWords() string {
	const screen = 40
	said := o.kept.Bytes()
	if at := fatal.FindIndex(said); at != nil {
		lines := bytes.Split(said[at[0]:], []byte("\n"))
		return string(bytes.Join(lines[:min(screen, len(lines))], []byte("\n")))
	}
	lines := bytes.Split(bytes.TrimRight(said, "\n"), []byte("\n"))
	return string(bytes.Join(lines[max(0, len(lines)-screen):], []byte("\n")))
}

// tensorflow is the folder of python/tests that takes a third of the time of its tests.
const tensorflow = "python/tests/tensorflow"

// pythonTests installs the wheels just built into the tests' environment and runs
// pytest on what an installed hora does; on Spark with the newest pyspark alone
// (make test-spark runs those tests on every one).
func (s *suite) pythonTests() error {
	if err := s.installWheels(); err != nil {
		return err
	}
	python := filepath.Join(s.venv, "bin", "python")
	return s.lanes(
		[]*lane{{name: "tensorflow", python: python, args: []string{tensorflow}}, sparkLane("spark", s.spark)},
		[]*lane{{name: "python", python: python, args: []string{"python/tests", "--ignore=" + tensorflow}}})
}

// installWheels puts them in the tests' environment, which those of the pysparks see too.
func (s *suite) installWheels() error {
	return s.check("install the wheels", s.command(filepath.Join(s.venv, "bin", "python"), "-m", "pip", "install", "--quiet", "--no-index",
		"--find-links", "dist", "--force-reinstall", "--no-deps", "hora", "hora-compat", "hora-server"))
}

// sparkTests runs the tests on Spark alone, with the wheels that are installed.
func (s *suite) sparkTests() error {
	return s.lanes([]*lane{sparkLane("spark", s.spark)})
}

// sparksTests runs every test on Spark, the long ones too, on each pyspark, and by a client of Spark Connect
// those that say nothing of what Connect has not.
func (s *suite) sparksTests() error {
	if err := s.installWheels(); err != nil {
		return err
	}
	var row []*lane
	for _, on := range []struct {
		name, pyspark string
		env           []string
	}{{"spark-4", "spark-4", nil}, {"connect-4", "spark-4", []string{"HORA_SPARK_CONNECT=1"}}, {"spark-3.5", "spark-3.5", nil}} {
		env, err := environment(s.ctx, s.root, on.pyspark)
		if err != nil {
			return err
		}
		l := sparkLane(on.name, env)
		l.env = append(on.env, "HORA_SPARK=all")
		row = append(row, l)
	}
	return s.lanes(row)
}

func sparkLane(name, env string) *lane {
	return &lane{name: name, python: filepath.Join(env, "bin", "python"), args: []string{"python/tests/spark"}}
}

type testCase struct {
	Class   string `xml:"classname,attr"`
	Name    string `xml:"name,attr"`
	Failure *struct {
		Message string `xml:"message,attr"`
	} `xml:"failure"`
	Error *struct {
		Message string `xml:"message,attr"`
	} `xml:"error"`
	Skipped *struct {
		Message string `xml:"message,attr"`
	} `xml:"skipped"`
}

// lanes runs rows of lanes, the rows beside each other, the lanes of a row one after the
// other. What a lane prints is shown as a whole when it is through.
func (s *suite) lanes(rows ...[]*lane) error {
	var (
		all     sync.WaitGroup
		through = make(chan *lane)
		count   int
	)
	for _, row := range rows {
		count += len(row)
		all.Go(func() {
			for _, l := range row {
				l.output.name = l.name
				began := time.Now()
				l.err = s.pytest(l, &l.output, &l.tally, l.args...)
				fmt.Fprintf(&l.output, "%s: %.1f s\n", l.name, time.Since(began).Seconds())
				through <- l
			}
		})
	}
	for range count {
		l := <-through
		fmt.Printf("-- %s\n", l.name)
		_, _ = l.output.kept.WriteTo(os.Stdout)
	}
	all.Wait()
	var errs []error
	for _, row := range rows {
		for _, l := range row {
			errs = append(errs, s.judge(l))
		}
	}
	return errors.Join(errs...)
}

// judge counts what a lane came to and gives its failed tests their second run.
func (s *suite) judge(l *lane) error {
	s.add(&l.tally)
	for _, c := range l.skips {
		s.skip(c.Class+"."+c.Name, c.Skipped.Message)
	}
	if len(l.tally.failed) == 0 {
		if l.err == nil && l.tally.passed == 0 {
			return fmt.Errorf("pytest %s ran no test", l.name)
		}
		return l.err
	}
	if l.tally.passed == 0 { // what could not even be collected is no test that failed under load
		return fmt.Errorf("pytest %s ran no test that passed: %v", l.name, l.err)
	}
	var names []string
	for _, f := range l.tally.failed {
		names = append(names, f.where+"."+f.test)
	}
	s.secondRun("pytest", names, len(names), func(second *tally) error {
		return s.pytest(l, os.Stdout, second, append([]string{"--last-failed", "--last-failed-no-failures=none"}, l.args...)...)
	})
	return nil
}

// pytest counts one run of a lane's pytest into t. Each lane remembers its failures in a
// folder of its own.
func (s *suite) pytest(l *lane, output io.Writer, t *tally, args ...string) error {
	report := filepath.Join(os.TempDir(), fmt.Sprintf("hora-pytest-%s-%d.xml", l.name, os.Getpid()))
	defer os.Remove(report)
	cmd := s.command(l.python, append([]string{
		"-u", "-m", "pytest", "-q", "--durations=30", "--continue-on-collection-errors",
		"-o", "cache_dir=.pytest_cache/" + l.name, "--junitxml", report,
	}, args...)...)
	cmd.Stdout, cmd.Stderr = output, output
	cmd.Env = append(append(os.Environ(), "PATH="+filepath.Join(s.venv, "bin")+":"+os.Getenv("PATH"), "PYTHONDONTWRITEBYTECODE=1"), l.env...)
	runErr := cmd.Run()
	text, err := os.ReadFile(report)
	if err != nil {
		return fmt.Errorf("pytest %s (%v) left no report: %w\n%s", l.name, runErr, err, l.output.lastWords())
	}
	var doc struct {
		Cases []testCase `xml:"testsuite>testcase"`
	}
	if err := xml.Unmarshal(text, &doc); err != nil {
		return fmt.Errorf("read the report of pytest %s: %w", l.name, err)
	}
	for _, c := range doc.Cases {
		switch {
		case c.Failure != nil || c.Error != nil:
			t.failed = append(t.failed, failure{c.Class, c.Name})
		case c.Skipped != nil:
			l.skips = append(l.skips, c)
		default:
			t.passed++
		}
	}
	if runErr != nil && len(t.failed) == 0 {
		return fmt.Errorf("pytest %s: %w", l.name, runErr)
	}
	return nil
}
