package hora_test

import (
	"regexp"
	"slices"
	"strings"
	"testing"
)

// unbroken are packages whose older lines are longer than lines should be; whoever empties one takes it off.
var unbroken = []string{
	".", "launch", "launch/hub", "cmd/hora", "cmd/horad", "cmd/libhora", "engine", "dataset", "dataset/parquet", "doctor",
	"internal/jobtest", "job/schedule", "server", "server/client", "server/node",
	"server/snapshot", "server/store", "server/web",
}

var inQuotes = regexp.MustCompile("\"(?:[^\"\\\\]|\\\\.)*\"|`[^`]*`")

// TestColumns holds lines to 120 columns, a tab being four. A text in quotes counts for nothing: a sentence that a user
// sees stands in one piece, where whoever searches for it finds it.
func TestColumns(t *testing.T) {
	const columns = 120
	long := map[string]int{}
	for _, f := range goFiles(t) {
		raw := false
		for i, line := range strings.Split(string(f.src), "\n") {
			text := strings.ReplaceAll(line, "\t", "    ")
			odd := strings.Count(line, "`")%2 == 1
			within := raw
			raw = raw != odd
			if within || odd || len([]rune(inQuotes.ReplaceAllString(text, `""`))) <= columns {
				continue
			}
			if long[f.dir]++; !slices.Contains(unbroken, f.dir) {
				t.Errorf("%s:%d has more than %d columns: break it", f.path, i+1, columns)
			}
		}
	}
	for _, dir := range unbroken {
		if long[dir] == 0 {
			t.Logf("%s has no such lines any more: take it off the list", dir)
		}
	}
}
