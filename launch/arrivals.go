package launch

import (
	"cmp"
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

// awaitArrivals says for whom the others wait, and ends a job that has waited for too long, or a worker without which
// an elastic one goes on.
func (j *job) awaitArrivals() {
	a, w := &j.missing, j.waits.Load()
	if w == nil || w.Joined == 0 || j.stopped || w.Beside && !j.spec.elastic() {
		*a = arrivals{}
		return
	}
	if w.For < a.told {
		a.told = 0 // another wait
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
	if j.spec.elastic() && w.Epoch > 0 {
		text, limit := j.awaited(a, w, j.spec.Join, j.spec.Wait)
		if text != "" && w.For >= due {
			a.told = w.For
			j.event(&event.Delay{Text: text, Over: w.For, Limit: limit})
		}
		if w.For >= limit { // those who wait for them would give up 10 s later
			j.giveUpOn(w.Behind, func(int) string {
				return fmt.Sprintf("has not joined again in %v after epoch %d (--elastic-timeout)",
					w.For.Round(time.Second), w.Epoch)
			})
		}
		return
	}
	switch {
	case w.For >= j.spec.Join && j.spec.elastic():
		j.giveUpOn(w.Missing, func(rank int) string {
			if time.Since(j.begun[rank]) < j.spec.Join {
				return ""
			}
			return fmt.Sprintf("has not joined in %v (--start-timeout)", j.spec.Join)
		})
	case w.For >= j.spec.Join && !a.watched(w.Missing):
		j.fail(Outcome{Kind: NotStarted, Rank: -1, Code: ExitTimeout, Last: fmt.Sprintf(
			"%s not joined %v after the first rank did: look at the output there, or give it longer with --start-timeout", j.absentees(a, w, "has", "have"), j.spec.Join)})
	case w.For >= due:
		a.told = w.For
		j.event(&event.Delay{Text: fmt.Sprintf("waiting for %s to join; %s",
			j.absentees(a, w, "", ""), joined(w)), Over: w.For, Limit: j.spec.Join, Flag: "--start-timeout"})
	}
}

// awaited says for whom an elastic job's workers wait after its first epoch, and for how long they do: for the commit
// of an epoch's members, for members of the last one that have not joined again, or for workers on their way. That
// there are too few workers is the roster's to tell.
func (c *crew) awaited(a *arrivals, w *rendezvous.Wait, commit, rejoin time.Duration) (string, time.Duration) {
	switch {
	case w.Beside && len(w.Coming) == 0:
		return fmt.Sprintf("%s the members of epoch %d at their next commit", waitFor(w.Joined), w.Epoch), commit
	case len(w.Behind) > 0:
		behind := list(c.doing(a, w.Behind))
		return fmt.Sprintf("%s %s to join again after epoch %d", waitFor(w.Joined), behind, w.Epoch), rejoin
	case len(w.Coming) > 0:
		return fmt.Sprintf("%s %s to join", waitFor(w.Joined), list(c.doing(a, w.Coming))), comeLimit
	}
	return "", rejoin
}

// waitFor begins to say for whom some wait.
func waitFor(n int) string {
	if n == 1 {
		return "1 worker waits for"
	}
	return fmt.Sprintf("%d workers wait for", n)
}

// giveUpOn ends the processes that have had their time to join, where late says so: the policy says what follows, as
// after any loss.
func (j *job) giveUpOn(ranks []int, late func(rank int) string) {
	for _, rank := range ranks {
		runs := rank >= 0 && rank < len(j.alive) && j.alive[rank] && j.condemn[rank] == ""
		if !runs || j.missing.watched([]int{rank}) {
			continue
		}
		if text := late(rank); text != "" {
			j.end(rank, text+": "+cmp.Or(j.missing.doing[rank], "its process runs"))
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
	names := c.doing(a, w.Missing)
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

// doing names ranks and what their processes do.
func (c *crew) doing(a *arrivals, ranks []int) (names []string) {
	for _, rank := range ranks {
		if rank < 0 || rank >= len(c.seats) || c.seats[rank].Host < 0 {
			continue
		}
		does := "its process has not been started"
		if c.alive[rank] {
			does = cmp.Or(a.doing[rank], "its process runs")
		}
		names = append(names, fmt.Sprintf("rank %d on %s (%s)", rank, c.links[c.seats[rank].Host].called, does))
	}
	return names
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
