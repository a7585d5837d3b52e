package launch

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"hora/elastic"
	"hora/event"
	"hora/internal/wire"
	jobs "hora/job"
	"hora/launch/protocol"
	"hora/launch/reach"
)

// adoptTimeout names how long agents wait for somebody to adopt their job.
const (
	adoptTimeout = "HORA_ADOPT_TIMEOUT"
	adoptWait    = 60 * time.Second
)

// ledger keeps on disk what a launcher has dealt with, each event before it is acted on, so that another process lives
// through the same and goes on. It outlives the process, not the host: nothing is synced. A nil one keeps nothing. The
// file is locked while its launcher lives.
type ledger struct {
	file   *os.File
	dir    string
	past   []entry
	seen   map[numbered]bool
	story  []event.EpochReport // as it was told last
	lives  atomic.Bool         // the past is being lived through
	at     time.Duration       // when that was
	exits  map[int]int         // by rank: how many ends of processes it holds
	listed []Host              // by the discovery, last
	// The discovery's last answer was an error.
	failing bool
	begun   bool       // it has its first entry
	mu      sync.Mutex // guards writing and what follows
	broken  bool
	failed  func(error) // tells, once, that nothing can be kept any more
}

// numbered is one message of an agent.
type numbered struct {
	Link int
	N    uint64
}

// The kinds of entry.
const (
	entryJob    = "job"    // Head: the first
	entrySaid   = "said"   // an agent's message, and what the coordinator had said by then that matters to it
	entryLost   = "lost"   // an agent
	entryTick   = "tick"   // one that has changed something
	entryListed = "listed" // the discovery's answer, where it is a new one or changes something: Hosts or Text
	entryRoute  = "route"  // of a host that came while the job ran: Route
	entryCancel = "cancel" // a signal asks for an end
	entryAlone  = "alone"  // nobody can adopt it any more: Text says why
	entryStory  = "story"  // the report's epochs so far
	entryOrder  = "order"  // Order: to the coordinator, before it is told
	entryEnd    = "end"    // Code and Text
)

type entry struct {
	Kind string        `json:"kind"`
	At   time.Duration `json:"at"`
	numbered
	met
	Say     uint8   `json:"say,omitempty"`
	Body    []byte  `json:"body,omitempty"`
	Drained *string `json:"drained,omitempty"`
	Took    bool    `json:"took,omitempty"`
	Text    string  `json:"text,omitempty"`
	Code    int     `json:"code,omitempty"`
	Head    *head   `json:"head,omitempty"`

	Hosts []Host     `json:"hosts,omitempty"`
	End   bool       `json:"end,omitempty"`
	Route *headRoute `json:"route,omitempty"`
	Order *order     `json:"order,omitempty"`

	Story []event.EpochReport `json:"story,omitempty"`
}

// head is what a job was begun with.
type head struct {
	Version, Secret, Name, Dir, Folder, LocalName string
	Spec                                          jobs.Spec
	Hosts                                         []Host
	NP, Port, Min                                 int
	Wanted                                        int           // how many slots a discovery had to find
	Listed                                        time.Duration // when it had
	Environ                                       []string
	Began                                         time.Time
	Routes                                        []headRoute
	Grace, Notice, Join, JoinWord                 time.Duration
	Call, Results                                 bool   // its workers are handed a call, and leave results
	Deliver                                       string // where these were wanted
	Keep                                          []byte // see Place
}

type headRoute struct {
	Addr, Master string
	Port         int
	Listen       []string
	Dug          bool
}

// unlasting returns why no other process may take a job over, "" where one may: its hosts can be reached again, and
// nothing has to be handed on but what can be told again.
func (s *settings) unlasting() string {
	_, can := s.Reach.(reach.Lasting)
	switch {
	case !s.Lasts:
		return "the program that started it has kept nothing by which another could go on"
	case !can:
		return "its hosts cannot be reached again"
	}
	return ""
}

// openLedger begins the ledger of a job that can be adopted, nil for others, and tells its reach.
func (s *settings) openLedger() (*ledger, error) {
	dir := s.CoordinatorState
	if dir == "" {
		return nil, nil
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fault(ExitUsage, "keep the coordinator's state: %v: give --coordinator-state a directory that you may write to", err)
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, fault(ExitUsage, "keep the coordinator's state: %v: give --coordinator-state a directory that you may write to", err)
	}
	why := s.unlasting()
	if err := s.unmixed(dir); err != nil && why == "" {
		return nil, err
	}
	if err := ours(dir); err != nil && why == "" {
		s.Place.Events.Emit(&event.Warning{Text: fmt.Sprintf("%v: the job ends with its launcher, for nobody could take it over safely: give --coordinator-state a directory of your own", err)})
		return nil, nil
	}
	l, err := lockLedger(dir, os.O_CREATE)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return nil, fault(ExitUsage, "open the coordinator's state: %s is in use by another job: give each job a directory of its own", dir)
	}
	if err == nil {
		err = l.file.Truncate(0)
	}
	if err != nil {
		return nil, fault(ExitUsage, "keep the coordinator's state: %v: give --coordinator-state a directory that you may write to", err)
	}
	if why != "" {
		l.alone(errors.New(why)) // for whoever tries
		return nil, l.file.Close()
	}
	if err := s.keepCall(dir); err != nil {
		l.file.Close()
		return nil, err
	}
	l.dir, l.failed = dir, func(err error) {
		s.Place.Events.Emit(&event.Warning{Text: fmt.Sprintf("the job's state cannot be kept any more (%v): nobody can adopt the job, and it ends soon after its launcher: make room in %s before the next one", err, dir)})
	}
	s.Reach.(reach.Lasting).Last(reach.Last{Dir: dir, Secret: s.Secret, Wait: s.Adopt})
	return l, nil
}

