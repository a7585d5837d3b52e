package main

import (
	"encoding/xml"
	"fmt"
	"os"
	"path/filepath"
)

func (s *suite) wheel() error {
	return s.check("make wheels", s.command("make", "--no-print-directory", "wheels"))
}

// pythonTests installs the wheels just built into the tests' environment and runs
// pytest on what an installed hora does.
func (s *suite) pythonTests() error {
	python := filepath.Join(s.venv, "bin", "python")
	install := s.command(python, "-m", "pip", "install", "--quiet", "--no-index", "--find-links", "dist",
		"--force-reinstall", "--no-deps", "hora", "hora-compat", "hora-server")
	if err := s.check("install the wheels", install); err != nil {
		return err
	}
	return s.pytest(python, "python/tests")
}

// sparkTests runs the tests that need a Spark session on the newest pyspark, with the
// wheels that pythonTests installed; make test-spark runs them on every pyspark.
func (s *suite) sparkTests() error {
	return s.pytest(filepath.Join(s.spark, "bin", "python"), "python/tests/spark")
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

func (s *suite) pytest(python, dir string) error {
	first := &tally{}
	err := s.runPytest(first, python, dir)
	s.add(first)
	if len(first.failed) == 0 {
		if err == nil && first.passed == 0 {
			err = fmt.Errorf("pytest %s ran no test", dir)
		}
		return err
	}
	if first.passed == 0 { // what could not even be collected is no test that failed under load
		return fmt.Errorf("pytest %s ran no test that passed: %v", dir, err)
	}
	var names []string
	for _, f := range first.failed {
		names = append(names, f.where+"."+f.test)
	}
	s.secondRun("pytest", names, len(names), func(second *tally) error {
		return s.runPytest(second, python, "--last-failed", "--last-failed-no-failures=none", dir)
	})
	return nil
}

// runPytest counts one run of pytest into t.
func (s *suite) runPytest(t *tally, python string, args ...string) error {
	report := filepath.Join(os.TempDir(), fmt.Sprintf("hora-pytest-%d.xml", os.Getpid()))
	defer os.Remove(report)
	cmd := s.command(python, append([]string{"-m", "pytest", "-q", "--durations=12", "--continue-on-collection-errors", "--junitxml", report}, args...)...)
	cmd.Env = append(os.Environ(), "PATH="+filepath.Join(s.venv, "bin")+":"+os.Getenv("PATH"), "PYTHONDONTWRITEBYTECODE=1")
	runErr := cmd.Run()
	text, err := os.ReadFile(report)
	if err != nil {
		return fmt.Errorf("pytest (%v) left no report: %w", runErr, err)
	}
	var doc struct {
		Cases []testCase `xml:"testsuite>testcase"`
	}
	if err := xml.Unmarshal(text, &doc); err != nil {
		return fmt.Errorf("read pytest's report: %w", err)
	}
	for _, c := range doc.Cases {
		switch {
		case c.Failure != nil || c.Error != nil:
			t.failed = append(t.failed, failure{c.Class, c.Name})
		case c.Skipped != nil:
			s.skip(c.Class+"."+c.Name, c.Skipped.Message)
		default:
			t.passed++
		}
	}
	if runErr != nil && len(t.failed) == 0 {
		return fmt.Errorf("pytest %s: %w", args[len(args)-1], runErr)
	}
	return nil
}
