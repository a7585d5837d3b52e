package launch

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"hora/internal/wire"
	"hora/launch/logs"
	"hora/launch/protocol"
)

// A job's call, a file of the caller's, goes to every worker over its agent's stream, and what each leaves comes back
// so: neither needs a folder that the hosts share.

// weighCall says how large the call is, -1 for none, and makes the folder of the results.
func (s *settings) weighCall() (int64, error) {
	if s.Results != "" {
		if err := logs.Folder(s.Results); err != nil {
			return 0, fault(ExitLogs, "make the folder of the results: %v: choose another --results", err)
		}
	}
	if s.Call == "" {
		return -1, nil
	}
	st, err := os.Stat(s.Call)
	if err == nil && !st.Mode().IsRegular() {
		err = errors.New("it is no regular file")
	}
	if err != nil {
		return 0, fault(ExitUsage, "--call %s: %v: name the file that the workers are to get", s.Call, err)
	}
	return st.Size(), nil
}

// sendCall sends the call's bytes as fast as the agent takes them.
func (l *link) sendCall(path string, size int64, post func(any)) {
	f, err := os.Open(path)
	if err == nil {
		defer f.Close()
		buf := make([]byte, protocol.Part)
		for size > 0 && err == nil {
			n := int(min(size, int64(len(buf))))
			if _, err = io.ReadFull(f, buf[:n]); err == nil && !l.writer.Bulk(protocol.CmdCall, buf[:n]) {
				return // its end is heard of otherwise
			}
			size -= int64(n)
		}
	}
	if err != nil {
		post(outputFault{fmt.Errorf("read the call %s: %w: leave the file as it is until the job has ended", path, err)})
	}
}

// results are what the workers of one host leave, as it comes. They belong to the link's reader.
type results struct {
	dir  string
	mark string // tells its files from those of other hosts
	open map[int]*os.File
}

// part takes some of what a rank has left. It gets its name when it is whole.
func (r *results) part(body []byte, ranks int) error {
	d := wire.NewDecoder(body)
	rank, last := d.Int(0, ranks-1), d.Bool()
	if d.Err() != nil || r.dir == "" {
		return nil
	}
	name := filepath.Join(r.dir, fmt.Sprintf("rank.%d", rank))
	f := r.open[rank]
	if f == nil {
		var err error
		if f, err = logs.Open(fmt.Sprintf("%s.part-%s", name, r.mark), os.O_WRONLY|os.O_TRUNC); err != nil {
			return r.unwritten(rank, err)
		}
		if r.open == nil {
			r.open = map[int]*os.File{}
		}
		r.open[rank] = f
	}
	_, err := f.Write(body[len(body)-d.Left():])
	if err == nil && !last {
		return nil
	}
	delete(r.open, rank)
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = os.Rename(f.Name(), name)
	}
	if err != nil {
		os.Remove(f.Name())
		return r.unwritten(rank, err)
	}
	return nil
}

func (r *results) unwritten(rank int, err error) error {
	return fmt.Errorf("write the result of rank %d: %w: free space there or choose another --results", rank, err)
}

// close forgets what has not come to its end.
func (r *results) close() {
	for _, f := range r.open {
		f.Close()
		os.Remove(f.Name())
	}
}
