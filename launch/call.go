package launch

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
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

// sendCall sends the call's bytes, size of them after the first from, as fast as the agent takes them.
func (l *link) sendCall(path string, from, size int64, post func(any)) {
	f, err := os.Open(path)
	if err == nil {
		defer f.Close()
		_, err = f.Seek(from, io.SeekStart)
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
	dir   string
	mark  string // tells its files from those of other hosts
	lasts bool   // another launcher may go on with what has not come to its end
	open  map[int]*os.File
}

// part takes some of what a rank has left. It gets its name when it is whole. An agent may say again what an earlier
// launcher has written.
func (r *results) part(body []byte, ranks int) error {
	d := wire.NewDecoder(body)
	rank, last, at := d.Int(0, ranks-1), d.Bool(), int64(d.Int(0, 1<<62))
	if d.Err() != nil || r.dir == "" {
		return nil
	}
	name := filepath.Join(r.dir, fmt.Sprintf("rank.%d", rank))
	f, err := r.file(rank, fmt.Sprintf("%s.part-%s", name, r.mark), at)
	if f == nil {
		return err
	}
	_, err = f.WriteAt(body[len(body)-d.Left():], at)
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

// file returns that in which a part from at on stands; nil where it belongs to what was whole before.
func (r *results) file(rank int, name string, at int64) (*os.File, error) {
	if f := r.open[rank]; f != nil && at > 0 {
		return f, nil
	} else if f != nil {
		f.Close() // the last process of the rank has not left all of its own
	}
	flags := os.O_WRONLY | os.O_TRUNC
	if at > 0 {
		st, err := os.Lstat(name)
		if errors.Is(err, fs.ErrNotExist) || err == nil && st.Size() < at {
			return nil, nil
		}
		flags = os.O_WRONLY
	}
	f, err := logs.Open(name, flags)
	if err != nil {
		return nil, r.unwritten(rank, err)
	}
	if r.open == nil {
		r.open = map[int]*os.File{}
	}
	r.open[rank] = f
	return f, nil
}

func (r *results) unwritten(rank int, err error) error {
	return fmt.Errorf("write the result of rank %d: %w: free space there or choose another --results", rank, err)
}

// close forgets what has not come to its end.
func (r *results) close() {
	for _, f := range r.open {
		f.Close()
		if !r.lasts {
			os.Remove(f.Name())
		}
	}
}
