package launch

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"hora/event"
	"hora/launch/logs"
)

// A job that can be adopted keeps the call and the results in the folder of its state: what the caller has named may be
// gone with the caller. The results are delivered at the end, and stay in the folder until another job begins there:
// the caller may be killed before it has read them.
const (
	callName    = "call"
	resultsName = "results"
)

// unmixed refuses a call and a folder of results that are where the folder has its own: what is there goes when a job
// begins.
func (s *settings) unmixed(dir string) error {
	for _, own := range []string{callName, resultsName, "launcher", "journal"} {
		place := filepath.Join(dir, own)
		if s.Call != "" && within(s.Call, place) {
			return fault(ExitUsage, "--call %s: the job keeps a file of its own there, in the folder of --coordinator-state: name a file elsewhere", s.Call)
		}
		if s.Results != "" && within(s.Results, place) {
			return fault(ExitUsage, "--results %s: the job keeps what is its own there, in the folder of --coordinator-state: name a folder elsewhere", s.Results)
		}
	}
	return nil
}

// within reports whether a path leads to a place or into it, by its name or by links.
func within(path, place string) bool {
	leads := func(path, place string) bool {
		rel, err := filepath.Rel(place, path)
		return err == nil && filepath.IsLocal(rel)
	}
	if abs, err := filepath.Abs(path); err == nil && leads(abs, place) {
		return true
	}
	real, err := filepath.EvalSymlinks(path)
	if err == nil {
		real, err = filepath.Abs(real)
	}
	dir, bad := filepath.EvalSymlinks(filepath.Dir(place))
	return err == nil && bad == nil && leads(real, filepath.Join(dir, filepath.Base(place)))
}

// keepCall lays the call into the folder, and makes room for the results there.
func (s *settings) keepCall(dir string) error {
	bad := func(err error) error {
		return fault(ExitUsage, "keep the call and the results: %v: give --coordinator-state a directory that you may write to, with room", err)
	}
	call, results := filepath.Join(dir, callName), filepath.Join(dir, resultsName)
	if err := errors.Join(absent(os.Remove(call)), os.RemoveAll(results)); err != nil {
		return bad(err)
	}
	if s.Call != "" {
		if err := replicate(s.Call, call); err != nil {
			return bad(err)
		}
		s.Call = call
	}
	if s.Results != "" {
		if err := os.Mkdir(results, 0o700); err != nil {
			return bad(err)
		}
		to, err := filepath.Abs(s.Results)
		if err != nil {
			return bad(err)
		}
		s.deliver, s.Results = to, results
	}
	return nil
}

// takeCall has an heir go on with both. Its own caller may want the results elsewhere.
func (s *settings) takeCall(h *head, dir string) {
	s.deliver = s.Results
	if s.Call, s.Results = "", ""; h.Call {
		s.Call = filepath.Join(dir, callName)
	}
	if h.Results {
		s.Results = filepath.Join(dir, resultsName)
	}
	if s.deliver != "" || h.Deliver == "" {
		return
	}
	if err := ours(h.Deliver); err != nil {
		s.Place.Events.Emit(&event.Warning{Text: fmt.Sprintf("%v, where the results were wanted: they stay in %s", err, s.Results)})
		return
	}
	s.deliver = h.Deliver
}

// handOver delivers the results of a job that kept them.
func (s *settings) handOver() error {
	if s.deliver == "" {
		return nil
	}
	return deliver(s.Results, s.deliver)
}

// deliver lays what has arrived whole in one folder into another, which may be the same.
func deliver(from, to string) error {
	all, err := os.ReadDir(from)
	if err == nil {
		err = logs.Folder(to)
	}
	if err == nil && sameFile(from, to) {
		return nil
	}
	for _, e := range all {
		if err == nil && strings.HasPrefix(e.Name(), "rank.") && !strings.Contains(e.Name(), ".part-") {
			err = lay(filepath.Join(from, e.Name()), filepath.Join(to, e.Name()))
		}
	}
	if err != nil {
		return fmt.Errorf("hand the results over: %w: free space in %s; they are in %s", err, to, from)
	}
	return nil
}

// lay makes a file be at another place too, by a link where that is the same file system.
func lay(from, to string) error {
	if sameFile(from, to) {
		return nil
	}
	if err := absent(os.Remove(to)); err != nil {
		return err
	}
	if os.Link(from, to) == nil {
		return nil
	}
	return replicate(from, to)
}

// sameFile reports whether two names are those of one file or folder.
func sameFile(a, b string) bool {
	its, err := os.Stat(a)
	other, bad := os.Stat(b)
	return err == nil && bad == nil && os.SameFile(its, other)
}

// replicate makes a file of its own that has what another has now, wherever a link leads.
func replicate(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}

// absent takes it for well that a file is not there.
func absent(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// EndedError says that a job has ended that somebody wants to adopt.
type EndedError struct {
	Code    int    // of the job
	Outcome string // in words; "" where all is well
	dir     string
	results bool
}

func (e *EndedError) Error() string { return e.Unwrap().Error() }

// Unwrap returns it as an error of the command line.
func (e *EndedError) Unwrap() error {
	return fault(ExitUsage, "--adopt %s: its job has ended with exit code %d (%s): nothing is left to adopt", e.dir, e.Code, e.Outcome)
}

// Deliver lays the results that it has left into a folder. It reports false where its workers were to leave none.
func (e *EndedError) Deliver(to string) (bool, error) {
	if !e.results {
		return false, nil
	}
	if err := deliver(filepath.Join(e.dir, resultsName), to); err != nil {
		return true, fault(ExitLogs, "%v", err)
	}
	return true, nil
}

// ended returns it, of a ledger whose first entry is read.
func (l *ledger) ended(dir string, e *entry) error {
	return &EndedError{Code: e.Code, Outcome: e.Text, dir: dir, results: l.past[0].Head.Results}
}
