package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"hora/job"
	"hora/job/schedule"
	"hora/server/backend"
	"hora/server/client"
	"hora/server/environment"
)

// Program is how a keeper runs the job: the arguments of hora, and where its output goes. It returns its exit code.
type Program func(args []string, out, err io.Writer) int

// task is the job as its folder has it.
type task struct {
	Job      int64           `json:"job"`
	Attempt  int             `json:"attempt"`
	Document client.Document `json:"document"`
	Slots    int             `json:"slots"`
	Part     *Part           `json:"part,omitempty"`
	Token    bool            `json:"token,omitempty"`   // it has a token of its own
	Devices  string          `json:"devices,omitempty"` // the folder where the node's devices are claimed, where it has some
	Term     *term           `json:"term,omitempty"`    // how long its keeper has before it is told that it has longer
}

// order is what the server tells a keeper, a line each.
type order struct {
	Follow *uint64 `json:"follow,omitempty"` // send what comes after this record
	Taken  uint64  `json:"taken,omitempty"`  // all up to this record is on the server's disk
	Stop   string  `json:"stop,omitempty"`   // an outcome: cancelled, preempted
	Slots  int     `json:"slots,omitempty"`  // how many an elastic job of one node has from its next commit on
	// What each node of an elastic gang has from its next commit on.
	Shares []schedule.Share `json:"shares,omitempty"`
	Stand  bool             `json:"stand,omitempty"` // say how the gang stands, for a server that has not heard it
	Term   *term            `json:"term,omitempty"`  // how long the keeper has from now on
	Quote  []backend.Line   `json:"quote,omitempty"` // what another node wrote, for this job's output
}

// keeper runs one attempt. Its process is nobody's child: it lives on when the server ends, and the next server finds
// it by its folder.
type keeper struct {
	dir       string
	task      task
	box       *outbox
	mu        sync.Mutex // guards what follows
	pending   []backend.Line
	flushing  sync.Mutex // held over writes of lines, taken before mu
	lines     uint64
	timer     *time.Timer
	why       client.Outcome // why it was told to stop
	asks      *time.Timer    // until the job's next SIGTERM
	left      time.Duration  // how long it then has, where it is to end sooner
	hurried   bool           // it is
	running   bool
	seen      map[string]stamp    // of outputs/, by paths below it
	restless  map[string]restless // files there that are not left alone
	eventAt   int64               // how much of the events file is in the outbox
	preparing func()              // gives the environment up that is being made
	made      *environment.Made   // the environment, held while the job runs
	own       Process
	reports   sync.WaitGroup // connections of ranks
	followers sync.WaitGroup
	mask      *mask         // of its secrets
	last      string        // hora's own last words
	hub       []string      // where agents are awaited, just heard
	ended     chan struct{} // closed when hora has returned
	sharing   sync.Mutex    // guards stands; held over writes of it, taken before mu
	stands    Stands
	agents    sync.WaitGroup
	timers    timers

	unresolved bool // its packages are not there, or do not go together: no attempt will have them
}

// ErrTaken is for a folder that another keeper has.
var ErrTaken = errors.New("another process keeps this job")

// Process is what a keeper needs of the process that it is: its environment, which the job inherits.
type Process struct {
	Setenv   func(name, value string) error
	Unsetenv func(name string) error
	Environ  func() []string
	Kill     func() // ends it at once; what it has started ends with it
}

// Keep runs the attempt in a folder and returns when it has ended and its outbox says so.
func Keep(dir string, own Process, run Program) error {
	b, err := os.ReadFile(filepath.Join(dir, jobFile))
	if err != nil {
		return err
	}
	k := &keeper{dir: dir, own: own, ended: make(chan struct{})}
	if err := json.Unmarshal(b, &k.task); err != nil {
		return err
	}
	lock, err := takeLock(dir)
	if err != nil {
		return err
	}
	defer lock.Close()
	if begun, _, err := lastRecords(dir); begun || err != nil {
		return errors.Join(err, errors.New("this attempt has begun before: it is not run twice"))
	}
	k.seen, k.restless = readGiven(dir), map[string]restless{}
	if k.box, err = openOutbox(dir); err != nil {
		return err
	}
	socket, err := k.listen()
	if err != nil {
		return err
	}
	defer os.RemoveAll(filepath.Dir(socket))
	if err := own.Setenv(ReportVariable, filepath.Join(filepath.Dir(socket), "r")); err != nil {
		return err
	}
	if err := own.Setenv(OutputsVariable, filepath.Join(dir, WorkFolder, OutputsName)); err != nil {
		return err
	}
	k.mask = readMask(dir)
	defer dropSecrets(dir)
	if name := filepath.Join(dir, tokenFile); k.task.Token {
		if err := own.Setenv(TokenVariable, name); err != nil {
			return err
		}
	}
	if len(k.task.Document.Secrets) > 0 {
		if err := own.Setenv(SecretsVariable, filepath.Join(dir, secretsFolder)); err != nil {
			return err
		}
	}
	if err := takeLent(dir, own, k.task.Document.Credentials); err != nil {
		return err
	}
	if err := k.takeDevices(); err != nil {
		return err
	}
	if k.task.Part != nil {
		name := filepath.Join(dir, secretFile)
		if err := errors.Join(
			os.WriteFile(name, []byte(k.task.Part.Secret+"\n"), 0o600), own.Setenv("HORA_SECRET_FILE", name),
		); err != nil {
			return err
		}
	}
	if why, err := os.ReadFile(filepath.Join(dir, stopFile)); err == nil {
		k.stop(client.Outcome(why))
	}
	if err := k.box.put(Record{Begun: &Begun{os.Getpid()}}); err != nil {
		return err
	}
	if t := k.task.Term; t != nil {
		k.term(t)
	}
	code := k.run(run)
	k.over()
	k.events()       // to the last one: they are masked where they stand now
	dropSecrets(dir) // before it says that it has ended
	k.finish(code)
	return nil
}

