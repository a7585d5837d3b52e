package examples_test

import (
	"bytes"
	"context"
	"errors"
	"image"
	"image/png"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

// programs are built once: hora itself and every example in Go.
var bin string

func TestMain(m *testing.M) {
	os.Exit(withPrograms(m))
}

func withPrograms(m *testing.M) int {
	dir, err := os.MkdirTemp("", "hora-examples-")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	bin = dir
	build := exec.Command("go", "build", "-o", dir+string(filepath.Separator), "hora/cmd/hora", "hora/examples/...")
	build.Stderr = os.Stderr
	if err := build.Run(); err != nil {
		panic(err)
	}
	return m.Run()
}

// hora runs the program with args and returns what it printed on standard output.
func hora(t *testing.T, args ...string) string {
	t.Helper()
	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	defer stop()
	cmd := exec.CommandContext(ctx, filepath.Join(bin, "hora"), args...)
	cmd.Dir = t.TempDir()
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("hora %s: %v\n%s%s", strings.Join(args, " "), err, out, errs.String())
	}
	return string(out)
}

func TestTour(t *testing.T) {
	out := hora(t, "run", "-np", "3", "--no-tag", filepath.Join(bin, "01-tour"))
	for _, want := range []string{
		"allreduce: everyone has the sum\n  rank 0: [3 30]\n  rank 1: [3 30]\n  rank 2: [3 30]\n",
		"reduce: rank 0 has the maximum\n  rank 0: [2 20]\n  rank 1: []\n",
		"broadcast: everyone has the last rank's values\n  rank 0: [2 20]\n",
		"allgather: everyone has everyone's first value\n  rank 0: [0 1 2]\n",
		"reduce-scatter: each has its share of the sum\n  rank 0: [3]\n  rank 1: [6]\n  rank 2: [9]\n",
		"alltoall: row r of each goes to rank r\n  rank 0: [1 2 3]\n  rank 1: [2 4 6]\n  rank 2: [3 6 9]\n",
		"scatter: each has its part of rank 0's\n  rank 0: [1]\n  rank 1: [2]\n  rank 2: [3]\n",
		"send and receive: each has its left neighbour's values\n  rank 0: [2 20]\n  rank 1: [0 0]\n  rank 2: [1 10]\n",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("the tour does not show\n%s\nin\n%s", want, out)
		}
	}
}

func TestTrainer(t *testing.T) {
	for _, np := range []string{"1", "2", "3"} {
		out := hora(t, "run", "-np", np, "--no-tag", filepath.Join(bin, "02-trainer"))
		found := regexp.MustCompile(`epoch 20: ([0-9.]+) %`).FindStringSubmatch(out)
		if found == nil {
			t.Fatalf("%s ranks: no last epoch in\n%s", np, out)
		}
		if accuracy, err := strconv.ParseFloat(found[1], 64); err != nil || accuracy < 96.5 {
			t.Errorf("%s ranks read %s %% of the test images, want 96.5", np, found[1])
		}
	}
}

// TestElastic: with a rank that dies in the middle and one that takes its place the
// weights have the bits of an undisturbed run; with fewer ranks the training ends too.
func TestElastic(t *testing.T) {
	weights := func(out string) string {
		found := regexp.MustCompile(`weights ([0-9a-f]{8})`).FindStringSubmatch(out)
		if found == nil {
			t.Fatalf("no weights in\n%s", out)
		}
		return found[1]
	}
	program := filepath.Join(bin, "03-elastic")
	calm := hora(t, "run", "-np", "2", "--no-tag", program)
	replaced := hora(t, "run", "-np", "2", "--restarts", "1", "--no-tag", program, "5")
	if weights(calm) != weights(replaced) || strings.Count(replaced, "goes on from step") != 2 {
		t.Errorf("undisturbed:\n%s\nwith a loss:\n%s", calm, replaced)
	}
	// One that comes when the work is done has nothing to do: it is refused while rank 0 still prints, or ended.
	for late, rest := range map[string]string{"while rank 0 does something else": `; [ $RANK = 0 ] && sleep 2`, "when nobody is left": ""} {
		command := `[ $HORA_EPOCH = 1 ] || sleep 1; "$0" 5; code=$?` + rest + `; exit $code`
		alone := hora(t, "run", "-np", "2", "--on-loss", "continue", "--min-np", "1", "--restarts", "1", "--no-tag", "sh", "-c", command, program)
		if weights(alone) == "" || !strings.Contains(alone, "rank 0 of 1 goes on from step") {
			t.Errorf("a replacement %s: %s", late, alone)
		}
	}
	fewer := hora(t, "run", "-np", "3", "--on-loss", "continue", "--min-np", "1", "--no-tag", program, "5")
	if weights(fewer) == "" || !strings.Contains(fewer, "rank 1 of 2 goes on from step") {
		t.Errorf("with fewer ranks:\n%s", fewer)
	}
}

// TestImages: two ranks tell light images from dark ones.
func TestImages(t *testing.T) {
	dir := t.TempDir()
	for i := range 200 {
		p := image.NewGray(image.Rect(0, 0, 8, 8))
		for k := range p.Pix {
			p.Pix[k] = uint8(60 + 120*(i%2) + (i*7+k)%40)
		}
		name := filepath.Join(dir, []string{"dark", "light"}[i%2], strconv.Itoa(i)+".png")
		var b bytes.Buffer
		err := errors.Join(png.Encode(&b, p), os.MkdirAll(filepath.Dir(name), 0o755))
		if err = errors.Join(err, os.WriteFile(name, b.Bytes(), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	out := hora(t, "run", "-np", "2", "--no-tag", filepath.Join(bin, "64-go-images"), dir)
	if !strings.Contains(out, "epoch 3: 100 % of rank 0's images told apart") {
		t.Error(out)
	}
}

// TestEveryExampleIsListed: README's table has a row with a command for each folder, and
// the command is the one that the example itself names.
func TestEveryExampleIsListed(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob("[0-9]*/*")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		if filepath.Base(file) != "main.go" && filepath.Ext(file) != ".py" {
			continue
		}
		row := regexp.MustCompile(`(?m)^\| \[[^]]+\]\(` + regexp.QuoteMeta(file) + `\) \|.*\| ` + "`([^`]+)`" + ` \|$`).FindSubmatch(readme)
		if row == nil {
			t.Errorf("README.md has no row for %s", file)
			continue
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Contains(text, row[1]) {
			t.Errorf("README.md says %q, which %s does not", row[1], file)
		}
	}
}
