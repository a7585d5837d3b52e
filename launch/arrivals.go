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
	spec    *settings
	crew    *crew
	links   *links
	meeting *meeting
	record  *record
	ending  *ending
	told    time.Duration  // how long the wait had lasted at the last word
	doing   map[int]string // by rank: what its process does
}

// hear takes in what the workers of a host do.
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

// await says for whom the others wait, and ends a job that has waited for too long, or a worker without which an
// elastic one goes on.
func (a *arrivals) await() {
	w, spec := a.meeting.waits.Load(), a.spec
	if w == nil || w.Joined == 0 || a.ending.stopped || w.Beside && !spec.elastic() {
		a.told, a.doing = 0, nil
		return
	}
	if w.For < a.told {
		a.told = 0 // another wait
	}
	if w.For >= min(spec.JoinWord, spec.Join)-3*time.Second {
		a.ask()
	}
	due := spec.JoinWord
	if a.told > 0 {
		due = a.told + 2*spec.JoinWord
	}
	if spec.elastic() && w.Epoch > 0 {
		a.awaitAgain(w, due)
		return
	}
	switch {
	case w.For >= spec.Join && spec.elastic():
		a.giveUpOn(w.Missing, func(rank int) string {
			if time.Since(a.crew.begun[rank]) < spec.Join {
				return ""
			}
			return fmt.Sprintf("has not joined in %v (--start-timeout)", spec.Join)
		})
	case w.For >= spec.Join && !a.watched(w.Missing):
		a.ending.fail(Outcome{Kind: NotStarted, Rank: -1, Code: ExitTimeout, Last: fmt.Sprintf(
			"%s not joined %v after the first rank did: look at the output there, or give it longer with --start-timeout", a.absentees(w, "has", "have"), spec.Join)})
	case w.For >= due:
		a.told = w.For
		a.record.event(&event.Delay{Text: fmt.Sprintf("waiting for %s to join; %s",
			a.absentees(w, "", ""), joined(w)), Over: w.For, Limit: spec.Join, Flag: "--start-timeout"})
	}
}

// ask asks the agents what their workers do.
func (a *arrivals) ask() {
	for _, l := range a.links.all {
		if l.planned && !l.ended {
			l.send(protocol.CmdDoing, nil)
		}
	}
}

// awaitAgain does what await does, for an epoch that is not the first.
func (a *arrivals) awaitAgain(w *rendezvous.Wait, due time.Duration) {
	text, limit := a.awaited(w)
	if text != "" && w.For >= due {
		a.told = w.For
		a.record.event(&event.Delay{Text: text, Over: w.For, Limit: limit})
	}
	if w.For >= limit { // those who wait for them would give up 10 s later
		a.giveUpOn(w.Behind, func(int) string {
			return fmt.Sprintf("has not joined again in %v after epoch %d (--elastic-timeout)",
				w.For.Round(time.Second), w.Epoch)
		})
	}
}

// awaited says for whom an elastic job's workers wait after its first epoch, and for how long they do: for the commit
// of an epoch's members, for members of the last one that have not joined again, or for workers on their way. That
// there are too few workers is the roster's to tell.
func (a *arrivals) awaited(w *rendezvous.Wait) (string, time.Duration) {
	switch {
	case w.Beside && len(w.Coming) == 0:
		return fmt.Sprintf("%s the members of epoch %d at their next commit", waitFor(w.Joined), w.Epoch), a.spec.Join
	case len(w.Behind) > 0:
		behind := list(a.described(w.Behind))
		return fmt.Sprintf("%s %s to join again after epoch %d", waitFor(w.Joined), behind, w.Epoch), a.spec.ElasticTimeout
	case len(w.Coming) > 0:
		return fmt.Sprintf("%s %s to join", waitFor(w.Joined), list(a.described(w.Coming))), comeLimit
	}
	return "", a.spec.ElasticTimeout
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
func (a *arrivals) giveUpOn(ranks []int, late func(rank int) string) {
	for _, rank := range ranks {
		c := a.crew
		runs := rank >= 0 && rank < len(c.alive) && c.alive[rank] && c.condemn[rank] == ""
		if !runs || a.watched([]int{rank}) {
			continue
		}
		if text := late(rank); text != "" {
			a.ending.end(rank, text+": "+cmp.Or(a.doing[rank], "its process runs"))
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
func (a *arrivals) absentees(w *rendezvous.Wait, is, are string) string {
	names := a.described(w.Missing)
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

// described names ranks and what their processes do.
func (a *arrivals) described(ranks []int) (names []string) {
	c := a.crew
	for _, rank := range ranks {
		if rank < 0 || rank >= len(c.seats) || c.seats[rank].Host < 0 {
			continue
		}
		does := "its process has not been started"
		if c.alive[rank] {
			does = cmp.Or(a.doing[rank], "its process runs")
		}
		names = append(names, fmt.Sprintf("rank %d on %s (%s)", rank, a.links.all[c.seats[rank].Host].called, does))
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
