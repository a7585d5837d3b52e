package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestTheUnitOfThePage: systemd has nothing to say of the unit in docs/server.md, and something of one with a mistake.
func TestTheUnitOfThePage(t *testing.T) {
	selected(t)
	if _, err := exec.LookPath("systemd-analyze"); err != nil {
		t.Skip("needs systemd-analyze")
	}
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "server.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := strings.Cut(string(page), "```ini\n")
	unit, _, found := strings.Cut(after, "```")
	if !found || !strings.Contains(unit, "hora up") {
		t.Fatalf("the page's unit is %q", unit)
	}
	home := t.TempDir()
	program := filepath.Join(home, ".venv", "bin", "hora")
	if err := os.MkdirAll(filepath.Dir(program), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(program, []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	says := func(unit string) string {
		name := filepath.Join(t.TempDir(), "hora.service")
		if err := os.WriteFile(name, []byte(unit), 0o644); err != nil {
			t.Fatal(err)
		}
		c := exec.Command("systemd-analyze", "--user", "--man=no", "verify", name)
		c.Env = append(os.Environ(), "HOME="+home, "XDG_RUNTIME_DIR="+home)
		out, err := c.CombinedOutput()
		if err != nil {
			return err.Error() + ": " + string(out)
		}
		return string(out)
	}
	if said := says(unit); said != "" {
		t.Errorf("systemd says of the page's unit: %s", said)
	}
	if said := says(strings.Replace(unit, "KillMode", "KillMod", 1)); !strings.Contains(said, "KillMod") {
		t.Errorf("systemd says of a unit with a mistake: %q", said)
	}
}
