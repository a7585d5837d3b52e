// Package node runs jobs on machines: the keeper, a process of its own for each attempt, with a folder in which all
// that happened stands until the server has it; and the back end through which a server starts keepers here, follows
// them, ends them, and finds them again after it was killed.
//
// It decides nothing about who runs. A keeper has a goroutine a connection and one that looks at outputs/ each second;
// the back end has none but those of its callers.
package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"hora/job/schedule"
	"hora/server/backend"
	"hora/server/client"
	"hora/server/snapshot"
)

// Gang is one attempt of a job, placed.
type Gang struct {
	Job      int64
	Attempt  int
	Document client.Document
	Shares   []schedule.Share
	Code     string          // hash of the folder that goes along
	Outputs  []snapshot.File // what earlier attempts left in outputs/
	Part     *Part           // where it runs on several nodes
	Secrets  map[string][]byte
	Lent     map[string]string // keys to storage, by the names of their variables
	Token    string            // with which the job asks the server about itself
	Tell     bool              // it runs here: it is told its slots, and where nothing of it is left none begins
}

// Part is what one node has of a gang on several.
type Part struct {
	Secret string   `json:"secret"`
	Slots  int      `json:"slots"`         // on this node
	Total  int      `json:"total"`         // on all of them
	Hub    []string `json:"hub,omitempty"` // where the first node awaits this one; nothing on the first
	// Of an elastic gang, whose nodes come and go:
	Node   string           `json:"node,omitempty"`   // this one's name; Slots is then how many it may have at most
	Shares []schedule.Share `json:"shares,omitempty"` // what each node has now; on the first alone
	Coming int              `json:"coming,omitempty"` // how often this node had a part before and was left
}

// Nodes are the names of those on which it runs, the one that keeps it first.
func (g *Gang) Nodes() []string {
	var all []string
	for _, s := range g.Shares {
		all = append(all, s.Node)
	}
	return all
}

// Local is the back end of this machine.
type Local struct {
	Dir     string                 // of the attempts
	Hora    string                 // the program that keeps them
	Environ []string               // what jobs inherit
	Server  func() (string, error) // its address
	Nodes   []schedule.Node
	Open    func(hash string) (io.ReadCloser, error) // content by its hash
	User    *User                                    // whom jobs run as, where that is another one
	GPUs    int                                      // how many devices jobs may have
	// Left is how long a keeper that starts now has; nil where nobody gives this machine up.
	Left func() *term

	mu        sync.Mutex                 // guards alive, starts and ahead
	starts    map[string]<-chan struct{} // folders of attempts that are being started, until they are
	alive     map[string]<-chan struct{} // keepers that this process has started, until they end
	ahead     map[string]bool            // environments that are made, or wait to be, before a job needs them
	aheadTurn sync.Mutex                 // held while one of them is made
}

// Capacity says which nodes there are.
func (l *Local) Capacity() []schedule.Node { return l.Nodes }

// Folder is where an attempt lives.
func (l *Local) Folder(job int64, attempt int) string {
	return filepath.Join(l.Dir, fmt.Sprintf("%d.%d", job, attempt))
}

// Start starts an attempt, or, where it runs already, tells it how many slots it has now. To start one twice is to
// start it once. One that is only told something is not started: what a node has nothing of any more is lost, and
// begins as another attempt.
func (l *Local) Start(g Gang) error {
	dir := l.Folder(g.Job, g.Attempt)
	defer l.turn(dir)()
	n := 0
	for _, s := range g.Shares {
		n += s.Slots
	}
	if g.Part != nil {
		n = g.Part.Total
	}
	ready := false
	err := l.User.as(func() (err error) {
		ready, err = l.ready(dir, g, n)
		return err
	})
	if err != nil || !ready {
		return err
	}
	return l.spawn(dir, g)
}

// turn has the starts of one attempt take turns: a job that grows while its folder is made would have that made anew.
func (l *Local) turn(dir string) (over func()) {
	done := make(chan struct{})
	l.mu.Lock()
	for l.starts[dir] != nil {
		other := l.starts[dir]
		l.mu.Unlock()
		<-other
		l.mu.Lock()
	}
	if l.starts == nil {
		l.starts = map[string]<-chan struct{}{}
	}
	l.starts[dir] = done
	l.mu.Unlock()
	return func() {
		l.mu.Lock()
		delete(l.starts, dir)
		l.mu.Unlock()
		close(done)
	}
}

