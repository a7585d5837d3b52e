// Package client speaks to a server of hora: it owns the types of its HTTP interface, in one place for both sides, and
// the calls that hora's commands make. It knows no flags and no environment, keeps no state but connections, and starts
// one goroutine a call, which sees whether the server still lives and ends with the call or when what it answered is
// closed.
package client

import (
	"time"

	"hora/job"
)

// Document is what somebody submits: a job, and what a queue must know of it.
type Document struct {
	Spec        job.Spec          `json:"spec" doc:"the job, with the fields of a job file of hora run"`
	Project     string            `json:"project,omitempty" maxLength:"200" doc:"whose share of the slots it counts against"`
	Pool        string            `json:"pool,omitempty" maxLength:"200" doc:"where it runs; default when empty"`
	Node        string            `json:"node,omitempty" maxLength:"200" doc:"this node of the pool and no other"`
	Fresh       bool              `json:"fresh,omitempty" doc:"nodes of the pool that are made for it, run nothing else, and end with it"`
	Nodes       int               `json:"nodes,omitempty" minimum:"0" maximum:"100000" doc:"so many different nodes, instead of np"`
	PerNode     int               `json:"per_node,omitempty" minimum:"0" maximum:"100000" doc:"processes on each of nodes"`
	Memory      int64             `json:"memory,omitempty" minimum:"0" doc:"bytes a process"`
	Priority    *int              `json:"priority,omitempty" minimum:"0" maximum:"100" doc:"higher first; 50 when left out"`
	Preemptible bool              `json:"preemptible,omitempty" doc:"it may be ended for one of a higher priority, and queues again"`
	TimeLimit   float64           `json:"time_limit,omitempty" minimum:"0" maximum:"1000000000" doc:"seconds after which it is ended; 0 is none"`
	Retries     int               `json:"retries,omitempty" minimum:"0" maximum:"1000" doc:"how often it queues again after it has failed"`
	Code        string            `json:"code,omitempty" pattern:"^[0-9a-f]{64}$" patternDescription:"a hash: give the 64 digits of 0-9 and a-f that stand for the content" doc:"hash of the folder that goes along"`
	Source      map[string]string `json:"source,omitempty" doc:"where the folder came from: folder, commit, changed, and diff: the hash of what of it was not committed"`
	Held        bool              `json:"held,omitempty" doc:"it begins paused"`
	Whole       bool              `json:"whole,omitempty" doc:"nobody else's job runs on its nodes meanwhile"`
	Environment *Environment      `json:"environment,omitempty" doc:"packages beside those of the pool's interpreter"`
	Secrets     []string          `json:"secrets,omitempty" maxItems:"100" doc:"names of secrets of the project that it gets, each as a file in the folder HORA_SECRETS"`
	Credentials map[string]string `json:"credentials,omitempty" doc:"keys to storage that whoever submits lends the job, by the names of their variables; read, it has the names alone"`
	Tags        map[string]string `json:"tags,omitempty" doc:"words to find it by; the job's tags have them from then on"`
}

// Outcome is how one attempt ended.
type Outcome string

// The outcomes. Only Failure counts as one of a job's retries.
const (
	Success     Outcome = "finished"
	Failure     Outcome = "failed"
	Stopped     Outcome = "cancelled"
	Preempted   Outcome = "preempted"
	Held        Outcome = "paused"
	Lost        Outcome = "lost"
	OutOfMemory Outcome = "out-of-memory"
	TimedOut    Outcome = "time-limit"
	Unresolved  Outcome = "unresolved" // its packages are not there, or do not go together
)

// Share is a part of a job on a node.
type Share struct {
	Node  string `json:"node"`
	Slots int    `json:"slots"`
	// Of an elastic job, for the server alone. One with neither Slots nor Held is a node that the job has left.
	Held   int `json:"held,omitempty" hidden:"true"`   // what it has there until its next commit, where that is more
	Coming int `json:"coming,omitempty" hidden:"true"` // how often it was left
}

