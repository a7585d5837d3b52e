package main

import (
	"encoding/xml"
	"fmt"
	"os"
	"path/filepath"
)

func (s *suite) wheel() error {
	return s.check("make wheel", s.command("make", "--no-print-directory", "wheel"))
}

// pythonTests installs the wheels just built into the tests' environment and runs
// pytest on what an installed hora does.
func (s *suite) pythonTests() error {
	python := filepath.Join(s.venv, "bin", "python")
	install := s.command(python, "-m", "pip", "install", "--quiet", "--no-index", "--find-links", "dist",
		"--force-reinstall", "--no-deps", "hora", "hora-compat")
	if err := s.check("install the wheels", install); err != nil {
		return err
	}
	return s.pytest(python, "python/tests")
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
	report := filepath.Join(os.TempDir(), fmt.Sprintf("hora-pytest-%d.xml", os.Getpid()))
	defer os.Remove(report)
	cmd := s.command(python, "-m", "pytest", "-q", "--durations=8", "--junitxml", report, dir)
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
	before := s.failed
	for _, c := range doc.Cases {
		switch {
		case c.Failure != nil:
			s.fail(c.Class + "." + c.Name + ": " + c.Failure.Message)
		case c.Error != nil:
			s.fail(c.Class + "." + c.Name + ": " + c.Error.Message)
		case c.Skipped != nil:
			s.skip(c.Class+"."+c.Name, c.Skipped.Message)
		default:
			s.passed++
		}
	}
	if runErr != nil && s.failed == before {
		return fmt.Errorf("pytest %s: %w", dir, runErr)
	}
	if len(doc.Cases) == 0 {
		return fmt.Errorf("pytest %s ran no test", dir)
	}
	return nil
}
