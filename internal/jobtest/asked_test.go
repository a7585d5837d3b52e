package jobtest_test

import (
	"strings"
	"time"

	"hora/elastic"
	"hora/job"
	"hora/launch"
)

// asked is what a test asks of a job: in the words of the membership, and with what only its launcher has.
type asked struct {
	Command                        []string
	NP, Min, Max, Restarts         int
	Dir, DrainOn, Report, StateDir string
	Env                            []string
	OnLoss                         elastic.Policy
	ByHost                         bool
	Silence, Cool, Wait            time.Duration
	launch.Place
}

// spec is the job itself.
func (a *asked) spec() job.Spec {
	plain := false
	s := job.Spec{
		Name: "test", Command: a.Command, NP: a.NP, MinNP: a.Min, MaxNP: a.Max, Restarts: a.Restarts, Dir: a.Dir,
		DrainOn: a.DrainOn, Report: a.Report, CoordinatorState: a.StateDir, PeerTimeout: a.Silence,
		ElasticTimeout: a.Wait, BlacklistCooldown: job.Cooldown{Min: a.Cool, Max: a.Cool},
		TagOutput: &plain, Bind: job.BindNone, Blacklist: job.BySlot, Env: map[string]string{},
	}
	if a.ByHost {
		s.Blacklist = job.ByHost
	}
	switch a.OnLoss {
	case elastic.Replace:
		s.OnLoss = job.Replace
	case elastic.Continue:
		s.OnLoss = job.Continue
	default: // the number of those that may be left would make it elastic
		s.MinNP, s.MaxNP = 0, 0
	}
	for _, kv := range a.Env {
		name, value, _ := strings.Cut(kv, "=")
		s.Env[name] = value
	}
	return s
}
