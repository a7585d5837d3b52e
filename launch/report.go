package launch

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"hora/elastic"
	"hora/elastic/rendezvous"
	"hora/event"
	"hora/launch/logs"
)

// story collects a Report. The coordinator's goroutine tells it; Run reads it at the end.
type story struct {
	mu     sync.Mutex // guards epochs and hosts; never held over I/O
	began  time.Time
	epochs []event.EpochReport
	hosts  map[string]hostEnd // that were lost, by name
}

func (s *story) now() float64 { return time.Since(s.began).Seconds() }

func (s *story) open(number uint64, members []elastic.Place) {
	s.mu.Lock()
	defer s.mu.Unlock()
	hosts := map[string]int{}
	for i := range members {
		hosts[members[i].Host]++
	}
	s.epochs = append(s.epochs, event.EpochReport{Number: number, Size: len(members), Hosts: hosts, Began: s.now()})
}

func (s *story) lost(number uint64, rank int, host, reason string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := len(s.epochs)
	if n == 0 || s.epochs[n-1].Number != number {
		return
	}
	e := &s.epochs[n-1]
	reason = event.OneLine(s.why(s.now(), host, reason))
	switch {
	case e.Gone == nil:
		e.Ended, e.Gone = s.now(), &event.Departure{Rank: rank, Host: host, Reason: reason}
		if rank < 0 {
			e.Gone.Reason = "workers came or went"
		}
	case e.Gone.Rank < 0: // the survivors knew of the loss before the coordinator did
		*e.Gone = event.Departure{Rank: rank, Host: host, Reason: reason}
	}
}

// cause hears what ended a lost rank, where that is known later than the loss.
func (s *story) cause(number uint64, rank int, host, reason string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.epochs {
		if e := &s.epochs[i]; e.Number == number && e.Gone != nil && e.Gone.Rank == rank && e.Gone.Host == host {
			e.Gone.Reason = event.OneLine(s.why(s.now(), host, reason))
		}
	}
}

func (s *story) recovered(_ int, r rendezvous.Recovery) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.epochs {
		if e := &s.epochs[i]; e.Number == r.Epoch {
			if e.Recovery == nil {
				e.Recovery = &event.Recovery{Steps: -1}
			}
			e.Recovery.Seconds = max(e.Recovery.Seconds, r.Took.Seconds())
			e.Recovery.Steps = max(e.Recovery.Steps, r.Steps)
		}
	}
}

// sofar copies the story's epochs.
func (s *story) sofar() []event.EpochReport {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := slices.Clone(s.epochs)
	for i := range out {
		if out[i].Gone != nil {
			gone := *out[i].Gone
			out[i].Gone = &gone
		}
		if out[i].Recovery != nil {
			cost := *out[i].Recovery
			out[i].Recovery = &cost
		}
	}
	return out
}

// dated gives epochs that the coordinator has told again the times that an earlier launcher heard of them at.
func (s *story) dated(by []event.EpochReport) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range min(len(s.epochs), len(by)) {
		e, was := &s.epochs[i], &by[i]
		if e.Number != was.Number {
			return
		}
		e.Began = was.Began
		if e.Gone != nil && was.Gone != nil {
			e.Ended = was.Ended
		}
		if e.Recovery == nil {
			e.Recovery = was.Recovery
		}
	}
}

// report returns the whole story.
func (s *story) report(spec *settings, roster *elastic.Roster, o *Outcome) *event.Report {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := &event.Report{
		Job: spec.Name, Command: spec.Command, Ended: event.Visible(o.String()), Kind: o.Kind.String(),
		ExitCode: o.ExitCode(), Seconds: s.now(),
		OnLoss: spec.OnLoss.String(), Restarts: roster.Used(), Epochs: s.epochs,
	}
	if spec.Restarts > 0 {
		left := max(spec.Restarts-roster.Used(), 0)
		r.Left = &left
	}
	return r
}

// reportable says what keeps a report from being written, before the job has done its work for it.
func (s *settings) reportable() error {
	if s.Report == "" {
		return nil
	}
	if st, err := os.Stat(s.Report); err == nil && !st.Mode().IsRegular() && !st.IsDir() {
		return nil // a pipe may have no reader yet
	}
	_, before := os.Lstat(s.Report)
	f, err := logs.Open(s.Report, os.O_WRONLY)
	if err != nil {
		return fault(ExitLogs, "%v", unwritten(err))
	}
	f.Close()
	if before != nil {
		os.Remove(s.Report) // it is there once it tells something
	}
	return nil
}

func unwritten(err error) error {
	return fmt.Errorf("write the job's report: %w: name a file in a folder that you may write to", err)
}

// tell writes the report and announces it when there was more than one epoch to tell of.
func (s *story) tell(spec *settings, roster *elastic.Roster, o *Outcome) error {
	r := s.report(spec, roster, o)
	if spec.told != nil {
		spec.told(r)
	}
	if len(r.Epochs) > 1 || len(r.Epochs) == 1 && r.Epochs[0].Gone != nil && spec.elastic() {
		spec.Place.Events.Emit(&event.Told{Report: r})
	}
	if spec.Report == "" {
		return nil
	}
	b, err := json.MarshalIndent(r, "", "  ")
	if err == nil {
		// What JSON leaves as it is and a terminal would act on, as JSON writes it with a number.
		text := event.Visible(strings.ReplaceAll(string(b), "\x7f", `\u007f`))
		err = logs.Write(spec.Report, []byte(text+"\n"))
	}
	if err != nil {
		return unwritten(err)
	}
	return nil
}

// hostLost notes the loss of a host for the story. Its agent, which lost the launcher in the same moment, asks its
// workers to end, and one of them may tell the coordinator that it leaves before the loss is known here: it did not
// leave on purpose.
func (s *story) hostLost(host, reason string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.hosts == nil {
		s.hosts = map[string]hostEnd{}
	}
	s.hosts[host] = hostEnd{s.now(), reason}
	for i := range s.epochs {
		if e := &s.epochs[i]; e.Gone != nil {
			e.Gone.Reason = s.why(e.Ended, e.Gone.Host, e.Gone.Reason)
		}
	}
}

// why returns the reason of a loss, or that of its host where the two are one event.
func (s *story) why(at float64, host, reason string) string {
	end, lost := s.hosts[host]
	if lost && reason == termedOff && math.Abs(at-end.at) < oneEvent.Seconds() {
		return end.reason
	}
	return reason
}

// termedOff is how a worker leaves that was asked to by a signal.
const termedOff = "left the job: SIGTERM"

// oneEvent is how far apart a worker's farewell and the loss of its host are where they have one cause.
const oneEvent = 3 * time.Second

// hostEnd is the loss of a host.
type hostEnd struct {
	at     float64
	reason string
}