// takeLock makes sure that one process keeps a folder; the lock goes with the process.
func takeLock(dir string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, lockFile), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		f.Close()
		return nil, ErrTaken
	}
	return f, nil
}

// longestSocket is how long a socket's folder may be: systems take names of about a hundred bytes.
const longestSocket = 90

// socketFolder begins the name of a socket's folder elsewhere.
const socketFolder = "hora-job-"

// listen opens the sockets for servers and for ranks. Their names are short wherever the folder lies, and their folder
// is this user's alone.
func (k *keeper) listen() (string, error) {
	var servers, ranks net.Listener
	err := withRoom(func() (err error) {
		servers, ranks, err = k.sockets()
		return err
	})
	if err != nil {
		return "", err
	}
	go func() {
		for {
			c, err := servers.Accept()
			if err != nil {
				return
			}
			go k.serve(c)
		}
	}()
	go func() {
		for {
			c, err := ranks.Accept()
			if err != nil {
				return
			}
			k.reports.Add(1)
			go k.hear(c)
		}
	}()
	return servers.Addr().String(), nil
}

// sockets makes both, where servers find them. What a keeper has left that came no further is removed.
func (k *keeper) sockets() (servers, ranks net.Listener, err error) {
	dir := filepath.Join(k.dir, "sockets")
	if err = os.RemoveAll(dir); err != nil {
		return nil, nil, err
	}
	if len(dir) > longestSocket {
		dir, err = os.MkdirTemp("", socketFolder)
	} else {
		err = os.Mkdir(dir, 0o700)
	}
	if err != nil {
		return nil, nil, err
	}
	defer func() {
		if err == nil {
			return
		}
		if servers != nil {
			servers.Close()
		}
		if ranks != nil {
			ranks.Close()
		}
		os.RemoveAll(dir)
	}()
	name := filepath.Join(dir, "s")
	if servers, err = net.Listen("unix", name); err != nil {
		return nil, nil, err
	}
	if ranks, err = net.Listen("unix", filepath.Join(dir, "r")); err != nil {
		return servers, nil, err
	}
	return servers, ranks, os.WriteFile(filepath.Join(k.dir, addressFile), []byte(name), 0o600)
}

// serve is one connection of a server.
func (k *keeper) serve(c net.Conn) {
	defer c.Close()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	in := json.NewDecoder(c)
	for {
		var o order
		if err := in.Decode(&o); err != nil {
			return
		}
		switch {
		case o.Follow != nil:
			k.followers.Go(func() {
				k.follow(ctx, c, *o.Follow)
				c.Close()
			})
		case o.Taken > 0:
			k.box.acknowledge(o.Taken)
		case o.Stop != "":
			k.stop(client.Outcome(o.Stop))
		case len(o.Shares) > 0:
			k.shares(o.Shares)
		case o.Slots > 0:
			k.slots(o.Slots)
		case o.Stand:
			k.sharing.Lock()
			k.stand()
			k.sharing.Unlock()
		case o.Term != nil:
			k.term(o.Term)
		case len(o.Quote) > 0:
			k.quote(o.Quote)
		}
	}
}

