package launch

import (
	"encoding/json"
	"fmt"
	"time"

	"hora/elastic/rendezvous"
	"hora/event"
	"hora/launch/protocol"
)

// arrivals is the launcher's wait for ranks that have not joined while others have. They may have much to prepare: as
// long as their processes live they are waited for, up to settings.Join.
type arrivals struct {
	told  time.Duration  // how long the wait had lasted at the last word
	doing map[int]string // by rank: what its process does
}

func (a *arrivals) hear(body []byte) {
	var all []protocol.Doing
	if json.Unmarshal(body, &all) != nil {
		return
	}
	if a.doing == nil {
		a.doing = map[int]string{}
	}
	for _, d := range all {
		a.doing[d.Rank] = d.Text
	}
}

// awaitArrivals says for whom the others wait, and ends a job that has waited for too long. An elastic job's later
// epochs are bounded by the wait for enough workers.
func (j *job) awaitArrivals() {
	a, w := &j.missing, j.waits.Load()
	if w == nil || w.Joined == 0 || j.stopped || j.spec.elastic() && w.Epoch > 0 {
		*a = arrivals{}
		return
	}
	if w.For >= min(j.spec.JoinWord, j.spec.Join)-3*time.Second {
		for _, l := range j.links {
			if l.planned && !l.ended {
				l.send(protocol.CmdDoing, nil)
			}
		}
	}
	due := j.spec.JoinWord
	if a.told > 0 {
		due = a.told + 2*j.spec.JoinWord
	}
	switch {
	case w.For >= j.spec.Join && j.spec.elastic():
		j.giveUpOn(w.Missing)
	case w.For >= j.spec.Join && !a.watched(w.Missing):
		j.fail(Outcome{Kind: NotStarted, Rank: -1, Code: ExitTimeout, Last: fmt.Sprintf(
			"%s not joined %v after the first rank did: look at the output there, or give it longer with --start-timeout", j.absentees(a, w, "has", "have"), j.spec.Join)})
	case w.For >= due:
		a.told = w.For
		j.event(&event.Delay{Text: fmt.Sprintf("waiting for %s to join; %s",
			j.absentees(a, w, "", ""), joined(w)), Over: w.For, Limit: j.spec.Join, Flag: "--start-timeout"})
	}
}

// giveUpOn ends the processes that have had their time to join: the policy says what follows, as after any loss.
func (j *job) giveUpOn(missing []int) {
	for _, rank := range missing {
		late := rank < len(j.alive) && j.alive[rank] && time.Since(j.begun[rank]) >= j.spec.Join
		if late && j.condemn[rank] == "" && !j.missing.watched([]int{rank}) {
			text := "its process runs"
			if does := j.missing.doing[rank]; does != "" {
				text = does
			}
			j.end(rank, fmt.Sprintf("has not joined in %v (--start-timeout): %s", j.spec.Join, text))
		}
	}
}

// joined says how many wait.
func joined(w *rendezvous.Wait) string {
	if w.Joined == 1 {
		return fmt.Sprintf("1 of %d ranks has", w.Joined+w.More)
	}
	return fmt.Sprintf("%d of %d ranks have", w.Joined, w.Joined+w.More)
}

// absentees names the ranks that others wait for and what they do, with a verb behind them.
func (c *crew) absentees(a *arrivals, w *rendezvous.Wait, is, are string) string {
	var names []string
	for _, rank := range w.Missing {
		if rank >= len(c.seats) || c.seats[rank].Host < 0 {
			continue
		}
		does := "its process has not been started"
		if c.alive[rank] {
			does = "its process runs"
			if text := a.doing[rank]; text != "" {
				does = text
			}
		}
		names = append(names, fmt.Sprintf("rank %d on %s (%s)", rank, c.links[c.seats[rank].Host].called, does))
	}
	if len(names) == 0 {
		names = append(names, event.Counted(w.More, "more worker"))
	}
	if is == "" {
		return list(names)
	}
	if len(names) == 1 && w.More <= 1 {
		return list(names) + " " + is
	}
	return list(names) + " " + are
}

// watched says whether somebody holds all of these ranks, in a debugger for one: they are not blamed for being late.
func (a *arrivals) watched(ranks []int) bool {
	for _, rank := range ranks {
		if text := a.doing[rank]; text != rendezvous.Debugged.String() && text != rendezvous.Suspended.String() {
			return false
		}
	}
	return len(ranks) > 0
}
