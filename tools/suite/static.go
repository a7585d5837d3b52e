package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
)

// machine prints what the figures of this run depend on.
func (s *suite) machine() error {
	cpu, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		fmt.Println("cpu features: unknown (no /proc/cpuinfo)")
	}
	var found []string
	for _, line := range strings.Split(string(cpu), "\n") {
		name, value, _ := strings.Cut(line, ":")
		name = strings.TrimSpace(name)
		if name == "model name" && len(found) == 0 {
			fmt.Println("cpu:", strings.TrimSpace(value))
		}
		if name != "flags" && name != "Features" {
			continue
		}
		flags := " " + value + " "
		for _, f := range []string{"avx2", "f16c", "fma", "avx512f", "avx512bw", "avx512vl", "avx512_bf16", "avx512_fp16", "asimd", "sve"} {
			if strings.Contains(flags, " "+f+" ") {
				found = append(found, f)
			}
		}
		break
	}
	fmt.Printf("vector instructions: %s\n", strings.Join(found, " "))
	fmt.Printf("cores: %d, go: %s %s/%s\n", runtime.NumCPU(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
	return nil
}

func (s *suite) format() error {
	cmd := s.command(filepath.Join(s.tools, "gofumpt"), "-l", ".")
	cmd.Stdout = nil
	out, err := cmd.Output()
	if err != nil {
		return err
	}
	if text := strings.TrimSpace(string(out)); text != "" {
		return fmt.Errorf("these files are not gofumpt-formatted; run make format:\n%s", text)
	}
	s.passed++
	fmt.Println("ok   gofumpt")
	if ruff := filepath.Join(s.venv, "bin", "ruff"); exists(filepath.Join(s.root, "python")) {
		return s.check("ruff", s.command(ruff, "check", "--quiet", "python", "examples"))
	}
	return nil
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

func (s *suite) vet() error {
	return errors.Join(
		s.check("go vet", s.command("go", "vet", "./...")),
		s.check("staticcheck", s.command(filepath.Join(s.tools, "staticcheck"), "./...")),
		s.check("go vet of the tools", s.command("go", "-C", "tools", "vet", "./...")),
		s.check("go test of the tools", s.command("go", "-C", "tools", "test", "./...")),
	)
}

// platforms proves that what cannot run here still compiles. The shared library
// needs a C compiler for its target and is left to the wheel step.
func (s *suite) platforms() error {
	var all []error
	for _, target := range []string{"linux/amd64", "linux/arm64", "darwin/arm64"} {
		goos, goarch, _ := strings.Cut(target, "/")
		cmd := s.command("go", "build", "./...")
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS="+goos, "GOARCH="+goarch)
		all = append(all, s.check("CGO_ENABLED=0 build for "+target, cmd))
	}
	return errors.Join(all...)
}