// ready sees to it that an attempt that has not begun has its folder, and tells one that has how many slots it has.
func (l *Local) ready(dir string, g Gang, n int) (bool, error) {
	if _, err := os.Stat(filepath.Join(dir, jobFile)); err != nil {
		if g.Tell { // who watches it finds that it is gone
			return false, nil
		}
		return true, l.prepare(dir, g, n)
	}
	begun, exit, err := lastRecords(dir)
	switch {
	case err == nil && g.Part != nil && g.Part.Coming > coming(dir):
		return true, l.renew(dir, g, n, exit != nil)
	case err != nil || exit != nil:
		return false, err
	case begun && g.Part != nil && len(g.Part.Shares) > 0 && spreads(dir):
		return false, tell(dir, order{Shares: g.Part.Shares})
	case begun && g.Part != nil && len(g.Part.Hub) > 0:
		return false, nil
	case begun && g.Part != nil && g.Document.Spec.MinNP == 0:
		return false, tell(dir, order{Stand: true})
	case begun:
		return false, tell(dir, order{Slots: n})
	}
	return !g.Tell, nil
}

// prepare makes an attempt's folder; job.json is its last file, so that half a folder is made anew.
func (l *Local) prepare(dir string, g Gang, n int) error {
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	return l.make(dir, g, n)
}

// make fills a folder that is empty, or has what an earlier part left in outputs/.
func (l *Local) make(dir string, g Gang, n int) error {
	work := filepath.Join(dir, WorkFolder)
	if err := os.MkdirAll(work, 0o700); err != nil {
		return err
	}
	if err := l.fill(work, g); err != nil {
		return err
	}
	if kept, err := takeKept(dir); err != nil {
		return err
	} else if !kept { // or what was given is known, and the rest came since
		if err := noteGiven(dir); err != nil {
			return err
		}
	}
	if err := errors.Join(putSecrets(dir, g.Secrets), putLent(dir, g.Lent), putToken(dir, g.Token)); err != nil {
		return err
	}
	t := task{Job: g.Job, Attempt: g.Attempt, Document: g.Document, Slots: n, Part: g.Part, Token: g.Token != ""}
	if l.Left != nil {
		t.Term = l.Left()
	}
	var err error
	if t.Devices, err = l.bank(); err != nil {
		return err
	}
	b, err := json.Marshal(t)
	if err != nil {
		return err
	}
	name := filepath.Join(dir, jobFile)
	if err := os.WriteFile(name+".new", b, 0o600); err != nil {
		return err
	}
	return os.Rename(name+".new", name)
}

// fill makes the working folder: the code, and what earlier attempts left in outputs/, which goes before a file of that
// name that the code has.
func (l *Local) fill(work string, g Gang) error {
	if g.Code != "" {
		in, err := l.opened(g.Code)
		if err != nil {
			return fmt.Errorf("the folder that goes along is not in the store: %w: submit the job again", err)
		}
		b, err := io.ReadAll(in)
		in.Close()
		if err != nil {
			return err
		}
		m, err := snapshot.Decode(b)
		if err != nil {
			return err
		}
		m.Files = slices.DeleteFunc(m.Files, func(f snapshot.File) bool { return replaced(f.Path, g.Outputs) })
		if err := m.Restore(work, l.opened); err != nil {
			return err
		}
	}
	outputs := filepath.Join(work, OutputsName)
	if err := os.MkdirAll(outputs, 0o755); err != nil {
		return err
	}
	m := &snapshot.Manifest{}
	for _, f := range g.Outputs {
		if _, err := os.Lstat(filepath.Join(outputs, filepath.FromSlash(f.Path))); err != nil {
			m.Files = append(m.Files, f)
		}
	}
	return m.Restore(outputs, l.opened)
}

// replaced says whether a file of the code lies where one of outputs/ that was saved comes to lie, or a folder of it.
func replaced(name string, saved []snapshot.File) bool {
	below, found := strings.CutPrefix(path.Clean(name), OutputsName+"/")
	return found && slices.ContainsFunc(saved, func(f snapshot.File) bool {
		return f.Path == below || strings.HasPrefix(f.Path, below+"/") || strings.HasPrefix(below, f.Path+"/")
	})
}