// Shown are shares as others see them: what there is, without the nodes that were left.
func Shown(all []Share) []Share {
	shown := make([]Share, 0, len(all))
	for _, s := range all {
		if s.Slots > 0 {
			shown = append(shown, Share{Node: s.Node, Slots: s.Slots})
		}
	}
	return shown
}

// Reason is why a job waits, or is not heard of while it runs.
type Reason struct {
	Code  string    `json:"code" doc:"slots, turn, room, quota, never, nodes, next or paused; away of one that runs where nothing is heard of it for now"`
	Text  string    `json:"text"`
	Place int       `json:"place,omitempty" doc:"place in the queue of its pool, from 1"`
	Start time.Time `json:"start,omitzero" doc:"when it starts at the latest, where that is known"`
	// Of one job that is asked for, not in lists.
	Expected time.Time `json:"expected,omitzero" doc:"when it starts if those before it take as long as they may, where that is known"`
}

// Attempt is one time that a job ran.
type Attempt struct {
	Number  int       `json:"number"`
	Started time.Time `json:"started"`
	Ended   time.Time `json:"ended,omitzero"`
	Outcome Outcome   `json:"outcome,omitempty"`
	Code    int       `json:"exit_code"`
	Text    string    `json:"text,omitempty"`
	Shares  []Share   `json:"shares"`
}

// Job is one as the server knows it.
type Job struct {
	ID       int64     `json:"id"`
	State    job.State `json:"state" enum:"queued,preparing,running,paused,finished,failed,cancelled"`
	Stopping bool      `json:"stopping,omitempty" doc:"it runs and was told to end"`
	User     string    `json:"user,omitempty"`
	Queued   time.Time `json:"queued"`
	Started  time.Time `json:"started,omitzero" doc:"of the last attempt"`
	Ended    time.Time `json:"ended,omitzero"`
	ExitCode int       `json:"exit_code"`
	Text     string    `json:"text,omitempty" doc:"how it ended, in a sentence"`
	Reason   *Reason   `json:"reason,omitempty" doc:"why it waits"`
	Shares   []Share   `json:"shares,omitempty" doc:"where it runs"`
	Attempts []Attempt `json:"attempts,omitempty"`
	Document Document  `json:"document"`

	Tags map[string]string `json:"tags,omitempty"`
}

// Title is what people call a job.
func (j *Job) Title() string {
	if j.Document.Spec.Name != "" {
		return j.Document.Spec.Name
	}
	text := ""
	for i, a := range j.Document.Spec.Command {
		if i > 0 {
			text += " "
		}
		text += a
	}
	if len(text) > 60 {
		text = text[:57] + "..."
	}
	return text
}

// Line is one line of a job's output.
type Line struct {
	Attempt int       `json:"attempt"`
	Number  uint64    `json:"number" doc:"of the attempt, from 1"`
	At      time.Time `json:"at"`
	Rank    int       `json:"rank" doc:"-1 for what hora says itself"`
	Err     bool      `json:"err,omitempty" doc:"it was written to standard error"`
	Text    string    `json:"text" doc:"bytes that are no UTF-8 are U+FFFD in it"`
	Bytes   []byte    `json:"bytes,omitempty" doc:"what was written, where that is no UTF-8"`
}

// Written is what was written, without the end of the line.
func (l *Line) Written() []byte {
	if len(l.Bytes) > 0 {
		return l.Bytes
	}
	return []byte(l.Text)
}

// Point is a value of a metric.
type Point struct {
	Step  int64   `json:"step"`
	At    int64   `json:"at" doc:"milliseconds since 1970"`
	Value float64 `json:"value"`
	Min   float64 `json:"min,omitempty" doc:"of the points that this one stands for"`
	Max   float64 `json:"max,omitempty"`
}

// Metric is what ranks reported under a name.
type Metric struct {
	Name   string  `json:"name"`
	Rank   int     `json:"rank"`
	Count  int64   `json:"count"`
	Last   float64 `json:"last"`
	LastIs string  `json:"last_is,omitempty" doc:"NaN, +Inf or -Inf, where the last number is that: JSON has no number for it"`
	Min    float64 `json:"min" doc:"of the finite numbers; the greatest that there is where there are none"`
	Max    float64 `json:"max" doc:"likewise; the least that there is where there are none"`
	Points []Point `json:"points,omitempty"`
}