// ours says why a folder is not one to take a job's state from.
func ours(dir string) error {
	st, err := os.Stat(dir)
	switch {
	case err != nil:
		return err
	case !st.IsDir():
		return fmt.Errorf("%s is no folder", dir)
	case st.Mode().Perm()&0o022 != 0:
		return fmt.Errorf("%s may be written to by other users (mode %04o)", dir, st.Mode().Perm())
	}
	if is, ok := st.Sys().(*syscall.Stat_t); ok && int(is.Uid) != os.Geteuid() {
		return fmt.Errorf("%s belongs to user %d, not to this user (%d)", dir, is.Uid, os.Geteuid())
	}
	return nil
}

func lockLedger(dir string, flags int) (*ledger, error) {
	f, err := os.OpenFile(filepath.Join(dir, "launcher"), os.O_RDWR|os.O_APPEND|syscall.O_NOFOLLOW|flags, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		f.Close()
		return nil, err
	}
	return &ledger{file: f, seen: map[numbered]bool{}, exits: map[int]int{}}, nil
}

// head returns what a job that has begun by these settings was begun with.
func (s *settings) head(began time.Time, port int, routes []route) *head {
	h := &head{
		Version: protocol.Version, Secret: s.Secret.Hex(), Name: s.Name, Dir: s.Dir, LocalName: s.LocalName,
		Spec: *s.source, Hosts: s.Hosts,
		NP: s.NP, Port: port, Min: s.MinNP, Wanted: s.wanted, Listed: s.listed, Environ: s.Environ,
		Began: began, Grace: s.Grace, Notice: s.Notice, Join: s.Join, JoinWord: s.JoinWord,
		Call: s.Call != "", Results: s.Results != "", Deliver: s.deliver, Keep: s.Keep,
	}
	h.Folder, _ = os.Getwd()
	for _, r := range routes {
		h.Routes = append(h.Routes, *r.kept())
	}
	return h
}

// begin writes the first entry, when the agents have been told what to start, and the orders that the coordinator has
// been given by then.
func (l *ledger) begin(h *head, given []order) {
	l.listed = h.Hosts
	l.write(&entry{Kind: entryJob, Head: h})
	l.begun = true
	for _, o := range given {
		l.order(o)
	}
}

// order keeps what the coordinator is about to be told.
func (l *ledger) order(o order) {
	if l != nil && l.begun {
		l.write(&entry{Kind: entryOrder, Order: &o})
	}
}