// spawn starts the keeper in a session of its own, so that no signal of this process's reaches it.
func (l *Local) spawn(dir string, g Gang) error {
	var log *os.File
	if err := l.User.as(func() (err error) {
		log, err = os.OpenFile(filepath.Join(dir, keeperFile), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
		return err
	}); err != nil {
		return err
	}
	defer log.Close()
	c := exec.Command(l.Hora, KeepCommand, dir)
	c.Dir, c.Stdout, c.Stderr = filepath.Join(dir, WorkFolder), log, log
	c.Env = append(append([]string{}, l.Environ...), "HORA_SERVER_JOB="+strconv.FormatInt(g.Job, 10), "HORA_SERVER_ATTEMPT="+strconv.Itoa(g.Attempt))
	if l.Server != nil && g.Token != "" {
		if address, err := l.Server(); err == nil {
			c.Env = append(c.Env, "HORA_SERVER="+address)
		}
	}
	c.SysProcAttr = l.User.process()
	if err := c.Start(); err != nil {
		return fmt.Errorf("start %s: %w: see that the program is there and may be run", l.Hora, err)
	}
	done := make(chan struct{})
	l.mu.Lock()
	if l.alive == nil {
		l.alive = map[string]<-chan struct{}{}
	}
	l.alive[dir] = done
	l.mu.Unlock()
	go func() { // or it stays as a zombie while this process lives
		_ = c.Wait()
		l.mu.Lock()
		if l.alive[dir] == done {
			delete(l.alive, dir)
		}
		l.mu.Unlock()
		close(done)
	}()
	return nil
}

// KeepCommand is the hidden subcommand of hora that keeps an attempt.
const KeepCommand = "__keep"

// startWithin bounds how long a keeper may take to answer.
const startWithin = 30 * time.Second

// ErrUnbegun says that the attempt has never begun: it may be started.
var ErrUnbegun = errors.New("the job has not begun")

// Watch hands over the records after one, as they come and as many at once as there are, until the last one. What take
// returns an error for comes again.
func (l *Local) Watch(ctx context.Context, job int64, attempt int, from uint64, take func([]Record) error) error {
	dir := l.Folder(job, attempt)
	begin, pause := time.Now(), 5*time.Millisecond
	for {
		done, err := l.read(ctx, dir, &from, take)
		if done || err != nil {
			return err
		}
		free, err := l.unkept(dir, begin)
		if err != nil {
			return err
		}
		if free {
			return l.leftover(dir, &from, take)
		}
		if time.Since(begin) > startWithin { // it lives, and its socket is gone: somebody cleans up temporary files
			err := l.leftover(dir, &from, take)
			if !errors.Is(err, backend.ErrLost) && !errors.Is(err, ErrUnbegun) {
				return err
			}
			pause = 200 * time.Millisecond
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pause):
		}
	}
}

// unkept says whether no keeper lives, by taking its lock for a moment. One that this process has started may not have
// its lock yet, nor may one that an earlier server started just before its end.
func (l *Local) unkept(dir string, begin time.Time) (free bool, err error) {
	l.mu.Lock()
	_, alive := l.alive[dir]
	l.mu.Unlock()
	if alive {
		return false, nil
	}
	err = l.User.as(func() (err error) {
		free, err = unlocked(dir, begin)
		return err
	})
	return free, err
}

func unlocked(dir string, begin time.Time) (bool, error) {
	if _, err := os.Stat(filepath.Join(dir, jobFile)); err != nil {
		return true, nil
	}
	if _, err := os.Stat(filepath.Join(dir, outboxFile)); err != nil && time.Since(begin) < 2*time.Second {
		return false, nil
	}
	lock, err := takeLock(dir)
	switch {
	case errors.Is(err, ErrTaken):
		return false, nil
	case err != nil:
		return false, err
	}
	return true, lock.Close()
}

// leftover reads the outbox of a keeper that is gone.
func (l *Local) leftover(dir string, from *uint64, take func([]Record) error) error {
	var r *reader
	err := l.User.as(func() (err error) {
		r, err = openAfter(dir, *from)
		return err
	})
	switch {
	case errors.Is(err, os.ErrNotExist):
		return ErrUnbegun
	case err == errTorn:
		return backend.ErrLost
	case err != nil:
		return err
	}
	r.as = l.User
	defer r.close()
	var batch []Record
	for {
		rec, err := r.next()
		over := err == io.EOF || err == errTorn
		if err != nil && !over {
			return err
		}
		if err == nil && rec.N > *from {
			batch = append(batch, rec)
		}
		if len(batch) > 0 && (over || len(batch) >= batchMost || rec.Exit != nil) {
			if err := take(batch); err != nil {
				return err
			}
			last := batch[len(batch)-1]
			if *from = last.N; last.Exit != nil {
				return nil
			}
			batch = nil
		}
		switch {
		case err == io.EOF && r.n == 0:
			return ErrUnbegun
		case over:
			return backend.ErrLost
		}
	}
}

const batchMost = 512

// read follows a keeper over its socket; done when the last record was taken.
func (l *Local) read(ctx context.Context, dir string, from *uint64, take func([]Record) error) (done bool, err error) {
	var c net.Conn
	if l.User.as(func() (err error) {
		c, err = dial(dir)
		return err
	}) != nil {
		return false, nil
	}
	defer c.Close()
	stop := context.AfterFunc(ctx, func() { c.Close() })
	defer stop()
	if err := json.NewEncoder(c).Encode(order{Follow: from}); err != nil {
		return false, nil
	}
	records, failed := make(chan Record, batchMost), make(chan error, 1)
	go func() {
		defer close(records)
		in := json.NewDecoder(c)
		for {
			var rec Record
			if err := in.Decode(&rec); err != nil {
				failed <- err
				return
			}
			records <- rec
		}
	}()
	defer func() {
		c.Close()
		for range records { // its goroutine ends
		}
	}()
	for rec := range records {
		batch := []Record{rec}
	more:
		for len(batch) < batchMost {
			select {
			case rec, ok := <-records:
				if !ok {
					break more
				}
				batch = append(batch, rec)
			default:
				break more
			}
		}
		if err := take(batch); err != nil {
			return false, err
		}
		last := batch[len(batch)-1]
		*from = last.N
		if last.Exit != nil {
			return true, nil
		}
	}
	if ctx.Err() != nil {
		return false, ctx.Err()
	}
	return false, nil
}

