package server

import (
	"fmt"
	"maps"
	"net/http"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"hora/job"
	"hora/server/client"
)

// meters count what has happened since the server started. The zero value is ready.
type meters struct {
	mu        sync.Mutex // guards what follows
	submitted uint64
	started   uint64                    // attempts
	outcomes  map[client.Outcome]uint64 // of attempts
	ended     map[job.State]uint64      // jobs
	submits   times
	decisions times
}

func (m *meters) submit(took time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.submitted++
	m.submits.add(took)
}

func (m *meters) decision(took time.Duration, started int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.started += uint64(started)
	m.decisions.add(took)
}

// attemptEnded counts an attempt's end that is written down.
func (m *meters) attemptEnded(o client.Outcome) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.outcomes == nil {
		m.outcomes = map[client.Outcome]uint64{}
	}
	m.outcomes[o]++
}

// jobEnded counts a job's end that is written down.
func (m *meters) jobEnded(s job.State) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.ended == nil {
		m.ended = map[job.State]uint64{}
	}
	m.ended[s]++
}

// bounds are the upper ends of the buckets of times, in seconds.
var bounds = [...]float64{0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5}

// times are durations in buckets.
type times struct {
	counts [len(bounds)]uint64
	count  uint64
	sum    float64
}

func (t *times) add(d time.Duration) {
	for i, b := range bounds {
		if d.Seconds() <= b {
			t.counts[i]++
			break
		}
	}
	t.count++
	t.sum += d.Seconds()
}

// exposition is a page in Prometheus' text format, version 0.0.4.
type exposition struct{ strings.Builder }

// family begins the samples of one name.
func (e *exposition) family(name, kind, help string) {
	fmt.Fprintf(e, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, kind)
}

// sample adds one; labels are names and values by turns.
func (e *exposition) sample(name string, value float64, labels ...string) {
	e.WriteString(name)
	for i := 0; i+1 < len(labels); i += 2 {
		e.WriteByte("{,"[min(i, 1)])
		fmt.Fprintf(e, `%s="%s"`, labels[i], labelEscapes.Replace(strings.ToValidUTF8(labels[i+1], "\ufffd")))
	}
	if len(labels) > 0 {
		e.WriteByte('}')
	}
	e.WriteString(" " + strconv.FormatFloat(value, 'g', -1, 64) + "\n")
}

var labelEscapes = strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`)

// single is a family of one sample.
func (e *exposition) single(name, kind, help string, value float64) {
	e.family(name, kind, help)
	e.sample(name, value)
}

func (e *exposition) histogram(name, help string, t *times) {
	e.family(name, "histogram", help)
	sum := uint64(0)
	for i, b := range bounds {
		sum += t.counts[i]
		e.sample(name+"_bucket", float64(sum), "le", strconv.FormatFloat(b, 'g', -1, 64))
	}
	e.sample(name+"_bucket", float64(t.count), "le", "+Inf")
	e.sample(name+"_sum", t.sum)
	e.sample(name+"_count", float64(t.count))
}

// began is when this program did.
var began = time.Now()

// metrics answers GET /metrics.
func (s *Server) metrics(version string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		e := &exposition{}
		e.family("hora_info", "gauge", "The server's release.")
		e.sample("hora_info", 1, "version", version)
		if err := s.exposeNow(r, e); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		s.meters.expose(e)
		wrote := s.store.Counts()
		e.single("hora_store_writes_total", "counter", "Writes that were put on the disk.", float64(wrote.Writes))
		e.single("hora_store_commits_total", "counter", "Commits of the database; writes that come together share one.", float64(wrote.Commits))
		e.single("hora_store_commit_seconds_total", "counter", "Time in which commits were made.", wrote.Time.Seconds())
		e.single("process_start_time_seconds", "gauge", "When the server started, in seconds since 1970.", float64(began.UnixMilli())/1000)
		e.single("go_goroutines", "gauge", "Goroutines of the server.", float64(runtime.NumGoroutine()))
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		e.single("go_memstats_sys_bytes", "gauge", "Memory that the server has from the system.", float64(m.Sys))
		w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
		w.Header().Set("Cache-Control", "no-store")
		_, _ = w.Write([]byte(e.String()))
	}
}

// exposeNow tells how jobs, nodes and projects stand.
func (s *Server) exposeNow(r *http.Request, e *exposition) error {
	states := map[job.State]int{job.Queued: 0, job.Preparing: 0, job.Running: 0, job.Paused: 0}
	oldest := 0.0
	if err := s.do(func() {
		for _, l := range s.live {
			states[l.state()]++
			if l.state() == job.Queued {
				oldest = max(oldest, s.now().Sub(l.job.Queued).Seconds())
			}
		}
	}); err != nil {
		return err
	}
	nodes, err := s.Nodes()
	if err != nil {
		return err
	}
	projects, err := s.Projects(r.Context())
	if err != nil {
		return err
	}
	e.family("hora_jobs", "gauge", "Jobs that have not ended, by state.")
	for _, st := range slices.Sorted(maps.Keys(states)) {
		e.sample("hora_jobs", float64(states[st]), "state", string(st))
	}
	e.single("hora_oldest_queued_seconds", "gauge", "Age of the oldest job that waits; 0 when none does.", oldest)
	e.family("hora_slots", "gauge", "Slots of a node.")
	for _, n := range nodes {
		e.sample("hora_slots", float64(n.Slots), "pool", n.Pool, "node", n.Name)
	}
	e.family("hora_slots_free", "gauge", "Slots of a node that no job has.")
	for _, n := range nodes {
		e.sample("hora_slots_free", float64(n.Free), "pool", n.Pool, "node", n.Name)
	}
	e.family("hora_project_slots", "gauge", "Slots that a project's jobs have.")
	for _, p := range projects {
		e.sample("hora_project_slots", float64(p.Running), "project", p.Name)
	}
	e.family("hora_project_jobs_queued", "gauge", "Jobs of a project that wait.")
	for _, p := range projects {
		e.sample("hora_project_jobs_queued", float64(p.Waiting), "project", p.Name)
	}
	return nil
}

func (m *meters) expose(e *exposition) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e.single("hora_jobs_submitted_total", "counter", "Jobs that were taken.", float64(m.submitted))
	e.family("hora_jobs_ended_total", "counter", "Jobs that have ended, by state.")
	for _, st := range []job.State{job.Cancelled, job.Failed, job.Finished} {
		e.sample("hora_jobs_ended_total", float64(m.ended[st]), "state", string(st))
	}
	e.single("hora_attempts_started_total", "counter", "Attempts that were started.", float64(m.started))
	e.family("hora_attempts_ended_total", "counter", "Attempts that have ended, by outcome.")
	for _, o := range []client.Outcome{
		client.Failure, client.Held, client.Lost, client.OutOfMemory, client.Preempted, client.Stopped, client.Success,
		client.TimedOut, client.Unresolved,
	} {
		e.sample("hora_attempts_ended_total", float64(m.outcomes[o]), "outcome", string(o))
	}
	e.histogram("hora_submit_seconds", "From a job's arrival to the answer that it is on the disk.", &m.submits)
	e.histogram("hora_decision_seconds", "How long decisions of the schedule took.", &m.decisions)
}
