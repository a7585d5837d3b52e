package main

import (
	"path/filepath"
	"testing"
)

func TestDataLookSaysWhatIsWrong(t *testing.T) {
	for _, c := range []complaint{
		{"data look", 2, "hora: data look needs a path: name a file or a folder"},
		{"data look " + filepath.Join(t.TempDir(), "none"), 1, "there is no such file; see whether the name is right"},
		{"data look .", 1, "open .: there is no Parquet file; their names end in .parquet, .parq or .pq"},
		{"data verify", 2, "hora: data verify needs a path: name a file or a folder"},
		{"data verify .", 1, "open .: there is no Parquet file; their names end in .parquet, .parq or .pq"},
		{"data convert x", 2, "hora: data convert needs a source and a folder: name both"},
		{"data convert . " + t.TempDir(), 1, "it is there already; choose another name, or remove it first"},
		{"data convert . new", 1, "open .: there is no Parquet file; their names end in .parquet, .parq or .pq"},
		{"data lok x", 2, `hora: there is no subcommand "lok": did you mean hora data look?`},
	} {
		c.check(t)
	}
}