// follow sends records, those that come included, until the last. For those that are gone comes what stands for them.
func (k *keeper) follow(ctx context.Context, c net.Conn, from uint64) {
	begin := k.box.before(from)
	r, err := openReader(k.dir, begin)
	if err != nil {
		return
	}
	defer r.close()
	if begin.n > from {
		head, err := readHead(k.dir)
		if err != nil || head == nil || head.N < begin.n { // more of them are, just now
			return
		}
		if json.NewEncoder(c).Encode(head) != nil {
			return
		}
		from = head.N
	}
	for at := begin.n; ; {
		news, more := k.box.news(at)
		if !more {
			select {
			case <-news:
			case <-ctx.Done():
				return
			}
			continue
		}
		line, err := r.line()
		if err != nil {
			return // it was written whole: the disk took a part only, or it is gone since, which who asks again is told
		}
		at++
		if at <= from {
			continue
		}
		if _, err := c.Write(append(line, '\n')); err != nil {
			return
		}
		if saysExit(line) {
			var rec Record
			if json.Unmarshal(line, &rec) == nil && rec.Exit != nil {
				return
			}
		}
	}
}

// hear takes what one rank reports.
func (k *keeper) hear(c net.Conn) {
	defer k.reports.Done()
	defer c.Close()
	in := json.NewDecoder(c)
	for {
		var r backend.Report
		if err := in.Decode(&r); err != nil {
			return
		}
		_ = k.box.put(Record{Report: &r})
	}
}

// slots rewrites what an elastic job finds when it looks for hosts.
func (k *keeper) slots(n int) {
	k.sharing.Lock()
	defer k.sharing.Unlock()
	if !k.toEnd() {
		k.find(fmt.Appendf(nil, "localhost:%d\n", n))
	}
}

// toEnd says whether the job has been told to.
func (k *keeper) toEnd() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.why != ""
}

// find writes what an elastic job finds when it looks for hosts.
func (k *keeper) find(lines []byte) bool {
	name := filepath.Join(k.dir, hostsFile)
	return os.WriteFile(name+".new", lines, 0o600) == nil && os.Rename(name+".new", name) == nil
}

// Notice is how long a job that is to go on later has from SIGTERM to SIGKILL, so that it saves what it has done. One
// that is not has killWithin.
const (
	Notice     = 30 * time.Second
	killWithin = 5 * time.Second
	commitsIn  = time.Minute // how long an elastic job has for its next commit, before it gets a signal
)

// Drains says whether a job that ends for this reason is to go on later.
func Drains(why client.Outcome) bool { return why == client.Preempted || why == client.Held }

// stop ends the job for a reason. The first one counts; another has one end sooner that was to go on later.
func (k *keeper) stop(why client.Outcome) {
	k.mu.Lock()
	if k.why != "" {
		if Drains(k.why) && !Drains(why) && !k.hurried {
			k.hurried = true
			if k.asks != nil { // else it is made in a moment
				k.asks.Reset(k.left)
			}
		}
		k.mu.Unlock()
		return
	}
	k.why = why
	running, preparing := k.running, k.preparing
	k.mu.Unlock()
	if preparing != nil {
		preparing()
		return
	}
	if !running {
		return
	}
	within, next := time.Duration(0), killWithin
	switch {
	case !Drains(why):
	case k.task.Document.Spec.MinNP == 0:
		next = Notice
	case k.windUp(): // its workers leave at their next commit
		within = commitsIn
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.hurried {
		within = 0
	}
	k.asks = time.AfterFunc(within, func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		if k.left = killWithin; k.hurried {
			next = killWithin
		}
		// Again until this process ends: the second one ends what is left.
		_ = syscall.Kill(os.Getpid(), syscall.SIGTERM)
		k.asks.Reset(next)
	})
}

// windUp has the workers of an elastic job leave at their next commit, whoever looks for its hosts.
func (k *keeper) windUp() bool {
	k.sharing.Lock()
	defer k.sharing.Unlock()
	return k.find([]byte(job.EndLine + "\n"))
}

// run is the job itself.
func (k *keeper) run(program Program) int {
	k.mu.Lock()
	k.running = k.why == ""
	k.mu.Unlock()
	if !k.running {
		return 128 + int(syscall.SIGTERM)
	}
	if k.elastic() {
		k.shares(k.task.Part.Shares)
	} else if k.task.Part == nil && k.task.Document.Spec.MinNP > 0 {
		k.slots(k.task.Slots)
	}
	if limit := k.task.Document.TimeLimit; limit > 0 {
		defer time.AfterFunc(time.Duration(limit*float64(time.Second)), func() { k.stop(client.TimedOut) }).Stop()
	}
	if code := k.prepare(); code != 0 {
		return code
	}
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		every := time.Second
		if p := k.task.Part; p != nil && len(p.Hub) == 0 { // agents wait to hear where it listens
			every = 50 * time.Millisecond
		}
		tick := time.NewTicker(every)
		defer tick.Stop()
		looked := time.Now()
		for {
			select {
			case <-tick.C:
				k.events()
				if time.Since(looked) > 900*time.Millisecond || every == 50*time.Millisecond {
					k.outputs(false)
					looked = time.Now()
				}
				if k.hub != nil {
					k.agent(k.hub)
					k.hub = nil
					if every = time.Second; k.elastic() { // others wait to hear what it gives away
						every = 200 * time.Millisecond
					}
					tick.Reset(every)
				}
			case <-stop:
				return
			}
		}
	}()
	code := 71
	if args, err := k.args(); err != nil {
		fmt.Fprintln(&sink{k: k, err: true}, "hora:", err)
	} else {
		code = program(args, &sink{k: k}, &sink{k: k, err: true})
	}
	close(k.ended)
	close(stop)
	<-done
	waitFor(&k.agents, 5*time.Second)
	return code
}

