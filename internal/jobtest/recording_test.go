package jobtest_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestGoProgramsWriteATimeline has rank 0 write what the environment asks for, and nobody else.
func TestGoProgramsWriteATimeline(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "tl.json")
	all := start(t, 2, "sum", "HOROVOD_TIMELINE="+file)
	succeed(t, all, 20*time.Second)
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatalf("%v\n%s", err, all[0].out.String())
	}
	var records []map[string]any
	if err := json.Unmarshal(text, &records); err != nil {
		t.Fatalf("%v:\n%s", err, text)
	}
	if !strings.Contains(string(text), `"ALLREDUCE"`) {
		t.Errorf("no operation is in it:\n%s", text)
	}
	if left, _ := os.ReadDir(dir); len(left) != 1 {
		t.Errorf("more than one rank has written: %v", left)
	}
}

func TestATimelineNobodyCanWrite(t *testing.T) {
	all := start(t, 2, "sum", "HOROVOD_TIMELINE="+filepath.Join(t.TempDir(), "no", "tl.json"))
	if code := all[0].wait(20 * time.Second); code == 0 || !strings.Contains(all[0].out.String(), "give a path that rank 0 can write") {
		t.Errorf("code %d:\n%s", code, all[0].out.String())
	}
}
