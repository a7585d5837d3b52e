package jobtest_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestTheProgramOfTheGoPageInAModuleOfItsOwn does what docs/go.md tells somebody outside: their module takes hora from
// a clone in ~/hora, and the program on the page is built there and runs on two ranks. Nothing is asked of the network.
func TestTheProgramOfTheGoPageInAModuleOfItsOwn(t *testing.T) {
	clone, err := os.Getwd() // TestMain has gone to the repository
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(clone, "docs", "go.md"))
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?s)```(go)?\n(.*?)```").FindAllStringSubmatch(string(text), -1)
	if len(blocks) < 3 || blocks[0][1] != "" || blocks[1][1] != "go" || blocks[2][1] != "" {
		t.Fatalf("docs/go.md does not begin with a recipe, a program and how it is started: %q", blocks)
	}
	home := t.TempDir()
	module := filepath.Join(home, "your", "module")
	if err := os.MkdirAll(module, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(clone, filepath.Join(home, "hora")); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(module, "main.go"), []byte(blocks[1][2]), 0o600); err != nil {
		t.Fatal(err)
	}
	shell := func(dir, script string) string {
		t.Helper()
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
		defer cancel()
		cmd := exec.CommandContext(ctx, "sh", "-e", "-c", script)
		cmd.Dir = dir
		cmd.Env = append(cmd.Environ(), "PWD="+dir, "PATH="+filepath.Join(home, "bin")+":"+os.Getenv("PATH"), "GOPROXY=off", "GOSUMDB=off")
		for _, name := range []string{"GOCACHE", "GOMODCACHE", "GOPATH"} { // which lie in HOME, and that is another
			known, err := exec.Command("go", "env", name).Output()
			if err != nil {
				t.Fatal(err)
			}
			cmd.Env = append(cmd.Env, name+"="+strings.TrimSpace(string(known)))
		}
		cmd.Env = append(cmd.Env, "HOME="+home)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v\n%s", script, err, out)
		}
		return string(out)
	}
	recipe := regexp.MustCompile(`(?s)\ncd your/module\n.*`).FindString(blocks[0][2])
	start, made, _ := strings.Cut(blocks[2][2], "# hora: ")
	made, where := strings.CutSuffix(made, " in the clone\n")
	if !strings.Contains(recipe, "go mod edit") || !strings.Contains(start, "hora run -np 2") || !where {
		t.Fatalf("docs/go.md's recipe is another: %q, %q", recipe, blocks[2][2])
	}
	shell(clone, strings.Replace(made, "-o hora", "-o "+filepath.Join(home, "bin", "hora"), 1))
	shell(module, "go mod init example.org/your/module")
	shell(home, recipe)
	lines := strings.Fields(strings.ReplaceAll(shell(module, start), " ", "_"))
	slices.Sort(lines)
	if want := []string{"[0]<stdout>:0_of_2_has_3", "[1]<stdout>:1_of_2_has_3"}; !slices.Equal(lines, want) {
		t.Errorf("the program says %q, want %q", lines, want)
	}
}