func (l *ledger) write(e *entry) {
	if l == nil || l.lives.Load() {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.broken {
		return
	}
	err := l.append(e)
	if err == nil {
		return
	}
	// The job goes on, and nobody adopts it by a story that lacks something.
	l.broken = true
	_ = l.file.Truncate(0)
	if l.append(&entry{Kind: entryAlone, Text: fmt.Sprintf("its state could not be kept (%v)", err)}) != nil {
		_ = os.Remove(l.file.Name())
	}
	if l.failed != nil {
		l.failed(err)
	}
}

func (l *ledger) append(e *entry) error {
	b, err := json.Marshal(e)
	if err == nil {
		_, err = l.file.Write(append(b, '\n'))
	}
	return err
}

// said keeps an agent's message, and reports whether it is one that has not been dealt with.
func (l *ledger) said(e *said, at time.Duration, m *meeting) bool {
	if l == nil || e.n == 0 || l.lives.Load() {
		return true
	}
	its := numbered{e.l.index, e.n}
	if l.seen[its] {
		return false
	}
	switch e.kind {
	case protocol.SayPong, protocol.SayDoing:
		return true // they change nothing
	}
	l.seen[its] = true
	n := &entry{Kind: entrySaid, At: at, numbered: its, met: m.sofar(), Say: e.kind, Body: e.body}
	if rank, ok := exitOf(e.kind, e.body); ok {
		if why, is := m.drained.Load(rank); is {
			text := why.(string)
			n.Drained = &text
		}
		_, n.Took = m.took.Load(rank)
	}
	l.write(n)
	return true
}

// exitOf returns whose end a message tells.
func exitOf(kind uint8, body []byte) (rank int, ok bool) {
	if kind != protocol.SayExited {
		return 0, false
	}
	d := wire.NewDecoder(body)
	return d.Int(0, 1<<30), true
}

// tick keeps a passing of time that has changed something, and so what a discovery has answered.
func (l *ledger) tick(n elastic.News, orders []elastic.Order, at time.Duration, m *meeting) {
	if l == nil || l.lives.Load() {
		return
	}
	e := &entry{At: at, met: m.sofar()}
	fresh := false
	switch n := n.(type) {
	case elastic.Tick:
		e.Kind = entryTick
	case elastic.Listing:
		e.Kind, e.Hosts, e.End = entryListed, n.Hosts, n.End
		fresh = l.failing || !slices.Equal(l.listed, n.Hosts)
		l.listed, l.failing = n.Hosts, false
	case elastic.Unlisted:
		e.Kind, e.Text = entryListed, n.Cause
		fresh, l.failing = !l.failing, true
	default:
		return
	}
	if fresh || len(orders) > 0 {
		l.write(e)
	}
}

// news returns what the roster heard by an entry of a discovery's.
func (e *entry) news() elastic.News {
	if e.Text != "" {
		return elastic.Unlisted{Cause: e.Text}
	}
	return elastic.Listing{Hosts: e.Hosts, End: e.End}
}

// end writes down that nothing is left to adopt.
func (l *ledger) end(o *Outcome) {
	if l == nil {
		return
	}
	l.write(&entry{Kind: entryEnd, Code: o.ExitCode(), Text: o.String()})
	_ = os.Remove(filepath.Join(l.dir, callName)) // where there is one
	l.file.Close()
}

// fits reports whether an entry can stand at a place: a head at the first, and after it all else.
func (l *ledger) fits(i int, e *entry) bool {
	switch {
	case e.Kind == entryAlone:
		return true
	case i > 0:
		return e.Kind != entryJob && e.Link >= 0 && (e.Kind == entryRoute) == (e.Route != nil) &&
			(e.Kind == entryOrder) == (e.Order != nil)
	}
	return e.Kind == entryJob && e.Head != nil && len(e.Head.Routes) > 0
}

// read reads a ledger. A last line that was cut off by the end of its writer is dropped.
func (l *ledger) read(dir string) (*head, error) {
	b, err := io.ReadAll(l.file)
	if err != nil {
		return nil, fault(ExitSystem, "--adopt %s: %v", dir, err)
	}
	end := bytes.LastIndexByte(b, '\n') + 1
	if end == 0 {
		return nil, fault(ExitUsage, "--adopt %s: its job had not begun when its launcher ended: start it again", dir)
	}
	for i, line := range strings.Split(strings.TrimSuffix(string(b[:end]), "\n"), "\n") {
		var e entry
		if err := json.Unmarshal([]byte(line), &e); err != nil || !l.fits(i, &e) {
			return nil, fault(ExitUsage, "--adopt %s: line %d of its file launcher is damaged: the job cannot be taken over: end what is left of it, which its agents do by themselves, and start it again", dir, i+1)
		}
		switch e.Kind {
		case entryEnd:
			return nil, l.ended(dir, &e)
		case entryAlone:
			return nil, fault(ExitUsage, "--adopt %s: its job cannot be taken over: %s: start it again", dir, e.Text)
		}
		switch e.Kind {
		case entrySaid:
			l.seen[e.numbered] = true
		case entryStory:
			l.story = e.Story
			continue
		}
		l.past = append(l.past, e)
	}
	if err := l.file.Truncate(int64(end)); err != nil {
		return nil, fault(ExitSystem, "--adopt %s: %v", dir, err)
	}
	l.begun = true
	h := l.past[0].Head
	if h.Version != protocol.Version {
		return nil, fault(ExitUsage, "--adopt %s: its launcher spoke version %q of hora's messages and this one %q: adopt it with the hora that started it", dir, h.Version, protocol.Version)
	}
	l.past = l.past[1:]
	return h, nil
}

// dyingWait is how long a launcher that was killed may take to end: the kernel takes its memory apart first.
const dyingWait = 2 * time.Second

// openPast opens the ledger of a job whose launcher is gone.
func openPast(dir string) (*ledger, error) {
	if err := ours(dir); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			err = errors.New("there is no such folder")
		}
		return nil, fault(ExitUsage, "--adopt %s: %v: name the folder that the job's --coordinator-state named", dir, err)
	}
	l, err := lockLedger(dir, 0)
	for end := time.Now().Add(dyingWait); errors.Is(err, syscall.EWOULDBLOCK) && time.Now().Before(end); {
		time.Sleep(lockPause)
		l, err = lockLedger(dir, 0)
	}
	switch {
	case errors.Is(err, syscall.EWOULDBLOCK):
		return nil, fault(ExitUsage, "--adopt %s: its job's launcher lives: end that first, or leave the job to it", dir)
	case errors.Is(err, fs.ErrNotExist):
		return nil, fault(ExitUsage, "--adopt %s: no job has kept its state there: name the folder that the job's --coordinator-state named", dir)
	case err != nil:
		return nil, fault(ExitUsage, "--adopt %s: %v: name the folder that the job's --coordinator-state named", dir, err)
	}
	return l, nil
}
