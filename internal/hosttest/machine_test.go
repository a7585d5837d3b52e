package hosttest

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// A host of another kind runs programs of that kind that come over ssh.
func TestAHostOfAnotherKind(t *testing.T) {
	n := Up(t, "server1", "server2/aarch64")
	dir := t.TempDir()
	source := filepath.Join(dir, "hello.go")
	if err := os.WriteFile(source, []byte("package main\n\nimport \"runtime\"\n\nfunc main() { println(runtime.GOARCH) }\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("go", "build", "-o", filepath.Join(dir, "hello"), source)
	cmd.Env = append(os.Environ(), "GOARCH=arm64", "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	program := n.Hosts[1].Install(filepath.Join(dir, "hello"), "hello")
	code, out, errs := n.Hosts[0].Output(30*time.Second, "ssh", "-o", "StrictHostKeyChecking=accept-new", "server2", "uname -sm; "+program)
	if code != 0 || out != "Linux aarch64\n" || !strings.HasSuffix(errs, "arm64\n") {
		t.Errorf("exit code %d: %q %q", code, out, errs)
	}
}