// args are those of hora run: the job as a file, with what the server says of it.
func (k *keeper) args() ([]string, error) {
	s := k.task.Document.Spec
	if p := k.task.Part; p != nil && len(p.Hub) > 0 {
		return p.agent(p.Hub), nil
	}
	s.Name, s.NP = "job-"+strconv.FormatInt(k.task.Job, 10), k.task.Slots
	s.Events, s.Report = filepath.Join(k.dir, eventsFile), filepath.Join(k.dir, reportFile)
	if s.MinNP > 0 {
		s.MaxNP = max(k.task.Document.Spec.NP, 1)
	}
	if s.MinNP > 0 && k.task.Part == nil {
		s.Discover = "cat " + quoted(filepath.Join(k.dir, hostsFile))
	}
	if s.Bind == "" {
		s.Bind = job.BindNone // other jobs have cores here too
	}
	if k.made != nil && s.Command[0] == k.made.Base {
		s.Command = append([]string{filepath.Join(k.made.Bin(), "python")}, s.Command[1:]...)
	}
	name := filepath.Join(k.dir, specFile)
	if k.task.Part != nil {
		args := []string{
			"hub", "--own-environment", "--file", name, "--secret-file", filepath.Join(k.dir, secretFile),
			"--agents-within", agentsWithin,
		}
		if k.elastic() {
			args = append(args, "--limits", filepath.Join(k.dir, hostsFile))
		}
		return args, os.WriteFile(name, s.YAML(), 0o600)
	}
	return []string{"run", "--file", name}, os.WriteFile(name, s.YAML(), 0o600)
}

// agentsWithin is how long a gang's first node waits for the others, which may be making their environments. The server
// watches them, and ends the job where one does not come.
const agentsWithin = "8760h"

func quoted(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// finish writes all that is left, and how it ended.
func (k *keeper) finish(code int) {
	waitFor(&k.reports, time.Second) // what ranks sent before their end
	k.outputs(true)
	k.flush()
	k.mu.Lock()
	why := k.why
	k.mu.Unlock()
	e := &backend.Exit{Code: code, Text: k.last}
	switch {
	case why == client.TimedOut:
		e.Outcome, e.Text = string(why), fmt.Sprintf("it was ended after its time limit of %v: give a longer --time-limit", time.Duration(k.task.Document.TimeLimit*float64(time.Second)))
		e.Code = max(e.Code, 1)
	case code == 0:
		e.Outcome, e.Text = string(client.Success), ""
	case why == client.Lost && !k.timers.cut.Load():
		e.Outcome, e.Text = string(why), fmt.Sprintf("a node of it was lost, and fewer slots are left than --min-np %d", k.task.Document.Spec.MinNP)
	case why == client.Lost:
		e.Outcome, e.Text = string(why), "its node was cut off from the server for nearly as long as the server waits, and ended it"
	case why != "":
		e.Outcome = string(why)
	case k.task.Part != nil && code == backend.ExitHost && strings.Contains(e.Text, "lost host"):
		// A node's, and no fault of the job's.
		e.Outcome = string(client.Lost)
	case k.kind() == string(client.OutOfMemory):
		e.Outcome = string(client.OutOfMemory)
	case k.unresolved: // another attempt would end as this one
		e.Outcome = string(client.Unresolved)
	default:
		e.Outcome = string(client.Failure)
	}
	if err := k.box.put(Record{Exit: e}); err != nil {
		fmt.Fprintln(os.Stderr, "hora:", err)
	}
	waitFor(&k.followers, time.Second) // the file has it for who comes later
}

// kind is how hora says in its report that the job has ended. Its last line quotes the job, which may say anything.
func (k *keeper) kind() string {
	var r struct {
		Kind string `json:"kind"`
	}
	if b, err := os.ReadFile(filepath.Join(k.dir, reportFile)); err != nil || json.Unmarshal(b, &r) != nil {
		return "" // it could not begin
	}
	return r.Kind
}

// waitFor waits, but not for ever: a grandchild may hold a connection open.
func waitFor(w *sync.WaitGroup, limit time.Duration) {
	done := make(chan struct{})
	go func() { w.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(limit):
	}
}
