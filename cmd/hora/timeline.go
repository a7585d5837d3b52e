package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"hora/job"
	"hora/launch"
)

// dynamic stands for a timeline's file where the program starts the timeline itself.
const dynamic = "DYNAMIC"

// expected is a timeline that rank 0 is to write on this machine.
type expected struct {
	path   string      // as it was given
	file   string      // as this process finds it
	before os.FileInfo // nil: there was none
}

// timeline looks whether the file of --timeline, or of its variables, can be written, before the job has done its work
// for it; nil where there is none, or where rank 0 may run elsewhere.
func timeline(s *job.Spec, place *launch.Place) (*expected, error) {
	path := s.Timeline
	asked := path != ""
	if !asked {
		path = timelineOf(append(slices.Clone(place.Environ), s.WorkerEnv()...))
	}
	if path == "" || path == dynamic || s.Discover != "" ||
		len(place.Hosts) > 0 && !thisHost(place, place.Hosts[0].Name) {
		return nil, nil
	}
	file := path
	if !filepath.IsAbs(path) && s.Dir != "" { // rank 0 starts there
		file = filepath.Join(s.Dir, path)
	}
	before, err := os.Stat(file)
	if err == nil && !before.Mode().IsRegular() && !before.IsDir() {
		return nil, nil // a pipe may have no reader yet; rank 0 says what is wrong with it
	}
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE, 0o644)
	if err != nil {
		return nil, &launch.Error{Code: launch.ExitLogs, Text: fmt.Sprintf("write the timeline: %v: name a file in a folder that you may write to", err)}
	}
	f.Close()
	if before == nil {
		os.Remove(file)
	}
	if !asked { // the program may be none of ours
		return nil, nil
	}
	return &expected{path, file, before}, nil
}

// timelineOf is the file that variables name: the last of ours, or else of Horovod's.
func timelineOf(environ []string) string {
	for _, name := range []string{"HORA_TIMELINE=", "HOROVOD_TIMELINE="} {
		for _, kv := range slices.Backward(environ) {
			if path, ok := strings.CutPrefix(kv, name); ok {
				if path != "" {
					return path
				}
				break
			}
		}
	}
	return ""
}

// thisHost says of names that need no looking up that they mean this machine.
func thisHost(s *launch.Place, name string) bool {
	return name == s.LocalName || name == "localhost" || name == "127.0.0.1" || name == "::1"
}

// missing is the sentence about a timeline that nobody has written, "" where somebody has.
func (e *expected) missing(command []string) string {
	if e == nil {
		return ""
	}
	now, err := os.Stat(e.file)
	if err == nil && (e.before == nil || now.ModTime() != e.before.ModTime() || now.Size() != e.before.Size()) {
		return ""
	}
	return fmt.Sprintf("no rank wrote the timeline %s: %s has not joined the job: call hora.init(), hvd.init() or, in Go, hora.Join in it", e.path, strings.Join(command, " "))
}