func dial(dir string) (net.Conn, error) {
	b, err := os.ReadFile(filepath.Join(dir, addressFile))
	if err != nil {
		return nil, err
	}
	return net.Dial("unix", strings.TrimSpace(string(b)))
}

func (l *Local) tell(dir string, o order) error {
	return l.User.as(func() error { return tell(dir, o) })
}

func tell(dir string, o order) error {
	c, err := dial(dir)
	if err != nil {
		return err
	}
	defer c.Close()
	return json.NewEncoder(c).Encode(o)
}

// Taken says that all records of an attempt up to one are on the server's disk.
func (l *Local) Taken(job int64, attempt int, n uint64) error {
	return l.tell(l.Folder(job, attempt), order{Taken: n})
}

// Quote has the output of an attempt that runs say what another node's part of it wrote.
func (l *Local) Quote(job int64, attempt int, lines []backend.Line) error {
	return l.tell(l.Folder(job, attempt), order{Quote: lines})
}

// Kill ends an attempt, for a reason that its last record names. One that has not begun, or has ended, is left alone.
func (l *Local) Kill(job int64, attempt int, why client.Outcome) error {
	dir := l.Folder(job, attempt)
	if l.tell(dir, order{Stop: string(why)}) == nil {
		return nil
	}
	// It does not listen yet, and reads this when it does; or it listens since.
	if l.User.as(func() error { return os.WriteFile(filepath.Join(dir, stopFile), []byte(why), 0o600) }) != nil {
		return nil
	}
	_ = l.tell(dir, order{Stop: string(why)})
	return nil
}

// Forget removes what is left of an attempt that has ended and whose records are safe.
func (l *Local) Forget(job int64, attempt int) error {
	dir := l.Folder(job, attempt)
	return l.User.as(func() error {
		if b, err := os.ReadFile(filepath.Join(dir, addressFile)); err == nil { // a killed keeper leaves its socket
			if at := filepath.Dir(strings.TrimSpace(string(b))); strings.HasPrefix(filepath.Base(at), socketFolder) {
				_ = os.RemoveAll(at)
			}
		}
		return os.RemoveAll(dir)
	})
}

// Output opens a file of outputs/.
func (l *Local) Output(job int64, attempt int, path string) (io.ReadCloser, error) {
	var f *os.File
	err := l.User.as(func() error {
		root, err := os.OpenRoot(filepath.Join(l.Folder(job, attempt), WorkFolder, OutputsName))
		if err != nil {
			return err
		}
		defer root.Close()
		// It may have become a pipe since, which nobody writes to.
		if f, err = root.OpenFile(filepath.FromSlash(path), os.O_RDONLY|syscall.O_NONBLOCK, 0); err != nil {
			return err
		}
		if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
			f.Close()
			return &fs.PathError{Op: "open", Path: path, Err: errors.Join(err, errNotRegular, fs.ErrNotExist)}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return f, nil
}

// Outputs lists the files of outputs/ that were not there when the attempt began, or have changed since, with slashes.
func (l *Local) Outputs(job int64, attempt int) (all []string, err error) {
	dir := l.Folder(job, attempt)
	err = l.User.as(func() error {
		given := readGiven(dir)
		return eachOutput(dir, func(below string, info fs.FileInfo) {
			if was, known := given[below]; !known || !was.is(stampOf(info)) {
				all = append(all, below)
			}
		})
	})
	return all, err
}

// Says is the last of what a keeper wrote about itself.
func (l *Local) Says(job int64, attempt int) string {
	var b []byte
	_ = l.User.as(func() (err error) {
		b, err = os.ReadFile(filepath.Join(l.Folder(job, attempt), keeperFile))
		return err
	})
	return string(b[max(0, len(b)-500):])
}

// Attempts lists what this machine has folders of.
func (l *Local) Attempts() (all [][2]int64) {
	entries, _ := os.ReadDir(l.Dir)
	for _, e := range entries {
		var job, attempt int64
		if n, err := fmt.Sscanf(e.Name(), "%d.%d", &job, &attempt); n == 2 && err == nil && e.IsDir() {
			all = append(all, [2]int64{job, attempt})
		}
	}
	return all
}