// Reported is a point of a metric that is added to a job from outside of it.
type Reported struct {
	Name    string  `json:"name" minLength:"1" maxLength:"500"`
	Step    *int64  `json:"step,omitempty" minimum:"0" maximum:"9007199254740991" doc:"the one after the metric's last where it is left out"`
	Value   float64 `json:"value"`
	ValueIs string  `json:"value_is,omitempty" enum:"NaN,+Inf,-Inf" doc:"where the number is that, whatever value says: JSON has no number for it"`
}

// Artifact is a file of outputs/.
type Artifact struct {
	Path string    `json:"path"`
	Size int64     `json:"size"`
	Hash string    `json:"hash"`
	At   time.Time `json:"at"`
}

// Happening is something that happened to a job.
type Happening struct {
	Number  int64          `json:"number"`
	At      time.Time      `json:"at"`
	Attempt int            `json:"attempt,omitempty"`
	Kind    string         `json:"kind"`
	Text    string         `json:"text"`
	Fields  map[string]any `json:"fields,omitempty"`
}

// Node is a machine of a pool.
type Node struct {
	Name   string `json:"name"`
	Pool   string `json:"pool"`
	Slots  int    `json:"slots"`
	Free   int    `json:"free"`
	Memory int64  `json:"memory,omitempty"`
	GPUs   int    `json:"gpus,omitempty"`
	Jobs   int    `json:"jobs"`
	Away   bool   `json:"away,omitempty" doc:"it is silent: nothing new starts there"`
	// Warning is what its owner should know.
	Warning string `json:"warning,omitempty" doc:"what its owner should know"`
}

// Quota bounds a project.
type Quota struct {
	Slots int     `json:"slots,omitempty" minimum:"0" maximum:"1000000" doc:"the project's own; 0 is without a bound"`
	Max   int     `json:"max,omitempty" minimum:"0" maximum:"1000000" doc:"with what it borrows while nobody else wants it; 0 borrows without a bound, slots borrows nothing"`
	Share float64 `json:"share,omitempty" minimum:"0" maximum:"1000000" doc:"weight of its fair share; 0 is 1"`
}

// Project is what a project has and has had.
type Project struct {
	Name    string  `json:"name"`
	Running int     `json:"running" doc:"slots that its jobs hold"`
	Waiting int     `json:"waiting" doc:"jobs that wait"`
	Used    float64 `json:"used" doc:"slot-seconds, of which half is forgotten each day"`
	Quota   Quota   `json:"quota"`
}

// About is what a server says of itself.
type About struct {
	Version string `json:"version"`
	API     int    `json:"api"`
	Queued  int    `json:"queued"`
	Running int    `json:"running"`
	Paused  int    `json:"paused"`
	Left    int    `json:"left,omitempty" doc:"of down: jobs that end when their node is back"`
}

// Page is a part of the list of jobs.
type Page struct {
	Jobs []Job  `json:"jobs"`
	Next string `json:"next,omitempty" doc:"give it as cursor for the jobs before these"`
}

// Fault is an error as the server answers it.
type Fault struct {
	Status int           `json:"status"`
	Title  string        `json:"title"`
	Detail string        `json:"detail"`
	Errors []FaultDetail `json:"errors,omitempty"`
}

// FaultDetail is one thing that is wrong with a request.
type FaultDetail struct {
	Message  string `json:"message,omitempty"`
	Location string `json:"location,omitempty"`
	Value    any    `json:"value,omitempty"`
}

func (f *Fault) Error() string { return f.Detail }

// Processes is how many it has, or how many at most.
func (d *Document) Processes() int {
	if d.Nodes > 0 {
		return d.Nodes * max(d.PerNode, 1)
	}
	return max(d.Spec.NP, 1)
}
