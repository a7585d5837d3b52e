//go:build amd64 && !purego && !race

package kernel

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// The levels that this processor lacks, on emulated ones.

// TestEmulated builds this package's tests for each emulated processor and runs the short ones there.
func TestEmulated(t *testing.T) {
	if testing.Short() {
		return // what is emulated runs with -short
	}
	few := "Features|Integers|Floats|Scale|Narrow"
	avx2 := "."
	if Best() >= AVX2 {
		avx2 = few // its code has run on the processor itself; here it is only chosen
	}
	for _, c := range []struct {
		emulator, cpu, arch, tags, features, run string
	}{
		{"qemu-aarch64", "max", "arm64", "", "neon pure", "."},
		{"qemu-x86_64", "max", "amd64", "", "avx2 pure", avx2}, // emulates no AVX-512
		{"qemu-x86_64", "qemu64", "amd64", "", "pure", few},
		{"", "", "amd64", "purego", "pure", few},
	} {
		t.Run(c.arch+c.tags+c.cpu, func(t *testing.T) {
			args := []string{"-test.short", "-test.run", c.run, "-features", c.features}
			if c.emulator == "qemu-x86_64" {
				args = append(args, "-anynan")
			}
			if c.arch == "arm64" { // once each: that they run, for times mean nothing here
				args = append(args, "-test.bench", "^Benchmark(Reduce|ReduceAll|Scale|Adasum|Small|Copy)$", "-test.benchtime", "1x")
			}
			program := filepath.Join(t.TempDir(), "kernel.test")
			if c.emulator != "" {
				found, err := exec.LookPath(c.emulator)
				if err != nil {
					t.Skipf("needs %s", c.emulator)
				}
				args = append([]string{found, "-cpu", c.cpu, program}, args...)
			} else {
				args = append([]string{program}, args...)
			}
			build := exec.Command("go", "test", "-c", "-tags", c.tags, "-o", program, ".")
			build.Env = append(os.Environ(), "GOARCH="+c.arch, "CGO_ENABLED=0")
			if out, err := build.CombinedOutput(); err != nil {
				t.Fatalf("build tests for %s: %v\n%s", c.arch, err, out)
			}
			out, err := exec.Command(args[0], args[1:]...).CombinedOutput()
			if err != nil || !bytes.Contains(out, []byte("PASS")) {
				t.Fatalf("%v: %v\n%s", args, err, out)
			}
			if c.arch == "arm64" && !bytes.Contains(out, []byte("BenchmarkReduce/float32/sum/neon")) {
				t.Errorf("no benchmark of a NEON kernel ran:\n%s", out)
			}
		})
	}
}

func TestAVX512(t *testing.T) {
	if Best() != AVX512 {
		t.Skip("needs AVX-512")
	}
}
