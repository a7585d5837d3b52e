package launch

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"hora/launch/logs"
)

// output is where the workers' lines go. Streams of one host are written by that host's reader only.
type output struct {
	mu      sync.Mutex                   // guards the terminal: one line at a time
	streams atomic.Pointer[[][2]*stream] // by rank; only ever replaced by a longer one
	spec    *settings
	faults  func(error)
	once    sync.Once
}

// stream is one of a rank's two.
type stream struct {
	lines lineWriter
	raw   io.Writer // instead of lines, when they are not tagged
	mu    *sync.Mutex
	file  *os.File
	log   *bufio.Writer
	tail  tailer
}

var streamNames = [2]string{"stdout", "stderr"}

func newOutput(spec *settings, ranks int) (*output, error) {
	o := &output{spec: spec, faults: func(error) {}}
	o.streams.Store(&[][2]*stream{})
	return o, o.grow(ranks)
}

func (o *output) ranks() int { return len(*o.streams.Load()) }

// grow makes room for more ranks. One goroutine at a time calls it.
func (o *output) grow(ranks int) error {
	all := slices.Clone(*o.streams.Load())
	width := len(strconv.Itoa(ranks - 1))
	for r := len(all); r < ranks; r++ {
		pair, err := o.open(r, width)
		all = append(all, pair)
		if err != nil {
			o.streams.Store(&all)
			o.close()
			return err
		}
	}
	o.streams.Store(&all)
	return nil
}

// open makes a rank's streams.
func (o *output) open(r, width int) (pair [2]*stream, err error) {
	spec := o.spec
	for i, w := range [2]io.Writer{spec.Stdout, spec.Stderr} {
		s := &stream{mu: &o.mu}
		s.lines = lineWriter{w: w, mu: &o.mu, now: time.Now, stamp: spec.Timestamps}
		_, s.lines.bytes = w.(AnyBytes)
		if !spec.Tagged() || spec.Prompts && r == spec.StdinRank {
			s.raw = w
		} else {
			s.lines.tag = "[" + strconv.Itoa(r) + "]<" + streamNames[i] + ">:"
		}
		pair[i] = s
		if spec.LogDir == "" {
			continue
		}
		dir := filepath.Join(spec.LogDir, fmt.Sprintf("rank.%0*d", width, r))
		err := logs.Folder(spec.LogDir)
		if err == nil {
			err = logs.FolderIn(spec.LogDir, dir)
		}
		if err != nil {
			return pair, fault(ExitLogs, "make log directory: %v: choose another --log-dir", err)
		}
		f, err := logs.Open(filepath.Join(dir, streamNames[i]), os.O_RDWR|os.O_TRUNC)
		if err != nil {
			return pair, fault(ExitLogs, "open log: %v: choose another --log-dir", err)
		}
		s.file, s.log = f, bufio.NewWriterSize(f, 64<<10)
	}
	return pair, nil
}

// write takes a chunk of a rank's output.
func (o *output) write(rank, i int, p []byte) {
	s := (*o.streams.Load())[rank][i]
	if i == 1 {
		s.tail.write(p)
	}
	if s.log != nil {
		_, err := s.log.Write(p)
		if err == nil {
			err = s.log.Flush()
		}
		if err != nil {
			o.fault(fmt.Errorf("write log of rank %d: %w: free space there or choose another --log-dir", rank, err))
		}
	}
	if s.raw != nil {
		s.mu.Lock()
		s.raw.Write(p)
		s.mu.Unlock()
		return
	}
	s.lines.write(p) // a terminal that is gone is no reason to end the job
}

// fault tells, once, what keeps output from being kept.
func (o *output) fault(err error) { o.once.Do(func() { o.faults(err) }) }

// tail returns the end of a rank's standard error.
func (o *output) tail(rank int) []byte { return (*o.streams.Load())[rank][1].tail.b }

// end writes unfinished lines.
func (o *output) end() error {
	var first error
	for _, pair := range *o.streams.Load() {
		for _, s := range pair {
			if s.raw == nil {
				s.lines.end()
			}
			if s.log != nil {
				if err := s.log.Flush(); err != nil && first == nil {
					first = fmt.Errorf("write log: %w: free space there or choose another --log-dir", err)
				}
			}
		}
	}
	return first
}

func (o *output) close() {
	for _, pair := range *o.streams.Load() {
		for _, s := range pair {
			if s != nil && s.file != nil {
				s.file.Close()
			}
		}
	}
}
