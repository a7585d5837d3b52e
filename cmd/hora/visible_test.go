package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"hora/event"
)

// A worker's words may colour a terminal, move its cursor or turn its text around. In its own lines they do, as without
// hora; in what hora says they are shown.
func TestWordsOfOthersDoNotActInHorasSentences(t *testing.T) {
	dir := t.TempDir()
	const words = "\x1b]0;title\x07\x1b[2J\u202eabc \u009b1m \x9b1m"
	const shown = `\x1b]0;title\x07\x1b[2J\u202eabc \u009b1m `
	r := command(t, dir, "hora", "run", "-np", "2", "--restarts", "1", "--report", "report.json", "--verbose", "sh", "-c",
		`[ $HORA_RANK = 0 ] || { printf 'ValueError: %s\n' "$0" >&2; exit 3; }; sleep 1`, words)
	own := 0
	for line := range strings.Lines(r.err) {
		if strings.Contains(line, "ValueError") && strings.HasPrefix(line, "[1]<stderr>:") {
			if strings.Contains(line, "\x1b[2J\u202e") {
				own++
			}
			continue
		}
		if strings.ContainsAny(line, "\x1b\x07\u202e\u009b") {
			t.Errorf("a sentence has what acts: %q", line)
		}
	}
	report, err := os.ReadFile(filepath.Join(dir, "report.json"))
	if err != nil {
		t.Fatal(err)
	}
	if own != 2 || !strings.Contains(r.err, "hora: rank 1 on ") || !strings.Contains(r.err, "ValueError: "+shown) {
		t.Errorf("%d lines of the worker's are as it wrote them:\n%q", own, r.err)
	}
	var told event.Report
	if err := json.Unmarshal(report, &told); err != nil {
		t.Fatal(err)
	}
	const acts = "\x1b\x07\u202e\u009b"
	if strings.ContainsAny(string(report), acts) || strings.ContainsAny(told.Ended, acts) ||
		!strings.Contains(told.Ended, shown) {
		t.Errorf("the report is\n%s", report)
	}
	if said := told.Command[len(told.Command)-1]; !strings.Contains(said, "\u202eabc") {
		t.Errorf("the command lost what it had: %q", said)
	}
}
