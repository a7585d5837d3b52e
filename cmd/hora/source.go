package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os/exec"
	"strings"

	"hora/server/snapshot"
)

// What is noted of the folder that goes along with a job is the same as hora.server's submit notes
// (python/hora/server/_source.py): a test of the two submits one folder with both.

// The most of what is not committed that goes along beside the files themselves.
const (
	mostDiff      = 1 << 20 // bytes
	mostDiffFiles = 1000
)

// mostChanged is how many changed files a submission names.
const mostChanged = 20

// repository asks git about a folder. What git does not answer is nothing.
type repository struct {
	ctx context.Context
	dir string
}

func (r repository) git(args ...string) string {
	out, err := exec.CommandContext(r.ctx, "git", append([]string{"-C", r.dir}, args...)...).Output()
	if err != nil {
		return ""
	}
	return string(out)
}

// source says where a folder came from, as far as git knows, and what of the files that go along is not committed.
func source(ctx context.Context, dir string, m *snapshot.Manifest) (at map[string]string, diff []byte) {
	at = map[string]string{"folder": dir}
	r := repository{ctx, dir}
	commit, below, _ := strings.Cut(r.git("rev-parse", "HEAD", "--show-prefix"), "\n")
	if commit == "" {
		return at, nil
	}
	at["commit"] = commit
	status := r.git("status", "--porcelain", "-z", "--no-renames", ".")
	if changed := changedFiles(status, strings.TrimSuffix(below, "\n")); changed != "" {
		at["changed"] = changed
	}
	if diff = r.uncommitted(m); len(diff) > 0 {
		sum := sha256.Sum256(diff)
		at["diff"] = hex.EncodeToString(sum[:])
	}
	return at, diff
}

// uncommitted is what git shows of changes to the files that go along, and to no others; nothing where it is long.
func (r repository) uncommitted(m *snapshot.Manifest) []byte {
	goes := map[string]bool{}
	for _, f := range m.Files {
		goes[f.Path] = true
	}
	diff := []string{"diff", "--relative", "--no-renames"}
	args := append(diff, "--no-color", "--no-ext-diff", "--no-textconv", "HEAD", "--")
	n := 0
	for name := range strings.SplitSeq(r.git(append(diff, "--name-only", "-z", "HEAD", "--", ".")...), "\x00") {
		if goes[name] {
			args = append(args, ":(literal)"+name)
			n++
		}
	}
	if n == 0 || n > mostDiffFiles {
		return nil
	}
	if text := r.git(args...); len(text) <= mostDiff {
		return []byte(text)
	}
	return nil
}

// changedFiles names the files of git's short status, as they are called below the folder.
func changedFiles(status, below string) string {
	var names []string
	for line := range strings.SplitSeq(strings.TrimSuffix(status, "\x00"), "\x00") {
		if len(line) > len("XY ") {
			names = append(names, strings.TrimPrefix(line[len("XY "):], below))
		}
	}
	if more := len(names) - mostChanged; more > 0 {
		names = append(names[:mostChanged], fmt.Sprintf("%d more", more))
	}
	return strings.Join(names, ", ")
}
