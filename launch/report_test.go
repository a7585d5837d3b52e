package launch

import (
	"strings"
	"testing"
	"time"

	"hora/elastic"
	"hora/elastic/rendezvous"
	"hora/event"
	jobs "hora/job"
)

// TestTheStoryNamesAHostsLoss: a worker whose agent has lost the launcher is asked to end and tells the coordinator
// that it leaves, before or after the launcher has seen the loss of the host, which is the reason in both cases. Who is
// asked by somebody else, or elsewhere, keeps its own.
func TestTheStoryNamesAHostsLoss(t *testing.T) {
	const closed = "Connection to b closed by remote host"
	for _, c := range []struct {
		name, host, reason string
		after              bool // the farewell comes after the loss
		want               string
	}{
		{"farewell first", "b", "left the job: SIGTERM", false, closed},
		{"loss first", "b", "left the job: SIGTERM", true, closed},
		{"another host", "a", "left the job: SIGTERM", false, "left the job: SIGTERM"},
		{"on purpose", "b", "left the job: notice in /tmp/notice", false, "left the job: notice in /tmp/notice"},
		{"a crash", "b", "killed by signal 9 (SIGKILL)", true, "killed by signal 9 (SIGKILL)"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := &story{began: time.Now()}
			s.open(1, []elastic.Place{{Host: "a"}, {Host: "b"}})
			if c.after {
				s.hostLost("b", closed)
			}
			s.lost(1, 1, c.host, c.reason)
			if !c.after {
				s.hostLost("b", closed)
			}
			if got := s.epochs[0].Gone.Reason; got != c.want {
				t.Errorf("the reason is %q, want %q", got, c.want)
			}
		})
	}
	s := &story{began: time.Now().Add(-time.Hour)}
	s.open(1, []elastic.Place{{Host: "b"}})
	s.lost(1, 0, "b", termedOff)
	s.epochs[0].Ended -= 60
	s.hostLost("b", closed)
	if got := s.epochs[0].Gone.Reason; got != termedOff {
		t.Errorf("a farewell of a minute before has the reason %q", got)
	}
}

// TestACauseThatIsKnownLater takes the place of the reason that was told, in its own epoch and for its own rank.
func TestACauseThatIsKnownLater(t *testing.T) {
	const cut, killed = "closed its connection without leaving", "killed by signal 9 (SIGKILL)"
	s := &story{began: time.Now()}
	for epoch := range uint64(2) {
		s.open(epoch+1, []elastic.Place{{Host: "a"}, {Host: "b"}})
		s.lost(epoch+1, 1, "b", cut)
	}
	s.cause(1, 0, "a", killed)
	s.cause(3, 1, "b", killed)
	s.cause(2, 1, "b", killed)
	if first, second := s.epochs[0].Gone.Reason, s.epochs[1].Gone.Reason; first != cut || second != killed {
		t.Errorf("the reasons are %q and %q", first, second)
	}
}

// TestTheLastLinesOfAJob: restarts are told of where a budget was given, and one of a thing is one.
func TestTheLastLinesOfAJob(t *testing.T) {
	s := &story{began: time.Now()}
	s.open(1, []elastic.Place{{Host: "a"}})
	s.lost(1, 0, "a", "exit code 3")
	s.open(2, []elastic.Place{{Host: "a"}, {Host: "a"}})
	s.recovered(0, rendezvous.Recovery{Epoch: 2, Took: time.Second, Steps: 1})
	for budget, want := range map[int]string{
		0: "2 epochs in 0.0 s\n  epoch 1 (1 rank) ended after 0.0 s by rank 0 on a: exit code 3; recovered in 1.000 s, 1 step done again",
		2: "2 epochs in 0.0 s, 1 restart used, 1 left\n",
	} {
		again := &story{began: s.began, epochs: s.epochs}
		if got := (&event.Told{Report: again.report(&settings{Spec: jobs.Spec{Restarts: budget}}, usedOne(),
			&Outcome{})}).String(); !strings.HasPrefix(got, want) {
			t.Errorf("with a budget of %d the last lines are\n%s\nwant\n%s", budget, got, want)
		}
	}
}

// usedOne is the roster of a job that has gone on after one failure.
func usedOne() *elastic.Roster {
	r := elastic.NewRoster(elastic.Supply{
		Size: 2, Elastic: true, OnLoss: elastic.Replace, Restarts: 9,
		Hosts: []Host{{Name: "a", Slots: 2}},
	})
	r.Step(0, elastic.Exit{Rank: 1})
	return r
}
